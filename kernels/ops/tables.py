"""Rows of tables: chosen, joined, grouped, ordered, and looked at through a window. Columns are one-dimensional values.

What has to be known of earlier batches (sums, keys, the last rows) is state of the pipeline, so that a plan which is run
on one batch after another gives what one run on all of them would give, to the bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...primitives import dtypes
from ...primitives.errors import ArgumentError, DTypeMismatch, ShapeMismatch
from ...primitives.pipeline import Pipeline, Value
from ...primitives.sizes import show
from ..tables import group, keys, rows, sketch, window
from .arithmetic import div, greater_equal, where
from .elementwise import add, clip
from .given import Operand, dtype_of, integers, only, pipeline_of, value_of
from .moving import concat, gather
from .moving import slice as cut

HOWS = ("sum", "mean", "min", "max", "count")


def compact(mask: Operand, *columns: Operand, valid: Operand = None) -> tuple[Value, ...]:
    """A filter: the rows where `mask` is set, at the front of columns as long as before, and how many they are.

    mask     bool (N,); columns: (N,) each
    valid    s64: only so many rows are there (what an earlier filter returned)
    returns  count s64, then the columns, zero behind the rows that are there
    """
    pipe, mask, given = _columns("compact", mask, columns)
    _expect("compact", "mask", mask, ("bool",))
    kernel = rows.Compact(tuple(dtype_of(x) for x in given), valid is not None)
    slots = {f"x{n}": x for n, x in enumerate(given)} | _valid(pipe, "compact", valid)
    written = pipe.add(kernel, mask=mask, **slots)
    return written if isinstance(written, tuple) else (written,)


def row_count(x: Operand) -> Value:
    """How many rows a column has, s64."""
    pipe, x, _ = _columns("row_count", x, ())
    return only(pipe.add(rows.RowCount(dtype_of(x)), x=x))


def sort_order(keys_: Operand, descending: bool = False, valid: Operand = None) -> Value:
    """The places of the elements in order, s64 (N,): stable, NaN last; `gather` puts columns into that order."""
    pipe, x, _ = _columns("sort_order", keys_, ())
    kernel = rows.SortOrder(dtype_of(x), bool(descending), valid is not None)
    return only(pipe.add(kernel, keys=x, **_valid(pipe, "sort_order", valid)))


def join(left: Operand, right: Operand) -> Value:
    """For every key of `left` its position in `right`, or -1: s32 (N,). `take` brings columns over.

    left   s32 or s64 (N,)
    right  of its type, (K,) with K known; keys are distinct. Constants are hashed once, when the plan is made
    """
    pipe, x, _ = _columns("join", left, ())
    right = value_of(pipe, right, "join", "right")
    if dtype_of(right) != dtype_of(x):
        raise DTypeMismatch(f"join: left keys are {dtype_of(x)} and right ones {dtype_of(right)}; one type works")
    if len(right.shape) != 1 or not isinstance(right.shape[0], int):
        raise ShapeMismatch(f"join: right keys are {show(right.shape)}; (K,) with a known K works")
    table = pipe.add(keys.KeyTable(dtype_of(right), _bits(right.shape[0])), keys=right)
    return only(pipe.add(keys.KeyFind(dtype_of(x)), keys=x, table=table))


def take(column: Operand, positions: Operand, default: Any = 0) -> Value:
    """column[positions], and `default` where a position is -1, as `join` says for keys that are not there."""
    pipe = pipeline_of("take", column, positions)
    column, positions = value_of(pipe, column, "take", "column"), value_of(pipe, positions, "take", "positions")
    found = gather(column, clip(positions, lo=0))
    return where(greater_equal(positions, 0), found, np.asarray(default, dtypes.get(dtype_of(column)).numpy))


def key_codes(
    keys_: Operand, most: int, where: Operand = None, valid: Operand = None, name: str = ""
) -> tuple[Value, Value, Value]:
    """Numbers for keys of any value, in the order in which they first come, in this run or an earlier one.

    keys     s32 or s64 (N,)
    most     how many distinct keys there may be; one more is an error of the run
    where    bool (N,): other rows get -1
    returns  codes s32 (N,); the keys by number, s64 (most,), and how many there are, s64 (1,), as they are afterwards
    """
    pipe, x, _ = _columns("key_codes", keys_, ())
    if isinstance(most, bool) or not isinstance(most, int) or most < 1:
        raise ArgumentError(f"key_codes: most is {most!r}; a positive number of keys works")
    empty = np.zeros((2 ** _bits(most), 2), np.int64)
    empty[:, 1] = -1
    stem = name or _free(pipe, "keys")
    kept: dict[str, Any] = {
        "table": pipe.state(f"{stem}.table", "s64", empty.shape, empty),
        "found": pipe.state(f"{stem}.found", "s64", (most,)),
        "used": pipe.state(f"{stem}.used", "s64", (1,)),
    }
    kernel = keys.KeyCodes(dtype_of(x), where is not None, valid is not None)
    written = pipe.add(kernel, keys=x, **_masked(pipe, "key_codes", where, valid), **kept)
    _, found, used, codes = written
    return codes, found, used


def group_by(
    codes: Operand,
    groups: int,
    aggregates: Mapping[str, tuple[str, Operand] | str],
    *,
    where: Operand = None,
    valid: Operand = None,
    name: str = "",
) -> dict[str, Value]:
    """Aggregates of all rows that ever came, by group: {name: (groups,)} as they are after this run.

    codes       s32 or s64 (N,): the group of each row, 0 .. groups - 1
    aggregates  {name: ("sum" | "mean" | "min" | "max", column)} or {name: "count"}
    where       bool (N,): other rows do not count
    valid       s64: only so many rows are there

    Sums of integers are s64, exact modulo 2**64; of floats f64, added in an order that neither batches nor tiles nor
    threads change. NaN is neither least nor largest. A group without rows has sum 0, mean NaN, and as least and
    largest what every other element would replace.
    """
    pipe, codes, _ = _columns("group_by", codes, ())
    stem, shape = name or _free(pipe, "groups"), (group.LANES, groups)
    wanted: list[tuple[str, Value]] = []
    places: dict[str, int] = {}
    for label, how in aggregates.items():
        if how == "count":
            continue
        if not isinstance(how, tuple) or len(how) != 2 or how[0] not in HOWS[:-1]:
            raise ArgumentError(f"group_by: {label!r} is {how!r}; ({' or '.join(HOWS[:-1])}, column) or 'count' works")
        fold, column = "sum" if how[0] == "mean" else how[0], value_of(pipe, how[1], "group_by", label)
        if (fold, column) not in wanted:
            wanted.append((fold, column))
        places[label] = wanted.index((fold, column))
    kernel = group.GroupAggregate(
        tuple((how, dtype_of(x)) for how, x in wanted), where is not None, valid is not None, dtype_of(codes)
    )
    seen = pipe.state(f"{stem}.seen", "s64", ())
    counted = pipe.state(f"{stem}.rows", "s64", shape)
    kept: dict[str, Any] = {
        f"acc{n}": pipe.state(f"{stem}.{how}{n}", dtype, shape, _start(how, dtype))
        for n, (how, dtype) in enumerate((how, group.accumulator(how, dtype_of(x))) for how, x in wanted)
    }
    slots = {f"x{n}": x for n, (_, x) in enumerate(wanted)} | _masked(pipe, "group_by", where, valid)
    written = pipe.add(kernel, codes=codes, first=seen, rows=counted, **slots, **kept)
    after = written if isinstance(written, tuple) else (written,)
    there = row_count(codes) if valid is None else slots["valid"]
    pipe.update(seen, add(seen, there))
    results = {}
    for label, how in aggregates.items():
        if how == "count":
            results[label] = only(pipe.add(group.GroupResult("sum", "s64"), acc=after[0]))
            continue
        acc = after[1 + places[label]]
        more = {"rows": after[0]} if how[0] == "mean" else {}
        results[label] = only(pipe.add(group.GroupResult(how[0], dtype_of(acc)), acc=acc, **more))
    return results


def quantiles(
    x: Operand,
    q: Operand,
    codes: Operand = None,
    groups: int = 1,
    *,
    bits: int = 16,
    where: Operand = None,
    valid: Operand = None,
    name: str = "",
) -> Value:
    """Quantiles of all values that ever came, by group: f32 (groups, number of q), within 2**(9 - bits) of their size.

    x     f32 (N,); NaN is left out
    q     numbers from 0 to 1, one-dimensional
    bits  a group has 2**bits counters, which add up exactly whatever the order
    """
    pipe, x, _ = _columns("quantiles", x, ())
    _expect("quantiles", "x", x, ("f32",))
    if codes is None:
        codes = clip(cut_codes(pipe, x), lo=0, hi=0)
    codes = value_of(pipe, codes, "quantiles", "codes")
    kernel = sketch.Sketch(bits, where is not None, valid is not None, dtype_of(codes))
    counts = pipe.state(f"{name or _free(pipe, 'sketch')}.counts", "s64", (groups, 2**bits))
    after = pipe.add(kernel, x=x, codes=codes, counts=counts, **_masked(pipe, "quantiles", where, valid))
    wanted = q if isinstance(q, Value) else np.atleast_1d(np.asarray(q, np.float64))
    return only(pipe.add(sketch.SketchQuantile(bits), counts=after, q=wanted))


def cut_codes(pipe: Pipeline, x: Value) -> Value:
    """One group for all rows: zeros, s32 (N,)."""
    from .elementwise import map

    return map(_none, x, dtype="s32")


def _none(v: Any) -> Any:
    return 0


def rolling(x: Operand, how: str, width: int, name: str = "") -> Value:
    """y[n] = the sum, mean, least or largest of x[n - width + 1 .. n], across batches; shorter at the very beginning.

    x    f32, f64, s32 or s64 (N,); mean: f32, a sum divided by `width`
    how  "sum", "mean", "min" or "max"; folded from the oldest row to the newest
    """
    pipe, x, _ = _columns("rolling", x, ())
    if how not in HOWS[:-1]:
        raise ArgumentError(f"rolling: aggregate {how!r}; {', '.join(HOWS[:-1])} work")
    if how == "mean" and dtype_of(x) != "f32":
        raise DTypeMismatch(f"rolling: mean of {dtype_of(x)}; f32 works")
    fold, dtype = "sum" if how == "mean" else how, dtype_of(x)
    kernel = window.Rolling(fold, dtype, width)
    longer = x
    if width > 1:
        before = pipe.state(f"{name or _free(pipe, 'rolling')}.before", dtype, (width - 1,), _start(fold, dtype))
        longer = concat([before, x], axis=0)
        pipe.update(before, cut(longer, [-(width - 1)], [2**62], axes=[0]))
    y = only(pipe.add(kernel, x=longer))
    return div(y, np.float32(width)) if how == "mean" else y


def _columns(op: str, first: Operand, others: tuple[Operand, ...]) -> tuple[Pipeline, Value, list[Value]]:
    """Columns as values; ShapeMismatch for what has not one dimension."""
    pipe = pipeline_of(op, first, *others)
    made = [value_of(pipe, x, op, f"column {n}") for n, x in enumerate((first, *others))]
    for n, x in enumerate(made):
        if len(x.shape) != 1:
            raise ShapeMismatch(f"{op}: column {n} is {show(x.shape)}; one dimension works")
    return pipe, made[0], made[1:]


def _expect(op: str, what: str, x: Value, known: tuple[str, ...]) -> None:
    if dtype_of(x) not in known:
        raise DTypeMismatch(f"{op}: {what} is {dtype_of(x)}; {', '.join(known)} works")


def _valid(pipe: Pipeline, op: str, valid: Operand) -> dict[str, Any]:
    if valid is None:
        return {}
    return {"valid": valid if isinstance(valid, Value) else integers(valid, "s64", f"{op}: valid")}


def _masked(pipe: Pipeline, op: str, where: Operand, valid: Operand) -> dict[str, Any]:
    found = _valid(pipe, op, valid)
    if where is not None:
        found["where"] = value_of(pipe, where, op, "where")
        _expect(op, "where", found["where"], ("bool",))
    return found


def _bits(count: int) -> int:
    """Of a table at most a quarter full: a place guessed wrong costs more than one that is not in the nearest cache."""
    return max(4, (4 * count - 1).bit_length())


def _start(how: str, dtype: str) -> Any:
    """What every element replaces."""
    if how == "sum":
        return 0
    kind = dtypes.get(dtype)
    if kind.is_float:
        return np.inf if how == "min" else -np.inf
    return kind.max if how == "min" else kind.min


def _free(pipe: Pipeline, stem: str) -> str:
    n = 0
    while any(value.startswith(f"{stem}_{n}.") for value in pipe.values):
        n += 1
    return f"{stem}_{n}"
