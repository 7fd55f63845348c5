"""Steps that write where an index says: scatter_elements, scatter_nd. kernels/reference/moving.py has the meaning.

Updates that meet at one place are applied in the order of the indices, so the axes that indices count along are never
split: the result is the same for any tiling.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ...primitives.errors import ArgumentError
from ...primitives.kernel import ArgSpec, Axis, IndexSpace
from ...primitives.storage import stored_as
from .. import checks
from ..indexing import AXES, check_rank
from .copy import bits, sweep_copy
from .gather import INDICES, OUTSIDE, check_inside
from .relative import letters

REDUCTIONS = ("none", "add", "mul", "max", "min")
OF_BOOL = {"none": "none", "add": "max", "mul": "min", "max": "max", "min": "min"}  # of bytes of 0 and 1
NUMBERS = ("f32", "f64", "s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64")


def _check(what: str, dtype: str, index: str, reduction: str) -> None:
    checks.one_of(what, "indices", index, INDICES)
    checks.one_of(what, "reduction", reduction, REDUCTIONS)
    if reduction != "none":
        checks.one_of(what, "dtype", dtype, (*NUMBERS, "bool"))


def _sums(dtype: str, reduction: str) -> str:
    """How stored elements are combined."""
    return OF_BOOL[reduction] if dtype == "bool" else reduction


def _stored(dtype: str, reduction: str, *arrays: Any) -> Any:
    """Elements as they are combined; the bits of those that are only moved."""
    if reduction == "none":
        return [bits(x) for x in arrays]
    return [x.view(np.uint8) if dtype == "bool" else x for x in arrays]


@stored_as("scatter_elements")
@dataclass(frozen=True)
class ScatterElements:
    """y = x, then y[.., indices[i, j, ..], ..] = updates[i, j, ..] along one axis; or combined with what is there."""

    statuses: ClassVar[dict[int, Any]] = OUTSIDE

    dtype: str = "f32"
    rank: int = 2
    axis: int = 0
    index: str = "s64"
    reduction: str = "none"

    def __post_init__(self) -> None:
        _check("scatter_elements", self.dtype, self.index, self.reduction)
        check_rank(self.rank, "scatter_elements")

    @property
    def name(self) -> str:
        return "scatter_elements"

    @property
    def sums(self) -> str:
        """How stored elements are combined, those of bool as bytes."""
        return _sums(self.dtype, self.reduction)

    def signature(self) -> tuple[ArgSpec, ...]:
        return (
            ArgSpec("x", self.dtype, shape=letters(self.rank)),
            ArgSpec("indices", self.index, shape=letters(self.rank, "J")),
            ArgSpec("updates", self.dtype, shape=letters(self.rank, "J")),
            ArgSpec("y", self.dtype, "write", shape=letters(self.rank)),
        )

    def index_space(self) -> IndexSpace:
        return IndexSpace(tuple(Axis(AXES[d], f"J{d}", split=d != self.axis) for d in range(self.rank)))

    def execute(self, ctx: Any) -> None:
        x, indices, updates, y = ctx.read("x"), ctx.read("indices"), ctx.read("updates"), ctx.write("y")
        check_inside(x.shape, indices.shape, self.axis, self.name)
        sweep_copy(ctx, x, y)
        ctx.sweep(self, indices, *_stored(self.dtype, self.reduction, updates, y))


@stored_as("scatter_nd")
@dataclass(frozen=True)
class ScatterND:
    """y = x, then y[indices[i.., 0], indices[i.., 1], .., k..] = updates[i.., k..]; or combined with what is there."""

    statuses: ClassVar[dict[int, Any]] = OUTSIDE

    dtype: str = "f32"
    rank: int = 2
    index_rank: int = 2
    depth: int = 1
    index: str = "s64"
    reduction: str = "none"

    def __post_init__(self) -> None:
        _check("scatter_nd", self.dtype, self.index, self.reduction)
        if not 1 <= self.depth <= self.rank:
            raise ArgumentError(f"scatter_nd: indices of {self.depth} entries for data of rank {self.rank}")
        check_rank(len(self._sizes()), "scatter_nd")

    @property
    def name(self) -> str:
        return "scatter_nd"

    @property
    def sums(self) -> str:
        """How stored elements are combined, those of bool as bytes."""
        return _sums(self.dtype, self.reduction)

    def _sizes(self) -> tuple[str, ...]:
        return (*letters(self.index_rank, "J")[:-1], *letters(self.rank)[self.depth :])

    def signature(self) -> tuple[ArgSpec, ...]:
        return (
            ArgSpec("x", self.dtype, shape=letters(self.rank)),
            ArgSpec("indices", self.index, shape=(*letters(self.index_rank, "J")[:-1], self.depth)),
            ArgSpec("updates", self.dtype, shape=self._sizes()),
            ArgSpec("y", self.dtype, "write", shape=letters(self.rank)),
        )

    def index_space(self) -> IndexSpace:
        lead = self.index_rank - 1
        return IndexSpace(tuple(Axis(AXES[d], n, split=d >= lead) for d, n in enumerate(self._sizes())))

    def execute(self, ctx: Any) -> None:
        x, indices, updates, y = ctx.read("x"), ctx.read("indices"), ctx.read("updates"), ctx.write("y")
        sweep_copy(ctx, x, y)
        ctx.sweep(self, indices, *_stored(self.dtype, self.reduction, updates, y))
