"""Dynamic quantization: a scale from the data itself."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ....primitives import dtypes
from ...factory import Whole, register
from ...reduce import DynamicQuantize, Extremes, Parameters
from ..arithmetic import to_f32
from ..quantize import saturate
from .lanes import fold

_ZERO, _ONE, _INFINITY = np.float32(0), np.float32(1), np.float32(np.inf)


def code_range(dtype: str, symmetric: bool) -> tuple[int, int]:
    """The codes that are used: all, or as many below the zero point (0, or 128 of u8) as above."""
    codes = dtypes.get(dtype)
    return int(codes.min) + symmetric, int(codes.max)


def parameters(lo: ArrayLike, hi: ArrayLike, dtype: str, symmetric: bool) -> tuple[NDArray, NDArray]:
    """Scale (float32) and zero point of the codes that cover lo .. hi and 0.

        affine      scale = (max(hi, 0) - min(lo, 0)) / (qmax - qmin);  zero_point = clip(rint(qmin - min(lo, 0) / scale))
        symmetric   scale = max(|lo|, |hi|) / 127;  zero_point = 0, or 128 of u8

    A scale that would be 0, infinite or NaN is 1, so data of zeros alone decodes exactly.
    Source: ONNX DynamicQuantizeLinear; for zeros alone ONNX Runtime.
    """
    lo, hi = np.asarray(lo, np.float32), np.asarray(hi, np.float32)
    low, high = code_range(dtype, symmetric)
    code = dtypes.get(dtype).numpy
    with np.errstate(all="ignore"):
        if symmetric:
            middle = 128 if dtype == "u8" else 0
            scale = np.maximum(np.abs(lo), np.abs(hi)) / np.float32(high - middle)
            return _usable(scale), np.full(scale.shape, middle, code)
        steps = np.float32(high - low)
        top, bottom = np.where(hi > _ZERO, hi, _ZERO), np.where(lo < _ZERO, lo, _ZERO)
        scale = (top - bottom) / steps
        scale = _usable(np.where(scale == _INFINITY, top / steps - bottom / steps, scale))
        at = np.rint(np.float32(low) - bottom / scale)
        return scale, np.clip(np.where(np.isnan(at), low, at), low, high).astype(code)


def _usable(scale: NDArray) -> NDArray[np.float32]:
    return np.where((scale > _ZERO) & (scale < _INFINITY), scale, _ONE).astype(np.float32)


def dynamic_quantize(x: ArrayLike, dtype: str = "u8", symmetric: bool = False) -> tuple[NDArray, NDArray, NDArray]:
    """Codes of each row (the last axis) with its own scale: codes, scales and zero points, the latter of shape (..).

        out = clip(rint(x / scale) + zero_point)

    x   f32, f16 or bf16 (.., n)
    """
    x = to_f32(x)
    scale, zero_point = parameters(fold(x, "min"), fold(x, "max"), dtype, symmetric)
    low, high = code_range(dtype, symmetric)
    with np.errstate(all="ignore"):
        r = np.rint(x / scale[..., None])
    codes = saturate(r, zero_point.astype(np.int64)[..., None], low, high, dtypes.get(dtype).numpy)
    return codes, scale, zero_point


@register("dynamic_quantize", backend="reference")
def dynamic_quantize_step(kernel: DynamicQuantize) -> Whole:
    def fn(x: Any, y: Any, scale: Any, zero_point: Any, scratch: Any) -> None:
        y[...], scale[...], zero_point[...] = dynamic_quantize(x, kernel.dtype, kernel.symmetric)

    return Whole(fn)


@register("extremes", backend="reference")
def extremes_step(kernel: Extremes) -> Whole:
    def fn(x: Any, lo: Any, hi: Any, scratch: Any) -> None:
        wide = to_f32(x).reshape(*lo.shape, int(np.prod(x.shape[lo.ndim :])))
        lo[...], hi[...] = fold(wide, "min"), fold(wide, "max")

    return Whole(fn)


@register("quantization_parameters", backend="reference")
def parameters_step(kernel: Parameters) -> Whole:
    def fn(lo: Any, hi: Any, scale: Any, zero_point: Any) -> None:
        scale[...], zero_point[...] = parameters(lo, hi, kernel.dtype, kernel.symmetric)

    return Whole(fn)
