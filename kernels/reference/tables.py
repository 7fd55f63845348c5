"""Rows of tables in NumPy: what the steps of kernels/tables compute."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...primitives.errors import ArgumentError
from ..factory import Whole, register
from ..tables.group import LANES, GroupAggregate
from ..tables.keys import KeyCodes, KeyTable
from ..tables.rows import Compact, SortOrder
from ..tables.sketch import Sketch, SketchQuantile
from ..tables.window import Rolling

GOLDEN = 0x9E3779B97F4A7C15  # 2**64 / golden ratio: Knuth's multiplicative hashing


def home(key: int, size: int) -> int:
    """Where the search for a key begins in a table of `size` places, a power of two."""
    return ((int(key) * GOLDEN) & (2**64 - 1)) >> (64 - (size.bit_length() - 1))


def place(table: Any, key: int) -> int:
    """The place of a key in a table (size, 2) of [key, number], or the free one (number -1) where it would go."""
    at = home(key, len(table))
    while table[at, 1] >= 0 and table[at, 0] != key:
        at = (at + 1) % len(table)
    return at


def key_table(keys: Any, table: Any) -> None:
    """Fill a table with keys and their positions. Raises ArgumentError for a key that is there twice."""
    table[:] = 0, -1
    for n, key in enumerate(keys):
        at = place(table, key)
        if table[at, 1] >= 0:
            raise ArgumentError(f"key {key} is there twice; a join needs distinct keys")
        table[at] = key, n


def key_find(keys: Any, table: Any) -> Any:
    """The position of every key, s32, or -1."""
    return np.array([table[place(table, key), 1] for key in keys], np.int32)


def key_codes(keys: Any, where: Any, valid: int, table: Any, found: Any, used: Any, y: Any) -> None:
    """Number keys in the order in which they first come; rows that do not count get -1, and number nothing."""
    y[:] = -1
    for n in range(valid):
        if where is not None and not where[n]:
            continue
        at = place(table, keys[n])
        if table[at, 1] < 0:
            if used[0] == len(found):
                raise ArgumentError(f"there are more than {len(found)} distinct keys")
            table[at] = keys[n], used[0]
            found[used[0]] = keys[n]
            used[0] += 1
        y[n] = table[at, 1]


def group_aggregate(
    codes: Any, first: int, where: Any, valid: int, columns: Any, hows: Any, rows: Any, accumulators: Any
) -> None:
    """acc[(first + i) % LANES, codes[i]] takes in column[i], for ascending i; NaN is neither least nor largest."""
    counted = np.arange(valid) if where is None else np.flatnonzero(where[:valid])
    groups = rows.shape[1]
    if ((codes[counted] < 0) | (codes[counted] >= groups)).any():
        raise ArgumentError(f"a code is not between 0 and {groups - 1}")
    lanes = (first + counted) % LANES
    np.add.at(rows, (lanes, codes[counted]), 1)
    for x, how, acc in zip(columns, hows, accumulators, strict=True):
        if how == "sum":
            with np.errstate(all="ignore"):
                np.add.at(acc, (lanes, codes[counted]), x[counted].astype(acc.dtype))
            continue
        for lane, i in zip(lanes, counted, strict=True):
            if x[i] < acc[lane, codes[i]] if how == "min" else x[i] > acc[lane, codes[i]]:
                acc[lane, codes[i]] = x[i]


def group_result(acc: Any, how: str) -> Any:
    """Lanes folded by halves: lane l with lane l + half."""
    while len(acc) > 1:
        a, b = acc[: len(acc) // 2], acc[len(acc) // 2 :]
        with np.errstate(all="ignore"):
            acc = a + b if how == "sum" else np.where(b < a, b, a) if how == "min" else np.where(b > a, b, a)
    return acc[0]


def sort_order(keys: Any, descending: bool) -> Any:
    """Places in order: stable, -0 equal to 0, NaN last."""
    if descending:
        keys = -keys.astype(np.float64) if keys.dtype.kind == "f" else ~keys
    return np.argsort(keys, kind="stable")


def bucket(x: Any, bits: int) -> Any:
    """The number of a float32's bucket: its first bits, mapped so that they ascend with it."""
    raw = (x + np.float32(0)).view(np.uint32)
    ascending = np.where(raw >> 31, ~raw, raw | np.uint32(2**31))
    return (ascending >> np.uint32(32 - bits)).astype(np.int64)


def middle(number: Any, bits: int) -> Any:
    """The float32 in the middle of a bucket."""
    shift = 32 - bits
    key = (number.astype(np.uint32) << np.uint32(shift)) | np.uint32(1 << (shift - 1))
    return np.where(key >> 31, key ^ np.uint32(2**31), ~key).astype(np.uint32).view(np.float32)


def sketch_quantile(counts: Any, q: Any, bits: int) -> Any:
    """The middle of the first bucket up to which there are ceil(q * n) values, one at least."""
    totals = counts.cumsum(axis=1)
    ranks = np.maximum(np.ceil(q[None, :] * totals[:, -1:].astype(np.float64)), 1)
    places = np.array([np.searchsorted(t, r) for t, r in zip(totals, ranks, strict=True)]).reshape(ranks.shape)
    found = middle(np.minimum(places, counts.shape[1] - 1), bits)
    return np.where(totals[:, -1:] > 0, found, np.float32(np.nan))


