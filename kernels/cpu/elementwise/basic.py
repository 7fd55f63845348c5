"""add, relu and clip on the CPU, one element at a time.

kernels/reference/elementwise/basic.py says what they compute.
"""

from __future__ import annotations

from ....primitives import dtypes
from ...elementwise import Add, AddQuantized, Clip, Relu
from ...factory import WithParams, register
from ...indexing import whole
from ..nest import Element, nest


def add_element(kernel: Add) -> Element:
    return Element(
        kernel.rank,
        [("a", kernel.a), ("b", kernel.b)],
        result=f"np.{dtypes.get(kernel.dtype).numpy}({{a}} + {{b}})",  # Numba adds two int32 as int64
    )


def add_quantized_element(kernel: AddQuantized) -> Element:
    codes = dtypes.get(kernel.dtype)
    real = "(dequantized({a}, {a_scale}, {a_zero_point}) + dequantized({b}, {b_scale}, {b_zero_point}))"
    params = [
        (slot, kernel.params[n])
        for n, pair in enumerate((("a_scale", "a_zero_point"), ("b_scale", "b_zero_point"), ("scale", "zero_point")))
        for slot in pair
    ]
    return Element(
        kernel.rank,
        [("a", kernel.a), ("b", kernel.b), *params],
        result=f"saturate_narrow(rint32({real} / {{scale}}), {{zero_point}}, {int(codes.min)}, {int(codes.max)})",
        doubt=[((slot,), f"bad_scale({{{slot}}})") for slot in ("a_scale", "b_scale", "scale")],
    )


def relu_element(kernel: Relu) -> Element:
    return Element(
        kernel.rank,
        [("x", whole(kernel.rank)), ("zero_point", kernel.zero_point)],
        result="{zero_point} if {x} <= {zero_point} else {x}",
    )


def clip_element(kernel: Clip) -> Element:
    return Element(
        kernel.rank,
        [("x", whole(kernel.rank)), ("lo", kernel.lo), ("hi", kernel.hi)],
        result="bounded({x}, {lo}, {hi})",
    )


@register("add", backend="cpu")
def build_add(kernel: Add) -> WithParams:
    return nest(add_element(kernel))


@register("add_quantized", backend="cpu")
def build_add_quantized(kernel: AddQuantized) -> WithParams:
    return nest(add_quantized_element(kernel))


@register("relu", backend="cpu")
def build_relu(kernel: Relu) -> WithParams:
    return nest(relu_element(kernel))


@register("clip", backend="cpu")
def build_clip(kernel: Clip) -> WithParams:
    return nest(clip_element(kernel))
