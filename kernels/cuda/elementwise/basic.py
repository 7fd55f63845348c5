"""add, relu and clip on CUDA, one element at a time.

kernels/reference/elementwise/basic.py says what they compute.
"""

from __future__ import annotations

from ....primitives import dtypes
from ...elementwise import Add, AddQuantized, Clip, Relu
from ...factory import register
from ...indexing import whole
from ..launch import Device
from ..nest import Element, nest


def add_element(kernel: Add) -> Element:
    result = {"f32": "ptx.add({a}, {b})", "s32": "np.int32({a} + {b})", "s64": "{a} + {b}"}[kernel.dtype]
    return Element(kernel.rank, [("a", kernel.a), ("b", kernel.b)], result=result, name="add")


def add_quantized_element(kernel: AddQuantized) -> Element:
    codes = dtypes.get(kernel.dtype)
    real = "ptx.add(dequantized({a}, {a_scale}, {a_zero_point}), dequantized({b}, {b_scale}, {b_zero_point}))"
    params = [
        (slot, kernel.params[n])
        for n, pair in enumerate((("a_scale", "a_zero_point"), ("b_scale", "b_zero_point"), ("scale", "zero_point")))
        for slot in pair
    ]
    return Element(
        kernel.rank,
        [("a", kernel.a), ("b", kernel.b), *params],
        result=f"saturate_narrow(ptx.rint(ptx.div({real}, {{scale}})), {{zero_point}}, {int(codes.min)}, {int(codes.max)})",
        doubt=[((slot,), f"bad_scale({{{slot}}})") for slot in ("a_scale", "b_scale", "scale")],
        name="add_quantized",
    )


def relu_element(kernel: Relu) -> Element:
    return Element(
        kernel.rank,
        [("x", whole(kernel.rank)), ("zero_point", kernel.zero_point)],
        result="{zero_point} if {x} <= {zero_point} else {x}",
        name="relu",
    )


def clip_element(kernel: Clip) -> Element:
    return Element(
        kernel.rank,
        [("x", whole(kernel.rank)), ("lo", kernel.lo), ("hi", kernel.hi)],
        result="bounded({x}, {lo}, {hi})",
        name="clip",
    )


@register("add", backend="cuda")
def build_add(kernel: Add) -> Device:
    return nest(add_element(kernel))


@register("add_quantized", backend="cuda")
def build_add_quantized(kernel: AddQuantized) -> Device:
    return nest(add_quantized_element(kernel))


@register("relu", backend="cuda")
def build_relu(kernel: Relu) -> Device:
    return nest(relu_element(kernel))


@register("clip", backend="cuda")
def build_clip(kernel: Clip) -> Device:
    return nest(clip_element(kernel))
