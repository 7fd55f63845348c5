"""`load`: an ONNX model as a Pipeline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ...kernels import ops
from ...primitives.errors import ArgumentError
from ...primitives.pipeline import Pipeline, Value
from . import operators as operators
from .reading import read
from .scope import BYTES, Scope, declared_shape, declared_type, stored


@dataclass(frozen=True)
class Loaded:
    """A pipeline and the values that the tensors of the file became, by their names there."""

    pipeline: Pipeline
    values: Mapping[str, Value]


def load(source: Any, shapes: Mapping[str, Iterable[Any]] | None = None) -> Pipeline:
    """Return the pipeline of an ONNX model.

    source   a path, the bytes of a model, or a ModelProto
    shapes   {input: shape}, sizes or names, in place of what the file says: fixes sizes that a file leaves open

    Inputs and outputs keep their names, types and shapes; a size that the file names stays a run-time size.
    DequantizeLinear, an integer operator and QuantizeLinear become one integer kernel where that gives the same codes.
    Raises FileFormatError for what is no ONNX model or contradicts itself, Unsupported for what is not read (operator,
    type, run-time shape), naming the node; ArgumentError for a file or an input that is not there.
    """
    return load_with_values(source, shapes).pipeline


def load_with_values(source: Any, shapes: Mapping[str, Iterable[Any]] | None = None) -> Loaded:
    """The pipeline of a model, and what each of its tensors became: for comparing layer by layer."""
    model = read(source)
    graph = model.proto.graph
    pipe = Pipeline(graph.name or "onnx")
    scope = Scope(model, pipe)
    scope.enter_initializers(graph)
    inputs = [v for v in graph.input if v.name not in scope.names]
    shapes = dict(shapes or {})
    for name in shapes:
        if name not in {v.name for v in inputs}:
            raise ArgumentError(
                f"shapes= names {name!r}, which is no input; there is {', '.join(v.name for v in inputs) or 'none'}"
            )
    for v in inputs:
        where = f"input {v.name!r}"
        dtype = stored(declared_type(v, where))
        scope.names[v.name] = pipe.input(v.name, dtype, declared_shape(v, shapes.get(v.name), where))
    scope.translate(graph.node, model.name)
    for v in graph.output:
        pipe.output(v.name, _result(scope, v))
    return Loaded(pipe, {name: x for name, x in scope.names.items() if isinstance(x, Value)})


def _result(scope: Scope, declared: Any) -> Value:
    """The value of an output, in the type that the file says: codes of less than 8 bits in a byte each."""
    value = scope.value(scope.settle(scope.find(declared.name)))
    if declared.type.HasField("tensor_type") and declared.type.tensor_type.elem_type:
        kind = stored(declared_type(declared, f"output {declared.name!r}"))
        if kind in BYTES.values() and str(value.dtype) != kind:
            return ops.cast(value, kind)
    return value
