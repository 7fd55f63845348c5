"""Whether a sum of products fits int32: proven from the real weights, or from the range of the types.

    lo <= sum over k of (a - za) * (b - zb) <= hi

With a - za in [a_lo, a_hi], a column whose b - zb are known adds up to at most a_hi * P + a_lo * N, where P is the sum
of its positive values and N that of its negative ones; the least is a_lo * P + a_hi * N.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..primitives import dtypes
from ..primitives.errors import AccumulatorOverflow

LARGEST = 2**31 - 1


def constant(value: Any) -> Any:
    """The array of a pipeline constant; None for what is known only at run time."""
    return value.data if getattr(value, "kind", None) == "constant" else None


def shifted_range(dtype: str, zero_point: Any) -> tuple[int, int]:
    """The least and largest of (code - zero point); zero_point is a value, or None for 0."""
    low, high = int(dtypes.get(dtype).min), int(dtypes.get(dtype).max)
    known = np.zeros(1, np.int64) if zero_point is None else constant(zero_point)
    if known is None:
        return low - high, high - low
    if known.size == 0:
        return low, high
    return low - int(known.max()), high - int(known.min())


def prove(step: str, a_range: tuple[int, int], b: Any, b_range: tuple[int, int], zero_point: Any, depth: int) -> None:
    """Raise AccumulatorOverflow unless every sum fits int32.

    a_range, b_range  least and largest of (code - zero point)
    b                 value of shape (.., K, N); its constants are summed, else the range stands for all
    zero_point        B's, a value or None
    depth             K
    """
    largest_a, largest_b = max(map(abs, a_range)), max(map(abs, b_range))
    if depth * largest_a * largest_b <= LARGEST:
        return
    data, zero = constant(b), np.zeros((), np.int64) if zero_point is None else constant(zero_point)
    if data is None or zero is None:
        raise AccumulatorOverflow(
            f"{step}: K = {depth} products of up to {largest_a} * {largest_b} may pass int32; with weights known only at "
            f"run time K up to {LARGEST // (largest_a * largest_b)} fits: split K, or make the weights a constant"
        )
    positive, negative = _column_sums(data, zero)
    high = a_range[1] * positive + a_range[0] * negative
    low = a_range[0] * positive + a_range[1] * negative
    worst = max(int(high.max(initial=0)), -int(low.min(initial=0)) - 1)
    if worst > LARGEST:
        raise AccumulatorOverflow(
            f"{step}: with these weights a sum over K = {depth} may reach {worst}, and int32 ends at {LARGEST}; "
            f"about K = {depth * LARGEST // worst} would fit: split K and add the parts in f32 or s64"
        )


def _column_sums(data: Any, zero: Any) -> tuple[Any, Any]:
    """Sums of the positive and of the negative b - zb of each column, int64."""
    positive = negative = np.zeros(data.shape[:-2] + data.shape[-1:], np.int64)
    for start in range(0, data.shape[-2], 4096):
        part = data[..., start : start + 4096, :].astype(np.int32) - zero.astype(np.int32)
        positive = positive + np.maximum(part, 0).sum(-2, dtype=np.int64)
        negative = negative + np.minimum(part, 0).sum(-2, dtype=np.int64)
    return positive, negative
