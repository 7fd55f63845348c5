"""Random operands of a step: sizes around the widths of vectors and tiles, values at the ends of types, odd layouts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from ...primitives import dtypes
from ...primitives.pipeline import Pipeline, Value

SIZES = (0, 1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 63, 64, 65, 100)
LAYOUTS = ("contiguous", "transposed", "every second", "backwards", "one for all")


@dataclass(frozen=True)
class Cell:
    """What a family is asked for: a step, the type that it is about, and the granularity of its parameters."""

    step: str
    dtype: str
    granularity: str = "-"


class Draw:
    """A pipeline of one step in the making, its inputs, and the dice.

    seed      of what is compiled: ranks, axes, modes, types
    variant   of what a compiled step takes: sizes, elements, scales, zero points. Variants of one seed share their code
    limit     the largest size of an axis: what fails is made again with smaller ones
    """

    def __init__(
        self, seed: Sequence[int], layout: str = "contiguous", limit: int = SIZES[-1], variant: Sequence[int] = (0,)
    ) -> None:
        self.rng = np.random.default_rng(list(seed))
        self.numbers = np.random.default_rng([*seed, *variant, 2])
        self.layout = layout
        self.limit = limit
        self.pipe = Pipeline("proof")
        self.inputs: dict[str, Any] = {}
        self.numpy: tuple[Any, ...] = ()  # what NumPy gives, of steps whose reference shares code with what it judges

    def pick(self, *options: Any) -> Any:
        """One of the options."""
        return options[int(self.rng.integers(len(options)))]

    def maybe(self, chance: float = 0.5) -> bool:
        """True with this probability."""
        return bool(self.rng.random() < chance)

    def size(self, least: int = 0, most: int | None = None) -> int:
        """The size of an axis."""
        top = self.limit if most is None else min(most, self.limit)
        return max(least, min(SIZES[int(self.numbers.integers(len(SIZES)))], top))

    def shape(self, rank: int, least: int = 0, elements: int = 20_000) -> tuple[int, ...]:
        """Sizes of so many axes, which hold no more than so many elements."""
        found: list[int] = []
        for _ in range(rank):
            room = max(1, elements // max(1, int(np.prod(found))))
            found.append(min(self.size(least), room))
        return tuple(found)

    def values(self, dtype: str, shape: tuple[int, ...], tame: bool = False) -> Any:
        """Random elements, some of them at the ends of the type; tame: floats near one, and nothing special."""
        kind = dtypes.get(dtype)
        if dtype == "bool":
            return self.numbers.integers(0, 2, shape).astype(bool)
        if kind.kind in ("float", "scale"):
            with np.errstate(over="ignore", under="ignore", invalid="ignore"):
                x = (
                    self.numbers.standard_normal(shape) * (1.0 if tame else 10.0 ** self.numbers.integers(-2, 4))
                ).astype(kind.numpy)
                ends = ml_dtypes.finfo(kind.numpy)
                least, largest = float(ends.smallest_normal), float(ends.max)
                special = np.array(
                    [0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 0.5, least, 0.75 * least, 0.25 * least, largest, -largest]
                ).astype(kind.numpy)
                if not tame and self.numbers.random() < 0.15:  # halves: ties of what rounds to whole numbers
                    x = (np.rint(x.astype(np.float32) * 2) / 2).astype(kind.numpy)
            x = np.array(x, kind.numpy)
            if tame:
                return x
        else:  # of packed types the codes, in a byte each
            wide = np.int64 if kind.min < 0 else np.uint64
            number = kind.code if kind.packed else kind.numpy
            x = np.array(self.numbers.integers(int(kind.min), int(kind.max), shape, wide, True), number)
            special = np.array([int(kind.min), int(kind.max), 0], object).astype(number)
        if self.numbers.random() < 0.2 and kind.kind not in ("float", "scale"):
            return special[self.numbers.integers(0, 2, shape)]
        at = self.numbers.random(shape) < 0.05
        x[at] = special[self.numbers.integers(0, len(special), int(at.sum()))]
        return x

    def laid(self, make: Callable[[tuple[int, ...]], Any], shape: tuple[int, ...]) -> Any:
        """make(shape), as a view of the layout that is asked for."""
        if not shape or self.layout == "contiguous":
            return make(shape)
        if self.layout == "transposed":
            return make(tuple(reversed(shape))).T
        if self.layout == "every second":
            return make((*shape[:-1], 2 * shape[-1]))[..., ::2]
        if self.layout == "backwards":
            return make(shape)[..., ::-1]
        return np.broadcast_to(make((1, *shape[1:])), shape)

    def input(self, dtype: str, shape: tuple[int, ...], tame: bool = False, array: Any = None) -> Value:
        """An input of the pipeline: values() in the layout; sometimes its first size is known only at run time."""
        name = f"x{len(self.inputs)}"
        self.inputs[name] = self.laid(lambda s: self.values(dtype, s, tame), shape) if array is None else array
        open_size = name == "x0" and array is None and bool(shape) and shape[0] > 1 and self.maybe(0.15)
        return self.pipe.input(name, dtype, (f"n{len(self.inputs)}", *shape[1:]) if open_size else shape)

    def scale(self, shape: tuple[int, ...] = ()) -> Any:
        """Positive finite float32 numbers of usual size; now and then powers of two, with which codes may tie.

        Or small odd numbers, with which they may tie as well, while products with the inverse do not.
        """
        kind = self.numbers.random()
        if kind < 0.25:
            return (2.0 ** self.numbers.integers(-1, 3, shape)).astype(np.float32)
        if kind < 0.35:
            return self.numbers.choice(np.array([3, 7, 13, 15], np.float32), shape)
        return (2.0 ** self.numbers.uniform(-8, 2, shape)).astype(np.float32)

    def code(self, dtype: str, shape: tuple[int, ...] = ()) -> Any:
        """Codes of an integer type of up to 32 bits, often 0 and often at an end; small ones in a byte each.

        Zeros of types that have no such codes, for what will be refused.
        """
        kind = dtypes.get(dtype)
        if kind.kind not in ("int", "uint") or kind.bits > 32:
            return np.zeros(shape, kind.numpy)
        low, high = int(kind.min), int(kind.max)
        found = self.numbers.integers(low, high, shape, np.int64, True)
        if self.numbers.random() < 0.3:
            found = np.zeros(shape, np.int64)
        elif self.numbers.random() < 0.3:
            found = np.full(shape, low if self.numbers.random() < 0.5 else high)
        return np.asarray(found).astype((np.int8 if low < 0 else np.uint8) if kind.packed else kind.numpy)


@dataclass(frozen=True)
class Family:
    """Cells, and what draws a configuration of one of them: a value or several, which become the outputs."""

    cells: tuple[Cell, ...]
    draw: Callable[[Draw, Cell], Any]


def cells(steps: Sequence[str], types: Sequence[str], granularities: Sequence[str] = ("-",)) -> tuple[Cell, ...]:
    """All combinations."""
    return tuple(Cell(s, t, g) for s in steps for t in types for g in granularities)
