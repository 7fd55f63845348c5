"""cast: elements in another type (ONNX Cast; small floats as ml_dtypes rounds them)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...primitives import dtypes

BITS = {"u4": 4, "s4": 4, "u2": 2, "s2": 2, "u4b": 4, "s4b": 4, "u2b": 2, "s2b": 2}


def cast(x: NDArray[Any], dtype: str, saturate: bool = True, scale_rounding: str = "half_up") -> NDArray[Any]:
    """Return x as another type.

    To bool: whether it is not zero. Between integers: the low bits. From real numbers to integers: toward zero; what
    the type does not hold becomes -2**31 for s32, and for all others the low bits of a conversion to s64, in which NaN
    and what lies beyond is -2**63; u64 holds what is below 2**64. To u4 s4 u2 s2: the low bits of such a conversion,
    one code an element.
    To real numbers: to the nearest, ties to even, once. Small floats (f8.., f6.., f4..): with `saturate` what they
    cannot hold, infinity too, becomes their largest finite value; else what ml_dtypes gives.
    """
    kind = dtypes.get(dtype)
    with np.errstate(all="ignore"):
        if dtype == "bool":
            return np.asarray(x.astype(np.float64) != 0 if x.dtype.kind == "V" else x != 0)
        if kind.kind in ("uint", "int"):
            whole = _whole(x)
            if dtype == "s32" and _is_real(x):
                inside = (whole >= -(2**31)) & (whole < 2**31)
                whole = np.where(inside, whole, -(2**31))
            if dtype == "u64" and _is_real(x):
                wide = np.trunc(x.astype(np.float64))
                high = (wide >= 2.0**63) & (wide < 2.0**64)
                return np.where(high, np.where(high, wide, 0).astype(np.uint64), whole.astype(np.uint64))
            if dtype in BITS:
                low = whole.astype(np.uint64) & np.uint64((1 << BITS[dtype]) - 1)
                codes = low.astype(np.int64)
                if dtype[0] == "s":
                    codes = np.where(codes >= 1 << (BITS[dtype] - 1), codes - (1 << BITS[dtype]), codes)
                return codes.astype(kind.code).astype(kind.numpy if not kind.packed else kind.code)
            return whole.astype(kind.numpy)
        if kind.kind == "scale" and scale_rounding != "half_up":
            return _power_of_two(_real(x, dtypes.get("f32"), False), kind, scale_rounding)
        return _real(x, kind, saturate)


def _is_real(x: NDArray[Any]) -> bool:
    return x.dtype.kind == "f" or (x.dtype.kind == "V" and "int" not in x.dtype.name)


def _whole(x: NDArray[Any]) -> NDArray[Any]:
    if not _is_real(x):
        return x.astype(np.uint64) if x.dtype == np.uint64 else x.astype(np.int64)
    wide = np.trunc(x.astype(np.float64))
    held = (wide >= -(2.0**63)) & (wide < 2.0**63)
    return np.where(held, np.where(held, wide, 0).astype(np.int64), np.int64(-(2**63)))


def _real(x: NDArray[Any], kind: Any, saturate: bool) -> NDArray[Any]:
    if kind.name in ("f64", "f32"):
        return x.astype(kind.numpy)
    wide = to_odd(x.astype(np.float64)) if x.dtype != np.float32 else x
    y = wide.astype(kind.numpy)
    if kind.bits <= 8 and kind.kind == "float" and saturate:
        largest = np.float32(kind.max)
        beyond = np.abs(wide) > largest
        y = np.where(beyond, np.copysign(largest, wide).astype(kind.numpy), y)
    return y


def _power_of_two(x: NDArray[np.float32], kind: Any, rounding: str) -> NDArray[Any]:
    """The next power of two above or below, from 2**-127, which zero becomes; NaN for what is negative or infinite."""
    fraction, exponent = np.frexp(np.where(np.isfinite(x) & (x > 0), x, 1).astype(np.float64))
    power = exponent - 1 if rounding == "down" else exponent - (fraction == 0.5)
    codes = np.where(power > 127, 255, np.clip(power + 127, 0, 254)).astype(np.uint8)
    codes = np.where(x == 0, np.uint8(0), codes)
    return np.where(np.isfinite(x) & (x >= 0), codes, np.uint8(255)).view(kind.numpy)


def to_odd(x: NDArray[np.float64]) -> NDArray[np.float32]:
    """float64 to float32 rounded to odd: rounding that once more to few bits is as good as rounding x itself.

    Source: S. Boldo and G. Melquiond, "When double rounding is odd", 2005.
    """
    y = x.astype(np.float32)
    back = y.astype(np.float64)
    toward_zero = np.where(np.abs(back) > np.abs(x), np.nextafter(y, np.float32(0)), y)
    inexact = (toward_zero.astype(np.float64) != x) & np.isfinite(x)
    odd = (toward_zero.view(np.uint32) | inexact.astype(np.uint32)).view(np.float32)
    return np.where(np.isfinite(x), odd, y)
