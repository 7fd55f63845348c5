"""Steps that read where an index says: gather, gather_elements, gather_nd. kernels/reference/moving.py has the meaning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ...primitives.errors import ArgumentError, ShapeMismatch
from ...primitives.kernel import ArgSpec, Axis, IndexSpace
from ...primitives.storage import stored_as
from .. import checks
from ..indexing import AXES, check_rank
from .copy import bits
from .relative import letters

INDICES = ("s32", "s64")
OUTSIDE = {1: (ArgumentError, "an index is outside the axis that it counts along")}


@stored_as("gather")
@dataclass(frozen=True)
class Gather:
    """y[.., i.., ..] = x[.., indices[i..], ..]: an axis replaced by the axes of the indices."""

    statuses: ClassVar[dict[int, Any]] = OUTSIDE

    dtype: str = "f32"
    rank: int = 2
    axis: int = 0
    index_rank: int = 1
    index: str = "s64"

    def __post_init__(self) -> None:
        checks.one_of("gather", "indices", self.index, INDICES)
        check_rank(self.rank - 1 + self.index_rank, "gather")

    @property
    def name(self) -> str:
        return "gather"

    def _sizes(self) -> tuple[str, ...]:
        x, i = letters(self.rank), letters(self.index_rank, "J")
        return (*x[: self.axis], *i, *x[self.axis + 1 :])

    def signature(self) -> tuple[ArgSpec, ...]:
        sizes = self._sizes()
        axes, end = tuple(AXES[: len(sizes)]), self.axis + self.index_rank
        return (
            ArgSpec("x", self.dtype, shape=letters(self.rank), follows=(*axes[: self.axis], None, *axes[end:])),
            ArgSpec("indices", self.index, shape=letters(self.index_rank, "J"), follows=axes[self.axis : end]),
            ArgSpec("y", self.dtype, "write", shape=sizes, follows=axes),
        )

    def index_space(self) -> IndexSpace:
        return IndexSpace(tuple(Axis(AXES[d], n) for d, n in enumerate(self._sizes())))

    def execute(self, ctx: Any) -> None:
        ctx.sweep(self, bits(ctx.read("x")), ctx.read("indices"), bits(ctx.write("y")))


@stored_as("gather_elements")
@dataclass(frozen=True)
class GatherElements:
    """y[i, j, ..] = x[.., indices[i, j, ..], ..]: each element of the result has an index of its own along one axis."""

    statuses: ClassVar[dict[int, Any]] = OUTSIDE

    dtype: str = "f32"
    rank: int = 2
    axis: int = 0
    index: str = "s64"

    def __post_init__(self) -> None:
        checks.one_of("gather_elements", "indices", self.index, INDICES)
        check_rank(self.rank, "gather_elements")

    @property
    def name(self) -> str:
        return "gather_elements"

    def signature(self) -> tuple[ArgSpec, ...]:
        return (
            ArgSpec("x", self.dtype, shape=letters(self.rank)),
            ArgSpec("indices", self.index, shape=letters(self.rank, "J"), follows=tuple(AXES[: self.rank])),
            ArgSpec("y", self.dtype, "write", shape=letters(self.rank, "J"), follows=tuple(AXES[: self.rank])),
        )

    def index_space(self) -> IndexSpace:
        return IndexSpace(tuple(Axis(AXES[d], f"J{d}") for d in range(self.rank)))

    def execute(self, ctx: Any) -> None:
        x, indices = ctx.read("x"), ctx.read("indices")
        check_inside(x.shape, indices.shape, self.axis, self.name)
        ctx.sweep(self, bits(x), indices, bits(ctx.write("y")))


def check_inside(data: Any, indices: Any, axis: int, what: str) -> None:
    """Indices of one element each have no more elements than the data along every other axis."""
    for d, (n, m) in enumerate(zip(data, indices, strict=True)):
        if d != axis and m > n:
            raise ShapeMismatch(f"{what}: indices {tuple(indices)} for data {tuple(data)}: axis {d} has {m} of {n}")


@stored_as("gather_nd")
@dataclass(frozen=True)
class GatherND:
    """y[b.., i.., k..] = x[b.., indices[b.., i.., 0], indices[b.., i.., 1], .., k..].

    depth   entries of one index: axes of x that it counts along
    batch   leading axes that x and indices share
    """

    statuses: ClassVar[dict[int, Any]] = OUTSIDE

    dtype: str = "f32"
    rank: int = 2
    index_rank: int = 2
    depth: int = 1
    batch: int = 0
    index: str = "s64"

    def __post_init__(self) -> None:
        checks.one_of("gather_nd", "indices", self.index, INDICES)
        if not 0 <= self.batch < min(self.rank, self.index_rank):
            raise ArgumentError(
                f"gather_nd: {self.batch} batch axes of data of rank {self.rank}, indices of {self.index_rank}"
            )
        if not 1 <= self.depth <= self.rank - self.batch:
            raise ArgumentError(f"gather_nd: indices of {self.depth} entries for data of rank {self.rank}")
        check_rank(len(self._sizes()), "gather_nd")

    @property
    def name(self) -> str:
        return "gather_nd"

    def _sizes(self) -> tuple[str, ...]:
        return (*self._index_shape()[:-1], *letters(self.rank)[self.batch + self.depth :])

    def _index_shape(self) -> tuple[Any, ...]:
        shared = letters(self.rank)[: self.batch]
        return (*shared, *letters(self.index_rank, "J")[self.batch : -1], self.depth)

    def signature(self) -> tuple[ArgSpec, ...]:
        sizes, lead = self._sizes(), self.index_rank - 1
        axes, inner = tuple(AXES[: len(sizes)]), self.rank - self.batch - self.depth
        return (
            ArgSpec(
                "x",
                self.dtype,
                shape=letters(self.rank),
                follows=(*axes[: self.batch], *(None,) * self.depth, *axes[lead : lead + inner]),
            ),
            ArgSpec("indices", self.index, shape=self._index_shape(), follows=(*axes[:lead], None)),
            ArgSpec("y", self.dtype, "write", shape=sizes, follows=axes),
        )

    def index_space(self) -> IndexSpace:
        return IndexSpace(tuple(Axis(AXES[d], n) for d, n in enumerate(self._sizes())))

    def execute(self, ctx: Any) -> None:
        ctx.sweep(self, bits(ctx.read("x")), ctx.read("indices"), bits(ctx.write("y")))
