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


def ranges(names: str) -> list[str]:
    return [f"{n}0, {n}1" for n in names]


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
    lines += loops(after[:-1], depth)
    depth += len(after[:-1])
    pad = "    " * depth
    source = [*before, "place", *after[:-1]]
    target = [*before, *index, *after[:-1]]
    if after:
        k = after[-1]
        lines += [
            f"{pad}source = x[{', '.join([*source, f'{k}0:{k}1'])}]",
            f"{pad}target = y[{', '.join([*target, f'{k}0:{k}1'])}]",
            f"{pad}for {k} in range({k}1 - {k}0):",
            f"{pad}    target[{k}] = source[{k}]",
        ]
    else:
        lines.append(f"{pad}y[{', '.join(target) or '()'}] = x[{', '.join(source)}]")
    lines.append("return 0")
    return tile_text([*ranges(names), "x", "indices", "y"], lines)


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
    lines += loops(inner, lead)
    pad = "    " * len(names)
    source = [*outer[: kernel.batch], *places, *inner]
    lines += [f"{pad}y[{', '.join(names) or '()'}] = x[{', '.join(source)}]", "return 0"]
    return tile_text([*ranges(names), "x", "indices", "y"], lines)
