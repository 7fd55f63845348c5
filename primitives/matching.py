"""Unifying the sizes that a slot asks for with those of the value that is there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .errors import ShapeMismatch
from .sizes import Shape, Size, floordiv, linear, names, show, substitute

# Two sizes that can only be compared once they are known, and where they meet.
Constraint = tuple[int | Size, int | Size, str]


def match(
    asked: Iterable[Any],
    found: Shape,
    env: dict[str, Any] | None,
    where: str,
    constraints: list[Constraint],
) -> None:
    """Unify the sizes that a slot asks for with those of the value there; `env` gathers the slot's names.

    With env None the names on both sides are the pipeline's own, and sizes are only compared.
    """
    wanted = tuple(asked)
    if wanted and wanted[0] == "...":
        wanted = wanted[1:]
        if len(found) < len(wanted):
            raise ShapeMismatch(f"{where} has shape {show(found)}; at least {len(wanted)} dimensions are needed")
        lead, found = found[: len(found) - len(wanted)], found[len(found) - len(wanted) :]
        if env is not None and env.setdefault("...", lead) != lead:
            raise ShapeMismatch(f"{where} has leading sizes {show(lead)}; the others have {show(env['...'])}")
    if len(wanted) != len(found):
        raise ShapeMismatch(f"{where} has rank {len(found)}, shape {show(found)}; {show(wanted)} is asked for")
    for axis, (want, have) in enumerate(zip(wanted, found, strict=False)):
        if env is not None and isinstance(want, Size):
            unknown = names(want) - env.keys()
            if len(unknown) == 1:
                _learn(want, have, unknown.pop(), env, where, axis)
            if names(want) - env.keys():
                continue
            want = substitute(want, env)
        if want == have:
            continue
        if isinstance(want, int) and isinstance(have, int):
            raise ShapeMismatch(f"{where} has shape {show(found)}: axis {axis} is {have}, but {want} is asked for")
        constraints.append((want, have, f"{where}, axis {axis}"))


def _learn(want: Size, have: int | Size, name: str, env: dict[str, Any], where: str, axis: int) -> None:
    """Enter into `env` what `name` is, where `want` is a line in it. Whether it divides is checked by the caller."""
    line = linear(want, name, env)
    if line is None or not isinstance(line[0], int) or line[0] < 1:
        return
    value = floordiv(have + line[1] * -1, line[0])
    if isinstance(value, int) and value < 0:
        raise ShapeMismatch(f"{where}: axis {axis} is {have}, but {want} is asked for, and no size {name!r} gives that")
    env[name] = value
