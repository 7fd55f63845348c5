"""Sizes of a result written in terms of the sizes of what a step reads, which is how a kernel states them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...primitives import sizes
from ...primitives.errors import SizeError
from ...primitives.pipeline import Value
from ...primitives.sizes import Shape, Size, SizeLike, floordiv, size

Extent = int | str  # an int, or an expression of letters
MEASURED = 2  # operands that a step takes only to know their sizes


def letters(rank: int, prefix: str = "I") -> tuple[str, ...]:
    """The names that a kernel gives to the sizes of an operand: I0, I1, .."""
    return tuple(f"{prefix}{d}" for d in range(rank))


def relative(wanted: Sequence[SizeLike], given: Sequence[Shape], what: str) -> tuple[Extent, ...]:
    """Sizes as ints, or as expressions of the letters of the operands (I.., J.., K.., for the first, second, third).

    Raises SizeError for a run-time name that no operand has alone or in a sum with constants.
    """
    env: dict[str, SizeLike] = {}
    same = {n: f"{prefix}{d}" for s, prefix in zip(given, "IJK", strict=False) for d, n in enumerate(s)}
    for shape, prefix in zip(given, "IJK", strict=False):
        for d, n in enumerate(shape):
            if isinstance(n, Size):
                _learn(n, f"{prefix}{d}", env)
    found: list[Extent] = []
    for asked in wanted:
        known: Any = size(asked)
        if isinstance(known, Size) and known in same:
            found.append(same[known])
            continue
        if isinstance(known, Size):
            missing = sizes.names(known) - env.keys()
            if missing:
                raise SizeError(
                    f"{what}: size {known} has {', '.join(sorted(missing))}, which no operand has: "
                    f"{', '.join(sizes.show(s) for s in given)}"
                )
            known = sizes.substitute(known, env)
        found.append(known if isinstance(known, int) else str(known))
    return tuple(found)


def _learn(known: Size, letter: str, env: dict[str, SizeLike]) -> None:
    """A name that a size holds linearly is known from it: n = (size - b) / a."""
    free = sizes.names(known)
    if str(known) in free:
        env[str(known)] = size(letter)
        return
    for name in free - env.keys():
        parts = sizes.linear(known, name, {other: other for other in free - {name}})
        if len(free) == 1 and parts is not None and all(isinstance(p, int) for p in parts) and parts[0]:
            env[name] = floordiv(size(letter) - parts[1], parts[0])


def measured(wanted: Sequence[SizeLike], x: Value) -> tuple[Value, ...]:
    """Inputs of the pipeline whose sizes say the run-time names that x cannot: a step takes them to measure them."""
    missing = set().union(*(sizes.names(size(n)) for n in wanted)) - _said(x)
    found: list[Value] = []
    for value in x.pipeline.of_kind("input").values():
        if missing & _said(value) and len(found) < MEASURED:
            found.append(value)
            missing -= _said(value)
    return tuple(found)


def _said(value: Value) -> set[str]:
    env: dict[str, SizeLike] = {}
    for n in value.shape:
        if isinstance(n, Size):
            _learn(n, "I0", env)
    return set(env)
