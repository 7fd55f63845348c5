"""Rows chosen and rows in order. kernels/reference/tables.py says what the steps compute."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...primitives.kernel import ArgSpec, Axis, IndexSpace
from ...primitives.storage import stored_as
from .. import checks
from ..moving.copy import bits

COLUMNS = ("f32", "f64", "s8", "u8", "s16", "u16", "s32", "u32", "s64", "bool")
DIGITS = 256  # a sort goes by bytes
SORTED = ("f32", "f64", "s32", "s64", "u8", "s16")


@stored_as("compact")
@dataclass(frozen=True)
class Compact:
    """The rows where a mask is set, at the front of columns of the same length; and how many there are.

    types   of the columns
    valid   whether only the first `valid` rows are there
    """

    types: tuple[str, ...] = ("f32",)
    valid: bool = False

    def __post_init__(self) -> None:
        for dtype in self.types:
            checks.one_of("compact", "column of type", dtype, COLUMNS)

    @property
    def name(self) -> str:
        return "compact"

    def signature(self) -> tuple[ArgSpec, ...]:
        return (
            ArgSpec("mask", "bool", shape=("N",)),
            *([ArgSpec("valid", "s64", shape=())] if self.valid else []),
            *(ArgSpec(f"x{n}", dtype, shape=("N",)) for n, dtype in enumerate(self.types)),
            ArgSpec("count", "s64", "write", shape=()),
            *(ArgSpec(f"y{n}", dtype, "write", shape=("N",)) for n, dtype in enumerate(self.types)),
        )

    def index_space(self) -> IndexSpace:
        return IndexSpace((Axis("n", 1, split=False),))

    def execute(self, ctx: Any) -> None:
        specs = self.signature()
        ctx.sweep(self, *(ctx.read(s.slot) if s.access == "read" else ctx.write(s.slot) for s in specs))


@stored_as("sort_order")
@dataclass(frozen=True)
class SortOrder:
    """The places of the elements in ascending or descending order; equal ones keep theirs, NaN comes last.

    Of `valid` rows only the first are sorted; the others keep their places behind them.
    """

    dtype: str = "f32"
    descending: bool = False
    valid: bool = False

    def __post_init__(self) -> None:
        checks.one_of("sort_order", "keys", self.dtype, SORTED)

    @property
    def name(self) -> str:
        return "sort_order"

    def signature(self) -> tuple[ArgSpec, ...]:
        return (
            ArgSpec("keys", self.dtype, shape=("N",)),
            *([ArgSpec("valid", "s64", shape=())] if self.valid else []),
            ArgSpec("y", "s64", "write", shape=("N",)),
        )

    def index_space(self) -> IndexSpace:
        return IndexSpace((Axis("n", 1, split=False),))

    def execute(self, ctx: Any) -> None:
        keys, y = ctx.read("keys"), ctx.write("y")
        scratch = ctx.scratch(24 * keys.shape[0] + 8 * DIGITS).view(np.uint64)
        ctx.sweep(self, bits(keys), *([ctx.read("valid")] if self.valid else []), y, scratch)


@stored_as("row_count")
@dataclass(frozen=True)
class RowCount:
    """y = how many rows x has: a size as a value."""

    dtype: str = "f32"

    @property
    def name(self) -> str:
        return "row_count"

    def signature(self) -> tuple[ArgSpec, ...]:
        return (ArgSpec("x", self.dtype, shape=("N",)), ArgSpec("y", "s64", "write", shape=()))

    def index_space(self) -> IndexSpace:
        return IndexSpace((Axis("n", 1, split=False),))

    def execute(self, ctx: Any) -> None:
        ctx.sweep(self, ctx.read("x"), ctx.write("y"))
