"""Aggregates by group, over all the rows that ever come. kernels/reference/tables.py says what they compute.

A group has LANES accumulators, and a row adds to the lane that its number says. So the sums of floats have one order,
whatever the batches, tiles and threads are, and threads share the work without sharing an accumulator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ...primitives.errors import ArgumentError
from ...primitives.kernel import ArgSpec, Axis, IndexSpace
from ...primitives.storage import stored_as
from .. import checks
from .keys import NANOSECOND

LANES = 8
PASS = 1024  # rows that stay in the nearest cache while one lane after another takes its own of them
NUMBERS = ("f32", "f64", "s8", "u8", "s16", "u16", "s32", "u32", "s64")
HOWS = ("sum", "min", "max")
OUTSIDE = 1  # status: a code that is no group
_OUTSIDE: Mapping[int, Any] = {
    OUTSIDE: (ArgumentError, "a code is not between 0 and the number of groups; leave such rows out with where=")
}


def accumulator(how: str, dtype: str) -> str:
    """The type in which a group's sum, least or largest element is kept."""
    if how == "sum":
        return "f64" if dtype in ("f32", "f64") else "s64"
    return dtype


@stored_as("group_aggregate")
@dataclass(frozen=True)
class GroupAggregate:
    """For every row i that counts: acc[lane, codes[i]] takes in column[i].

    aggregates  (how, type of its column) each: "sum", "min" or "max"; the number of rows is always counted
    where       whether a mask says which rows count
    valid       whether only the first `valid` rows are there
    code        type of the codes
    """

    statuses: ClassVar[Mapping[int, Any]] = _OUTSIDE

    aggregates: tuple[tuple[str, str], ...] = ()
    where: bool = False
    valid: bool = False
    code: str = "s32"

    def __post_init__(self) -> None:
        checks.one_of("group_aggregate", "codes", self.code, ("s32", "s64"))
        for how, dtype in self.aggregates:
            checks.one_of("group_aggregate", "aggregate", how, HOWS)
            checks.one_of("group_aggregate", "column of type", dtype, NUMBERS)

    @property
    def name(self) -> str:
        return "group_aggregate"

    def signature(self) -> tuple[ArgSpec, ...]:
        kept = {"shape": (LANES, "G"), "follows": ("l", None), "strides": "contiguous"}
        return (
            ArgSpec("codes", self.code, shape=("N",)),
            ArgSpec("first", "s64", shape=(), doc="how many rows came before"),
            *([ArgSpec("where", "bool", shape=("N",))] if self.where else []),
            *([ArgSpec("valid", "s64", shape=())] if self.valid else []),
            *(ArgSpec(f"x{n}", dtype, shape=("N",)) for n, (_, dtype) in enumerate(self.aggregates)),
            ArgSpec("rows", "s64", "update", **kept),  # type: ignore[arg-type]
            *(
                ArgSpec(f"acc{n}", accumulator(how, dtype), "update", **kept)  # type: ignore[arg-type]
                for n, (how, dtype) in enumerate(self.aggregates)
            ),
        )

    def index_space(self) -> IndexSpace:
        return IndexSpace((Axis("l", LANES),))

    def execute(self, ctx: Any) -> None:
        slots = [s for s in self.signature() if s.access == "read"]
        kept = [s for s in self.signature() if s.access == "update"]
        chosen = ctx.scratch(4 * PASS).view(np.int32)
        ctx.sweep(self, *(ctx.read(s.slot) for s in slots), *(ctx.write(s.slot) for s in kept), chosen)

    def cost(self, extents: Mapping[str, int], *operands: Any) -> float:
        return float(NANOSECOND * (2 + len(self.aggregates)) * operands[0].size)


@stored_as("group_result")
@dataclass(frozen=True)
class GroupResult:
    """What the lanes of every group come to: their sum as a fixed tree, their least or largest element, or their mean."""

    how: str = "sum"
    dtype: str = "f64"

    def __post_init__(self) -> None:
        checks.one_of("group_result", "aggregate", self.how, (*HOWS, "mean"))
        checks.one_of("group_result", "dtype", self.dtype, NUMBERS)

    @property
    def name(self) -> str:
        return "group_result"

    def signature(self) -> tuple[ArgSpec, ...]:
        lanes = {"shape": (LANES, "G"), "follows": (None, "g")}
        mean = self.how == "mean"
        return (
            ArgSpec("acc", self.dtype, **lanes),  # type: ignore[arg-type]
            *([ArgSpec("rows", "s64", **lanes)] if mean else []),  # type: ignore[arg-type]
            ArgSpec("y", "f64" if mean else self.dtype, "write", shape=("G",), follows=("g",)),
        )

    def index_space(self) -> IndexSpace:
        return IndexSpace((Axis("g", "G"),))

    def execute(self, ctx: Any) -> None:
        more = [ctx.read("rows")] if self.how == "mean" else []
        ctx.sweep(self, ctx.read("acc"), *more, ctx.write("y"))
