"""A scale and a zero point from a range, by the rules of other libraries."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...primitives.errors import ArgumentError, QuantizationError

RULES = ("onnxruntime", "torch", "torchao")
MOST_BITS = 31  # what a zero point of int32 holds
LEAST = {"torch": 2.0**-23, "torchao": 2.0**-126}  # a scale is at least this


def qparams(
    low: ArrayLike,
    high: ArrayLike,
    *,
    rule: str = "onnxruntime",
    bits: int = 8,
    signed: bool = False,
    symmetric: bool = False,
) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """(scale, zero point) of integers for values from low to high, element by element; the range is stretched to hold 0.

    low, high  finite, low <= high
    rule       "onnxruntime": compute_scale_zp of its quantization tools: float64, stored as float32; a range below
               2**-126 has scale 1 and zero point 0. "torch": observers of torch.ao; "torchao": choose_qparams_affine,
               both float32
    symmetric  the same magnitude to both sides; the zero point is in the middle

    Raises ArgumentError for other rules and bits and for shapes that do not fit, QuantizationError for a range that
    is not finite or the wrong way round.
    """
    if rule not in RULES:
        raise ArgumentError(f"qparams has no rule {rule!r}; it has {', '.join(RULES)}")
    if isinstance(bits, bool) or not isinstance(bits, (int, np.integer)) or not 1 <= bits <= MOST_BITS:
        raise ArgumentError(f"qparams of {bits!r} bits; a whole number from 1 to {MOST_BITS} is needed")
    try:
        lo, hi = np.broadcast_arrays(np.asarray(low, np.float32), np.asarray(high, np.float32))
    except ValueError as error:
        raise ArgumentError(f"qparams needs low and high of shapes that fit each other: {error}") from None
    if not (np.isfinite(lo).all() and np.isfinite(hi).all() and (lo <= hi).all()):
        raise QuantizationError("qparams: a range that is not finite, or ends before it begins; low <= high is needed")
    least, most = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    lo, hi = np.minimum(lo, np.float32(0)), np.maximum(hi, np.float32(0))
    if rule == "onnxruntime":
        return _onnxruntime(lo, hi, least, most, symmetric)
    eps = np.float32(LEAST[rule])
    if symmetric:
        scale = np.maximum(np.maximum(-lo, hi) / np.float32((most - least) / 2), eps)
        return scale, np.full(scale.shape, int((most + least + 1) / 2), np.int32)
    scale = np.maximum((hi - lo) / np.float32(most - least), eps)
    zero = np.clip(np.float32(least) - np.rint(lo / scale), least, most)
    return scale, zero.astype(np.int32)


def _onnxruntime(
    lo: NDArray[Any], hi: NDArray[Any], least: int, most: int, symmetric: bool
) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    if symmetric:
        hi = np.maximum(np.abs(lo), np.abs(hi))
        lo = -hi
    scale = (hi.astype(np.float64) - lo.astype(np.float64)) / float(most - least)
    tiny = scale < np.finfo(np.float32).tiny
    with np.errstate(divide="ignore", invalid="ignore"):
        zero = np.rint((least + most) / 2.0) if symmetric else np.rint(least - lo / scale)
    zero = np.where(tiny, 0, zero).astype(np.int32)
    return np.where(tiny, 1.0, scale).astype(np.float32), zero
