"""A fixed corpus of pipelines whose results are known by their hashes: the same on every machine, level and version.

    python -m tilework.bench.checks.hashes              on every executor and instruction set level of this machine
    python -m tilework.bench.checks.hashes --print      what tests/executors/test_hashes.py keeps

Inputs come from integer arithmetic that is written here, not from a random generator that another version may change.
"""

from __future__ import annotations

import argparse
import hashlib
import platform
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from ... import __version__
from ...executors import SingleThreadExecutor, TilingExecutor
from ...executors.schemes import get
from ...kernels import ops
from ...kernels.cpu import isa
from ...primitives.pipeline import Pipeline

Array = np.ndarray[Any, Any]
MEMBERS: dict[str, Callable[[Pipeline], dict[str, Array]]] = {}


def member(make: Callable[[Pipeline], dict[str, Array]]) -> Callable[[Pipeline], dict[str, Array]]:
    """Enter what builds a pipeline and returns its inputs into the corpus."""
    MEMBERS[make.__name__] = make
    return make


def words(n: int, seed: int) -> Array:
    """n uint32 words: a counter through the finalizer of MurmurHash3."""
    x = np.arange(n, dtype=np.uint64) + np.uint64(seed << 20)
    mask = np.uint64(0xFFFFFFFF)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        x = ((x ^ (x >> np.uint64(shift))) * np.uint64(factor)) & mask
    return x.astype(np.uint32)


def codes(dtype: Any, *shape: int, seed: int = 1) -> Array:
    """Codes of a type of one byte."""
    return words(int(np.prod(shape)), seed).astype(np.uint8).view(dtype).reshape(shape)


def reals(*shape: int, seed: int = 2) -> Array:
    """Multiples of 2**-16 in -4..4, which are exact, some of them -0, infinite or NaN."""
    x = (words(int(np.prod(shape)), seed) % np.uint32(1 << 19)).astype(np.float32) / np.float32(65536) - np.float32(4)
    return x.reshape(shape)


def special(*shape: int, seed: int = 2) -> Array:
    """reals() with values that are no usual numbers among them."""
    x = reals(*shape, seed=seed)
    x.reshape(-1)[::11] = np.resize(
        np.array([np.nan, np.inf, -np.inf, -0.0, 1e-40, 3e38], np.float32), x.reshape(-1)[::11].shape
    )
    return x


@member
def int8_layer(pipe: Pipeline) -> dict[str, Array]:
    x = pipe.input("x", "u8", ("M", 67))
    acc = ops.gemm(x, codes(np.int8, 67, 45), a_zero_point=np.uint8(131))
    multiplier = np.float32(2.0) ** (-np.arange(45, dtype=np.float32) % 5 - 7)
    pipe.output("float", ops.requantize(acc, multiplier, 7, "u8"))
    pipe.output("fixed", ops.requantize(acc, multiplier, -3, "s8", arithmetic="fixed"))
    return {"x": codes(np.uint8, 70, 67)}


@member
def float_layer(pipe: Pipeline) -> dict[str, Array]:
    x = pipe.input("x", "f32", ("M", 37))
    pipe.output("y", ops.gelu(ops.gemm(x, reals(37, 33, seed=3))))
    return {"x": reals(35, 37)}


@member
def convolution(pipe: Pipeline) -> dict[str, Array]:
    x = pipe.input("x", "u8", (2, 6, 9, 9))
    y = ops.conv(x, codes(np.int8, 20, 6, 3, 3), pads=[1, 1, 1, 1], strides=[2, 1], a_zero_point=np.uint8(9))
    pipe.output("y", y)
    return {"x": codes(np.uint8, 2, 6, 9, 9)}


@member
def norms(pipe: Pipeline) -> dict[str, Array]:
    x = pipe.input("x", "f32", ("M", 51))
    pipe.output("softmax", ops.softmax(x))
    pipe.output("layer", ops.layer_norm(x))
    return {"x": reals(9, 51)}


@member
def mathematics(pipe: Pipeline) -> dict[str, Array]:
    x = pipe.input("x", "f32", ("N",))
    for name in ("exp", "tanh", "log", "erf"):
        pipe.output(name, getattr(ops, name)(x))
    return {"x": np.concatenate([special(800), words(800, 9).view(np.float32)])}


