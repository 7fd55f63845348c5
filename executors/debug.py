"""Runs a pipeline on two executors and finds the first step whose results differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..primitives.errors import ArgumentError
from ..primitives.pipeline import Pipeline
from .single_thread import SingleThreadExecutor


@dataclass(frozen=True)
class Difference:
    """The first value that differs: the step that wrote it, the first index, and both elements there."""

    step: str
    slot: str
    value: str
    index: tuple[int, ...]
    left: Any
    right: Any
    count: int
    size: int

    def __str__(self) -> str:
        return (
            f"step {self.step!r} differs first: {self.value} (slot {self.slot!r}) at {self.index} is {self.left!r} on the "
            f"left and {self.right!r} on the right; {self.count} of {self.size} elements differ"
        )


@dataclass(frozen=True)
class Comparison:
    """The outcome: how many values were compared, and the first difference or None."""

    left: str
    right: str
    compared: int
    difference: Difference | None

    @property
    def equal(self) -> bool:
        """Whether no element differs."""
        return self.difference is None

    def __bool__(self) -> bool:
        return self.equal

    def __str__(self) -> str:
        if self.difference is not None:
            return str(self.difference)
        return f"{self.left} and {self.right} agree to the bit on all {self.compared} values"


def tapped(pipe: Pipeline) -> tuple[Pipeline, dict[str, tuple[str, str]]]:
    """A copy of the pipeline in which every step's results are outputs, and {output: (step, slot)}."""
    copy = Pipeline(pipe.name)
    new: dict[int, Any] = {}
    for value in pipe.values.values():
        if value.kind != "result":
            made = copy._declare(value.name, value.dtype, value.shape, value.kind, value.axes, value.quant)
            made.data = value.data
            new[id(value)] = made
    taps: dict[str, tuple[str, str]] = {}
    for step in pipe.order():
        operands = {slot: new[id(v)] for slot, v in step.inputs.items()}
        operands |= {slot: new[id(v)] for slot, v in step.outputs.items() if id(v) in new}
        copy.add(step.kernel, step_name=step.name, **operands)
        for slot, value in step.outputs.items():
            made = copy.steps[-1].outputs[slot]
            made.quant = value.quant
            new[id(value)] = made
            if value.kind != "state":
                taps[f"{step.name}.{slot}"] = (step.name, slot)
                copy.output(f"{step.name}.{slot}", made)
    for name, value in pipe.updates.items():
        copy.update(new[id(pipe.values[name])], new[id(value)])
    copy.constraints = list(pipe.constraints)
    return copy, taps


def compare(
    pipe: Pipeline,
    inputs: Mapping[str, Any] | None = None,
    left: Any = "cpu",
    right: Any = "reference",
) -> Comparison:
    """Run on two executors, or on two backends by their names, and compare every step's results bit by bit.

    NaNs are equal to NaNs of any payload. Returns a Comparison, true where everything agrees.
    """
    left, right = (SingleThreadExecutor(x) if isinstance(x, str) else x for x in (left, right))
    copy, taps = tapped(pipe)
    found, expected = left.run(copy, dict(inputs or {})), right.run(copy, dict(inputs or {}))
    for name, (step, slot) in taps.items():
        difference = first_difference(found[name], expected[name])
        if difference is not None:
            index, count = difference
            a, b = found[name][index], expected[name][index]
            what = Difference(step, slot, name, index, a, b, count, found[name].size)
            return Comparison(repr(left), repr(right), len(taps), what)
    return Comparison(repr(left), repr(right), len(taps), None)


def first_difference(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> tuple[tuple[int, ...], int] | None:
    """The first index at which two arrays of one type and shape differ in any bit, and how many do; None if equal."""
    if a.dtype != b.dtype or a.shape != b.shape:
        raise ArgumentError(f"only arrays of one type and shape compare: {a.dtype} {a.shape} and {b.dtype} {b.shape}")
    if a.size == 0:
        return None
    width = a.dtype.itemsize
    left = np.ascontiguousarray(a).view(f"u{width}") if width in (1, 2, 4, 8) else np.ascontiguousarray(a)
    right = np.ascontiguousarray(b).view(f"u{width}") if width in (1, 2, 4, 8) else np.ascontiguousarray(b)
    differs = left.reshape(a.shape) != right.reshape(b.shape)
    if a.dtype.kind in "fV" and differs.any():
        differs &= ~((a != a) & (b != b))
    if not differs.any():
        return None
    flat = int(np.argmax(differs))
    return tuple(int(i) for i in np.unravel_index(flat, a.shape)), int(differs.sum())
