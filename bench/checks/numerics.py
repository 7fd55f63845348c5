"""Where other libraries' numbers differ from ours, counted: python -m tilework.bench.checks.numerics

Prints the tables of docs/numerics.md as Markdown. Each row gives the same inputs to tilework and to a peer and counts
the outputs that are not equal to the bit; a peer that is not installed is left out and said.
"""

from __future__ import annotations

import importlib
import math
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np

from ...executors import eager

F32 = np.float32


def ties(scale: float, zero: int) -> Any:
    """Numbers in the middle between two codes, before and after the ends of u8 at this scale and zero point."""
    return ((np.arange(-300, 300) - zero + F32(0.5)) * F32(scale)).astype(F32)


def numbers(n: int = 200_000) -> Any:
    """Random float32 of usual size."""
    return np.random.default_rng(7).normal(0, 20, n).astype(F32)


SMALL = {
    "f8e4m3fn": "float8_e4m3fn",
    "f8e5m2": "float8_e5m2",
    "bf16": "bfloat16",
    "f6e2m3fn": "float6_e2m3fn",
    "f4e2m1fn": "float4_e2m1fn",
}
SPECIAL = np.array([np.nan, np.inf, -np.inf, 3e38, -3e38, -0.0], F32)


def differing(ours: Any, theirs: Any) -> str:
    """How many elements differ, of how many, and the first pair."""
    ours, theirs = np.asarray(ours).reshape(-1), np.asarray(theirs).reshape(-1)
    both_nan = np.isnan(ours.astype(np.float64)) & np.isnan(theirs.astype(np.float64))
    at = np.flatnonzero((ours != theirs) & ~both_nan)
    if not at.size:
        return f"0 of {ours.size}"
    return f"{at.size} of {ours.size}: {ours[at[0]]} here, {theirs[at[0]]} there"


# Peers ---------------------------------------------------------------------------------------------------------------


def onnxruntime_node(op: str, opset: int = 21, attributes: Any = None, domain: str = "") -> Callable[..., list[Any]]:
    """A call of one ONNX operator in ONNX Runtime: arrays in, arrays out."""
    import onnx
    import onnxruntime

    def run(*arrays: Any, outputs: int = 1) -> list[Any]:
        names = [f"x{n}" for n in range(len(arrays))]
        made = [f"y{n}" for n in range(outputs)]
        kinds = [onnx.helper.np_dtype_to_tensor_dtype(np.asarray(a).dtype) for a in arrays]
        graph = onnx.helper.make_graph(
            [onnx.helper.make_node(op, names, made, domain=domain, **(attributes or {}))],
            "one",
            [
                onnx.helper.make_tensor_value_info(n, k, np.shape(a))
                for n, k, a in zip(names, kinds, arrays, strict=True)
            ],
            [onnx.helper.make_empty_tensor_value_info(n) for n in made],
        )
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=10)
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        return list(session.run(None, dict(zip(names, map(np.asarray, arrays), strict=True))))

    return run


def quantizing() -> Iterator[tuple[str, str, str]]:
    """(what, peer, what differs) of quantize to u8."""
    inputs = {
        "ties, zero point 0": (ties(0.5, 0), 0.5, 0),
        "ties, odd zero point": (ties(0.5, 3), 0.5, 3),
        "near ties, scale 0.1": (ties(0.1, 128), 0.1, 128),
        "random numbers, scale 0.1": (numbers(), 0.1, 128),
        "NaN, infinities, 3e38, -0": (SPECIAL, 1.0, 133),
    }
    for what, (x, scale, zero) in inputs.items():
        ours = eager.quantize(x, F32(scale), np.uint8(zero), "u8")
        if has("onnxruntime"):
            theirs = onnxruntime_node("QuantizeLinear")(x, F32(scale), np.uint8(zero))[0]
            yield what, "ONNX Runtime QuantizeLinear", differing(ours, theirs)
        if has("torch"):
            import torch

            t = torch.from_numpy(x)
            per_tensor = torch.quantize_per_tensor(t, scale, zero, torch.quint8).int_repr().numpy()
            yield what, "torch.quantize_per_tensor", differing(ours, per_tensor)
            fake = torch.fake_quantize_per_tensor_affine(t, scale, zero, 0, 255).numpy()
            yield (
                what,
                "torch.fake_quantize_per_tensor_affine",
                differing(eager.dequantize(ours, F32(scale), np.uint8(zero)), fake),
            )


