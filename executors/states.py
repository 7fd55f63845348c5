"""States of a run: copies to work on, or the caller's own arrays where rows are only appended to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..primitives.memory import address_of
from ..primitives.pipeline import Pipeline, Value
from . import inputs as doors

if TYPE_CHECKING:
    from .bound import Bound

Array = np.ndarray[Any, Any]
KNOWN = ("input", "argument", "constant")  # kinds of values that are there before a run begins


class OwnedState(dict[str, Array]):
    """States whose arrays belong to the runs that they are given to: `plan.run(inputs, state=OwnedState())`.

    A TilingExecutor then appends to a cache where it is, and copies none of it. A run that fails puts back the rows that
    it wrote. Whoever wants an earlier state copies its arrays; of a plain dict, a run leaves the old arrays alone.
    """


@dataclass(frozen=True)
class Appended:
    """A state that one step only appends rows to: those from `start` on, as many as `new` has along the axis."""

    axis: int
    start: Value
    new: Value


def appended(pipe: Pipeline) -> dict[str, Appended]:
    """The states of a pipeline that only grow, by a position that is known before it runs."""
    found: dict[str, list[Appended | None]] = {}
    for step in pipe.steps:
        rows = getattr(step.kernel, "appends", None)
        for slot, value in step.outputs.items():
            if value.kind == "state":
                kind = None
                if rows is not None and rows.slot == slot and step.inputs[rows.start].kind in KNOWN:
                    kind = Appended(rows.axis, step.inputs[rows.start], step.inputs[rows.new])
                found.setdefault(value.name, []).append(kind)
    single = {name: kinds[0] for name, kinds in found.items() if len(kinds) == 1 and name not in pipe.updates}
    return {name: kind for name, kind in single.items() if kind is not None}


class RunStates:
    """What a run works on, by name. `undo` puts back what was changed of the caller's."""

    def __init__(self, bound: Bound, kept: Mapping[str, Array], arrays: Mapping[str, Any]) -> None:
        self.arrays: dict[str, Array] = {}
        self._saved: list[tuple[Array, Array]] = []
        binder, shapes = bound.plan.binder, bound.binding.shapes
        grows = bound.plan.grows if isinstance(kept, OwnedState) else {}
        for name, value in bound.plan.states.items():
            assert value.dtype is not None
            shape, align = doors.stored_shape(value.dtype, shapes[name]), binder.aligns.get(name, 1)
            content = doors.state_content(name, value, kept, shape)
            if name in grows and name in kept and _fits(content, align):
                self._use(grows[name], content, arrays, shapes)
                self.arrays[name] = content
                continue
            self.arrays[name] = doors.fresh(shape, value.dtype, align)
            self.arrays[name][...] = content

    def _use(self, rows: Appended, array: Array, arrays: Mapping[str, Any], shapes: Mapping[str, Any]) -> None:
        given = rows.start.data if rows.start.kind == "constant" else arrays[rows.start.name]
        start, count = int(np.asarray(given)), shapes[rows.new.name][rows.axis]
        if 0 <= start and start + count <= array.shape[rows.axis]:  # else the step refuses, and writes nothing
            written = array[(slice(None),) * rows.axis + (slice(start, start + count),)]
            self._saved.append((written, written.copy()))

    def undo(self) -> None:
        for array, before in self._saved:
            array[...] = before


def _fits(array: Array, align: int) -> bool:
    flags = array.flags
    return bool(flags.c_contiguous and flags.writeable and flags.aligned and address_of(array) % max(align, 1) == 0)
