"""Concatenation and padding: several copies into one result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...primitives.errors import ArgumentError
from ...primitives.kernel import ArgSpec, IndexSpace
from ...primitives.storage import stored_as
from .copy import sweep_copy, sweep_fill
from .relative import letters


def along(axis: int, start: int, stop: int) -> tuple[slice, ...]:
    """The index of a part of one axis."""
    return (*(slice(None),) * axis, slice(start, stop))


@stored_as("concat")
@dataclass(frozen=True)
class Concat:
    """Operands one after another along an axis.

    count   operands, in slots x0, x1, ..
    """

    dtype: str = "f32"
    rank: int = 2
    axis: int = 0
    count: int = 2

    @property
    def name(self) -> str:
        return "concat"

    def signature(self) -> tuple[ArgSpec, ...]:
        shared = letters(self.rank)

        def shape(n: int) -> tuple[str, ...]:
            return tuple(f"A{n}" if d == self.axis else s for d, s in enumerate(shared))

        total = " + ".join(f"A{n}" for n in range(self.count))
        return (
            *(ArgSpec(f"x{n}", self.dtype, shape=shape(n)) for n in range(self.count)),
            ArgSpec(
                "y", self.dtype, "write", shape=tuple(total if d == self.axis else s for d, s in enumerate(shared))
            ),
        )

    def index_space(self) -> IndexSpace:
        return IndexSpace(())

    def execute(self, ctx: Any) -> None:
        y, start = ctx.write("y"), 0
        for n in range(self.count):
            x = ctx.read(f"x{n}")
            stop = start + x.shape[self.axis]
            sweep_copy(ctx, x, y[along(self.axis, start, stop)])
            start = stop


@stored_as("pad")
@dataclass(frozen=True)
class Pad:
    """x with elements of one value around it; a negative width takes elements away.

    widths   per axis, how many come before and after
    """

    dtype: str = "f32"
    widths: tuple[tuple[int, int], ...] = ((0, 0), (0, 0))

    @property
    def name(self) -> str:
        return "pad"

    @property
    def rank(self) -> int:
        return len(self.widths)

    def signature(self) -> tuple[ArgSpec, ...]:
        return (
            ArgSpec("x", self.dtype, shape=letters(self.rank)),
            ArgSpec("value", self.dtype, shape=()),
            ArgSpec(
                "y",
                self.dtype,
                "write",
                shape=tuple(
                    f"max(0, I{d} + {a + b})" if a + b < 0 else f"I{d} + {a + b}"
                    for d, (a, b) in enumerate(self.widths)
                ),
            ),
        )

    def index_space(self) -> IndexSpace:
        return IndexSpace(())

    def execute(self, ctx: Any) -> None:
        x, value, y = ctx.read("x"), ctx.read("value"), ctx.write("y")
        for axis, (before, after) in enumerate(self.widths):
            n = y.shape[axis]
            inside = slice(min(n, max(0, before)), max(min(n, max(0, before)), n - max(0, after)))
            for part in (slice(0, inside.start), slice(inside.stop, n)):
                if part.stop > part.start:
                    sweep_fill(ctx, value, y[along(axis, part.start, part.stop)])
            y = y[along(axis, inside.start, inside.stop)]
            first = max(0, -before)
            x = x[along(axis, first, first + (inside.stop - inside.start))]
        sweep_copy(ctx, x, y)


MODES = ("edge", "reflect", "wrap")


@stored_as("pad_repeated")
@dataclass(frozen=True)
class PadRepeated:
    """x continued along one axis by its own elements.

    mode   edge: the first and the last; reflect: mirrored about them; wrap: from the other end
    """

    dtype: str = "f32"
    rank: int = 2
    axis: int = 0
    before: int = 0
    after: int = 0
    mode: str = "edge"

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ArgumentError(f"pad: mode {self.mode!r}; constant, {', '.join(MODES)} work")
        if self.before < 0 or self.after < 0:
            raise ArgumentError("pad: negative widths belong to constant padding or a slice")

    @property
    def name(self) -> str:
        return "pad_repeated"

    def signature(self) -> tuple[ArgSpec, ...]:
        shared = letters(self.rank)
        return (
            ArgSpec("x", self.dtype, shape=shared),
            ArgSpec(
                "y",
                self.dtype,
                "write",
                shape=tuple(f"{s} + {self.before + self.after}" if d == self.axis else s for d, s in enumerate(shared)),
            ),
        )

    def index_space(self) -> IndexSpace:
        return IndexSpace(())

    def source(self, place: int, n: int) -> int:
        """Which element of an axis of n stands at a place counted from the first."""
        if self.mode == "edge" or n == 1:
            return min(max(place, 0), n - 1)
        if self.mode == "wrap":
            return place % n
        place %= 2 * (n - 1)
        return place if place < n else 2 * (n - 1) - place

    def execute(self, ctx: Any) -> None:
        x, y = ctx.read("x"), ctx.write("y")
        n = x.shape[self.axis]
        if n == 0 and self.before + self.after:
            raise ArgumentError(f"pad: an empty axis {self.axis} has no element to repeat")
        sweep_copy(ctx, x, y[along(self.axis, self.before, self.before + n)])
        outside = [*range(self.before), *range(self.before + n, self.before + n + self.after)]
        for place in outside:
            at = self.source(place - self.before, n)
            sweep_copy(ctx, x[along(self.axis, at, at + 1)], y[along(self.axis, place, place + 1)])
