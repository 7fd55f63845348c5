"""quantize and dequantize: between real numbers and integer codes."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from .arithmetic import round_f32, to_f32
from .granularity import Index, spread

_FAR = 2.0**40  # beyond every code, whatever the zero point; exact in float64, and int64 sums with it do not wrap


def quantize(
    x: ArrayLike,
    scale: ArrayLike,
    zero_point: ArrayLike = 0,
    *,
    lo: int,
    hi: int,
    dtype: DTypeLike,
    scale_index: Index | None = None,
    zero_point_index: Index | None = None,
    rounding: str = "half_even",
    seed: int = 0,
) -> NDArray:
    """Turn real numbers into integer codes.

        q = clip(round(x / scale) + zero_point, lo, hi)

    x           f32, f16 or bf16, any shape; widened to float32 exactly
    scale       float32, finite and positive, real units a step; laid out by `scale_index` (see granularity.spread)
    zero_point  integer, the code that stands for real 0; laid out by `zero_point_index`
    lo, hi      the codes' range, e.g. 0, 15 for u4
    dtype       of the result, one code an element
    rounding    see arithmetic.round_f32; half_even is ONNX's
    seed        for rounding="stochastic"

    The division is float32, not a multiplication by 1 / scale and not float64: both give other codes near ties. The
    zero point is added as an integer after rounding, so it cannot move a tie; one clip comes last.
    NaN gives the zero point, infinities saturate.
    Source: ONNX QuantizeLinear (NaN: ours; there it is not defined).
    Raises ValueError for a scale that is not finite and positive.
    """
    x = to_f32(x)
    s = spread(checked_scale(scale), x.shape, scale_index)
    zp = spread(np.asarray(zero_point).astype(np.int64), x.shape, zero_point_index)
    with np.errstate(all="ignore"):
        r = round_f32(x / s, rounding, seed)
    return saturate(r, zp, lo, hi, dtype)


def saturate(r: NDArray[np.float32], zero_point: ArrayLike, lo: ArrayLike, hi: ArrayLike, dtype: DTypeLike) -> NDArray:
    """clip(r + zero_point, lo, hi) of whole float32 numbers r, added as integers; NaN gives the zero point."""
    far = np.clip(np.where(np.isnan(r), 0.0, r.astype(np.float64)), -_FAR, _FAR).astype(np.int64)
    return np.clip(far + np.asarray(zero_point, np.int64), lo, hi).astype(dtype)


def dequantize(
    q: ArrayLike,
    scale: ArrayLike,
    zero_point: ArrayLike = 0,
    *,
    scale_index: Index | None = None,
    zero_point_index: Index | None = None,
) -> NDArray[np.float32]:
    """Turn integer codes back into real numbers.

        x = float32(q - zero_point) * scale

    q           integer codes, any shape
    scale       float32, finite and positive; laid out by `scale_index` (see granularity.spread)
    zero_point  integer; laid out by `zero_point_index`
    returns     float32

    The difference is taken in a wider integer (127 - -128 is 255), rounded once to float32 and multiplied once.
    Source: ONNX DequantizeLinear.
    Raises ValueError for a scale that is not finite and positive.
    """
    q = np.asarray(q)
    s = spread(checked_scale(scale), q.shape, scale_index)
    zp = spread(np.asarray(zero_point).astype(np.int64), q.shape, zero_point_index)
    with np.errstate(all="ignore"):
        return (q.astype(np.int64) - zp).astype(np.float32) * s


def checked_scale(scale: ArrayLike, name: str = "scale") -> NDArray[np.float32]:
    """The scales as float32. Raises ValueError unless each is finite and positive."""
    s = to_f32(scale)
    bad = ~((s > 0) & (s < np.inf))
    if bad.any():
        raise ValueError(f"{name} {s[bad].flat[0]} is not finite and positive as float32")
    return s
