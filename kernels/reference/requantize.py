"""requantize: scale int32 accumulators down to codes."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from .granularity import Index, spread
from .quantize import saturate


def requantize_float(
    acc: ArrayLike,
    multiplier: ArrayLike,
    zero_point: ArrayLike = 0,
    *,
    lo: ArrayLike,
    hi: ArrayLike,
    dtype: DTypeLike,
    multiplier_index: Index | None = None,
    zero_point_index: Index | None = None,
) -> NDArray:
    """Scale int32 accumulators down to codes, with a float32 multiplier.

        out = clip(rint(float32(acc) * multiplier) + zero_point, lo, hi)

    acc         int32, any shape, in units of scale_a * scale_b
    multiplier  float32, finite, not negative: scale_a * scale_b / scale_out; laid out by `multiplier_index`
                (see granularity.spread)
    zero_point  integer, the code that stands for real 0; laid out by `zero_point_index`
    lo, hi      integers: the codes' range, narrower for a clip or a relu (lo = zero_point)
    dtype       of the result

    acc is rounded to float32 first (exact up to 2**24), then one float32 product, ties to even. The zero point is
    added as an integer, after saturating, so nothing wraps.
    Source: ONNX Runtime, MlasRequantizeOutput.
    Raises ValueError for a multiplier that is negative or not finite.
    """
    acc = np.asarray(acc)
    m = spread(check_multiplier(multiplier), acc.shape, multiplier_index)
    zp = spread(np.asarray(zero_point).astype(np.int64), acc.shape, zero_point_index)
    with np.errstate(all="ignore"):
        r = np.rint(acc.astype(np.float32) * m)
    return saturate(r, zp, lo, hi, dtype)


def requantize_fixed(
    acc: ArrayLike,
    multiplier: ArrayLike,
    shift: ArrayLike,
    zero_point: ArrayLike = 0,
    *,
    lo: ArrayLike,
    hi: ArrayLike,
    dtype: DTypeLike,
    multiplier_index: Index | None = None,
    zero_point_index: Index | None = None,
) -> NDArray:
    """Scale int32 accumulators down to codes, with integers only.

        out = clip(round(acc * multiplier * 2**(shift - 31)) + zero_point, lo, hi)

    acc         int32, any shape, in units of scale_a * scale_b
    multiplier  int32, fixed point, 1.0 is 2**31; 2**30 .. 2**31 - 1; laid out by `multiplier_index`
    shift       int32, left exponent, -31 .. 30; shaped as multiplier
    zero_point  integer, the code that stands for real 0; laid out by `zero_point_index`
    lo, hi      integers: the codes' range
    dtype       of the result

    One rounding, ties up: (acc * multiplier + 2**(t - 1)) >> t with t = 31 - shift, in int64 (at most 2**62 + 2**61).
    gemmlowp rounds twice and differs by one on some values.
    Source: ruy/apply_multiplier.cc, MultiplyByQuantizedMultiplier.
    Raises ValueError if multiplier or shift is out of range.
    """
    acc = np.asarray(acc)
    check_fixed(multiplier, shift)
    m = spread(np.asarray(multiplier, np.int64), acc.shape, multiplier_index)
    t = 31 - spread(np.asarray(shift, np.int64), acc.shape, multiplier_index)
    zp = spread(np.asarray(zero_point).astype(np.int64), acc.shape, zero_point_index)
    rounded = (acc.astype(np.int64) * m + (np.int64(1) << (t - 1))) >> t
    return np.clip(rounded + zp, lo, hi).astype(dtype)


def check_multiplier(multiplier: ArrayLike) -> NDArray[np.float32]:
    """The multipliers as float32. Raises ValueError for one that is negative or not finite."""
    m = np.asarray(multiplier, np.float32)
    bad = ~((m >= 0) & (m < np.inf))
    if bad.any():
        raise ValueError(f"multiplier {m[bad].flat[0]} is negative or not finite as float32")
    return m


def check_fixed(multiplier: ArrayLike, shift: ArrayLike) -> None:
    """Raise ValueError unless every multiplier is in 2**30 .. 2**31 - 1 and every shift in -31 .. 30."""
    m, s = np.asarray(multiplier), np.asarray(shift)
    for name, values, low, high in (("multiplier", m, 1 << 30, (1 << 31) - 1), ("shift", s, -31, 30)):
        if values.dtype.kind not in "iu":
            raise ValueError(f"{name} is {values.dtype}; fixed-point arithmetic takes integers")
        bad = (values < low) | (values > high)
        if bad.any():
            found = values[bad].flat[0]
            raise ValueError(f"{name} {found} is outside {low} .. {high}; quantize_multiplier(real) gives a valid pair")
