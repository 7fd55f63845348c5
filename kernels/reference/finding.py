"""Where elements are not zero, and which rows differ, in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..factory import Whole, register

Array = NDArray[Any]


def non_zero(x: Array) -> Array:
    """The indices (rank, count) of the elements that are not zero, in row-major order (ONNX NonZero); NaN is not."""
    return np.stack(np.nonzero(x)).astype(np.int64) if x.ndim else np.zeros((0, int(x != 0)), np.int64)


def row_order(x: Array) -> Array:
    """The places of the rows (N, M) in ascending order, the first element first: stable, NaN last."""
    return np.lexsort(x.T[::-1]) if x.shape[1] else np.arange(len(x))


def distinct(x: Array, order: Array) -> tuple[Array, Array, Array]:
    """Rows that differ, as places in x; which of them each row is; how often each is there.

    order   places of the rows, equal ones next to each other; each row is given by its first place in it. NaNs are alike
    """
    rows = x[order]
    differs = np.ones(len(rows), bool)
    same = (rows[1:] == rows[:-1]) | ((rows[1:] != rows[1:]) & (rows[:-1] != rows[:-1]))
    differs[1:] = ~same.all(axis=1)
    number = np.cumsum(differs) - 1
    inverse = np.empty(len(rows), np.int64)
    inverse[order] = number
    return order[differs], inverse, np.bincount(number)[: int(differs.sum())]


@register("non_zero", backend="reference")
def non_zero_step() -> Whole:
    def fn(x: Any, count: Any, y: Any) -> None:
        found = non_zero(x)
        count[()] = found.shape[1]
        y[...] = 0
        y[:, : found.shape[1]] = found

    return Whole(fn)


@register("row_order", backend="reference")
def row_order_step() -> Whole:
    def fn(x: Any, y: Any, scratch: Any) -> None:
        y[:] = row_order(x)

    return Whole(fn)


@register("distinct", backend="reference")
def distinct_step() -> Whole:
    def fn(x: Any, order: Any, count: Any, y: Any, first: Any, inverse: Any, counts: Any) -> None:
        places, inverse[:], often = distinct(x, order)
        n = count[()] = len(places)
        for target, found in ((y, x[places]), (first, places), (counts, often)):
            target[:n], target[n:] = found, 0

    return Whole(fn)
