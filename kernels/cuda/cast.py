"""cast on CUDA: between integers, booleans, float32 and the 16-bit floats. kernels/reference/cast.py says what it computes."""

from __future__ import annotations

from ..cast import Cast
from ..factory import register
from ..indexing import whole
from .elementwise.steps import prelude
from .launch import Device
from .nest import Element, nest

REAL = {"f32": "{}", "f16": "f16_to_f32({})", "bf16": "bf16_to_f32({})"}
INTEGERS = ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64")
WHOLE = {"s32": "whole_s32", "u64": "whole_u64"}
EXACT = ("bool", "u8", "s8", "u16", "s16", "s32")  # that one instruction makes a float32 of


def refuses(kernel: Cast) -> str | None:
    """Why CUDA has no cast of a pair of types, or None."""
    source, dtype = kernel.source, kernel.dtype
    to_whole = dtype in INTEGERS or dtype == "bool"
    if source in REAL and (dtype in REAL or to_whole):
        return None
    if (source in INTEGERS or source == "bool") and (to_whole or (dtype == "f32" and source in EXACT)):
        return None
    return f"cast of {source} to {dtype} has no CUDA kernel"


def result_of(kernel: Cast) -> str:
    """The expression of an element."""
    source, dtype = kernel.source, kernel.dtype
    if dtype == "bool":
        nothing = "np.float32(0)" if source in REAL else "np.uint64(0)" if source == "u64" else "0"
        return f"1 if {{x}} != {nothing} else 0"
    if dtype == "f32":
        return "{x}" if source in REAL else "ptx.to_float(np.int32({x}))"
    if dtype in REAL:
        return f"{dtype}_bits({{x}})"
    if source in REAL:
        return WHOLE.get(dtype, "whole_s64") + "({x})"
    return "{x}"


@register("cast", backend="cuda", requires=refuses)
def build(kernel: Cast) -> Device:
    source = kernel.source
    widen = {"x": REAL[source]} if source in REAL else {"x": "(1 if {} != 0 else 0)"} if source == "bool" else {}
    same = source == kernel.dtype and source != "bool"
    result = "{x}" if same else result_of(kernel)
    operands = [("x", whole(kernel.rank))]
    return nest(Element(kernel.rank, operands, result, {} if same else widen, prelude=prelude(result), name="cast"))
