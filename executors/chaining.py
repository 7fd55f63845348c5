"""Stage tiling: neighbouring steps that split along one axis run tile by tile, and what passes between them is a tile.

A chain is a run of steps in which each reads what an earlier one wrote, index for index or through a window along the
axis that is cut. A value that only the chain reads then never exists in full: each worker holds the rows of the tile
that it is working on, and where a window reads across the tile's edge, those rows too: they are computed twice.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..primitives.arena import lower_bound
from ..primitives.kernel import Affine, index_space
from ..primitives.pipeline import Step
from .intervals import Link, axis_of, dimensions, extent_of, propagate, tiles_of
from .tuned import STAGE

Array = np.ndarray[Any, Any]

L2 = 256 * 1024  # bytes that the intermediates of one tile may fill; what each step packs has to fit beside them
MOST_LIVE = 3 * L2  # the same, where smaller tiles would compute too much twice
WORTH = 384 * 1024  # bytes of an intermediate below which it stays in cache anyway
MOST_STEPS = 64  # of one chain, so that the time to find chains grows with the steps alone
LEAST_ROWS = 48  # rows of a tile, so that weights are read for enough of them; a multiple of most register tiles
# a kernel that does more with weights than read them says more of itself (`least_rows`)
MOST_ROWS = 1.5  # times the rows that fill that: where tiles are not whole otherwise
UNEVEN = 1.04  # times its share, what a thread may have
MOST_AGAIN = 1.15  # what the chain may compute, halos included, by what it would compute without tiles; a kernel may
# say less of itself (`most_again`): where arithmetic is all of its time, there is little that a stage could save


@dataclass(frozen=True)
class Chain:
    """Steps that run tile by tile.

    axes    per step, the name of the axis that is cut
    held    values that exist as a tile per worker: {name: dimension that is cut}
    size    extent of the last step's axis
    tile    indices of that axis in one tile
    cuts    per step, int64 (tiles, 2): the (lo, hi) that it computes in each tile
    again   what all steps compute, halos included, by what they would compute without tiles
    """

    steps: tuple[Step, ...]
    axes: tuple[str, ...]
    held: dict[str, int]
    size: int
    tile: int
    cuts: tuple[Array, ...]
    again: float = 1.0


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
    search = _Search(order, kept, readers, shapes, nbytes, threads)
    found: dict[int, Chain] = {}
    start = 0
    while start <= large[-1]:
        chosen = None
        for chain in _runs(order, start, apart, shapes):
            rows = next((asked[step.name] for step, _ in chain if step.name in asked), 0)
            chosen = search.worth(chain, start, rows)
            if chosen is not None:
                break
        if chosen is not None:
            found[start] = chosen
            start += len(chosen.steps)
        else:
            start += 1
    return found


def _runs(
    order: Sequence[Step], start: int, apart: set[str], shapes: Mapping[str, tuple[int, ...]]
) -> list[list[Link]]:
    """The longest run from `start` on along each axis of the first step that is more than one step."""
    first = order[start]
    space = index_space(first.kernel)
    if space is None or first.name in apart:
        return []
    runs = []
    for axis in space.axes:
        where = _cuts(first, axis.name)  # value id -> the dimension that is cut
        if not axis.split or not where or extent_of(first, axis.name, shapes) < 2:
            continue
        chain = [(first, axis.name)]
        for step in order[start + 1 : start + MOST_STEPS]:
            follows = _following(step, where)
            cut = _cuts(step, follows) if follows is not None and step.name not in apart else {}
            if follows is None or not cut:
                break
            chain.append((step, follows))
            where.update(cut)
        if len(chain) > 1:
            runs.append(chain)
    return runs


def _cut_alone(step: Step, tile: Mapping[str, int]) -> bool:
    """Whether a step's tile keeps it out of every stage: it cuts an axis by itself, or says so."""
    space = index_space(step.kernel)
    return tile.get(STAGE) == 0 or (space is not None and any(axis.name in tile for axis in space.axes))


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
        follow = dict(dimensions(spec, value)).get(where[id(value)])
        axes.add(follow.axis if isinstance(follow, Affine) else follow)
    if len(axes) != 1:
        return None
    axis = axes.pop()
    return axis if isinstance(axis, str) and axis_of(step, axis) is not None else None


def _has_window(chain: Sequence[Link]) -> bool:
    """Whether a step reads more along the axis than its own indices: then a shorter chain may do where this does not."""
    return any(isinstance(f, Affine) for step, _ in chain for spec in step.specs for f in spec.follows or ())


