"""Connecting a step: what it reads is checked against its slots, and what it writes gets its type and shape."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from . import dtypes
from .dtypes import DType
from .errors import DTypeMismatch, LayoutError, PipelineError
from .kernel import ArgSpec
from .matching import Constraint, match
from .sizes import Shape, Size, SizeLike, names, show, size, substitute
from .values import Step, Value

if TYPE_CHECKING:
    from .pipeline import Pipeline


def check_operands(step: Step, constraints: list[Constraint]) -> None:
    """Types, axes and sizes of what a step reads; what can be told only at run time goes to `constraints`."""
    for spec in step.specs:
        value = step.inputs.get(spec.slot)
        if value is None:
            continue
        where = f"slot {spec.slot!r} of {step.name!r}"
        _check_dtype(spec, value, step, where)
        if value.axes and spec.axes and value.axes != spec.axes:
            raise LayoutError(
                f"{where} takes axes {spec.axes}, but {value.name!r} is {value.axes}; transpose it to {spec.axes}"
            )
    learned: list[Constraint] = []
    for found in (learned, constraints):  # the first round learns names, the second also checks expressions of them
        for spec in step.specs:
            value = step.inputs.get(spec.slot)
            if value is not None and spec.shape is not None:
                where = f"slot {spec.slot!r} of {step.name!r}, {value.name!r}"
                match(spec.shape, value.shape, step.sizes, where, found)


def _check_dtype(spec: ArgSpec, value: Value, step: Step, where: str) -> None:
    found = value.dtype.name if value.dtype is not None else "function"
    asked = spec.dtype
    if isinstance(asked, str) and asked.startswith("="):
        other = step.inputs.get(asked[1:])
        asked = other.dtype.name if other is not None and other.dtype is not None else None
    if asked is None and found != "function":
        return
    allowed = (asked,) if isinstance(asked, str) else asked or ()
    if found not in allowed and not (allowed == ("shape",) and found == "s64"):
        raise DTypeMismatch(
            f"{where} takes {' or '.join(allowed) or 'data'}, but {value.name!r} is {found}; "
            f"cast it or choose the kernel for {found}"
        )


def infer_outputs(pipe: Pipeline, step: Step, constraints: list[Constraint]) -> None:
    """Make the values that a step writes, and check those that it was given to write."""
    infer: Callable[..., Mapping[str, Iterable[SizeLike]]] | None = getattr(step.kernel, "infer", None)
    inferred: Mapping[str, Iterable[SizeLike]] = {}
    if infer is not None:
        inferred = infer({slot: value.shape for slot, value in step.inputs.items()}, step.inputs)
    for spec in step.specs:
        if spec.access != "write" or (spec.optional and spec.slot not in step.outputs):
            continue
        shape = _output_shape(step, spec, inferred)
        if spec.slot in inferred and spec.shape is not None:
            match(spec.shape, shape, step.sizes, f"slot {spec.slot!r} of {step.name!r}", constraints)
        given = step.outputs.get(spec.slot)
        where = f"slot {spec.slot!r} of {step.name!r}"
        if given is not None:
            match(shape, given.shape, {}, f"{where}, {given.name!r}", constraints)
            wanted = _output_dtype(step, spec)
            if given.dtype != wanted:
                raise DTypeMismatch(f"{where} writes {wanted}, but {given.name!r} is {given.dtype}")
            continue
        name = pipe._fresh(f"{step.name}.{spec.slot}") if f"{step.name}.{spec.slot}" in pipe.values else None
        step.outputs[spec.slot] = Value(
            pipe, name or f"{step.name}.{spec.slot}", _output_dtype(step, spec), shape, "result", spec.axes
        )


def _output_shape(step: Step, spec: ArgSpec, inferred: Mapping[str, Iterable[SizeLike]]) -> Shape:
    if spec.slot in inferred:
        return tuple(size(x) for x in inferred[spec.slot])
    if spec.shape is not None:
        shape: list[int | Size] = []
        for x in spec.shape:
            if x == "...":
                shape += step.sizes.get("...", ())  # type: ignore[arg-type]
                continue
            assert isinstance(x, (int, Size))
            unknown = names(x) - step.sizes.keys()
            if unknown:
                raise PipelineError(
                    f"slot {spec.slot!r} of {step.name!r} has size {x}, but no operand says what "
                    f"{', '.join(sorted(unknown))} is; name it in a read slot's shape or define infer()"
                )
            shape.append(substitute(x, step.sizes))
        return tuple(shape)
    shapes = {value.shape for value in step.inputs.values() if value.dtype is not None}
    arrays = {s for s in shapes if s} or shapes
    if len(arrays) != 1:
        raise PipelineError(
            f"slot {spec.slot!r} of {step.name!r} says no shape, and its operands have "
            f"{' and '.join(sorted(map(show, arrays))) or 'none'}; give shape= in its ArgSpec, or define infer()"
        )
    return next(iter(arrays))


def _output_dtype(step: Step, spec: ArgSpec) -> DType:
    if isinstance(spec.dtype, str) and spec.dtype.startswith("="):
        source = step.inputs.get(spec.dtype[1:])
        if source is None or source.dtype is None:
            raise PipelineError(
                f"slot {spec.slot!r} of {step.name!r} has the type of {spec.dtype[1:]!r}, which is empty"
            )
        return source.dtype
    if not isinstance(spec.dtype, str):
        raise PipelineError(
            f"slot {spec.slot!r} of {step.name!r} is written with dtype {spec.dtype!r}; a written slot has one dtype"
        )
    return dtypes.get(spec.dtype)


def check_acyclic(step: Step) -> None:
    """Raise PipelineError where a step would read, at last, what it writes."""
    targets = {id(value) for value in step.outputs.values() if value.kind == "buffer"}  # a new value has no readers
    if not targets:
        return
    seen: set[int] = set()
    stack = [(value, [value.name]) for value in step.inputs.values()]
    while stack:
        value, path = stack.pop()
        if id(value) in targets:
            raise PipelineError(
                f"step {step.name!r} closes a cycle: {' <- '.join([*path, step.name, path[0]])}; "
                f"carry what must go round in a pipe.state(...)"
            )
        if id(value) in seen or value.producer is None:
            continue
        seen.add(id(value))
        stack += [(v, [*path, v.name]) for v in value.producer[0].inputs.values()]
