"""Scatters on the CPU. kernels/reference/moving.py says what they compute."""

from __future__ import annotations

from ...factory import register
from ...forge import Native
from ...indexing import AXES
from ...moving.scatter import ScatterElements, ScatterND
from .gather import loops, ranges, tile_text, wrapped

COMBINE = {
    "none": "{new}",
    "add": "{old} + {new}",
    "mul": "{old} * {new}",
    "max": "{old} if {old} >= {new} or {old} != {old} else {new}",
    "min": "{old} if {old} <= {new} or {old} != {old} else {new}",
}


def _store(reduction: str, place: str, update: str, pad: str) -> list[str]:
    combined = COMBINE[reduction].format(old="old", new="new")
    return [f"{pad}new = {update}", f"{pad}old = {place}", f"{pad}{place} = {combined}"]


@register("scatter_elements", backend="cpu")
def build_scatter_elements(kernel: ScatterElements) -> Native:
    names = AXES[: kernel.rank]
    depth = len(names)
    pad = "    " * depth
    lines = [*loops(names), f"{pad}place = indices[{', '.join(names)}]"]
    lines += wrapped("place", f"y.shape[{kernel.axis}]", depth)
    target = ", ".join("place" if d == kernel.axis else n for d, n in enumerate(names))
    lines += [*_store(kernel.reduction, f"y[{target}]", f"updates[{', '.join(names)}]", pad), "return 0"]
    return tile_text([*ranges(names), "indices", "updates", "y"], lines)


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
    lines += loops(inner, lead)
    pad = "    " * len(names)
    update = f"updates[{', '.join(names) or '()'}]"
    lines += [*_store(kernel.reduction, f"y[{', '.join([*places, *inner])}]", update, pad), "return 0"]
    return tile_text([*ranges(names), "indices", "updates", "y"], lines)
