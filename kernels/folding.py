"""Folding two scales into one, where a caller allows that last bits differ (`numerics="folded"`).

    dequantize then quantize:  rint((acc * s) / t) + z   becomes   rint(acc * (s / t)) + z
    requantize of requantized: not folded, since the first one rounds

The multiplier s / t is one float32 division, so a result may differ by one code where the exact one lies near a tie.
"""

from __future__ import annotations

import numpy as np

from ..primitives.pipeline import Pipeline, Step, Value
from .quantize import Dequantize, Quantize
from .requantize import CODES, Requantize


def folded(pipe: Pipeline) -> tuple[Pipeline, tuple[str, ...]]:
    """A copy of the pipeline with every pair that can be folded as one requantize; and the names of what was folded."""
    readers: dict[int, list[Step]] = {}
    for step in pipe.steps:
        for value in step.inputs.values():
            readers.setdefault(id(value), []).append(step)
    kept = {id(v) for v in [*pipe.outputs.values(), *pipe.updates.values()]}
    pairs: dict[int, Step] = {}
    for step in pipe.steps:
        value = next(iter(step.outputs.values()))
        after = readers.get(id(value), [])
        if id(value) not in kept and len(after) == 1 and _folds(step, after[0], value):
            pairs[id(after[0])] = step
    if not pairs:
        return pipe, ()
    first = {id(step) for step in pairs.values()}
    copy = Pipeline(pipe.name)
    new: dict[int, Value] = {}
    for value in pipe.values.values():
        if value.kind != "result":
            new[id(value)] = copy._declare(value.name, value.dtype, value.shape, value.kind, value.axes, value.quant)
            new[id(value)].data = value.data
    names = []
    for step in pipe.order():
        if id(step) in first:
            continue
        if id(step) in pairs:
            names.append(f"{pairs[id(step)].name} + {step.name}")
            new[id(step.outputs["y"])] = _one(copy, pairs[id(step)], step, new)
            continue
        operands = {slot: new[id(v)] for slot, v in step.inputs.items()}
        operands |= {slot: new[id(v)] for slot, v in step.outputs.items() if id(v) in new}
        copy.add(step.kernel, step_name=step.name, **operands)
        for slot, value in step.outputs.items():
            made = copy.steps[-1].outputs[slot]
            made.quant = value.quant
            new[id(value)] = made
    for name, value in pipe.outputs.items():
        copy.output(name, new[id(value)])
    for name, value in pipe.updates.items():
        copy.update(new[id(pipe.values[name])], new[id(value)])
    copy.constraints = list(pipe.constraints)
    return copy, tuple(names)


def _folds(first: Step, second: Step, between: Value) -> bool:
    a, b = first.kernel, second.kernel
    if not isinstance(a, Dequantize) or a.source != "s32" or not isinstance(b, Quantize):
        return False
    constants = [first.inputs["scale"], first.inputs["zero_point"], second.inputs["scale"], second.inputs["zero_point"]]
    if any(v.kind != "constant" for v in constants) or constants[1].data.any():
        return False
    scales = constants[0].data.size == 1 or constants[2].data.size == 1 or constants[0].shape == constants[2].shape
    return b.rounding == "half_even" and b.dtype in CODES and scales and second.inputs.get("x") is between


def _one(copy: Pipeline, first: Step, second: Step, new: dict[int, Value]) -> Value:
    a, b = first.kernel, second.kernel
    assert isinstance(a, Dequantize)
    assert isinstance(b, Quantize)
    s, t = first.inputs["scale"].data, second.inputs["scale"].data
    multiplier = (s.astype(np.float32) / t.astype(np.float32)).astype(np.float32)
    index = a.scale if s.size >= t.size else b.scale
    limits = np.iinfo(second.outputs["y"].dtype.numpy)  # type: ignore[union-attr]
    kernel = Requantize(b.dtype, b.rank, index, b.zero_point)
    value: Value = copy.add(
        kernel,
        step_name=second.name,
        acc=new[id(first.inputs["x"])],
        multiplier=multiplier,
        zero_point=new[id(second.inputs["zero_point"])],
        lo=int(limits.min),
        hi=int(limits.max),
    )
    value.quant = second.outputs["y"].quant
    return value
