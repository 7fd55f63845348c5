"""`load`: an ONNX model as a Pipeline."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...kernels import ops
from ...primitives.errors import ArgumentError, FileFormatError, ShapeMismatch, SizeError, TileworkError, Unsupported
from ...primitives.matching import match
from ...primitives.pipeline import Pipeline, Value
from ...primitives.sizes import Size
from . import operators as operators
from .kept import Source
from .node import Coded, NeedsSizes, NeedsValues
from .reading import Model, file_bytes, read
from .scope import BYTES, MALFORMED, Scope, declared_shape, declared_type, stored
from .tidying import prune, tidy

KEPT = 32  # sets of values whose pipelines a Deferred keeps
CONSTANT = 1 << 12  # elements of an input that becomes a constant where its values are given
TRIED = 64  # what a run-time size is taken for, to see whether knowing it is all that is lacking


@dataclass(frozen=True)
class Loaded:
    """A pipeline and the values that the tensors of the file became, by their names there."""

    pipeline: Pipeline
    values: Mapping[str, Value]


class Open(Pipeline):
    """A pipeline with sizes that a run decides. Where those of a run do not fit together as the file's names say, as where
    a size is 1 and broadcast, that run has a pipeline for its sizes."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.model: Model | None = None
        self.shapes: Mapping[str, Iterable[Any]] = {}
        self.fixed: Deferred | None = None

    def for_inputs(self, inputs: Mapping[str, Any]) -> Pipeline:
        """This pipeline, or the one for the sizes of these inputs."""
        if self.model is None:
            return self
        if self.fixed is None:
            sizes = _sizes(self, inputs)
            if sizes is None:
                return self
            try:
                self.check_sizes(sizes)
                return self
            except ShapeMismatch as error:
                self.fixed = Deferred(self.model, self.shapes, (), True, str(error))
        return self.fixed.for_inputs(inputs)


def _sizes(pipe: Pipeline, inputs: Mapping[str, Any]) -> dict[str, int] | None:
    """What the names of a pipeline's sizes stand for with these inputs; None where they are not those that it takes."""
    env: dict[str, Any] = {}
    try:
        for name, value in pipe.of_kind("input").items():
            match(value.shape, np.shape(inputs[name]), env, name, [])
    except (ShapeMismatch, KeyError):
        return None  # the executor says what is wrong with them
    return env


class Deferred(Pipeline):
    """A pipeline whose structure depends on the values of some inputs: each run has the one for its values.

    needs   names of those inputs
    sized   whether it depends on the sizes of the inputs too, in a way that no expression of them says
    """

    def __init__(
        self, model: Model, shapes: Mapping[str, Iterable[Any]], needs: tuple[str, ...], sized: bool, reason: str
    ) -> None:
        super().__init__(model.proto.graph.name or "onnx")
        self.needs, self.sized, self._model, self._shapes, self._reason = needs, sized, model, shapes, reason
        self._known: dict[tuple[Any, ...], Pipeline] = {}
        for v in _inputs(model):
            where = f"input {v.name!r}"
            self.input(v.name, stored(declared_type(v, where)), declared_shape(v, shapes.get(v.name), where))

    def for_inputs(self, inputs: Mapping[str, Any]) -> Pipeline:
        """The pipeline for the values that the inputs have; made once for each of the last sets of values."""
        given = {name: np.asarray(inputs[name]) for name in self.needs if name in inputs}
        shapes = {n: np.shape(x) for n, x in inputs.items() if n in self.values} if self.sized else self._shapes
        key = (tuple(shapes.items()) if self.sized else (), *((n, x.shape, x.tobytes()) for n, x in given.items()))
        if key in self._known:
            return self._known[key]
        try:
            made = _translated(self._model, shapes, given).pipeline
        except NeedsValues as more:
            missing = [name for name in more.inputs if name not in given]
            if not missing or not all(name in inputs for name in missing):
                raise Unsupported(str(more)) from None
            self.needs = (*self.needs, *missing)
            return self.for_inputs(inputs)
        except NeedsSizes:
            if self.sized:
                raise
            self.sized = True
            return self.for_inputs(inputs)
        while len(self._known) >= KEPT:
            del self._known[next(iter(self._known))]
        self._known[key] = made
        return made

    def validate(self) -> None:
        what = f"the values of {', '.join(self.needs)} decide" if self.needs else "the sizes of its inputs decide"
        how = f"values={{{self.needs[0]!r}: array}}" if self.needs else "shapes={input: shape}"
        raise Unsupported(
            f"{self._reason}: {what} what is computed; run it with an executor's run(pipe, inputs), or load it with {how}"
        )


