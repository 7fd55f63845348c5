"""add, relu and clip, on real numbers and on codes."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from ..arithmetic import to_f32
from ..quantize import saturate


def add(a: ArrayLike, b: ArrayLike) -> NDArray:
    """Sum of two arrays of one type, broadcast: out = a + b.

    float32: one rounded addition. Integers: modulo 2**bits.
    """
    a, b = np.asarray(a), np.asarray(b)
    with np.errstate(all="ignore"):
        return np.add(a, b, dtype=a.dtype)


def add_quantized(
    a: ArrayLike,
    b: ArrayLike,
    a_scale: ArrayLike,
    a_zero_point: ArrayLike,
    b_scale: ArrayLike,
    b_zero_point: ArrayLike,
    scale: ArrayLike,
    zero_point: ArrayLike,
    *,
    lo: int,
    hi: int,
    dtype: DTypeLike,
) -> NDArray:
    """Sum of two quantized arrays, quantized again.

        real = float32(a - a_zero_point) * a_scale + float32(b - b_zero_point) * b_scale
        out  = clip(rint(real / scale) + zero_point, lo, hi)

    a, b          integer codes, broadcast against each other
    *_scale       float32 > 0, scale: of the result; each one value, or an array that broadcasts with the result
    *_zero_point  integers, likewise
    lo, hi        the codes' range
    dtype         of the result

    Each product, the sum and the division round once to float32; rint goes to even. NaN gives the zero point.
    Source: ONNX Runtime, com.microsoft.QLinearAdd (whose vector code folds the scales first and can differ by one).
    """
    with np.errstate(all="ignore"):
        x = (np.asarray(a).astype(np.int64) - np.asarray(a_zero_point).astype(np.int64)).astype(np.float32)
        y = (np.asarray(b).astype(np.int64) - np.asarray(b_zero_point).astype(np.int64)).astype(np.float32)
        real = x * to_f32(a_scale) + y * to_f32(b_scale)
        r = np.rint(real / to_f32(scale))
    return saturate(r, np.asarray(zero_point).astype(np.int64), lo, hi, dtype)


def relu(x: ArrayLike, zero_point: ArrayLike = 0) -> NDArray:
    """What is below zero becomes zero: out = zero_point where x <= zero_point, else x.

    x           float32 or integer, any shape
    zero_point  of x's type, one value: the code that stands for real 0

    A float NaN stays NaN; -0.0 becomes +0.0.
    """
    x = np.asarray(x)
    zero = np.asarray(zero_point).astype(x.dtype)
    return np.where(x <= zero, zero, x)


def clip(x: ArrayLike, lo: ArrayLike, hi: ArrayLike) -> NDArray:
    """Bound every element: out = lo where x < lo, hi where x > hi, else x.

    x       float32 or integer, any shape
    lo, hi  of x's type, one value each or arrays that broadcast to x; where lo > hi the result is hi

    A float NaN stays NaN.
    """
    x = np.asarray(x)
    lo, hi = np.asarray(lo).astype(x.dtype), np.asarray(hi).astype(x.dtype)
    raised = np.where(x < lo, lo, x)
    return np.where(raised > hi, hi, raised)
