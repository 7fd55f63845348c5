"""Gathers on CUDA, one thread an element. kernels/reference/moving.py says what they compute."""

from __future__ import annotations

from typing import Any

from ...factory import register
from ...moving.gather import Gather, GatherElements, GatherND
from ..launch import At, Device, Launches, Status, ceildiv, element_strides, pointee
from ..text import WIDE, Parameters, coordinates, indented, made

THREADS = 256

_SOURCE = """\
import numpy as np
from {package} import ptx
from {package}.seam import cuda


def {name}({parameters}):
    element = cuda.grid(1)
    if element < count:
{coordinates}        source = {source}
        inside = True
{places}        if inside:
            y[{target}] = x[source]
        else:
            ptx.atomic_or(status, 0, np.int32(1))
"""


def gathered(name: str, names: list[str], places: list[tuple[int, list[str]]], after: list[tuple[int, str]]) -> Device:
    """A gather as text.

    names   of the result's coordinates
    places  (axis of x, coordinates at which `indices` holds the index along it)
    after   (axis of x, coordinate of the result) that are followed one to one
    """

    def plan(x: Any, indices: Any, y: Any) -> Launches:
        count = int(y.size)
        if count == 0:
            return Launches(())
        given = Parameters()
        given.pointer("x", pointee(x.dtype), At(0))
        given.pointer("indices", pointee(indices.dtype), At(1))
        given.pointer("y", pointee(y.dtype), At(2), written=True)
        given.number("count", count)
        for n, size in zip(names, y.shape, strict=True):
            given.number(f"size_{n}", size)
        for array, stem in ((x, "x"), (indices, "i"), (y, "y")):
            for d, stride in enumerate(element_strides(array)):
                given.number(f"{stem}_s{d}", stride)
        lines = []
        for number, (axis, at) in enumerate(places):
            given.number(f"extent{number}", x.shape[axis])
            where = " + ".join(f"{c} * i_s{d}" for d, c in enumerate(at)) or "0"
            lines += [
                f"place{number} = np.int64(indices[{where}])",
                f"if place{number} < 0:",
                f"    place{number} += extent{number}",
                f"if place{number} < 0 or place{number} >= extent{number}:",
                "    inside = False",
                f"source += place{number} * x_s{axis}",
            ]
        given.pointer("status", "s32", Status(), written=True)
        text = _SOURCE.format(
            package=__package__.rpartition(".")[0],
            name=name,
            parameters=", ".join(given.names),
            coordinates=indented(coordinates("element", [f"size_{n}" for n in names], names, count >= WIDE), 2),
            source=" + ".join(f"{c} * x_s{axis}" for axis, c in after) or "0",
            places=indented(lines, 2),
            target=" + ".join(f"{n} * y_s{d}" for d, n in enumerate(names)) or "0",
        )
        return Launches((given.launch(made(text, name), (ceildiv(count, THREADS),), (THREADS,)),))

    return Device(plan)


@register("gather", backend="cuda")
def build_gather(kernel: Gather) -> Device:
    rank = kernel.rank - 1 + kernel.index_rank
    names = [f"c{d}" for d in range(rank)]
    index = names[kernel.axis : kernel.axis + kernel.index_rank]
    after = [(d, names[d]) for d in range(kernel.axis)]
    after += [(d, names[d - 1 + kernel.index_rank]) for d in range(kernel.axis + 1, kernel.rank)]
    return gathered("gather", names, [(kernel.axis, index)], after)


@register("gather_elements", backend="cuda")
def build_gather_elements(kernel: GatherElements) -> Device:
    names = [f"c{d}" for d in range(kernel.rank)]
    after = [(d, n) for d, n in enumerate(names) if d != kernel.axis]
    return gathered("gather_elements", names, [(kernel.axis, names)], after)


@register("gather_nd", backend="cuda")
def build_gather_nd(kernel: GatherND) -> Device:
    lead = kernel.index_rank - 1
    kept = kernel.rank - kernel.batch - kernel.depth
    names = [f"c{d}" for d in range(lead + kept)]
    places = [(kernel.batch + t, [*names[:lead], str(t)]) for t in range(kernel.depth)]
    after = [(d, names[d]) for d in range(kernel.batch)]
    after += [(kernel.batch + kernel.depth + d, names[lead + d]) for d in range(kept)]
    return gathered("gather_nd", names, places, after)
