"""The borrow checker's rule, proven on a finished program: between barriers, one writer or many readers of every byte.

Tiles of one stage may run at once and in any order. So of every value that a stage writes, each tile must write a part
of its own, and nothing that a stage writes may be what another of its tiles reads. Steps of different stages never run
at once, but they share the arena: two values that overlap there must not be alive together.

Nothing here trusts what the planner believed: lifetimes are read off the stages in the order in which they run, and the
parts that tiles write and read off the ranges that they are given.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..primitives.errors import PipelineError
from ..primitives.kernel import index_space, signature
from .intervals import Array, dimensions, is_partition, needs
from .program import ARENA, LOCAL

if TYPE_CHECKING:
    from ..primitives.pipeline import Step, Value
    from .binding import Laid, Placed
    from .chaining import Chain
    from .program import Stage


def verify(
    laid: Sequence[Laid],
    placed: Mapping[str, Placed],
    shapes: Mapping[str, tuple[int, ...]],
    chains: Iterable[Chain],
    to_the_end: Iterable[Value],
) -> None:
    """Raise PipelineError naming the steps if a program breaks the rule. It cannot happen unless the planner is wrong.

    placed      where each value lies
    shapes      of every value
    to_the_end  values that are read after the last stage: what states become
    """
    moments = _moments(laid)
    _apart(moments, placed, to_the_end)
    for moment in moments:
        if len(moment) == 1:
            _own_parts(moment[0])
        elif not moment[0].beside:
            chain = next((c for c in chains if c.steps[0] is moment[0].step), None)
            if chain is None or [s.name for s in chain.steps] != [item.step.name for item in moment]:
                raise PipelineError(f"step {moment[0].step.name!r} begins a stage of steps that are no chain")
            _chained(chain, moment[0].stages[0], shapes, placed)
        else:
            _independent([item.step for item in moment])
            for item in moment:
                _own_parts(item)


def _moments(laid: Sequence[Laid]) -> list[list[Laid]]:
    """Steps that run at the same time: those whose rows are in the stages of the first of them."""
    moments: list[list[Laid]] = []
    inside: set[str] = set()
    for item in laid:
        if item.stages or item.python or item.step.name not in inside:
            inside = {row.step for stage in item.stages for row in stage.rows}
            moments.append([item])
        else:
            moments[-1].append(item)
    return moments


def _own_parts(item: Laid) -> None:
    """A step by itself: each of its sweeps is cut along axes that everything it writes follows, or into one tile.

    A step may sweep another kernel than itself: what is swept says what it follows.
    """
    for kernel, how in zip(item.swept, item.cuts, strict=True):
        space = index_space(kernel)
        assert space is not None
        cut_axes = {axis.name for axis, n in zip(space.axes, how.counts, strict=True) if n > 1}
        for spec in signature(kernel):
            if not spec.writes:
                continue
            followed = {f for f in spec.follows or () if isinstance(f, str)}
            if not cut_axes <= followed:
                raise PipelineError(
                    f"step {item.step.name!r} is cut along {', '.join(sorted(cut_axes - followed))}, which its slot "
                    f"{spec.slot!r} does not follow: its tiles would write the same bytes"
                )
        ranges = how.ranges.reshape(len(how.ranges), len(space.axes), 2)
        for d, axis in enumerate(space.axes):
            edges = np.unique(ranges[:, d], axis=0)
            if len(edges) > 1 and not (edges[1:, 0] >= edges[:-1, 1]).all():
                raise PipelineError(f"step {item.step.name!r}: tiles overlap along {axis.name}")


def _chained(chain: Chain, stage: Stage, shapes: Mapping[str, tuple[int, ...]], placed: Mapping[str, Placed]) -> None:
    """Steps of one stage: each has, within a tile, what it reads; what exists in full is written once."""
    links = list(zip(chain.steps, chain.axes, strict=True))
    cuts = [_part(row.ranges, step, axis) for row, (step, axis) in zip(stage.rows, links, strict=True)]
    for n, ((step, axis), cut) in enumerate(zip(links, cuts, strict=True)):
        for value in step.outputs.values():
            if value.name not in chain.held:
                own = next(spec for spec in step.specs if step.outputs.get(spec.slot) is value)
                at = next(d for d, f in dimensions(own, value) if f == axis)
                if not is_partition(cut, shapes[value.name][at]):
                    raise PipelineError(f"step {step.name!r}: tiles of its stage write parts of {value.name!r} twice")
        for later, part in zip(links[n + 1 :], cuts[n + 1 :], strict=True):
            for wanted in needs(step, axis, later, part, shapes):
                if (wanted[:, 0] < cut[:, 0]).any() or (wanted[:, 1] > cut[:, 1]).any():
                    raise PipelineError(
                        f"step {later[0].name!r} reads more of what {step.name!r} writes than its tile has of it"
                    )
    for name in chain.held:
        if placed[name].base in (ARENA, LOCAL):
            raise PipelineError(f"{name!r} is a tile of each thread, but it lies where all of them write")


def _part(ranges: Array, step: Step, axis: str) -> Array:
    """(lo, hi) of one axis in every tile."""
    space = index_space(step.kernel)
    assert space is not None
    at = [a.name for a in space.axes].index(axis)
    return ranges[:, 2 * at : 2 * at + 2]


def _independent(steps: Sequence[Step]) -> None:
    """Steps that run at once: none reads or writes what another writes."""
    for step in steps:
        for value in step.outputs.values():
            for other in steps:
                touched = [*other.inputs.values(), *other.outputs.values()]
                if other is not step and any(v is value for v in touched):
                    raise PipelineError(
                        f"step {other.name!r} runs at once with {step.name!r}, which writes {value.name!r}"
                    )


@dataclass
class _Life:
    """The bytes of a value in the arena, and the first and last moment at which something touches them."""

    name: str
    lo: int
    hi: int
    first: int
    last: int


def _apart(moments: Sequence[Sequence[Laid]], placed: Mapping[str, Placed], to_the_end: Iterable[Value]) -> None:
    """Values whose bytes overlap in the arena are never alive at the same moment."""
    lives: dict[str, _Life] = {}
    for n, moment in enumerate(moments):
        for item in moment:
            for value in [*item.step.inputs.values(), *item.step.outputs.values()]:
                _touch(lives, value, placed, n)
    for value in to_the_end:
        _touch(lives, value, placed, len(moments))
    alive: list[_Life] = []
    for life in sorted(lives.values(), key=lambda x: x.first):
        alive = [other for other in alive if other.last >= life.first]
        for other in alive:
            if life.lo < other.hi and other.lo < life.hi:
                raise PipelineError(f"{life.name!r} and {other.name!r} are alive together and overlap in the arena")
        alive.append(life)


def _touch(lives: dict[str, _Life], value: Value, placed: Mapping[str, Placed], moment: int) -> None:
    where = placed.get(value.name)
    if where is None or where.base != ARENA or value.dtype is None:
        return
    if value.name not in lives:
        nbytes = value.dtype.numpy.itemsize
        for n in where.shape:
            nbytes *= n
        lives[value.name] = _Life(value.name, where.offset, where.offset + nbytes, moment, moment)
    lives[value.name].last = moment
