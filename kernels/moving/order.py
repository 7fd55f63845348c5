"""Steps along one axis whose order matters: cumulative sums, the largest k; and those that count places."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ...primitives.errors import ArgumentError
from ...primitives.kernel import ArgSpec, Axis, IndexSpace
from ...primitives.storage import stored_as
from .. import checks
from ..indexing import AXES, check_rank
from .copy import bits
from .relative import Extent, letters
from .scatter import NUMBERS


def _outer(rank: int, axis: int) -> IndexSpace:
    """Every axis but one, which each tile walks whole."""
    return IndexSpace(tuple(Axis(AXES[d], f"I{d}") for d in range(rank) if d != axis))


def _follows(rank: int, axis: int) -> tuple[str | None, ...]:
    return tuple(None if d == axis else AXES[d] for d in range(rank))


@stored_as("cumsum")
@dataclass(frozen=True)
class CumSum:
    """y[.., i, ..] = x[.., 0, ..] + .. + x[.., i, ..], one addition after another.

    exclusive   leave out element i itself, so that the first sum is 0
    reverse     sum from the last element
    """

    dtype: str = "f32"
    rank: int = 1
    axis: int = 0
    exclusive: bool = False
    reverse: bool = False

    def __post_init__(self) -> None:
        checks.one_of("cumsum", "dtype", self.dtype, NUMBERS)
        check_rank(self.rank, "cumsum")

    @property
    def name(self) -> str:
        return "cumsum"

    def signature(self) -> tuple[ArgSpec, ...]:
        shape, follows = letters(self.rank), _follows(self.rank, self.axis)
        return (
            ArgSpec("x", self.dtype, shape=shape, follows=follows),
            ArgSpec("y", self.dtype, "write", shape=shape, follows=follows),
        )

    def index_space(self) -> IndexSpace:
        return _outer(self.rank, self.axis)

    def execute(self, ctx: Any) -> None:
        ctx.sweep(self, ctx.read("x"), ctx.write("y"))


@stored_as("topk")
@dataclass(frozen=True)
class TopK:
    """The k largest (or smallest) elements along an axis, best first, and where they were.

    Of equal elements the one with the lower index comes first; NaN counts as larger than everything.
    """

    statuses: ClassVar[dict[int, Any]] = {1: (ArgumentError, "k is larger than the axis")}

    dtype: str = "f32"
    rank: int = 1
    axis: int = 0
    k: int = 1
    largest: bool = True

    def __post_init__(self) -> None:
        checks.one_of("topk", "dtype", self.dtype, NUMBERS)
        check_rank(self.rank, "topk")
        if self.k < 0:
            raise ArgumentError(f"topk: k is {self.k}; 0 or more")

    @property
    def name(self) -> str:
        return "topk"

    def signature(self) -> tuple[ArgSpec, ...]:
        shape, follows = letters(self.rank), _follows(self.rank, self.axis)
        out = tuple(self.k if d == self.axis else s for d, s in enumerate(shape))
        return (
            ArgSpec("x", self.dtype, shape=shape, follows=follows),
            ArgSpec("values", self.dtype, "write", shape=out, follows=follows),
            ArgSpec("indices", "s64", "write", shape=out, follows=follows),
        )

    def index_space(self) -> IndexSpace:
        return _outer(self.rank, self.axis)

    def execute(self, ctx: Any) -> None:
        x = ctx.read("x")
        if x.shape[self.axis] < self.k:
            raise ArgumentError(f"topk: k is {self.k}, but axis {self.axis} has {x.shape[self.axis]} elements")
        ctx.sweep(self, x, ctx.write("values"), ctx.write("indices"))


@stored_as("one_hot")
@dataclass(frozen=True)
class OneHot:
    """y[.., d, ..] = on where indices[..] is d (or d - depth), else off; the new axis is `axis`."""

    dtype: str = "f32"
    rank: int = 1
    axis: int = 1
    depth: int = 2
    index: str = "s64"

    def __post_init__(self) -> None:
        check_rank(self.rank + 1, "one_hot")
        if self.depth < 0:
            raise ArgumentError(f"one_hot: depth is {self.depth}; 0 or more")

    @property
    def name(self) -> str:
        return "one_hot"

    def signature(self) -> tuple[ArgSpec, ...]:
        shape, axes = letters(self.rank), tuple(AXES[: self.rank + 1])
        wide: tuple[Extent, ...] = (*shape[: self.axis], self.depth, *shape[self.axis :])
        return (
            ArgSpec("indices", self.index, shape=shape, follows=(*axes[: self.axis], *axes[self.axis + 1 :])),
            ArgSpec("values", self.dtype, shape=(2,), doc="off and on"),
            ArgSpec("y", self.dtype, "write", shape=wide, follows=axes),
        )

    def index_space(self) -> IndexSpace:
        shape = letters(self.rank)
        sizes: list[Extent] = [*shape[: self.axis], self.depth, *shape[self.axis :]]
        return IndexSpace(tuple(Axis(AXES[d], n) for d, n in enumerate(sizes)))

    def execute(self, ctx: Any) -> None:
        ctx.sweep(self, ctx.read("indices"), bits(ctx.read("values")), bits(ctx.write("y")))


@stored_as("trilu")
@dataclass(frozen=True)
class Trilu:
    """The upper or lower triangle of the last two axes, from diagonal k; zero elsewhere."""

    dtype: str = "f32"
    rank: int = 2
    k: int = 0
    upper: bool = True

    def __post_init__(self) -> None:
        check_rank(self.rank, "trilu")
        if self.rank < 2:
            raise ArgumentError("trilu: x has fewer than two axes")

    @property
    def name(self) -> str:
        return "trilu"

    def signature(self) -> tuple[ArgSpec, ...]:
        shape, follows = letters(self.rank), tuple(AXES[: self.rank])
        return (
            ArgSpec("x", self.dtype, shape=shape, follows=follows),
            ArgSpec("y", self.dtype, "write", shape=shape, follows=follows),
        )

    def index_space(self) -> IndexSpace:
        return IndexSpace(tuple(Axis(AXES[d], f"I{d}") for d in range(self.rank)))

    def execute(self, ctx: Any) -> None:
        ctx.sweep(self, bits(ctx.read("x")), bits(ctx.write("y")))


@stored_as("range")
@dataclass(frozen=True)
class Range:
    """y[i] = start + i * step, for a count that the sizes say.

    count   an int, or an expression of I0, I1, ..: the sizes of `like`, an operand that is only measured
    """

    dtype: str = "s64"
    count: Extent = 1
    like: str = "f32"
    rank: int = 0

    def __post_init__(self) -> None:
        checks.one_of("range", "dtype", self.dtype, NUMBERS)

    @property
    def name(self) -> str:
        return "range"

    def signature(self) -> tuple[ArgSpec, ...]:
        return (
            ArgSpec("start", self.dtype, shape=()),
            ArgSpec("step", self.dtype, shape=()),
            ArgSpec("like", self.like, shape=letters(self.rank), optional=True),
            ArgSpec("y", self.dtype, "write", shape=(self.count,)),
        )

    def index_space(self) -> IndexSpace:
        return IndexSpace((Axis("i", self.count),))

    def execute(self, ctx: Any) -> None:
        ctx.sweep(self, ctx.read("start"), ctx.read("step"), ctx.write("y"))