@member
def codes_of_reals(pipe: Pipeline) -> dict[str, Array]:
    x = pipe.input("x", "f32", ("M", 48))
    scale = np.float32(2.0) ** (-np.arange(48, dtype=np.float32) % 7)
    pipe.output("channel", ops.quantize(x, scale, np.full(48, 3, np.int8), "s8", axis=1))
    pipe.output("drawn", ops.quantize(x, np.float32(0.1), 3, "u8", rounding="stochastic", seed=5))
    pipe.output("f8", ops.cast(x, "f8e4m3fn"))
    pipe.output("bf16", ops.cast(x, "bf16"))
    return {"x": special(21, 48)}


@member
def reductions(pipe: Pipeline) -> dict[str, Array]:
    x = pipe.input("x", "f32", ("M", 77))
    pipe.output("sum", ops.reduce("sum", x, (1,), False))
    pipe.output("argmax", ops.argmax(x, 1, False))
    values, where = ops.topk(x, 5, 1)
    pipe.output("values", values)
    pipe.output("where", where)
    return {"x": reals(13, 77)}


@member
def packed_weights(pipe: Pipeline) -> dict[str, Array]:
    x = pipe.input("x", "f32", ("M", 96))
    weights = get("int4_g32_asym").quantize(reals(17, 96, seed=4))
    pipe.output("f32", ops.linear(x, weights, "f32"))
    pipe.output("int8", ops.linear(x, weights, "int8"))
    return {"x": reals(5, 96)}


@member
def attention(pipe: Pipeline) -> dict[str, Array]:
    q = pipe.input("q", "f32", (1, 2, 19, 16))
    k, v = pipe.input("k", "f32", (1, 1, 23, 16)), pipe.input("v", "f32", (1, 1, 23, 16))
    pipe.output("y", ops.attention(q, k, v, causal=True, scale=0.25))
    return {"q": reals(1, 2, 19, 16), "k": reals(1, 1, 23, 16, seed=5), "v": reals(1, 1, 23, 16, seed=6)}


def digest(results: dict[str, Array]) -> str:
    """A hash of names, types, shapes and elements, least significant byte first; every NaN counts as one value."""
    state = hashlib.sha256()
    for name in sorted(results):
        y = np.ascontiguousarray(results[name])
        if y.dtype.kind == "f":
            y = np.where(np.isnan(y), np.array(np.nan, y.dtype), y)
        if sys.byteorder == "big":
            y = y.byteswap()
        state.update(f"{name}\0{y.dtype.name}\0{y.shape}\0".encode() + y.tobytes())
    return state.hexdigest()[:32]


def found(name: str, executor: Any) -> str:
    """The hash of a member's results on an executor."""
    pipe = Pipeline(name)
    inputs = MEMBERS[name](pipe)
    return digest(executor.run(pipe, inputs))


def main(given: list[str] | None = None) -> int:
    """Run the corpus on everything that there is; 1 where two differ."""
    parser = argparse.ArgumentParser(prog="python -m tilework.bench.checks.hashes", description=__doc__)
    parser.add_argument("--print", action="store_true", help="print the hashes")
    options = parser.parse_args(given)
    right = {name: found(name, SingleThreadExecutor("reference")) for name in MEMBERS}
    if options.print:
        for name, text in right.items():
            print(f'    "{name}": "{text}",')
    wrong = 0
    executors: dict[str, Any] = {"single thread": SingleThreadExecutor(), "tiled on 2": TilingExecutor(2)}
    executors |= {f"tiled, {level.name}": TilingExecutor(2, isa=level.name) for level in isa.available()[:-1]}
    for what, executor in executors.items():
        off = [name for name in MEMBERS if found(name, executor) != right[name]]
        wrong += len(off)
        print(f"{what}: {len(MEMBERS) - len(off)} of {len(MEMBERS)} equal {' '.join(off)}", flush=True)
    whole = hashlib.sha256("".join(right.values()).encode()).hexdigest()[:32]
    print(
        f"{whole} tilework {__version__}, Python {platform.python_version()}, NumPy {np.__version__}, {platform.machine()}"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
