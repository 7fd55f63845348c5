"""What is found in data, however much it is: results are as long as the data, and carry a count."""

from __future__ import annotations

from ...primitives.errors import DTypeMismatch
from ...primitives.pipeline import Value
from ..tables.finding import ROWS, Distinct, NonZero, RowOrder
from ..tables.rows import SORTED, SortOrder
from .given import Operand, dtype_of, only, pipeline_of, value_of
from .moving import axis_of, cast, count_of, gather, reshape, transpose


def non_zero(x: Operand) -> tuple[Value, Value]:
    """Where elements are not zero: (count, indices) with count s64 () and indices s64 (rank, elements of x).

    The first `count` columns are the indices in row-major order (ONNX NonZero); what is behind them is zero.
    """
    x = _entered("non_zero", x)
    count, y = x.pipeline.add(NonZero(dtype_of(x), x.ndim), x=x)
    return count, y


def unique(x: Operand, axis: int | None = None, sorted: bool = True) -> tuple[Value, Value, Value, Value, Value]:
    """The elements that differ, or the slices along an axis: (count, values, first, inverse, counts); ONNX Unique.

    count    s64 (): how many there are; what is behind so many in the others is zero
    values   of x's type: (elements,), or x's shape with the values along the axis
    first    s64: where each value first is
    inverse  s64: for each element or slice of x, which value it is
    counts   s64: how often each value is there
    sorted   in ascending order (NaN last, slices by their first difference); else in the order of their first places
    """
    x = _entered("unique", x)
    kind = dtype_of(x)
    if kind in ("f16", "bf16"):
        count, values, *others = unique(cast(x, "f32"), axis, sorted)
        first, inverse, counts = others
        return count, cast(values, kind), first, inverse, counts
    moved, order = x, list(range(x.ndim))
    if axis is not None:
        at = axis_of("unique", axis, x.ndim)
        order = [at, *(d for d in range(x.ndim) if d != at)]
        moved = transpose(x, order)
        rows = reshape(moved, (moved.shape[0], count_of(moved.shape[1:])))
    else:
        rows = reshape(x, (count_of(x.shape), 1))
    places = _order(rows, flat=axis is None)
    count, values, first, inverse, counts = x.pipeline.add(Distinct(kind), x=rows, order=places)
    if not sorted:
        by_place = only(x.pipeline.add(SortOrder("s64", valid=True), keys=first, valid=count))
        values, first, counts = (gather(v, by_place) for v in (values, first, counts))
        inverse = gather(only(x.pipeline.add(SortOrder("s64"), keys=by_place)), inverse)
    if axis is None:
        return count, reshape(values, (count_of(x.shape),)), first, inverse, counts
    values = reshape(values, moved.shape)
    return count, transpose(values, [order.index(d) for d in range(x.ndim)]), first, inverse, counts


def _order(rows: Value, flat: bool) -> Value:
    """Places of the rows in ascending order; single numbers by their bytes, where their type can."""
    pipe, kind = rows.pipeline, dtype_of(rows)
    if flat and kind in SORTED:
        return only(pipe.add(SortOrder(kind), keys=reshape(rows, rows.shape[:1])))
    return only(pipe.add(RowOrder(kind), x=rows))


def _entered(op: str, x: Operand) -> Value:
    x = value_of(pipeline_of(op, x), x, op, "x")
    half = ("f16", "bf16")
    if dtype_of(x) not in (*ROWS, *half):
        raise DTypeMismatch(f"{op}: x is {dtype_of(x)}; {', '.join((*ROWS, *half))} work")
    return cast(x, "f32") if op == "non_zero" and dtype_of(x) in half else x
