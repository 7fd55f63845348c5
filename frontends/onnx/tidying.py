"""What is left to do once a model is a pipeline: equal steps become one, element-wise steps between codes take the codes.

Neither changes a bit. What no output needs is taken out afterwards (load.py).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...kernels import ops
from ...kernels.elementwise import Add, Elementwise, Relu
from ...kernels.quantize import Dequantize, Quantize
from ...primitives import dtypes
from ...primitives.pipeline import Pipeline, Step, Value

CODES = ("u8", "s8", "u16", "s16")
BETWEEN_CODES = {
    "add": ops.add,
    "sub": ops.sub,
    "mul": ops.mul,
    "div": ops.div,
    "maximum": ops.maximum,
    "minimum": ops.minimum,
}
SMALL = 1 << 16  # bytes: constants that are compared by what they hold


def tidy(pipe: Pipeline) -> None:
    """Merge equal steps, then let sums and products between codes take the codes themselves."""
    merge(pipe)
    on_codes(pipe)


def merge(pipe: Pipeline) -> None:
    """Let every reader of a step that computes what an earlier one does, from the same values, read the earlier one's."""
    same: dict[int, Value] = {}
    constants: dict[Any, Value] = {}
    for value in pipe.values.values():
        if value.kind == "constant" and isinstance(value.data, np.ndarray) and value.data.nbytes <= SMALL:
            content = (str(value.dtype), value.data.shape, value.data.tobytes(), str(value.axes), repr(value.quant))
            first = constants.setdefault(content, value)
            if first is not value:
                same[id(value)] = first
    known: dict[Any, Step] = {}
    kept = []
    for step in pipe.order():
        for slot, value in step.inputs.items():
            step.inputs[slot] = same.get(id(value), value)
        if any(v.kind == "state" for v in (*step.inputs.values(), *step.outputs.values())):
            kept.append(step)
            continue
        try:
            key = (type(step.kernel), step.kernel, tuple((slot, id(v)) for slot, v in sorted(step.inputs.items())))
            first_step = known.setdefault(key, step)
        except TypeError:  # a kernel that holds what cannot be compared
            first_step = step
        if first_step is step:
            kept.append(step)
            continue
        same |= {id(v): first_step.outputs[slot] for slot, v in step.outputs.items()}
    pipe.steps[:] = kept
    for name, value in pipe.outputs.items():
        pipe.outputs[name] = same.get(id(value), value)


def on_codes(pipe: Pipeline) -> None:
    """Where codes are made real, combined by one operation and quantized again, one step does it all."""
    replaced: dict[int, Value] = {}
    for step in pipe.order():
        found = _combined(pipe, step)
        if found is not None:
            replaced[id(step.outputs["y"])] = found
    for step in pipe.steps:
        for slot, value in step.inputs.items():
            step.inputs[slot] = replaced.get(id(value), value)
    for name, value in pipe.outputs.items():
        pipe.outputs[name] = replaced.get(id(value), value)


def _combined(pipe: Pipeline, step: Step) -> Value | None:
    """The codes that a quantize step makes of two operands' codes, as one step; None where it is not of that form."""
    last = step.kernel
    if (
        not isinstance(last, Quantize)
        or last.source != "f32"
        or last.dtype not in CODES
        or last.rounding != "half_even"
    ):
        return None
    scale, zero = (_number(step.inputs[slot]) for slot in ("scale", "zero_point"))
    if scale is None or zero is None:
        return None
    made = _maker(step.inputs["x"])
    if made is not None and isinstance(made.kernel, Relu) and int(zero) == dtypes.get(last.dtype).min:
        made = _maker(made.inputs["x"])  # what is below 0 becomes the lowest code anyway
    if made is None or not isinstance(made.kernel, (Add, Elementwise)):
        return None
    op = BETWEEN_CODES.get("add" if isinstance(made.kernel, Add) else made.kernel.op)
    operands = [_maker(value) for value in made.inputs.values()]
    if op is None or len(operands) != 2:
        return None
    params: list[Any] = []
    for operand in operands:
        if operand is None or not isinstance(operand.kernel, Dequantize) or operand.kernel.source not in CODES:
            return None
        params += [_number(operand.inputs[slot]) for slot in ("scale", "zero_point")]
    if any(p is None for p in params):
        return None
    a, b = (operand.inputs["x"] for operand in operands if operand is not None)
    result: Value = op(
        a, b, a_scale=params[0], a_zero_point=params[1], b_scale=params[2], b_zero_point=params[3],
        scale=scale, zero_point=zero, dtype=last.dtype,
    )  # fmt: skip
    return result


def _maker(value: Value) -> Step | None:
    """The step that writes a value, where it is a result."""
    return value.producer[0] if value.producer is not None else None


def _number(value: Value) -> Any:
    """A constant of one element; None for anything else."""
    if value.kind != "constant" or not isinstance(value.data, np.ndarray) or value.data.size != 1:
        return None
    return value.data.reshape(())


def prune(pipe: Pipeline) -> None:
    """Take out the steps and constants that no output needs."""
    needed: set[int] = set()
    read: set[int] = set()
    left = list(pipe.outputs.values())
    while left:
        value = left.pop()
        read.add(id(value))
        step = value.producer[0] if value.producer is not None else None
        if step is not None and id(step) not in needed:
            needed.add(id(step))
            left += step.inputs.values()
            read |= {id(v) for v in step.outputs.values()}
    pipe.steps[:] = [step for step in pipe.steps if id(step) in needed]
    for name, value in list(pipe.values.items()):
        if value.kind == "constant" and id(value) not in read:
            del pipe.values[name]
