"""Stage tiling: neighbouring steps that split along one axis run tile by tile, and what passes between them is a tile.

A chain is a run of steps in which each reads what an earlier one wrote, index for index along the axis that is cut.
A value that only the chain reads then never exists in full: each worker holds the rows of the tile it is working on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..primitives.kernel import ArgSpec, Axis, index_space
from ..primitives.pipeline import Step, Value
from ..primitives.sizes import ceildiv
from .tuned import STAGE

L2 = 512 * 1024  # bytes that the intermediates of one tile may fill
WORTH = 384 * 1024  # bytes of an intermediate below which it stays in cache anyway
MOST_STEPS = 64  # of one chain, so that the time to find chains grows with the steps alone
LEAST_ROWS = 32  # rows of a tile, so that weights are read for enough of them


@dataclass(frozen=True)
class Chain:
    """Steps that run tile by tile.

    axes   per step, the name of the axis that is cut
    held   values that exist as a tile per worker: {name: dimension that is cut}
    size   extent of the axis
    tile   indices of the axis in one tile
    """

    steps: tuple[Step, ...]
    axes: tuple[str, ...]
    held: dict[str, int]
    size: int
    tile: int


def find_chains(
    order: Sequence[Step],
    kept: set[int],
    shapes: Mapping[str, tuple[int, ...]],
    nbytes: Mapping[str, int],
    threads: int,
    fixed: Mapping[str, Mapping[str, int]],
) -> dict[int, Chain]:
    """Chains by the position of their first step.

    kept    ids of values that must exist in full (outputs, what updates a state)
    nbytes  bytes of each intermediate
    fixed   {step: tile}: a step whose axes are cut as somebody asked stays by itself; `stage` is asked of the whole chain
    """
    asked = {step.name: fixed[step.name][STAGE] for step in order if STAGE in fixed.get(step.name, {})}
    apart = {step.name for step in order if _cut_alone(step, fixed.get(step.name, {}))}
    large = [
        n
        for n, step in enumerate(order)
        if asked.get(step.name) or any(nbytes.get(v.name, 0) >= WORTH for v in step.outputs.values())
    ]
    if not large:
        return {}
    readers: dict[int, set[int]] = {}
    for n, step in enumerate(order):
        for value in step.inputs.values():
            readers.setdefault(id(value), set()).add(n)
    found: dict[int, Chain] = {}
    start = 0
    while start <= large[-1]:
        chain = _longest(order, start, apart, shapes)
        chosen = None
        if len(chain) > 1:
            rows = next((asked[step.name] for step, _ in chain if step.name in asked), 0)
            chosen = _worth(chain, start, order, readers, kept, shapes, nbytes, threads, rows)
        if chosen is not None:
            found[start] = chosen
            start += len(chosen.steps)
        else:
            start += 1
    return found


def _longest(
    order: Sequence[Step], start: int, apart: set[str], shapes: Mapping[str, tuple[int, ...]]
) -> list[tuple[Step, str]]:
    """The longest run from `start` on: [(step, axis)]."""
    first = order[start]
    space = index_space(first.kernel)
    if space is None or first.name in apart:
        return []
    for axis in space.axes:
        cut = _cuts(first, axis.name)
        if axis.split and cut:
            break
    else:
        return []
    chain = [(first, axis.name)]
    where = dict(cut)  # value id -> the dimension that is cut
    extent = _extent(first, axis.name, shapes)
    for step in order[start + 1 : start + MOST_STEPS]:
        follows = _following(step, where)
        if follows is None or step.name in apart or _extent(step, follows, shapes) != extent:
            break
        cut = _cuts(step, follows)
        if not cut:
            break
        chain.append((step, follows))
        where.update(cut)
    return chain


def _cut_alone(step: Step, tile: Mapping[str, int]) -> bool:
    """Whether a step's tile keeps it out of every stage: it cuts an axis by itself, or says so."""
    space = index_space(step.kernel)
    return tile.get(STAGE) == 0 or (space is not None and any(axis.name in tile for axis in space.axes))


def _axis(step: Step, name: str) -> Axis | None:
    space = index_space(step.kernel)
    return next((a for a in space.axes if a.name == name and a.split), None) if space is not None else None


def dimensions(spec: ArgSpec, value: Value) -> list[tuple[int, object]]:
    """(dimension of the value, what it follows), the specification aligned with the last dimensions."""
    follows = spec.follows or ()
    return [(value.ndim - len(follows) + d, f) for d, f in enumerate(follows)]


def _cuts(step: Step, axis: str) -> dict[int, int]:
    """{id of a written value: the dimension that follows the axis}; empty unless all of them do."""
    cut = {}
    for spec in step.specs:
        value = step.outputs.get(spec.slot)
        if value is None:
            continue
        at = [d for d, f in dimensions(spec, value) if f == axis]
        if len(at) != 1 or value.kind == "state" or spec.access != "write":
            return {}
        cut[id(value)] = at[0]
    return cut


def _following(step: Step, where: Mapping[int, int]) -> str | None:
    """The axis along which the step reads everything that the chain has written so far; None if there is none."""
    axes = set()
    for spec in step.specs:
        value = step.inputs.get(spec.slot)
        if value is None or id(value) not in where:
            continue
        axes.add(dict(dimensions(spec, value)).get(where[id(value)]))
    if len(axes) != 1:
        return None
    axis = axes.pop()
    return axis if isinstance(axis, str) and _axis(step, axis) is not None else None


def _extent(step: Step, axis: str, shapes: Mapping[str, tuple[int, ...]]) -> int:
    """The size of an axis, read off a value that follows it."""
    for spec in step.specs:
        value = step.outputs.get(spec.slot)
        if value is not None:
            for d, f in dimensions(spec, value):
                if f == axis:
                    return shapes[value.name][d]
    return -1


def _worth(
    chain: list[tuple[Step, str]],
    start: int,
    order: Sequence[Step],
    readers: Mapping[int, set[int]],
    kept: set[int],
    shapes: Mapping[str, tuple[int, ...]],
    nbytes: Mapping[str, int],
    threads: int,
    asked: int,
) -> Chain | None:
    """The chain with its tile, shortened to where it pays; None where it does not. asked: rows of its tile, 0 for any."""
    size = _extent(chain[0][0], chain[0][1], shapes)
    if size < max(2, threads) * LEAST_ROWS and not asked:
        return None
    inside = range(start, start + len(chain))
    held: dict[str, int] = {}
    for step, axis in chain:
        for spec in step.specs:
            value = step.outputs.get(spec.slot)
            if value is None or id(value) in kept or not readers.get(id(value), {-1}) <= set(inside):
                continue
            if value.name in nbytes:
                held[value.name] = next(d for d, f in dimensions(spec, value) if f == axis)
    if not held or (max(nbytes[name] for name in held) < WORTH and not asked):
        return None
    a_row = sum(nbytes[name] for name in held) / size
    multiple = 1
    for step, axis in chain:
        found = _axis(step, axis)
        assert found is not None
        multiple = max(multiple, found.multiple)
    rows = max(LEAST_ROWS, int(L2 / max(a_row, 1)))
    tiles = int(ceildiv(max(threads, int(ceildiv(size, rows))), threads)) * threads
    tile = int(ceildiv(asked or ceildiv(size, tiles), multiple)) * multiple
    return Chain(tuple(s for s, _ in chain), tuple(a for _, a in chain), held, size, min(tile, size))