def load(
    source: Any, shapes: Mapping[str, Iterable[Any]] | None = None, values: Mapping[str, Any] | None = None
) -> Pipeline:
    """Return the pipeline of an ONNX model.

    source   a path, the bytes of a model, or a ModelProto
    shapes   {input: shape}, sizes or names, in place of what the file says: fixes sizes that a file leaves open
    values   {input: array}: inputs that are constants from now on, though runs still take them

    Inputs and outputs keep their names, types and shapes; a size that the file names stays a run-time size.
    DequantizeLinear, an integer operator and QuantizeLinear become one integer kernel where that gives the same codes.
    Where the values of an input decide the structure (axes, sizes, a condition), `executor.run` makes the pipeline for
    the values it is given; `compile` needs them here, as `values`.
    Raises FileFormatError for what is no ONNX model or contradicts itself, Unsupported for what is not read (operator,
    type, run-time shape), naming the node; ArgumentError for a file or an input that is not there.
    """
    for what, named in (("shapes", shapes), ("values", values)):
        if named is not None and not isinstance(named, Mapping):
            raise ArgumentError(f"{what}= is {named!r}; a dictionary by the names of inputs works")
    for name, shape in (shapes or {}).items():
        if isinstance(shape, str) or not isinstance(shape, Iterable):
            raise ArgumentError(f"shapes= gives {shape!r} for {name!r}; a tuple of sizes works")
    shapes = {name: tuple(shape) for name, shape in (shapes or {}).items()}
    given = {name: np.asarray(array) for name, array in (values or {}).items()}
    if not isinstance(source, (str, os.PathLike)):
        return _load(read(source), shapes, given)
    path = Path(source)
    data = file_bytes(path)
    kept = Source(path, data, shapes, given)

    def from_bytes() -> Model:
        return read(data, path)

    later = kept.later(lambda: _load(from_bytes(), shapes, given))
    if later is not None:
        return later
    model = from_bytes()
    beside = kept.beside(model.proto)
    made = _load(model, shapes, given)
    if isinstance(made, Open):
        kept.remember(made, beside)
    return made


def _load(model: Model, shapes: Mapping[str, Iterable[Any]], given: Mapping[str, Any]) -> Pipeline:
    for what, names in (("shapes", shapes), ("values", given)):
        for name in names:
            if name not in (known := [v.name for v in _inputs(model)]):
                raise ArgumentError(f"{what}= names {name!r}, which is no input; there is {', '.join(known) or 'none'}")
    try:
        return _translated(model, shapes, given).pipeline
    except NeedsValues as needed:
        if not needed.inputs or set(needed.inputs) <= given.keys():
            raise Unsupported(str(needed)) from None
        return Deferred(model, shapes, (*given, *needed.inputs), False, str(needed))
    except NeedsSizes as needed:
        return Deferred(model, shapes, tuple(given), True, str(needed))
    except TileworkError as error:
        if isinstance(error, (ArgumentError, ShapeMismatch, SizeError)) and _has_open_sizes(model, shapes):
            return Deferred(model, shapes, tuple(given), True, str(error))
        if not _helped_by_sizes(model, shapes, given):
            raise
        return Deferred(model, shapes, tuple(given), True, str(error))


def _has_open_sizes(model: Model, shapes: Mapping[str, Iterable[Any]]) -> bool:
    said = (declared_shape(v, shapes.get(v.name), f"input {v.name!r}") for v in _inputs(model))
    return any(not isinstance(n, int) for shape in said for n in shape)


