"""What each step of a chain has to compute so that the last one can have its tile: intervals, from the back to the front.

A step that reads index for index needs the indices of its own tile. One that reads a window (a convolution) needs some
more at either side, the halo: neighbouring tiles then compute those rows twice, each for itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..primitives.kernel import Affine, ArgSpec, Axis, index_space
from ..primitives.pipeline import Step, Value

Array = np.ndarray[Any, Any]
Link = tuple[Step, str]  # a step of a chain, and the name of its axis that is cut


def dimensions(spec: ArgSpec, value: Value) -> list[tuple[int, Any]]:
    """(dimension of the value, what it follows), the specification aligned with the last dimensions."""
    follows = spec.follows or ()
    return [(value.ndim - len(follows) + d, f) for d, f in enumerate(follows)]


def axis_of(step: Step, name: str) -> Axis | None:
    """The axis of this name, if it can be split."""
    space = index_space(step.kernel)
    return next((a for a in space.axes if a.name == name and a.split), None) if space is not None else None


def extent_of(step: Step, axis: str, shapes: Mapping[str, tuple[int, ...]]) -> int:
    """The size of an axis, read off a value that the step writes along it; -1 if there is none."""
    for spec in step.specs:
        value = step.outputs.get(spec.slot)
        if value is not None:
            for d, f in dimensions(spec, value):
                if f == axis:
                    return shapes[value.name][d]
    return -1


def tiles_of(size: int, tile: int) -> Array:
    """(lo, hi) of each tile of an axis."""
    lo = np.arange(0, size, tile, dtype=np.int64)
    return np.stack([lo, np.minimum(lo + tile, size)], axis=1)


def propagate(
    chain: Sequence[Link], tiles: Array, shapes: Mapping[str, tuple[int, ...]], held: Mapping[str, int]
) -> list[Array] | None:
    """Per step, the (lo, hi) that it computes in each tile; None if no cut of this kind gives the right result.

    tiles   of the last step's axis
    held    {value: dimension} that exist as tiles; of everything else each element must be written by one tile alone
    """
    found: list[Array] = [tiles] * len(chain)
    last = extent_of(*chain[-1], shapes)
    for i in range(len(chain) - 1, -1, -1):
        step, axis = chain[i]
        extent = extent_of(step, axis, shapes)
        needed = [part for j in range(i + 1, len(chain)) for part in needs(step, axis, chain[j], found[j], shapes)]
        if needed:
            lo = np.minimum.reduce([part[:, 0] for part in needed])
            hi = np.maximum.reduce([part[:, 1] for part in needed])
        elif extent == last:
            lo, hi = tiles[:, 0], tiles[:, 1]
        else:
            return None
        multiple = _multiple(step, axis)
        hi = np.minimum(-(-np.maximum(hi, 1) // multiple) * multiple, extent)
        lo = np.minimum(lo, hi - 1) // multiple * multiple
        found[i] = np.stack([lo, hi], axis=1)
        if any(value.name not in held for value in step.outputs.values()) and not is_partition(found[i], extent):
            return None
    return found


def needs(writer: Step, axis: str, reader: Link, cut: Array, shapes: Mapping[str, tuple[int, ...]]) -> list[Array]:
    """What the reader, at these intervals of its axis, needs of the axis along which the writer writes."""
    step, mine = reader
    found = []
    for spec in step.specs:
        value = step.inputs.get(spec.slot)
        if value is None:
            continue
        for slot in writer.specs:
            if writer.outputs.get(slot.slot) is not value:
                continue
            at = next(d for d, f in dimensions(slot, value) if f == axis)
            follow = dict(dimensions(spec, value)).get(at)
            extent = shapes[value.name][at]
            if follow == mine:
                found.append(cut)
            elif isinstance(follow, Affine) and follow.axis == mine:
                lo = follow.step * cut[:, 0] - follow.before
                hi = follow.step * (cut[:, 1] - 1) + 1 + follow.after
                found.append(np.stack([np.clip(lo, 0, extent), np.clip(hi, 0, extent)], axis=1))
            else:
                found.append(np.tile(np.array([[0, extent]], np.int64), (len(cut), 1)))
    return found


def is_partition(cut: Array, extent: int) -> bool:
    """Whether intervals follow each other without gap or overlap, and cover the axis."""
    return bool(cut[0, 0] == 0 and cut[-1, 1] == extent and (cut[1:, 0] == cut[:-1, 1]).all())


def _multiple(step: Step, axis: str) -> int:
    found = axis_of(step, axis)
    assert found is not None
    return found.multiple
