"""requantize: scale int32 accumulators down to codes."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from .blocks import spread
from .quantize import saturate

SMALLEST = (1 << 30, -31)  # 2**-32: every int32 accumulator rounds to 0


def requantize_float(
    acc: ArrayLike,
    multiplier: ArrayLike,
    zero_point: ArrayLike = 0,
    *,
    lo: ArrayLike,
    hi: ArrayLike,
    dtype: DTypeLike,
    blocks: tuple[int, ...] | None = None,
    zero_point_blocks: tuple[int, ...] | None = None,
) -> NDArray:
    """Scale int32 accumulators down to codes, with a float32 multiplier.

        out = clip(rint(float32(acc) * multiplier) + zero_point, lo, hi)

    acc         int32, any shape, in units of scale_a * scale_b
    multiplier  float32, scale_a * scale_b / scale_out; its shape follows from `blocks` (see blocks.spread)
    zero_point  integer, the code that stands for real 0; its shape follows from `zero_point_blocks`
    lo, hi      integers: the codes' range, narrower for a clip or a relu (lo = zero_point)
    dtype       of the result

    acc is rounded to float32 first (exact up to 2**24), then one float32 product, ties to even. The zero point is
    added as an integer, after saturating, so nothing wraps. A NaN multiplier gives the zero point.
    Source: ONNX Runtime, MlasRequantizeOutput.
    """
    acc = np.asarray(acc)
    rank = (0,) * acc.ndim
    m = spread(np.asarray(multiplier, np.float32), acc.shape, blocks or rank)
    zp = spread(np.asarray(zero_point).astype(np.int64), acc.shape, zero_point_blocks or rank)
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
    blocks: tuple[int, ...] | None = None,
    zero_point_blocks: tuple[int, ...] | None = None,
) -> NDArray:
    """Scale int32 accumulators down to codes, with integers only.

        out = clip(round(acc * multiplier * 2**(shift - 31)) + zero_point, lo, hi)

    acc         int32, any shape, in units of scale_a * scale_b
    multiplier  int32, fixed point, 1.0 is 2**31; 2**30 .. 2**31 - 1; its shape follows from `blocks`
    shift       int32, left exponent, -31 .. 30; shaped as multiplier
    zero_point  integer, the code that stands for real 0; its shape follows from `zero_point_blocks`
    lo, hi      integers: the codes' range
    dtype       of the result

    One rounding, ties up: (acc * multiplier + 2**(t - 1)) >> t with t = 31 - shift, in int64 (at most 2**62 + 2**61).
    gemmlowp rounds twice and differs by one on some values.
    Source: ruy/apply_multiplier.cc, MultiplyByQuantizedMultiplier.
    Raises ValueError if multiplier or shift is out of range.
    """
    acc = np.asarray(acc)
    check_fixed(multiplier, shift)
    rank = (0,) * acc.ndim
    m = spread(np.asarray(multiplier, np.int64), acc.shape, blocks or rank)
    t = 31 - spread(np.asarray(shift, np.int64), acc.shape, blocks or rank)
    zp = spread(np.asarray(zero_point).astype(np.int64), acc.shape, zero_point_blocks or rank)
    rounded = (acc.astype(np.int64) * m + (np.int64(1) << (t - 1))) >> t
    return np.clip(rounded + zp, lo, hi).astype(dtype)


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


def quantize_multiplier(real: float) -> tuple[int, int]:
    """The (multiplier, shift) whose multiplier * 2**(shift - 31) is nearest to a real ratio.

    real      0 < real < 2**30
    returns   multiplier in 2**30 .. 2**31 - 1, shift in -31 .. 30

    A mantissa that rounds up to 2**31 is halved and the shift raised by one. A ratio below 2**-32 becomes 2**-32:
    either gives 0 for every int32 accumulator.
    Source: TensorFlow Lite, QuantizeMultiplier.
    Raises ValueError for a ratio that is not finite, not positive, or 2**30 and above.
    """
    real = float(real)
    if not math.isfinite(real) or real <= 0:
        raise ValueError(f"ratio {real} is not finite and positive")
    mantissa, shift = math.frexp(real)  # mantissa in [0.5, 1)
    multiplier = math.floor(mantissa * 2.0**31 + 0.5)
    if multiplier == 1 << 31:
        multiplier, shift = 1 << 30, shift + 1
    if shift > 30:
        raise ValueError(f"ratio {real} is too large for fixed point: below 2**30 works; use arithmetic='float'")
    return (multiplier, shift) if shift >= -31 else SMALLEST
