"""Gathers on the CPU. kernels/reference/moving.py says what they compute."""

from __future__ import annotations

from ...factory import register
from ...forge import Native
from ...indexing import AXES
from ...moving.gather import Gather, GatherElements, GatherND

HEADER = 'from numba import njit\n\n\n@njit(nogil=True, error_model="numpy")\n'


def wrapped(place: str, extent: str, indent: int) -> list[str]:
    """Lines that count a negative index from the end, and leave the tile where it is outside."""
    pad = "    " * indent
    return [
        f"{pad}if {place} < 0:",
        f"{pad}    {place} += {extent}",
        f"{pad}if {place} < 0 or {place} >= {extent}:",
        f"{pad}    return 1",
    ]


def tile_text(arguments: list[str], lines: list[str]) -> Native:
    return Native(HEADER + f"def tile({', '.join(arguments)}):\n" + "".join(f"    {line}\n" for line in lines))


def loops(names: str, start: int = 0) -> list[str]:
    return [f"{'    ' * (start + d)}for {n} in range({n}0, {n}1):" for d, n in enumerate(names)]


def along_last(depth: int, target: list[str], source: list[str], last: str, statement: str) -> list[str]:
    """A loop over the last axis by views of the two rows, which LLVM makes vectors of where elements are neighbours.

    target, source  indices of y and of what is read, `last` at their end
    statement       over target[last] and source[last]
    """
    pad = "    " * depth
    run = f"{last}0:{last}1"
    return [
        f"{pad}target = y[{', '.join([*target[:-1], run])}]",
        f"{pad}source = {source[0]}[{', '.join([*source[1:-1], run])}]",
        f"{pad}for {last} in range({last}1 - {last}0):",
        *(f"{pad}    {line}" for line in statement.split("\n")),
    ]


def ranges(names: str) -> list[str]:
    return [f"{n}0, {n}1" for n in names]


def moved_rows(depth: int, inner: str, target: list[str], source: list[str]) -> list[str]:
    """Lines for y[target] = x[source] over the axes `inner`, which both end with: runs of memory are copied as such."""
    pad = "    " * depth
    if not inner:
        return [f"{pad}y[{', '.join(target) or '()'}] = x[{', '.join(source)}]"]

    def start(places: list[str]) -> str:
        return "".join(f"{n}, " for n in [*places[: -len(inner)], *(f"{n}0" for n in inner)])

    counts = "".join(f"{n}1 - {n}0, " for n in inner)
    return [f"{pad}copy_block(y, ({start(target)}), x, ({start(source)}), ({counts}))"]


def _with_blocks(tile: Native) -> Native:
    return Native(f"from {__package__}.block import copy_block\n{tile.source}")


@register("gather", backend="cpu")
def build_gather(kernel: Gather) -> Native:
    rank = kernel.rank - 1 + kernel.index_rank
    names = AXES[:rank]
    before, index, after = (
        names[: kernel.axis],
        names[kernel.axis : kernel.axis + kernel.index_rank],
        names[kernel.axis + kernel.index_rank :],
    )
    lines = loops(before + index)
    depth = len(before + index)
    lines.append(f"{'    ' * depth}place = indices[{', '.join(index) or '()'}]")
    lines += wrapped("place", f"x.shape[{kernel.axis}]", depth)
    source = [*before, "place", *after]
    target = [*before, *index, *after]
    lines += moved_rows(depth, after, target, source)
    lines.append("return 0")
    return _with_blocks(tile_text([*ranges(names), "x", "indices", "y"], lines))


@register("gather_elements", backend="cpu")
def build_gather_elements(kernel: GatherElements) -> Native:
    names = AXES[: kernel.rank]
    depth = len(names)
    lines = loops(names)
    pad = "    " * depth
    lines.append(f"{pad}place = indices[{', '.join(names)}]")
    lines += wrapped("place", f"x.shape[{kernel.axis}]", depth)
    source = ["place" if d == kernel.axis else n for d, n in enumerate(names)]
    lines += [f"{pad}y[{', '.join(names)}] = x[{', '.join(source)}]", "return 0"]
    return tile_text([*ranges(names), "x", "indices", "y"], lines)


@register("gather_nd", backend="cpu")
def build_gather_nd(kernel: GatherND) -> Native:
    lead = kernel.index_rank - 1
    kept = kernel.rank - kernel.batch - kernel.depth
    names = AXES[: lead + kept]
    outer, inner = names[:lead], names[lead:]
    lines = loops(outer)
    pad = "    " * lead
    places = []
    for t in range(kernel.depth):
        places.append(f"place{t}")
        lines.append(f"{pad}place{t} = indices[{', '.join([*outer, str(t)])}]")
        lines += wrapped(f"place{t}", f"x.shape[{kernel.batch + t}]", lead)
    source = [*outer[: kernel.batch], *places, *inner]
    lines += [*moved_rows(lead, inner, [*names], source), "return 0"]
    return _with_blocks(tile_text([*ranges(names), "x", "indices", "y"], lines))
