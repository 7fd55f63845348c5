"""Scatters on CUDA. kernels/reference/moving.py says what they compute.

Updates that meet are applied in the order of their indices: a thread goes through all indices of its line and applies
those of the places that it owns, every `lanes`-th one, so that no two threads write one element.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...factory import register
from ...moving.scatter import ScatterElements, ScatterND
from ..launch import At, Device, Launches, Status, ceildiv, element_strides, pointee
from ..text import WIDE, Parameters, coordinates, indented, made

THREADS = 128
WANTED = 1 << 14  # threads that keep a device busy
INTEGERS = ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64", "bool")

_SOURCE = """\
import numpy as np
from {package} import ptx
from {package}.seam import cuda
from {package}.vectormath import maximum, minimum


def {name}({parameters}):
    thread = cuda.grid(1)
    if thread < threads:
{thread}        for z in range(count):
{index}            inside = True
            target = {target}
            owner = np.int64(0)
{places}            if inside:
                if (owner & (lanes - 1)) == lane:
                    new = updates[{update}]
                    {stored}
            else:
                ptx.atomic_or(status, 0, np.int32(1))
"""

_OF_FLOATS = {
    "add": "ptx.add(y[target], new)", "mul": "ptx.mul(y[target], new)",
    "max": "maximum(y[target], new)", "min": "minimum(y[target], new)",
}  # fmt: skip
_OF_INTEGERS = {
    "add": "y[target] + new", "mul": "y[target] * new", "max": "max(y[target], new)", "min": "min(y[target], new)",
}  # fmt: skip


def refuses(kernel: ScatterElements | ScatterND) -> str | None:
    """Why CUDA has no such scatter, or None."""
    if kernel.reduction == "none" or kernel.dtype in INTEGERS or kernel.dtype == "f32":
        return None
    return f"{kernel.name} that combines {kernel.dtype} has no CUDA kernel"


def _scattered(
    kernel: ScatterElements | ScatterND,
    operands: Sequence[Any],
    along: Sequence[int],
    axes: Sequence[int],
    index: Sequence[str],
    kept: dict[int, int],
) -> Launches:
    """One launch.

    along  axes of the updates that indices count along; other axes of them are a thread's own
    axes   of y that an index counts along, one for each entry of it
    index  for each entry, where it lies in `indices`
    kept   axes of y: the axis of the updates that follows it
    """
    indices, updates, y = operands
    if updates.size == 0:
        return Launches(())
    own = [d for d in range(updates.ndim) if d not in along]
    lines, count, extent = 1, 1, 1
    for d in own:
        lines *= updates.shape[d]
    for d in along:
        count *= updates.shape[d]
    for d in axes:
        extent *= y.shape[d]
    lanes = 1
    while lanes * 2 <= min(extent, count) and lanes * lines < WANTED:
        lanes *= 2
    given = Parameters()
    for n, (name, array) in enumerate((("indices", indices), ("updates", updates), ("y", y))):
        given.pointer(name, pointee(array.dtype), At(n), written=name == "y")
        for d, stride in enumerate(element_strides(array)):
            given.number(f"{name[0]}_s{d}", stride)
    given.pointer("status", "s32", Status(), written=True)
    for key, value in (("threads", lanes * lines), ("lanes", lanes), ("count", count)):
        given.number(key, value)
    for d, size in enumerate(updates.shape):
        given.number(f"size_c{d}", size)
    taken = ["lane", *(f"c{d}" for d in own)]
    places = []
    for number, (axis, at) in enumerate(zip(axes, index, strict=True)):
        given.number(f"extent{number}", y.shape[axis])
        places += [
            f"place = np.int64(indices[{at}])",
            "if place < 0:",
            f"    place += extent{number}",
            f"if place < 0 or place >= extent{number}:",
            "    inside = False",
            f"target += place * y_s{axis}",
            f"owner = owner * extent{number} + place",
        ]
    combined = "new" if kernel.reduction == "none" else _combined(kernel)
    along_names = [f"c{d}" for d in along]
    text = _SOURCE.format(
        package=__package__.rpartition(".")[0],
        name=kernel.name,
        parameters=", ".join(given.names),
        thread=indented(
            coordinates("thread", ["lanes", *(f"size_c{d}" for d in own)], taken, lanes * lines >= WIDE), 2
        ),
        index=indented(coordinates("z", [f"size_{c}" for c in along_names], along_names, count >= WIDE), 3),
        target=" + ".join(f"c{c} * y_s{d}" for d, c in kept.items()) or "np.int64(0)",
        places=indented(places, 3),
        update=" + ".join(f"c{d} * u_s{d}" for d in range(updates.ndim)) or "0",
        stored=f"y[target] = {combined}",
    )
    return Launches((given.launch(made(text, kernel.name), (ceildiv(lanes * lines, THREADS),), (THREADS,)),))


def _combined(kernel: ScatterElements | ScatterND) -> str:
    return (_OF_FLOATS if kernel.dtype == "f32" else _OF_INTEGERS)[kernel.sums]


@register("scatter_elements", backend="cuda", requires=refuses)
def build_scatter_elements(kernel: ScatterElements) -> Device:
    at = " + ".join(f"c{d} * i_s{d}" for d in range(kernel.rank))
    kept = {d: d for d in range(kernel.rank) if d != kernel.axis}

    def plan(*operands: Any) -> Launches:
        return _scattered(kernel, operands, [kernel.axis], [kernel.axis], [at], kept)

    return Device(plan)


@register("scatter_nd", backend="cuda", requires=refuses)
def build_scatter_nd(kernel: ScatterND) -> Device:
    lead = kernel.index_rank - 1
    outer = [f"c{d} * i_s{d}" for d in range(lead)]
    index = [" + ".join([*outer, f"{t} * i_s{lead}"]) for t in range(kernel.depth)]
    kept = {kernel.depth + d: lead + d for d in range(kernel.rank - kernel.depth)}

    def plan(*operands: Any) -> Launches:
        return _scattered(kernel, operands, range(lead), range(kernel.depth), index, kept)

    return Device(plan)
