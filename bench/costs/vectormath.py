"""Time of each vector function on an array in L2: ours, a loop over the C library's, and torch's, on the same bytes.

Ours is a bound plan of ops.map on one thread, its dispatch included.

    python -m tilework.bench.costs.vectormath [function ..] [--size 65536]

Contenders run in interleaved blocks; each figure is the 5th percentile over all blocks, in nanoseconds an element.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

from ...executors import TilingExecutor
from ...kernels import ops
from ...kernels.sequence import SEQUENCES
from ...primitives.pipeline import Pipeline

HALF, ONE, SQRT_HALF = np.float32(0.5), np.float32(1), np.float32(math.sqrt(0.5))


@njit
def _sigmoid(x):
    return ONE / (ONE + math.exp(-x))


@njit
def _silu(x):
    return x / (ONE + math.exp(-x))


@njit
def _gelu(x):
    return HALF * x * (ONE + math.erf(x * SQRT_HALF))


@njit
def _gelu_tanh(x):
    return HALF * x * (ONE + math.tanh(np.float32(0.7978846) * (x + np.float32(0.044715) * x * x * x)))


@njit
def _exp2(x):
    return np.exp2(x)


LIBRARY: dict[str, Any] = {
    "exp": math.exp,
    "exp2": _exp2,
    "log": math.log,
    "log2": np.log2,
    "tanh": math.tanh,
    "erf": math.erf,
    "sigmoid": _sigmoid,
    "silu": _silu,
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "rint": np.rint,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
}
FUNCTIONS = (*LIBRARY, "sqrt", "rsqrt", "reciprocal", "round_half_away")
POSITIVE = ("log", "log2", "sqrt", "rsqrt")


def aligned(size: int) -> np.ndarray:
    raw = np.zeros(size * 4 + 64, np.uint8)
    skip = -raw.ctypes.data % 64
    return raw[skip : skip + size * 4].view(np.float32)


def loop(function: Any) -> Callable[..., Any]:
    @njit("void(float32[::1], float32[::1])", error_model="numpy")
    def run(x, y):
        for i in range(x.size):
            y[i] = function(x[i])

    return run


def mapped(name: str, x: np.ndarray, y: np.ndarray) -> Callable[[], Any]:
    """A call that maps the function over x into y."""
    pipe = Pipeline(name)
    pipe.output("y", ops.map(SEQUENCES[name], pipe.input("x", "f32", x.shape)))
    return TilingExecutor(threads=1).compile(pipe).bind({"x": x}, {"y": y})


def torch_calls() -> dict[str, Callable[..., Any]]:
    """torch's functions with an output argument; empty where torch is not installed."""
    try:
        import torch
    except ImportError:
        return {}
    torch.set_num_threads(1)
    found = {n: getattr(torch, n) for n in FUNCTIONS if hasattr(torch, n)}
    aten = torch.ops.aten
    found["rint"] = torch.round
    found["silu"] = lambda x, out: aten.silu.out(x, out=out)
    found["gelu"] = lambda x, out: aten.gelu.out(x, approximate="none", out=out)
    found["gelu_tanh"] = lambda x, out: aten.gelu.out(x, approximate="tanh", out=out)
    return found


def _tensors(*arrays: np.ndarray) -> tuple[Any, ...]:
    import torch

    return tuple(torch.from_numpy(a) for a in arrays)


def p5(contenders: dict[str, Callable[[], Any]], size: int, blocks: int = 9, calls: int = 60) -> dict[str, float]:
    """5th percentile of each contender, in ns an element."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for run in contenders.values():
        run()
    for _ in range(blocks):
        for name, run in contenders.items():
            for _ in range(calls if name != "library" else calls // 6):
                start = time.perf_counter()
                run()
                times[name].append(time.perf_counter() - start)
    return {name: float(np.percentile(t, 5)) / size * 1e9 for name, t in times.items()}


def main(arguments: list[str] | None = None) -> int:
    """Time every function against the C library and, where it is installed, torch."""
    parser = argparse.ArgumentParser(prog="time_vectormath", description=__doc__)
    parser.add_argument("functions", nargs="*", metavar="function", help="all by default")
    parser.add_argument("--size", type=int, default=1 << 16, help="elements of the array")
    asked = parser.parse_args(arguments)
    torch = torch_calls()
    x, y = aligned(asked.size), aligned(asked.size)
    tensors = _tensors(x, y) if torch else ()
    print(f"{'function':16}{'ours ns':>9}{'library':>9}{'torch':>9}{'x library':>11}{'x torch':>9}")
    for name in asked.functions or FUNCTIONS:
        x[:] = np.random.default_rng(0).standard_normal(asked.size) * 3
        if name in POSITIVE:
            np.abs(x, out=x)
        contenders: dict[str, Callable[[], Any]] = {}
        contenders["ours"] = mapped(name, x, y)
        if name in LIBRARY:
            library = loop(LIBRARY[name])
            contenders["library"] = lambda run=library: run(x, y)
        if name in torch:
            contenders["torch"] = lambda run=torch[name]: run(tensors[0], out=tensors[1])
        found = p5(contenders, asked.size)
        line = f"{name:16}{found['ours']:9.3f}"
        for other in ("library", "torch"):
            line += f"{found[other]:9.3f}" if other in found else f"{'-':>9}"
        for other, width in (("library", 11), ("torch", 9)):
            line += f"{found[other] / found['ours']:{width}.2f}" if other in found else f"{'-':>{width}}"
        print(line, flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