def _helped_by_sizes(model: Model, shapes: Mapping[str, Iterable[Any]], given: Mapping[str, Any]) -> bool:
    """Whether the model can be translated once its run-time sizes are numbers: found out by giving it some."""
    fixed: dict[str, Any] = {}
    for v in _inputs(model):
        said = declared_shape(v, shapes.get(v.name), f"input {v.name!r}")
        fixed[v.name] = tuple(n if isinstance(n, int) else TRIED for n in said)
    if all(tuple(fixed[v.name]) == declared_shape(v, shapes.get(v.name), v.name) for v in _inputs(model)):
        return False
    try:
        _translated(model, fixed, given)
    except (TileworkError, NeedsValues):
        return False
    return True


def load_with_values(
    source: Any, shapes: Mapping[str, Iterable[Any]] | None = None, inputs: Mapping[str, Any] | None = None
) -> Loaded:
    """The pipeline of a model, and what each of its tensors became: for comparing layer by layer.

    inputs   {input: array}: the pipeline is one for runs with these, whose sizes and values may decide its structure
    """
    model = read(source)
    given: dict[str, Any] = {}
    known = {v.name for v in _inputs(model)}
    sizes = dict(shapes or {}) | {name: np.shape(x) for name, x in (inputs or {}).items() if name in known}
    while True:
        try:
            return _translated(model, sizes, given, everything=True)
        except NeedsValues as needed:
            missing = [name for name in needed.inputs if name not in given]
            if not missing or not all(name in (inputs or {}) for name in missing):
                raise Unsupported(str(needed)) from None
            given |= {name: np.asarray((inputs or {})[name]) for name in missing}


def _inputs(model: Model) -> list[Any]:
    """The inputs that no initializer gives."""
    initialized = {t.name for t in model.proto.graph.initializer}
    return [v for v in model.proto.graph.input if v.name not in initialized]


def _translated(
    model: Model, shapes: Mapping[str, Iterable[Any]], given: Mapping[str, Any], everything: bool = False
) -> Loaded:
    graph = model.proto.graph
    pipe = Open(graph.name or "onnx")
    scope = Scope(model, pipe)
    scope.given = given
    scope.enter_initializers(graph)
    for v in _inputs(model):
        where = f"input {v.name!r}"
        shape = given[v.name].shape if v.name in given else shapes.get(v.name)
        value = pipe.input(v.name, stored(declared_type(v, where)), declared_shape(v, shape, where))
        scope.names[v.name] = given[v.name] if v.name in given and _becomes_constant(given[v.name]) else value
    scope.translate(graph.node, model.name)
    for v in graph.output:
        try:
            pipe.output(v.name, _result(scope, v))
        except TileworkError:
            raise
        except MALFORMED as error:
            raise FileFormatError(f"output {v.name!r} is made of what contradicts itself ({error!r})") from error
    if any(isinstance(n, Size) for v in pipe.of_kind("input").values() for n in v.shape):
        pipe.model, pipe.shapes = model, shapes
    if not everything:
        tidy(pipe)
        prune(pipe)
    known = {name: x for name, x in scope.names.items() if isinstance(x, (Value, Coded)) and not scope.is_constant(x)}
    return Loaded(pipe, {name: scope.value(x) for name, x in known.items()} if everything else {})


def _becomes_constant(array: np.ndarray[Any, Any]) -> bool:
    """Whether an input whose values are given is of the kind that says what to do: few whole numbers."""
    return array.dtype.kind in "iub" and array.size <= CONSTANT


def _result(scope: Scope, declared: Any) -> Value:
    """The value of an output, in the type that the file says: codes of less than 8 bits in a byte each."""
    found = scope.find(declared.name)
    if isinstance(found, list) or found is None:
        raise Unsupported(
            f"output {declared.name!r} is {'a sequence' if found is not None else 'an empty optional'}; tensors work"
        )
    value = scope.value(scope.settle(found))
    if declared.type.HasField("tensor_type") and declared.type.tensor_type.elem_type:
        kind = stored(declared_type(declared, f"output {declared.name!r}"))
        if kind in BYTES.values() and str(value.dtype) != kind:
            return ops.cast(value, kind)
    return value
