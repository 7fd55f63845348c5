"""How a kernel's index space is cut into tiles for several threads."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..primitives.errors import ArgumentError
from ..primitives.kernel import Affine, Axis, IndexSpace, index_space, signature
from .recording import Operand

Array = np.ndarray[Any, Any]

SMALL = 48 * 1024  # a kernel that costs less than this (about bytes moved) is not worth a second thread
LONG = 2**30  # a tile that costs more is cut again, so that Ctrl-C is heard while a long step runs


@dataclass(frozen=True)
class Cut:
    """ranges: int64 (tiles, 2 * axes). counts: pieces per axis. cost: about bytes moved, or what the kernel says."""

    ranges: Array
    counts: tuple[int, ...]
    cost: float


def cut(kernel: Any, sizes: Sequence[int], operands: Sequence[Operand], threads: int, tile: Any = None) -> Cut:
    """Tiles for `threads` threads; one tile where the work is small or a single thread asks.

    tile   {axis: size} fixes the tile along an axis, for whoever wants to see what that does
    """
    space = index_space(kernel)
    assert space is not None
    cost = cost_of(kernel, space, sizes, operands)
    if any(n == 0 for n in sizes):
        return Cut(np.zeros((0, 2 * len(sizes)), np.int64), (0,) * len(sizes), 0.0)
    tile = {name: n for name, n in (tile or {}).items() if name not in getattr(kernel, "own_tiles", ())}
    if tile:
        counts = _given(kernel.name, space, sizes, tile)
        return Cut(_ranges(space.axes, sizes, counts, tile), counts, cost)
    if threads <= 1 or cost < SMALL:
        counts = (1,) * len(sizes)
    else:
        counts = _counts(kernel, space, sizes, operands, threads)
    counts = _shortened(kernel, space, sizes, counts, cost)
    return Cut(_ranges(space.axes, sizes, counts), counts, cost)


def cost_of(kernel: Any, space: IndexSpace, sizes: Sequence[int], operands: Sequence[Operand]) -> float:
    """What the whole kernel costs, in about bytes moved: `kernel.cost(extents, *operands)` where it has one, else its operands."""
    own = getattr(kernel, "cost", None)
    if own is not None:
        return float(own({axis.name: n for axis, n in zip(space.axes, sizes, strict=True)}, *operands))
    return float(sum(o.nbytes for o in operands))


def _counts(
    kernel: Any, space: IndexSpace, sizes: Sequence[int], operands: Sequence[Operand], threads: int
) -> tuple[int, ...]:
    """How often to cut each axis: as evenly as possible, then with the least data read twice, then into long runs."""
    free = _followed(kernel)
    pieces = [
        max(1, -(-n // axis.multiple)) if axis.split and axis.name in free else 1
        for axis, n in zip(space.axes, sizes, strict=True)
    ]
    best: tuple[float, tuple[int, ...]] | None = None
    for counts in reversed(_factorings(threads, len(sizes))):  # of equals, what is cut along the outermost axes
        counts = tuple(min(c, p) for c, p in zip(counts, pieces, strict=False))
        share = 1.0
        for axis, n, c, p in zip(space.axes, sizes, counts, pieces, strict=True):
            share *= min(-(-p // c) * axis.multiple, n) / n if c > 1 else 1.0  # a last piece may be a small one
        again = 0.0
        for slot_follows, nbytes in _traffic(kernel, operands):
            copies = 1
            for axis, c in zip(space.axes, counts, strict=False):
                if axis.name not in slot_follows:
                    copies *= c
            again += nbytes * copies
        score = share * cost_of(kernel, space, sizes, operands) + 0.25 * again / threads
        if best is None or score < best[0]:
            best = (score, counts)
    assert best is not None
    return best[1]


def _shortened(
    kernel: Any, space: IndexSpace, sizes: Sequence[int], counts: tuple[int, ...], cost: float
) -> tuple[int, ...]:
    """Each piece cut again, along the outermost axes that allow it, until none costs more than LONG."""
    wanted = math.ceil(cost / math.prod(counts) / LONG)
    if wanted <= 1:
        return counts
    free, shorter = _followed(kernel), []
    for axis, n, c in zip(space.axes, sizes, counts, strict=True):
        units = -(-n // axis.multiple) if axis.split and axis.name in free else c
        again = max(1, min(wanted, units // c))
        wanted = -(-wanted // again)
        shorter.append(c * again)
    return tuple(shorter)


def _followed(kernel: Any) -> set[str]:
    """The axes that everything the kernel writes follows: along them, tiles write parts of their own."""
    written = [spec for spec in signature(kernel) if spec.writes]
    axes = [{f for f in spec.follows or () if isinstance(f, str)} for spec in written]
    return set.intersection(*axes) if axes else set()


def _traffic(kernel: Any, operands: Sequence[Operand]) -> list[tuple[set[str], int]]:
    """Per read slot of the kernel: the axes that it follows, and about how many bytes it has."""
    found = []
    reads = [spec for spec in signature(kernel) if spec.reads]
    for spec, operand in zip(reads, operands, strict=False):
        axes = {f.axis if isinstance(f, Affine) else f for f in spec.follows or () if f is not None}
        found.append((axes, operand.nbytes))
    return found


def _factorings(threads: int, axes: int) -> list[tuple[int, ...]]:
    if axes == 0:
        return [()]
    if axes == 1:
        return [(threads,)]
    return [
        (n, *rest) for n in range(1, threads + 1) if threads % n == 0 for rest in _factorings(threads // n, axes - 1)
    ]


def in_turn(axes: Sequence[Axis], sizes: Sequence[int], how: Cut) -> Array:
    """int64 (stages, tiles, 2 * axes): the ranges of a cut, for each stage that it takes.

    It takes one, unless there are several tiles and an axis whose places follow each other.
    """
    turns = [d for d, axis in enumerate(axes) if axis.in_turn]
    if len(how.ranges) < 2 or not turns:
        return how.ranges[None]
    (d,) = turns
    places = np.arange(sizes[d])
    stages = np.repeat(how.ranges[None], len(places), axis=0)
    stages[:, :, 2 * d], stages[:, :, 2 * d + 1] = places[:, None], places[:, None] + 1
    return stages


def _given(name: str, space: IndexSpace, sizes: Sequence[int], tile: Any) -> tuple[int, ...]:
    known = {axis.name: axis for axis in space.axes}
    for axis, n in tile.items():
        if axis not in known:
            raise ArgumentError(f"kernel {name!r} has no axis {axis!r}; it has {', '.join(known)}")
        if n < 1 or (known[axis].split and n % known[axis].multiple):
            raise ArgumentError(
                f"tile {axis}={n} of kernel {name!r}: a positive multiple of {known[axis].multiple} is needed"
            )
        if not known[axis].split and n < dict(zip(known, sizes, strict=False))[axis]:
            raise ArgumentError(f"axis {axis!r} of kernel {name!r} cannot be split; leave it out of tile=")
    return tuple(
        -(-n // tile[axis.name]) if axis.name in tile else 1 for axis, n in zip(space.axes, sizes, strict=False)
    )


def _ranges(axes: Sequence[Axis], sizes: Sequence[int], counts: Sequence[int], tile: Any = None) -> Array:
    """Every tile's (lo, hi) per axis; pieces along an axis differ by at most one multiple."""
    edges = []
    for axis, n, c in zip(axes, sizes, counts, strict=False):
        if tile and axis.name in tile:
            bounds = [min(i * tile[axis.name], n) for i in range(c + 1)]
        else:
            units = -(-n // axis.multiple)
            bounds = [min(units * i // c * axis.multiple, n) for i in range(c)] + [n]
        edges.append([(lo, hi) for lo, hi in itertools.pairwise(bounds) if hi > lo])
    grid = np.indices([len(e) for e in edges]).reshape(len(edges), -1) if edges else np.zeros((0, 1), int)
    table = np.zeros((grid.shape[1], 2 * len(edges)), np.int64)
    for d, e in enumerate(edges):
        table[:, 2 * d : 2 * d + 2] = np.array(e, np.int64)[grid[d]]
    return table
