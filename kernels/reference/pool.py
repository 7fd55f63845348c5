"""pool: the largest, or the mean, of a sliding window."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from .quantize import saturate


def max_pool(x: ArrayLike, places: Sequence[NDArray], dilations: Sequence[int]) -> NDArray:
    """The largest element of each window; what lies in the padding takes no part.

        y[n, i.., c] = max over the taps k.. of the window that lie inside the image of x[n, first(i) + k * dilations, c]

    x       any number type (N, spatial.., C)
    places  per spatial axis, int64 (outputs, 2): the first position of each window, which may be negative, and how many
            taps it has; see `kernels.pool.places`
    A NaN in a window is the result; of zeros of different sign the first is, outermost axis first. A window without an
    element gives the least value of the type.
    Source: ONNX MaxPool.
    """
    x = np.asarray(x)
    least = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    for axis in range(len(places), 0, -1):
        parts = []
        for place in places[axis - 1]:
            y = np.full((*x.shape[:axis], *x.shape[axis + 1 :]), least, x.dtype)
            for tap in _inside(place, x.shape[axis], dilations[axis - 1]):
                value = x.take(tap, axis)
                y = np.where((value > y) | (value != value), value, y)
            parts.append(y)
        x = np.stack(parts, axis) if parts else x.take([], axis)
    return x


def average_pool(
    x: ArrayLike,
    places: Sequence[NDArray],
    counts: Sequence[NDArray],
    dilations: Sequence[int],
) -> NDArray[np.float32]:
    """The mean of each window in float32, in a defined order.

        y = (sum over the window's rows of (sum along each row)) / (product of the counts)

    x       float32 (N, spatial.., C)
    counts  per spatial axis, int64 (outputs,): how many taps count, those in the padding among them or not; at least 1
    Elements are added one by one, from the first tap to the last, outermost axis first, to +0.0; then one division.
    """
    x = np.asarray(x, np.float32)
    shape = [len(p) for p in places]
    total = np.zeros((x.shape[0], *shape, x.shape[-1]), np.float32)
    with np.errstate(all="ignore"):
        for at in np.ndindex(*shape):
            taps = [_inside(p[i], n, s) for p, i, n, s in zip(places, at, x.shape[1:-1], dilations, strict=True)]
            for tap in np.ndindex(*(len(t) for t in taps)):
                where: Any = (slice(None), *(int(t[k]) for t, k in zip(taps, tap, strict=True)))
                here: Any = (slice(None), *at)
                total[here] = total[here] + x[where]
        return np.divide(total, _area(counts)[..., None].astype(np.float32), dtype=np.float32)


def average_pool_codes(
    x: ArrayLike,
    places: Sequence[NDArray],
    counts: Sequence[NDArray],
    dilations: Sequence[int],
    x_zero_point: ArrayLike,
    multiplier: ArrayLike,
    zero_point: ArrayLike,
    *,
    lo: int,
    hi: int,
    dtype: DTypeLike,
) -> NDArray:
    """The mean of each window of codes, as codes of another scale.

        y = clip(rint(float32(sum over the window of (x - x_zero_point)) * multiplier / float32(count)) + zero_point)

    x                    integer codes (N, spatial.., C)
    counts               as in `average_pool`: padding that counts stands for real 0, whatever its code
    x_zero_point         one
    multiplier           float32, one: scale_x / scale_y
    zero_point, lo, hi   of the result

    The sum is exact; the product and the division round once each to float32, and rint goes to even.
    Source: ONNX Runtime, com.microsoft.QLinearAveragePool (which multiplies in another order, and may differ by one).
    """
    x = np.asarray(x).astype(np.int64) - np.asarray(x_zero_point).astype(np.int64).reshape(())
    for axis, (place, step) in enumerate(zip(places, dilations, strict=True), start=1):
        parts = [x.take(_inside(at, x.shape[axis], step), axis).sum(axis) for at in place]
        x = np.stack(parts, axis) if parts else x.take([], axis)
    scaled = x.astype(np.float32) * np.asarray(multiplier, np.float32).reshape(())
    mean = np.rint(scaled / _area(counts)[..., None].astype(np.float32))
    return saturate(mean, np.asarray(zero_point).astype(np.int64), lo, hi, dtype)


def _inside(at: NDArray, n: int, step: int) -> NDArray[np.int64]:
    """The positions of a window's taps that lie in 0 .. n - 1."""
    taps = at[0] + step * np.arange(at[1])
    return taps[(taps >= 0) & (taps < n)]


def _area(counts: Sequence[NDArray]) -> NDArray[np.int64]:
    area = np.ones((), np.int64)
    for count in counts:
        area = area[..., None] * count
    return area
