"""Where elements are not zero, and which rows differ. kernels/reference/finding.py says what the steps compute.

How many there are is known only when they run: results are as long as the data and carry a count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...primitives.kernel import ArgSpec, Axis, IndexSpace
from ...primitives.storage import stored_as
from .. import checks
from ..indexing import AXES, check_rank
from .rows import COLUMNS

ROWS = (*COLUMNS, "u64")
_WHOLE = IndexSpace((Axis("n", 1, split=False),))


@stored_as("non_zero")
@dataclass(frozen=True)
class NonZero:
    """y[:, :count] = the indices of the elements that are not zero, in row-major order; zero behind."""

    dtype: str = "f32"
    rank: int = 1

    def __post_init__(self) -> None:
        checks.one_of("non_zero", "dtype", self.dtype, ROWS)
        check_rank(self.rank, "non_zero")

    @property
    def name(self) -> str:
        return "non_zero"

    def signature(self) -> tuple[ArgSpec, ...]:
        shape = tuple(AXES[d].upper() for d in range(self.rank))
        return (
            ArgSpec("x", self.dtype, shape=shape),
            ArgSpec("count", "s64", "write", shape=()),
            ArgSpec("y", "s64", "write", shape=(self.rank, "*".join(shape) or 1)),
        )

    def index_space(self) -> IndexSpace:
        return _WHOLE

    def execute(self, ctx: Any) -> None:
        ctx.sweep(self, ctx.read("x"), ctx.write("count"), ctx.write("y"))


@stored_as("row_order")
@dataclass(frozen=True)
class RowOrder:
    """The places of the rows of a matrix in ascending order, the first element first; equal ones keep theirs, NaN is last."""

    dtype: str = "f32"

    def __post_init__(self) -> None:
        checks.one_of("row_order", "rows of type", self.dtype, ROWS)

    @property
    def name(self) -> str:
        return "row_order"

    def signature(self) -> tuple[ArgSpec, ...]:
        return (ArgSpec("x", self.dtype, shape=("N", "M")), ArgSpec("y", "s64", "write", shape=("N",)))

    def index_space(self) -> IndexSpace:
        return _WHOLE

    def execute(self, ctx: Any) -> None:
        x = ctx.read("x")
        ctx.sweep(self, x, ctx.write("y"), ctx.scratch(8 * x.shape[0]).view(np.int64))


@stored_as("distinct")
@dataclass(frozen=True)
class Distinct:
    """The rows of a matrix that differ, once each, in the order that its rows are visited; zero behind the count.

    order     places of the rows, equal ones next to each other
    y         the rows;  first: where each was visited first;  counts: how often each is there
    inverse   for every row of x, which of y it is
    """

    dtype: str = "f32"

    def __post_init__(self) -> None:
        checks.one_of("distinct", "rows of type", self.dtype, ROWS)

    @property
    def name(self) -> str:
        return "distinct"

    def signature(self) -> tuple[ArgSpec, ...]:
        return (
            ArgSpec("x", self.dtype, shape=("N", "M")),
            ArgSpec("order", "s64", shape=("N",)),
            ArgSpec("count", "s64", "write", shape=()),
            ArgSpec("y", self.dtype, "write", shape=("N", "M")),
            *(ArgSpec(slot, "s64", "write", shape=("N",)) for slot in ("first", "inverse", "counts")),
        )

    def index_space(self) -> IndexSpace:
        return _WHOLE

    def execute(self, ctx: Any) -> None:
        written = [ctx.write(slot) for slot in ("count", "y", "first", "inverse", "counts")]
        ctx.sweep(self, ctx.read("x"), ctx.read("order"), *written)