def rolling(x: Any, how: str, width: int) -> Any:
    """Windows folded from their first row to their last."""
    n = len(x) - width + 1
    y = x[:n].copy()
    with np.errstate(all="ignore"):
        for j in range(1, width):
            next_ = x[j : j + n]
            y = y + next_ if how == "sum" else np.where(next_ < y if how == "min" else next_ > y, next_, y)
    return y


def _optional(kernel: Any, operands: Any, length: int) -> tuple[Any, int, list[Any]]:
    """The mask and the number of valid rows, which come first where the kernel has them; and the rest."""
    left = list(operands)
    where = left.pop(0) if getattr(kernel, "where", False) else None
    valid = min(max(int(left.pop(0)[()]), 0), length) if kernel.valid else length
    return where, valid, left


@register("key_table", backend="reference")
def key_table_step(kernel: KeyTable) -> Whole:
    return Whole(key_table)


@register("key_find", backend="reference")
def key_find_step() -> Whole:
    def fn(keys: Any, table: Any, y: Any) -> None:
        y[:] = key_find(keys, table)

    return Whole(fn)


@register("key_codes", backend="reference")
def key_codes_step(kernel: KeyCodes) -> Whole:
    def fn(keys: Any, *rest: Any) -> None:
        where, valid, (table, found, used, y) = _optional(kernel, rest, len(keys))
        key_codes(keys, where, valid, table, found, used, y)

    return Whole(fn)


@register("group_aggregate", backend="reference")
def group_aggregate_step(kernel: GroupAggregate) -> Whole:
    hows = [how for how, _ in kernel.aggregates]

    def fn(codes: Any, first: Any, *rest: Any) -> None:
        where, valid, left = _optional(kernel, rest[:-1], len(codes))
        columns, (rows, *accumulators) = left[: len(hows)], left[len(hows) :]
        group_aggregate(codes, int(first[()]), where, valid, columns, hows, rows, accumulators)

    return Whole(fn)


@register("group_result", backend="reference")
def group_result_step(kernel: Any) -> Whole:
    def fn(acc: Any, y: Any) -> None:
        y[:] = group_result(acc, kernel.how)

    def mean(acc: Any, rows: Any, y: Any) -> None:
        with np.errstate(all="ignore"):
            y[:] = group_result(acc, "sum").astype(np.float64) / group_result(rows, "sum").astype(np.float64)

    return Whole(mean if kernel.how == "mean" else fn)


@register("compact", backend="reference")
def compact_step(kernel: Compact) -> Whole:
    def fn(mask: Any, *rest: Any) -> None:
        _, valid, left = _optional(kernel, rest, len(mask))
        columns, count, written = left[: len(kernel.types)], left[len(kernel.types)], left[len(kernel.types) + 1 :]
        chosen = np.flatnonzero(mask[:valid])
        count[()] = len(chosen)
        for x, y in zip(columns, written, strict=True):
            y[: len(chosen)] = x[chosen]
            y[len(chosen) :] = 0

    return Whole(fn)


@register("row_count", backend="reference")
def row_count_step() -> Whole:
    def fn(x: Any, y: Any) -> None:
        y[()] = len(x)

    return Whole(fn)


@register("sort_order", backend="reference")
def sort_order_step(kernel: SortOrder) -> Whole:
    from ...primitives import dtypes

    stored = dtypes.get(kernel.dtype).numpy

    def fn(keys: Any, *rest: Any) -> None:
        _, valid, (y, _scratch) = _optional(kernel, rest, len(keys))
        y[:valid] = sort_order(keys.view(stored)[:valid], kernel.descending)
        y[valid:] = np.arange(valid, len(y))

    return Whole(fn)


@register("sketch", backend="reference")
def sketch_step(kernel: Sketch) -> Whole:
    def fn(x: Any, codes: Any, *rest: Any) -> None:
        where, valid, (counts,) = _optional(kernel, rest, len(x))
        counted = np.arange(valid) if where is None else np.flatnonzero(where[:valid])
        if ((codes[counted] < 0) | (codes[counted] >= len(counts))).any():
            raise ArgumentError(f"a code is not between 0 and {len(counts) - 1}")
        values = x.view(np.float32)[counted]
        numbers = ~np.isnan(values)
        np.add.at(counts, (codes[counted][numbers], bucket(values[numbers], kernel.bits)), 1)

    return Whole(fn)


@register("sketch_quantile", backend="reference")
def sketch_quantile_step(kernel: SketchQuantile) -> Whole:
    def fn(counts: Any, q: Any, y: Any) -> None:
        y.view(np.float32)[...] = sketch_quantile(counts, q, kernel.bits)

    return Whole(fn)


@register("rolling", backend="reference")
def rolling_step(kernel: Rolling) -> Whole:
    def fn(x: Any, y: Any) -> None:
        y[:] = rolling(x, kernel.how, kernel.width)

    return Whole(fn)
