"""Scatters on the CPU. kernels/reference/moving.py says what they compute."""

from __future__ import annotations

from ...factory import register
from ...forge import Native
from ...indexing import AXES
from ...moving.scatter import ScatterElements, ScatterND
from .gather import along_last, loops, ranges, tile_text, wrapped

COMBINE = {
    "none": "new",
    "add": "old + new",
    "mul": "old * new",
    "max": "old if old >= new or old != old else new",
    "min": "old if old <= new or old != old else new",
}


def _store(reduction: str, place: str, update: str) -> list[str]:
    if reduction == "none":
        return [f"{place} = {update}"]
    return [f"new = {update}", f"old = {place}", f"{place} = {COMBINE[reduction]}"]


@register("scatter_elements", backend="cpu")
def build_scatter_elements(kernel: ScatterElements) -> Native:
    names = AXES[: kernel.rank]
    depth = len(names)
    pad = "    " * depth
    lines = [*loops(names), f"{pad}place = indices[{', '.join(names)}]"]
    lines += wrapped("place", f"y.shape[{kernel.axis}]", depth)
    target = ", ".join("place" if d == kernel.axis else n for d, n in enumerate(names))
    lines += [f"{pad}{line}" for line in _store(kernel.sums, f"y[{target}]", f"updates[{', '.join(names)}]")]
    return tile_text([*ranges(names), "indices", "updates", "y"], [*lines, "return 0"])


@register("scatter_nd", backend="cpu")
def build_scatter_nd(kernel: ScatterND) -> Native:
    lead = kernel.index_rank - 1
    names = AXES[: lead + kernel.rank - kernel.depth]
    outer, inner = names[:lead], names[lead:]
    pad = "    " * lead
    lines = loops(outer)
    places = [f"place{t}" for t in range(kernel.depth)]
    for t, place in enumerate(places):
        lines.append(f"{pad}{place} = indices[{', '.join([*outer, str(t)])}]")
        lines += wrapped(place, f"y.shape[{t}]", lead)
    if inner:
        k = inner[-1]
        lines += loops(inner[:-1], lead)
        stored = "\n".join(_store(kernel.sums, f"target[{k}]", f"source[{k}]"))
        lines += along_last(len(names) - 1, [*places, *inner], ["updates", *names], k, stored)
    else:
        update = f"updates[{', '.join(names) or '()'}]"
        lines += [f"{pad}{line}" for line in _store(kernel.sums, f"y[{', '.join(places)}]", update)]
    return tile_text([*ranges(names), "indices", "updates", "y"], [*lines, "return 0"])
