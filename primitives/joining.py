"""Using one pipeline as a part of another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .errors import DTypeMismatch, PipelineError
from .given import number
from .matching import Constraint, match
from .sizes import names, substitute
from .values import Value

if TYPE_CHECKING:
    from .pipeline import Pipeline


def copy_in(pipe: Pipeline, other: Pipeline, prefix: str, bindings: dict[str, Any], wanted: dict[str, Value]) -> Any:
    """Copy another pipeline's constants, states and steps into `pipe`; its outputs as `Pipeline.call` returns them."""
    env: dict[str, Any] = {}
    new: dict[int, Value] = {}
    constraints: list[Constraint] = []
    for name, value in wanted.items():
        where = f"input {name!r} of {other.name!r}"
        given = bindings[name]
        if isinstance(given, Value):
            if given.pipeline is not pipe:
                raise PipelineError(f"{where} is {given!r} of another pipeline; a value of {pipe.name!r} is needed")
        elif value.dtype is None:
            given = pipe._declare(f"{prefix}.{name}", None, (), "constant")
            given.data = bindings[name]
        else:
            plain = isinstance(given, (bool, int, float))
            given = pipe.constant(f"{prefix}.{name}", number(given, value.dtype, where) if plain else given)
        no_function = given.dtype is None and given.kind == "constant" and not callable(given.data)
        if given.dtype != value.dtype or no_function:
            raise DTypeMismatch(f"{where} is {value.dtype or 'a function'}, but {given.name!r} is {given.dtype}")
        new[id(value)] = given
    for found in (
        [],
        constraints,
    ):  # as in connecting.check_operands: the first round learns names, the second checks them
        for name, value in wanted.items():
            match(value.shape, new[id(value)].shape, env, f"input {name!r} of {other.name!r}", found)
    unknown = {n for value in other.values.values() for x in value.shape for n in names(x)} - env.keys()
    if unknown:
        raise PipelineError(
            f"sizes {', '.join(sorted(unknown))} of {other.name!r} cannot be told from its inputs' shapes here"
        )
    for value in other.values.values():
        if value.kind in ("constant", "state", "buffer"):
            copy = pipe._declare(
                f"{prefix}.{value.name}",
                value.dtype,
                [substitute(x, env) for x in value.shape],
                value.kind,
                value.axes,
                value.quant,
            )
            copy.data = value.data
            new[id(value)] = copy
    for step in other.order():
        operands = {slot: new[id(v)] for slot, v in step.inputs.items()}
        operands |= {slot: new[id(v)] for slot, v in step.outputs.items() if id(v) in new}
        written = pipe.add(step.kernel, step_name=f"{prefix}.{step.name}", **operands)
        for value, copy in zip(
            step.outputs.values(), written if isinstance(written, tuple) else (written,), strict=False
        ):
            copy.quant = value.quant
            new[id(value)] = copy
    for name, value in other.updates.items():
        pipe.update(new[id(other.values[name])], new[id(value)])
    pipe.constraints += constraints
    for left, right, where in other.constraints:
        pipe.constraints.append((substitute(left, env), substitute(right, env), f"{prefix}: {where}"))
    results = {name: new[id(value)] for name, value in other.outputs.items()}
    return next(iter(results.values())) if len(results) == 1 else results
