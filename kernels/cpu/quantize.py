"""quantize and dequantize on the CPU, one element at a time.

kernels/reference/quantize.py says what they compute.
"""

from __future__ import annotations

from dataclasses import replace

from ...primitives import dtypes
from ..factory import WithParams, register
from ..indexing import whole
from ..quantize import Dequantize, Quantize
from . import isa as levels
from .nest import Element, nest

GROUP = 128
_GET = {"f32": "get_f32({})", "f16": "f16_to_f32(get_u16({}))", "bf16": "bf16_to_f32(get_u16({}))"}
_BY_PRODUCT = """
from {package}.simd import get_f32, get_u16, put_{dtype}


@njit(nogil=True, error_model="numpy")
def by_product(length, y_at, x_at, scale, zero_point):
    inverse = np.float32(np.float32(1) / scale)
    low, high = np.float32({low} - np.int32(zero_point)), np.float32({high} - np.int32(zero_point))
    near_tie = np.float32(0.5 - 2.0**-13).view(np.uint32)
    usual = scale > np.float32(2.0**-100) and scale < np.float32(2.0**100)
    for first in range(0, length // {group} * {group}, {group}):
        apart = np.uint32(0)
        for n in range(first, first + {group}):
            guess = np.float32({x} * inverse)
            guess = low if guess < low else guess
            guess = high if guess > high else guess
            number = nearest32(guess)
            off = np.float32(abs(np.float32(np.float32(number) - guess))).view(np.uint32)  # NaN is above all numbers
            apart = off if off > apart else apart
            put_{dtype}(y_at, n, np.{kind}(np.int32(number + np.int32(zero_point))))
        # Three roundings, of the inverse, the product and the quotient, keep guess and quotient within 1.5 * 2**-23 of
        # each other: of what does not saturate, below 2**9, less than 2**-13. Only a tie as near tells them apart.
        if apart > near_tie or not usual:
            for n in range(first, first + {group}):
                put_{dtype}(y_at, n, np.{kind}({exact}))
"""
WIDEN = {"f32": "{}", "f16": "f16_to_f32({})", "bf16": "bf16_to_f32({})"}


def _by_product(kernel: Quantize, element: Element, isa: str | None) -> Element:
    """With text that quantizes runs of elements with one scale by its inverse, as a division costs more than the rest.

    A group with an element that may be rounded to another code than the quotient would be is divided.
    """
    if kernel.dtype in ("u8", "s8") and kernel.rounding == "half_even":
        text = f"from {__package__}.reduce.code_runs import run_quantizer\n\n"
        run = f"quantize_run = run_quantizer({kernel.source!r}, {kernel.dtype!r}, {levels.select(isa).name!r})\n"
        return replace(element, prelude=text + run, run="quantize_run")
    if kernel.dtype not in ("u8", "s8") or kernel.rounding not in ("half_away", "half_up"):
        return element
    codes = dtypes.get(kernel.dtype)
    x = _GET[kernel.source].format("x_at, n")
    text = _BY_PRODUCT.format(
        package=__package__,
        group=GROUP,
        dtype=kernel.dtype,
        kind=codes.numpy,
        x=x,
        low=int(codes.min),
        high=int(codes.max),
        exact=element.result.format(x=x, scale="scale", zero_point="zero_point"),
    )
    return replace(element, prelude=text, groups=(GROUP, "by_product"))


def quantize_element(kernel: Quantize) -> Element:
    codes = dtypes.get(kernel.dtype)
    seeded = kernel.rounding == "stochastic"
    saturate = "saturate_wide" if codes.bits > 16 else "saturate_narrow"
    seed, flat = ("{seed}", "flat") if seeded else ("0", "0")
    rounded = f"{kernel.rounding}({{x}} / {{scale}}, {seed}, {flat})"
    result = f"{saturate}({rounded}, {{zero_point}}, {int(codes.min)}, {int(codes.max)})"
    return Element(
        kernel.rank,
        [
            ("x", whole(kernel.rank)),
            ("scale", kernel.scale),
            ("zero_point", kernel.zero_point),
            *([("seed", ())] if seeded else []),
        ],
        result=result,
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
def build(kernel: Quantize, isa: str | None = None) -> WithParams:
    return nest(_by_product(kernel, quantize_element(kernel), isa))


@register("dequantize", backend="cpu")
def build_dequantize(kernel: Dequantize) -> WithParams:
    return nest(dequantize_element(kernel))
