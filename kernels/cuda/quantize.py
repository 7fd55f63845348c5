"""quantize and dequantize on CUDA, one element at a time.

kernels/reference/quantize.py says what they compute.
"""

from __future__ import annotations

from ...primitives import dtypes
from ..factory import register
from ..indexing import whole
from ..quantize import Dequantize, Quantize
from .launch import Device
from .nest import Element, nest

WIDEN = {"f32": "{}", "f16": "f16_to_f32({})", "bf16": "bf16_to_f32({})"}


def quantize_element(kernel: Quantize) -> Element:
    codes = dtypes.get(kernel.dtype)
    seeded = kernel.rounding == "stochastic"
    saturate = "saturate_wide" if codes.bits > 16 else "saturate_narrow"
    seed, flat = ("{seed}", "flat") if seeded else ("0", "0")
    rounded = f"{kernel.rounding}(ptx.div({{x}}, {{scale}}), {seed}, {flat})"
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
        name="quantize",
    )


def dequantize_element(kernel: Dequantize) -> Element:
    return Element(
        kernel.rank,
        [("x", whole(kernel.rank)), ("scale", kernel.scale), ("zero_point", kernel.zero_point)],
        result="dequantized({x}, {scale}, {zero_point})",
        doubt=[(("scale",), "bad_scale({scale})")],
        name="dequantize",
    )


@register("quantize", backend="cuda")
def build(kernel: Quantize) -> Device:
    return nest(quantize_element(kernel))


@register("dequantize", backend="cuda")
def build_dequantize(kernel: Dequantize) -> Device:
    return nest(dequantize_element(kernel))