@dataclass(frozen=True)
class _Search:
    """What the worth of a chain depends on, the same for all of a pipeline."""

    order: Sequence[Step]
    kept: set[int]
    readers: Mapping[int, set[int]]
    shapes: Mapping[str, tuple[int, ...]]
    nbytes: Mapping[str, int]
    threads: int

    def worth(self, chain: list[Link], start: int, asked: int) -> Chain | None:
        """The chain with its tile, as many of its steps as can be had; None where it does not pay.

        asked   rows of its tile, 0 for any
        """
        while len(chain) > 1:
            held = self._held(chain, start)
            if not held or (max(self.nbytes[name] for name in held) < WORTH and not asked):
                return None
            made = self._tiled(chain, held, asked)
            if made is not None or not _has_window(chain):
                return made
            chain = chain[:-1]
        return None

    def _held(self, chain: list[Link], start: int) -> dict[str, int]:
        """{value that only the chain reads: its dimension that is cut}"""
        inside = set(range(start, start + len(chain)))
        held: dict[str, int] = {}
        for step, axis in chain:
            for spec in step.specs:
                value = step.outputs.get(spec.slot)
                if value is None or id(value) in self.kept or not self.readers.get(id(value), {-1}) <= inside:
                    continue
                at = next(d for d, f in dimensions(spec, value) if f == axis)
                packed = value.dtype is not None and value.dtype.per_byte > 1 and at == value.ndim - 1
                if value.name in self.nbytes and not packed and math.prod(self.shapes[value.name][:at]) == 1:
                    held[value.name] = at
        return held

    def _tiled(self, chain: list[Link], held: dict[str, int], asked: int) -> Chain | None:
        size = extent_of(*chain[-1], self.shapes)
        multiple = math.lcm(*(axis.multiple for step, name in chain if (axis := axis_of(step, name)) is not None))
        wanted = max(getattr(step.kernel, "least_rows", LEAST_ROWS) for step, _ in chain)
        least = max(1, wanted // self._rows(chain, held))
        if not asked and size < max(2, self.threads) * least:
            return None
        a_row = self._live(chain, held) / size
        rows = max(least, int(L2 / max(a_row, 1)) // least * least)
        pieces = -(-max(self.threads, -(-size // rows)) // self.threads) * self.threads
        if not asked:
            pieces = _even(size, pieces, multiple, self.threads, least, MOST_ROWS * rows)
        tile = -(-(asked or -(-size // pieces)) // multiple) * multiple
        if not asked and pieces >= 8 * self.threads and tile > least:  # as many whole rows of register tiles as can be
            tile = max(tile // math.lcm(least, multiple), 1) * math.lcm(least, multiple)
        while tile < (2 * size if asked else size):  # a single tile would save nothing
            cuts = propagate(chain, tiles_of(size, tile), self.shapes, held)
            if cuts is None:
                return None
            shares = [
                int((cut[:, 1] - cut[:, 0]).sum()) / max(1, extent_of(step, axis, self.shapes))
                for (step, axis), cut in zip(chain, cuts, strict=True)
            ]
            again = sum(shares) / len(shares)
            if again <= min(getattr(step.kernel, "most_again", MOST_AGAIN) for step, _ in chain) or asked:
                steps, axes = zip(*chain, strict=True)
                return Chain(steps, axes, held, size, min(tile, size), tuple(cuts), again)
            tile *= 2
            if not asked and tile * a_row > MOST_LIVE:  # a tile that leaves the cache saves nothing but memory
                return None
        return None

    def _rows(self, chain: list[Link], held: dict[str, int]) -> int:
        """How many rows of the innermost dimension one index of the axis stands for, at least."""
        return max(1, min(math.prod(self.shapes[name][at + 1 : -1]) for name, at in held.items()))

    def _live(self, chain: list[Link], held: dict[str, int]) -> int:
        """The most bytes of held values that are alive at once."""
        return lower_bound((self.nbytes[name], first, last) for name, (first, last) in lives(chain, held).items())


def _even(size: int, pieces: int, multiple: int, threads: int, least: int, most: float) -> int:
    """About as many pieces, but so that no thread has far more rows than another once tiles are whole multiples.

    least, most   rows of a tile, where it is another one
    """

    def busiest(n: int) -> float:
        tile = -(-size // max(n, 1) // multiple) * multiple
        if n < threads or (n != pieces and not least <= tile <= most):
            return float("inf")
        return int((tiles_of(size, tile) @ (-1, 1))[::threads].sum())

    if threads == 1 or busiest(pieces) <= UNEVEN * size / threads:
        return pieces
    return min((pieces + step * threads for step in (0, -1, 1, -2)), key=busiest)


def lives(chain: Sequence[Link], held: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """{held value: (position in the chain of the step that writes it, of the last that reads it)}"""
    found: dict[str, tuple[int, int]] = {}
    for n, (step, _) in enumerate(chain):
        for value in step.outputs.values():
            if value.name in held:
                found[value.name] = (n, n)
        for value in step.inputs.values():
            if value.name in found:
                found[value.name] = (found[value.name][0], n)
    return found
