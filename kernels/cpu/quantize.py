"""quantize and dequantize on the CPU, one element at a time.

kernels/reference/quantize.py says what they compute.
"""

from __future__ import annotations

from ...primitives import dtypes
from ..factory import register
from ..forge import Native
from ..indexing import whole
from ..quantize import Dequantize, Quantize
from .nest import Element, nest

WIDEN = {"f32": "{}", "f16": "f16_to_f32({})", "bf16": "bf16_to_f32({})"}


def quantize_element(kernel: Quantize) -> Element:
    codes = dtypes.get(kernel.dtype)
    seeded = kernel.rounding == "stochastic"
    saturate = "saturate_wide" if codes.bits > 16 else "saturate_narrow"
    seed, flat = ("{seed}", "flat") if seeded else ("0", "0")
    rounded = f"{kernel.rounding}({{x}} / {{scale}}, {seed}, {flat})"
    return Element(
        kernel.rank,
        [
            ("x", whole(kernel.rank)),
            ("scale", kernel.scale),
            ("zero_point", kernel.zero_point),
            *([("seed", ())] if seeded else []),
        ],
        result=f"{saturate}({rounded}, {{zero_point}}, {int(codes.min)}, {int(codes.max)})",
        widen={"x": WIDEN[kernel.source]},
        doubt=[(("scale",), "bad_scale({scale})")],
    )


def dequantize_element(kernel: Dequantize) -> Element:
    wide = "np.int64" if kernel.source == "s32" else "np.int32"
    return Element(
        kernel.rank,
        [("x", whole(kernel.rank)), ("scale", kernel.scale), ("zero_point", kernel.zero_point)],
        result=f"np.float32({wide}({wide}({{x}}) - {wide}({{zero_point}}))) * {{scale}}",
        doubt=[(("scale",), "bad_scale({scale})")],
    )


@register("quantize", backend="cpu")
def build(kernel: Quantize) -> Native:
    return nest(quantize_element(kernel))


@register("dequantize", backend="cpu")
def build_dequantize(kernel: Dequantize) -> Native:
    return nest(dequantize_element(kernel))
