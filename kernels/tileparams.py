"""What an implementation leaves open: its tile parameters, the values worth trying, and what a choice makes it do.

An implementation names its parameters when it is registered. Whoever measures tiles, or looks one up that was measured,
learns everything from here, so a kernel that nobody has seen before can be tuned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..primitives.errors import ArgumentError
from .facts import wanted

LEVELS = ("l1", "l2", "l3", "memory")


@dataclass(frozen=True)
class TileParam:
    """An integer that an implementation leaves open.

    default   its value where nobody says; None: the implementation decides from the sizes
    values    worth trying: a sequence, or a function of any of the facts `kernel`, `sizes`, `isa` that returns one;
              empty: powers of two around the default
    compiled  whether another value is another specialisation, rather than a word at run time
    doc       one line for people
    """

    default: int | None = None
    values: Sequence[int] | Callable[..., Sequence[int]] = ()
    compiled: bool = False
    doc: str = ""

    @classmethod
    def of(cls, given: Any) -> TileParam:
        """A plain integer is a default."""
        return given if isinstance(given, cls) else cls(int(given))

    def choices(self, facts: Mapping[str, Any]) -> tuple[int, ...]:
        """The values worth trying, ascending."""
        found = self.values
        if callable(found):
            found = found(**wanted(found, facts))
        if not found and self.default is not None:
            found = [self.default << n for n in range(3)] + [self.default >> n for n in (1, 2)]
        return tuple(sorted({int(n) for n in found if n >= 1}))


@dataclass(frozen=True)
class Work:
    """What a tile makes an implementation do: with measured ceilings, an estimate of its time before it is compiled.

    tile        the parameters as they come out at these sizes: what is clamped is clamped here
    operations  that the arithmetic unit could have done meanwhile: those asked for, those on padding, those that wait for
                a latency, and those lost at the ends of a tile
    unit        which ceiling holds for them: "dot" (8-bit products) or "fma" (float32)
    bytes       {level: bytes that come from it}, of LEVELS
    group       what the specialisation depends on: tiles of one group are compiled once
    hopeless    why it is not worth compiling; empty if it is
    """

    tile: Mapping[str, int]
    operations: float
    unit: str = "dot"
    bytes: Mapping[str, float] = field(default_factory=dict)
    group: Mapping[str, int] = field(default_factory=dict)
    hopeless: str = ""


def values_of(params: Mapping[str, Any], tile: Mapping[str, int], kernel: str) -> tuple[int, ...]:
    """The integers that follow the operands of a tile function: those of `tile`, else the defaults."""
    found = []
    for name, given in params.items():
        param = TileParam.of(given)
        value = tile.get(name, param.default)
        if value is None or value < 1:
            raise ArgumentError(f"tile {name}={value} of kernel {kernel!r}: a positive integer is needed")
        found.append(int(value))
    return tuple(found)