def requantizing() -> Iterator[tuple[str, str, str]]:
    """(what, peer, what differs) of a product of codes requantized to u8."""
    rng = np.random.default_rng(3)
    a, b = rng.integers(0, 256, (400, 64), np.uint8), rng.integers(-127, 128, (64, 400)).astype(np.int8)
    sa, sb, sy = F32(0.02), F32(0.01), F32(0.37)
    acc = eager.gemm(a, b, a_zero_point=np.uint8(120))
    ours = eager.requantize(acc, sa * sb / sy, np.uint8(131), "u8")
    if has("onnxruntime"):
        zero = [np.uint8(120), np.int8(0), np.uint8(131)]
        theirs = onnxruntime_node("QLinearMatMul")(a, sa, zero[0], b, sb, zero[1], sy, zero[2])[0]
        yield "product of 400 x 64 x 400", "ONNX Runtime QLinearMatMul", differing(ours, theirs)


def dynamic() -> Iterator[tuple[str, str, str]]:
    """(what, peer, what differs) of dynamic quantization: codes, and the scale."""
    if not has("onnxruntime"):
        return
    run = onnxruntime_node("DynamicQuantizeLinear")
    for what, x in {
        "random numbers": numbers(10_000),
        "zeros": np.zeros(16, F32),
        "one number": np.full(16, 5.5, F32),
    }.items():
        ours, theirs = eager.dynamic_quantize(x), run(x, outputs=3)
        text = "; ".join(
            f"{name} {differing(o, t)}"
            for name, o, t in zip(("codes", "scale", "zero point"), ours, theirs, strict=True)
        )
        yield what, "ONNX Runtime DynamicQuantizeLinear", text


def casting() -> Iterator[tuple[str, str, str]]:
    """(what, peer, what differs) of float32 to small floats: every 4,099th of all bit patterns."""
    x = np.arange(0, 2**32, 4099, dtype=np.uint32).view(F32)
    for name, kind in SMALL.items():
        numpy_kind = getattr(ml_dtypes, kind)
        with np.errstate(all="ignore"):
            theirs = x.astype(numpy_kind).astype(F32)
        for saturate in (True, False):
            ours = eager.cast(x, name, saturate=saturate).view(numpy_kind).astype(F32)
            yield f"{name}, saturate={saturate}", "ml_dtypes", differing(ours, theirs)
        if has("torch") and kind in ("float8_e4m3fn", "float8_e5m2", "bfloat16"):
            import torch

            there = torch.from_numpy(x).to(getattr(torch, kind)).to(torch.float32).numpy()
            yield f"{name}, saturate=True", "torch", differing(eager.cast(x, name).view(numpy_kind).astype(F32), there)


def functions() -> Iterator[tuple[str, str, str]]:
    """(what, peer, largest distance in ulp) of the vector mathematics."""
    x = np.random.default_rng(1).uniform(-20, 20, 200_000).astype(F32)
    if not has("torch"):
        return
    import torch

    for name in ("exp", "tanh", "sigmoid", "erf", "gelu", "silu"):
        call = getattr(torch.nn.functional, name, None) or getattr(torch, name)
        wide = call(torch.from_numpy(x.astype(np.float64))).numpy()
        if name == "gelu":  # 1 + erf cancels far to the left, in float64 too
            wide = np.array([0.5 * v * math.erfc(-v / math.sqrt(2)) for v in x.astype(np.float64)])
        step = np.spacing(np.abs(wide.astype(F32)).clip(np.finfo(F32).tiny)).astype(np.float64)
        ours = np.abs(getattr(eager, name)(x).astype(np.float64) - wide) / step
        theirs = np.abs(call(torch.from_numpy(x)).numpy().astype(np.float64) - wide) / step
        yield name, "torch, against float64", f"at most {ours.max():.2f} ulp here, {theirs.max():.2f} ulp there"


def has(module: str) -> bool:
    """Whether a peer can be imported."""
    try:
        importlib.import_module(module)
    except ImportError:
        return False
    return True


TABLES: dict[str, Callable[[], Iterator[tuple[str, str, str]]]] = {
    "Quantize to u8": quantizing,
    "Requantize": requantizing,
    "Dynamic quantization": dynamic,
    "Casts of float32": casting,
    "Functions": functions,
}


def main() -> int:
    """Print all tables."""
    warnings.filterwarnings("ignore", category=UserWarning)  # torch says at each call that it will be removed
    for title, rows in TABLES.items():
        print(f"### {title}\n\n| inputs | peer | not equal |\n|---|---|---|")
        for row in rows():
            print("| " + " | ".join(row) + " |", flush=True)
        print()
    absent = [name for name in ("onnxruntime", "torch") if not has(name)]
    if absent:
        print(f"Not installed, and so not compared: {', '.join(absent)}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
