"""Dynamic quantization on CUDA: a row is read for its extremes, then for its codes.

kernels/reference/reduce/dynamic.py says what the steps compute.
"""

from __future__ import annotations

import numpy as np

from ...factory import register
from ...reduce import DynamicQuantize, Extremes, Parameters
from ...reference.reduce.dynamic import code_range
from .. import ptx
from ..launch import Device
from ..seam import device
from ..vectormath import fabs, maximum
from .rows import WIDEN, RowKernel, each, fold, once
from .steps import PRELUDE

_ZERO, _ONE, _INFINITY = np.float32(0), np.float32(1), np.float32(np.inf)


@device
def usable(scale):
    return scale if _ZERO < scale and scale < _INFINITY else _ONE


@device
def symmetric_scale(lo, hi, high):
    return usable(ptx.div(maximum(fabs(lo), fabs(hi)), np.float32(high)))


@device
def affine_scale(lo, hi, low, high):
    steps = np.float32(high - low)
    top = hi if hi > _ZERO else _ZERO
    bottom = lo if lo < _ZERO else _ZERO
    scale = ptx.div(ptx.sub(top, bottom), steps)
    if scale == _INFINITY:
        scale = ptx.sub(ptx.div(top, steps), ptx.div(bottom, steps))
    return usable(scale)


@device
def affine_zero(lo, scale, low, high):
    bottom = lo if lo < _ZERO else _ZERO
    at = ptx.rint(ptx.sub(np.float32(low), ptx.div(bottom, scale)))
    return min(max(np.int64(ptx.to_int(at)), low), high) if at == at else np.int64(low)


_IMPORT = f"from {__name__} import affine_scale, affine_zero, symmetric_scale\n"


def _parameters(dtype: str, symmetric: bool, lo: str, hi: str) -> list[str]:
    low, high = code_range(dtype, symmetric)
    if symmetric:
        middle = 128 if dtype == "u8" else 0
        return [f"scale_value = symmetric_scale({lo}, {hi}, {high - middle})", f"zero_value = {middle}"]
    return [
        f"scale_value = affine_scale({lo}, {hi}, {low}, {high})",
        f"zero_value = affine_zero({lo}, scale_value, {low}, {high})",
    ]


@register("dynamic_quantize", backend="cuda")
def build(kernel: DynamicQuantize) -> Device:
    low, high = code_range(kernel.dtype, kernel.symmetric)
    x = WIDEN[kernel.source].format("<x>")
    body = [
        *fold("lo", "min", x),
        *fold("hi", "max", x),
        *_parameters(kernel.dtype, kernel.symmetric, "lo", "hi"),
        *each(f"<y> = saturate_narrow(ptx.rint(ptx.div({x}, scale_value)), zero_value, {low}, {high})"),
        *once("<scale> = scale_value", "<zero_point> = zero_value"),
    ]
    return RowKernel(
        "dynamic_quantize", 1, body, PRELUDE + _IMPORT, full=("y",), places=("scale", "zero_point")
    ).device()


@register("extremes", backend="cuda")
def build_extremes(kernel: Extremes) -> Device:
    x = WIDEN[kernel.source].format("<x>")
    body = [*fold("lo_value", "min", x), *fold("hi_value", "max", x), *once("<lo> = lo_value", "<hi> = hi_value")]
    return RowKernel("extremes", kernel.reduced, body, PRELUDE, places=("lo", "hi")).device()


@register("quantization_parameters", backend="cuda")
def build_parameters(kernel: Parameters) -> Device:
    body = [
        *_parameters(kernel.dtype, kernel.symmetric, "<x>", "<hi>"),
        *once("<scale> = scale_value", "<zero_point> = zero_value"),
    ]
    return RowKernel(
        "quantization_parameters", 0, body, PRELUDE + _IMPORT, numbers=("hi",), places=("scale", "zero_point")
    ).device()
