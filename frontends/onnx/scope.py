"""The names of one graph and what they stand for; subgraphs see those of the graphs around them."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from ...executors.single_thread import SingleThreadExecutor
from ...kernels import ops
from ...kernels.moving.relative import relative
from ...kernels.ops.arrays import apply_array
from ...kernels.reference import quantize as reference
from ...primitives import dtypes
from ...primitives.errors import ArgumentError, DTypeMismatch, FileFormatError, TileworkError, Unsupported
from ...primitives.pipeline import Pipeline, Value
from ...primitives.sizes import SizeLike, names, size
from . import shape_arithmetic
from .node import Coded, NeedsSizes, Node, Sizes, Tabled
from .reading import DEFAULT, Model, label, package, topological
from .tensors import MOST_FOLDED, check_size, element_type, to_array
from .tidying import prune

Array = np.ndarray[Any, Any]
Translator = Callable[[Node], Any]
TABLE: dict[tuple[str, str], Translator] = {}
WIDE: dict[str, Translator] = {}  # for types that the steps of an operator of the default domain have not
LARGEST_FOLD = 1 << 26  # elements: what is bigger is computed when it runs
MEASURED = 3  # inputs whose sizes one step takes
# What a translator raises that takes for granted what its operator must have, where a file has it not.
MALFORMED = (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError, ZeroDivisionError)
DEEPEST = 16  # graphs within graphs, and functions within functions


class _TooLarge(Exception):
    """What is known while a file is read is left for the run, which may never ask for it."""


def operator(*names: str, domain: str = DEFAULT) -> Callable[[Translator], Translator]:
    """Enter a translator for operators of a domain: a function of a Node that returns its outputs."""

    def enter(translate: Translator) -> Translator:
        for name in names:
            TABLE[domain, name] = translate
        return translate

    return enter


class Scope:
    """Translates the nodes of a graph into steps of a pipeline."""

    def __init__(
        self, model: Model, pipe: Pipeline, outer: Scope | None = None, opsets: Mapping[str, int] | None = None
    ) -> None:
        self.model, self.pipe, self.outer = model, pipe, outer
        self.opsets: Mapping[str, int] = opsets if opsets is not None else outer.opsets if outer else model.opsets
        self.names: dict[str, Any] = {}
        self.given: Mapping[str, Array] = {} if outer is None else outer.given  # inputs whose values are known
        self.attributes: Mapping[str, Any] = {}  # those that a function was called with
        self.depth: int = 0 if outer is None else outer.depth + 1
        self.lookups: dict[int, tuple[Value, Array, Value]] = {} if outer is None else outer.lookups
        self._constants: dict[int, tuple[Array, Value]] = {} if outer is None else outer._constants
        self._computed: dict[int, tuple[Value, Array]] = {} if outer is None else outer._computed
        self._made: dict[tuple[str, int], tuple[Array, Array]] = {} if outer is None else outer._made
        self._materialized: dict[int, tuple[Coded | Tabled, Value]] = {} if outer is None else outer._materialized
        self._settled: dict[int, tuple[Coded, Array]] = {} if outer is None else outer._settled
        self.tabled: dict[int, tuple[Coded, Tabled]] = {} if outer is None else outer.tabled
        if self.depth > DEEPEST:
            raise FileFormatError(f"{model.name}: graphs are nested more than {DEEPEST} deep")

    # Names -------------------------------------------------------------------------------------------------------

    def find(self, name: str) -> Any:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.outer
        raise FileFormatError(f"{self.model.name}: nothing writes {name!r}")

    def visible(self) -> set[str]:
        outer = self.outer.visible() if self.outer is not None else set()
        return outer | self.names.keys()

    def settle(self, operand: Any) -> Any:
        """An operand with all that is known computed: a Coded constant becomes the numbers it stands for."""
        if isinstance(operand, Coded) and all(
            x is None or isinstance(x, np.ndarray) for x in (operand.codes, operand.scale, operand.zero_point)
        ):
            kept = self._settled.get(id(operand))
            if kept is None:
                found = decoded(operand)
                kept = operand, self.evaluate(lambda scope: dequantize(scope, operand), []) if found is None else found
                self._settled[id(operand)] = kept
            return kept[1]
        return operand

    @staticmethod
    def is_constant(operand: Any) -> bool:
        """Whether an operand is known while the file is read."""
        return isinstance(operand, np.ndarray) or isinstance(getattr(operand, "codes", None), np.ndarray)

    def value(self, operand: Any) -> Value:
        """An operand as a pipeline value."""
        if isinstance(operand, Value):
            return operand
        operand = self.settle(operand)
        if isinstance(operand, (Coded, Tabled)):
            return self._materialize(operand)
        if isinstance(operand, Sizes):
            return self._measured(operand)
        return self.constant(operand)

    def _measured(self, operand: Sizes) -> Value:
        """Computed sizes as data: a step that takes inputs of the pipeline to see how large they are."""
        inputs = self.pipe.of_kind("input").values()
        asked = [size(n) for n in operand.array.flat]
        wanted = set().union(*(names(n) for n in asked))
        given = [v for v in inputs if wanted & set().union(*(names(n) for n in v.shape))][:MEASURED]
        if not given:
            raise NeedsSizes(f"{self.model.name}: computed sizes are used as data; load with shapes= that fix them")
        texts = [str(n) for n in relative(asked, [v.shape for v in given], "sizes")]
        return apply_array("extents", *given, results=["s64"], sizes=texts, shape=operand.array.shape)[0]

    @staticmethod
    def only_sizes(operand: Any) -> bool:
        """Whether a value is computed from sizes and constants alone."""
        left, seen, found = [operand], set[int](), False
        while left:
            value = left.pop()
            if not isinstance(value, Value) or id(value) in seen or value.kind == "constant":
                continue
            seen.add(id(value))
            if value.producer is None:
                return False
            step = value.producer[0]
            if step.kernel.name == "arrays_extents":
                found = True
            else:
                left += step.inputs.values()
        return found

    def computed(self, operand: Any) -> Array | None:
        """The array that a value is in the run whose inputs are given; None where those do not say it."""
        needed = self.inputs_of(operand)
        if not self.given or not set(needed) <= self.given.keys():
            return None
        value = self.value(operand)
        if value.kind == "input":
            return self.given[value.name]
        kept = self._computed.get(id(value))
        if kept is None:
            from ...executors import TilingExecutor

            part = Pipeline("part of a run")
            part.steps, part.values, part.constraints = (
                list(self.pipe.steps),
                dict(self.pipe.values),
                self.pipe.constraints,
            )
            part.outputs = {"y": value}
            prune(part)
            inputs = {name: self.given[name] for name, v in part.of_kind("input").items() if name in self.given}
            kept = self._computed[id(value)] = value, TilingExecutor().run(part, inputs)["y"]
        return kept[1]

    def inputs_of(self, operand: Any) -> tuple[str, ...]:
        """The inputs of the pipeline whose values an operand is computed from."""
        found: dict[str, None] = {}
        left = [operand, *(getattr(operand, n, None) for n in ("codes", "scale", "zero_point"))]
        seen: set[int] = set()
        while left:
            value = left.pop()
            if not isinstance(value, Value) or id(value) in seen:
                continue
            seen.add(id(value))
            if value.kind == "input":
                found[value.name] = None
            if value.producer is not None:
                left += value.producer[0].inputs.values()
        return tuple(found)

    def once(self, what: str, array: Array, make: Callable[[Array], Array]) -> Array:
        """What is made of a constant, made once for all nodes that read it."""
        kept = self._made.get((what, id(array)))
        if kept is None:
            kept = self._made[what, id(array)] = array, make(array)
        return kept[1]

    def constant(self, array: Array) -> Value:
        """A constant of the pipeline; the same array is entered once. Codes of less than 8 bits are widened."""
        kept = self._constants.get(id(array))
        if kept is None or kept[1].pipeline is not self.pipe:
            kept = array, self.pipe.constant(widened(array))
            self._constants[id(array)] = kept
        return kept[1]

    def _materialize(self, promise: Coded | Tabled) -> Value:
        """The real numbers of a promise; they are computed once."""
        kept = self._materialized.get(id(promise))
        if kept is None or kept[1].pipeline is not self.pipe:
            made = promise.make() if isinstance(promise, Tabled) else dequantize(self, promise)
            kept = promise, made
            self._materialized[id(promise)] = kept
        return kept[1]

    # Attributes --------------------------------------------------------------------------------------------------

    def attribute(self, proto: Any, where: str) -> Any:
        """The Python value of an attribute."""
        onnx = package()
        if proto.type == onnx.AttributeProto.TENSOR:
            return to_array(proto.t, self.model.folder, where, self.model.states)
        if proto.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS):
            return proto.g if proto.type == onnx.AttributeProto.GRAPH else list(proto.graphs)
        found = onnx.helper.get_attribute_value(proto)
        if isinstance(found, bytes):
            return found.decode("utf-8", "replace")
        if isinstance(found, (int, float)):
            return found
        if isinstance(found, (list, tuple)) or hasattr(found, "__len__"):
            return [x.decode("utf-8", "replace") if isinstance(x, bytes) else x for x in found]
        raise Unsupported(f"{where}: attribute {proto.name!r} is of a type that is not read")

    def _resolved(self, proto: Any) -> Any:
        """A node of a function with what its attributes refer to; one that the caller left out is left out."""
        if not any(a.ref_attr_name for a in proto.attribute):
            return proto
        onnx = package()
        found = onnx.NodeProto()
        found.CopyFrom(proto)
        del found.attribute[:]
        for attribute in proto.attribute:
            if not attribute.ref_attr_name:
                found.attribute.append(attribute)
                continue
            value = self._of_function(attribute.ref_attr_name)
            if value is not None:
                held = onnx.numpy_helper.from_array(value) if isinstance(value, np.ndarray) else value
                found.attribute.append(
                    onnx.helper.make_attribute(attribute.name, held, attr_type=attribute.type or None)
                )
        return found

    def _of_function(self, name: str) -> Any:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.attributes:
                return scope.attributes[name]
            scope = scope.outer
        return None

    # Graphs ------------------------------------------------------------------------------------------------------

    def enter_initializers(self, graph: Any) -> None:
        where = f"graph {graph.name!r}" if graph.name else self.model.name
        for tensor in graph.initializer:
            self.names[tensor.name] = to_array(tensor, self.model.folder, where, self.model.states)
        if graph.sparse_initializer:
            raise Unsupported(f"{where}: sparse initializers; dense ones work")

    def translate(self, nodes: Any, where: str) -> None:
        """Add the steps of all nodes."""
        for node in topological(nodes, self.visible(), where):
            self.apply(node)

    def graph(self, graph: Any, given: list[Any]) -> list[Any]:
        """Add the steps of a subgraph whose inputs are given, and return its outputs."""
        inner = Scope(self.model, self.pipe, self)
        inner.enter_initializers(graph)
        names = [v.name for v in graph.input if v.name not in inner.names]
        if len(names) != len(given):
            raise FileFormatError(f"graph {graph.name!r} takes {len(names)} inputs, but {len(given)} are given")
        inner.names.update(zip(names, given, strict=True))
        inner.translate(graph.node, f"graph {graph.name!r}")
        return [inner.find(v.name) for v in graph.output]

    def apply(self, proto: Any) -> None:
        """Add the steps of one node and bind the names of its outputs."""
        domain = DEFAULT if proto.domain == "ai.onnx" else proto.domain
        where = label(proto)
        proto = self._resolved(proto)
        node = Node(self, proto, self.opsets.get(domain, 1), where)
        try:
            results = self._results(node, domain)
        except TileworkError as error:
            if str(error).startswith(where) or isinstance(error, NeedsSizes):
                raise
            raise type(error)(f"{where}: {error}") from error
        except RecursionError:
            raise FileFormatError(f"{where}: nested too deeply") from None
        except MALFORMED as error:
            raise FileFormatError(f"{where}: it is not what its operator asks for ({error!r})") from error
        results = list(results) if isinstance(results, (tuple, list)) else [results]
        for name, result in zip(proto.output, results, strict=False):
            if name:
                self.names[name] = result
        for name in proto.output[len(results) :]:
            if name:
                raise Unsupported(f"{where}: its output {name!r} is not computed; the first {len(results)} are")

    def _results(self, node: Node, domain: str) -> Any:
        if domain == DEFAULT:
            _check_inputs(node)
        operands = [self.settle(node.operand(n)) if n in _SHAPE_LIKE else node.operand(n) for n in range(len(node))]
        symbolic = shape_arithmetic.TABLE.get(node.op) if domain == DEFAULT else None
        if symbolic is not None:
            found = symbolic(node, operands)
            if found is not NotImplemented:
                return found
        function = self._function(node, domain)
        if function is not None:
            return function
        translate = TABLE.get((domain, node.op))
        if translate is None:
            expanded = self._expanded(node, domain)
            if expanded is not None:
                return expanded
            raise Unsupported(f"{node.label}: operator set {domain or 'ai.onnx'} {node.version} has no {node.op} here")
        given = [x for x in operands if x is not None]
        promised = node.op == "DequantizeLinear"  # stays a promise of its codes, which an integer operator may take
        if given and all(isinstance(x, np.ndarray) for x in given) and not node.has_graphs and not promised:
            if sum(x.size for x in given) <= LARGEST_FOLD:
                with contextlib.suppress(_TooLarge):
                    most = max(MOST_FOLDED, sum(x.size for x in given))
                    return self.evaluate(
                        lambda inner: _translated(translate, node.on_scope(inner), domain), given, most
                    )
        return _translated(translate, node, domain)

    def evaluate(self, build: Callable[[Scope], Any], given: list[Array], most: float = math.inf) -> Any:
        """Run steps whose operands are all known, by the meaning of each step, while the file is read.

        Raises _TooLarge where one has more than `most` elements.
        """
        pipe = Pipeline("constants")
        inner = Scope(self.model, pipe, self, self.opsets)
        built = build(inner)
        results = list(built) if isinstance(built, (tuple, list)) else [built]
        wanted: dict[str, Value] = {}
        for n, result in enumerate(results):
            if isinstance(result, Coded):
                result = results[n] = (
                    inner.settle(result) if not isinstance(result.codes, Value) else inner.value(result)
                )
            if isinstance(result, Value):
                check_size([s for s in result.shape if isinstance(s, int)], pipe.name)
                if result.kind == "constant":
                    results[n] = result.data
                    continue
                wanted[f"y{n}"] = result
                pipe.output(f"y{n}", result)
        for step in pipe.steps:
            for made in step.outputs.values():
                if math.prod(n for n in made.shape if isinstance(n, int)) > most:
                    raise _TooLarge
        if wanted:
            found = SingleThreadExecutor(backend="reference").run(pipe, {})
            for name in wanted:
                results[int(name[1:])] = found[name]
        return results if isinstance(built, (tuple, list)) else results[0]

    # Functions ---------------------------------------------------------------------------------------------------

    def _function(self, node: Node, domain: str) -> Any:
        """Expand a function that the model itself defines."""
        for function in self.model.proto.functions:
            if function.name == node.op and ("" if function.domain == "ai.onnx" else function.domain) == domain:
                opsets = {"" if e.domain == "ai.onnx" else e.domain: int(e.version) for e in function.opset_import}
                return self._call(node, function, {**self.opsets, **opsets})
        return None

    def _expanded(self, node: Node, domain: str) -> Any:
        """Expand an operator that its own specification writes as a function of others."""
        onnx = package()
        try:
            schema = onnx.defs.get_schema(node.op, node.version, domain)
        except Exception:  # the package's own SchemaError, whose place differs between versions
            return None
        if not schema.has_function and not schema.has_context_dependent_function:
            return None
        if schema.has_function:
            body = schema.function_body
        else:
            types = [
                self._type_of(node.operand(n)).SerializeToString() if node.has(n) else b"" for n in range(len(node))
            ]
            version = max(v for v in schema.context_dependent_function_opset_versions if v <= node.version)
            body = onnx.FunctionProto()
            body.ParseFromString(
                schema.get_context_dependent_function_with_opset_version(version, node.proto.SerializeToString(), types)
            )
        opsets = {"" if e.domain == "ai.onnx" else e.domain: int(e.version) for e in body.opset_import}
        defaults = {
            name: self.attribute(a.default_value, node.label)
            for name, a in schema.attributes.items()
            if a.default_value.name
        }
        return self._call(node, body, {**self.opsets, **opsets}, defaults)

    def _call(
        self, node: Node, function: Any, opsets: Mapping[str, int], defaults: Mapping[str, Any] = MappingProxyType({})
    ) -> Any:
        inner = Scope(self.model, self.pipe, None, opsets)
        inner.depth = self.depth + 1
        if inner.depth > DEEPEST:
            raise FileFormatError(f"{node.label}: functions are nested more than {DEEPEST} deep")
        inner._made, inner._computed, inner.given = self._made, self._computed, self.given
        inner.lookups, inner._constants, inner._materialized = self.lookups, self._constants, self._materialized
        inner._settled, inner.tabled = self._settled, self.tabled
        inner.attributes = {
            **defaults,
            **{a.name: self.attribute(a, node.label) for a in function.attribute_proto},
            **{name: node.attr(name) for name in node.attribute_names()},
        }
        for n, name in enumerate(function.input):
            inner.names[name] = node.operand(n)
        inner.translate(function.node, f"function {function.name!r}")
        wanted = list(function.output)[: max(node.outputs, 1)]
        return [inner.find(name) if node.wants(n) else None for n, name in enumerate(wanted)]

    def _type_of(self, operand: Any) -> Any:
        onnx = package()
        if isinstance(operand, Coded):
            dtype, shape = dtypes.get(operand.dtype).numpy, operand.shape
        elif isinstance(operand, Sizes):
            dtype, shape = np.dtype(np.int64), operand.array.shape
        else:
            shape = operand.shape
            dtype = dtypes.get(operand.dtype).numpy
        sizes = [n if isinstance(n, int) else None for n in shape]
        return onnx.helper.make_tensor_type_proto(onnx.helper.np_dtype_to_tensor_dtype(dtype), sizes)


def _translated(translate: Translator, node: Node, domain: str) -> Any:
    """The results of a translator, or of the one for the types that its steps have not."""
    try:
        return translate(node)
    except (ArgumentError, DTypeMismatch):
        wide = WIDE.get(node.op) if domain == DEFAULT else None
        if wide is None:
            raise
        return wide(node)


_SHAPE_LIKE = range(1, 8)  # operands that are settled before a translator asks: shapes, axes, scales


def widened(array: Array) -> Array:
    """Codes of less than 8 bits, which NumPy holds one to a byte, as 8-bit ones; anything else as it is."""
    if array.dtype.name in ("int4", "int2"):
        return array.astype(np.int8)
    if array.dtype.name in ("uint4", "uint2"):
        return array.astype(np.uint8)
    return array


def decoded(coded: Coded) -> Array | None:
    """The numbers of constant codes without blocks, at once by the reference; None where the steps have to say them."""
    codes, scale, zero = widened(coded.codes), coded.scale, coded.zero_point
    if codes.dtype.kind not in "iu" or scale.dtype != np.float32 or coded.dtype != "f32" or coded.block:
        return None
    if not ((scale > 0) & np.isfinite(scale)).all() or (zero is not None and zero.shape != scale.shape):
        return None
    if scale.size == 1:
        shape: tuple[int, ...] = ()
    elif scale.ndim == 1 and codes.ndim and scale.size == codes.shape[coded.axis]:
        shape = tuple(-1 if d == coded.axis else 1 for d in range(codes.ndim))
    else:
        return None
    zero = 0 if zero is None else widened(zero).reshape(shape)
    return np.asarray(reference.dequantize(codes, scale.reshape(shape), zero))


IN_BYTES = {"s4b": "s8", "u4b": "u8", "s2b": "s8", "u2b": "u8"}
BYTES = {"int4": "s4b", "uint4": "u4b", "int2": "s2b", "uint2": "u2b"}


def stored(dtype: np.dtype[Any]) -> str:
    """The type of a tensor of the file in a pipeline: codes of less than 8 bits take a byte each."""
    return BYTES.get(dtype.name) or dtypes.get(dtype).name


def dequantize(scope: Scope, coded: Coded) -> Value:
    """(codes - zero_point) * scale as a step, in the type that is asked for."""
    codes = scope.value(coded.codes)
    if str(codes.dtype) in IN_BYTES:
        codes = ops.cast(codes, IN_BYTES[str(codes.dtype)])
    if codes.dtype is not None and codes.dtype.kind == "float":
        y = _of_small_floats(scope, coded, codes)
    else:
        y = _of_integers(scope, coded, codes)
    return y if coded.dtype == "f32" else ops.cast(y, coded.dtype)


def _of_integers(scope: Scope, coded: Coded, codes: Value) -> Value:
    scale = coded.scale
    if str(scale.dtype) not in ("f32", "float32"):
        scale = scale.astype(np.float32) if isinstance(scale, np.ndarray) else ops.cast(scale, "f32")
    zero = 0 if coded.zero_point is None else coded.zero_point
    if isinstance(zero, np.ndarray):
        zero = widened(zero)
    elif isinstance(zero, Value) and str(zero.dtype) in IN_BYTES:
        zero = ops.cast(zero, IN_BYTES[str(zero.dtype)])
    along: dict[str, Any] = {}
    if len(scale.shape):
        along = {"axis": coded.axis, "block": coded.block} if coded.block else {"axis": coded.axis}
    if coded.per_tensor:
        along, scale = {}, scalar(scale)
        zero = zero if isinstance(zero, int) else scalar(zero)
    return ops.dequantize(codes, scale, zero, **along)


def scalar(parameter: Any) -> Any:
    """A parameter of one element without axes."""
    return parameter.reshape(()) if isinstance(parameter, np.ndarray) else ops.reshape(parameter, ())


def _of_small_floats(scope: Scope, coded: Coded, codes: Value) -> Value:
    y = ops.cast(codes, "f32")
    if coded.zero_point is not None and not (
        isinstance(coded.zero_point, np.ndarray) and not coded.zero_point.astype(bool).any()
    ):
        zero = ops.cast(scope.value(coded.zero_point), "f32")
        y = ops.sub(y, spread(zero, codes.shape, coded.axis, coded.block))
    scale = scope.value(coded.scale)
    return ops.mul(y, spread(ops.cast(scale, "f32"), codes.shape, coded.axis, coded.block))


def spread(parameter: Any, shape: tuple[Any, ...], axis: int, block: int) -> Any:
    """A scale shaped to broadcast over data: one, one for each index of an axis, or one for each block of it."""
    if not parameter.shape or all(n == 1 for n in parameter.shape):
        return scalar(parameter)
    if not shape:
        raise FileFormatError(f"parameters of shape {tuple(parameter.shape)} for one number")
    axis %= len(shape)
    if block:
        n = shape[axis]
        if not isinstance(n, int):
            raise Unsupported(f"blocks along an axis of {n} elements, known only at run time; a constant number works")
        places = np.arange(n) // block
        return (
            np.take(parameter, places, axis)
            if isinstance(parameter, np.ndarray)
            else ops.gather(parameter, places, axis)
        )
    lined = [1] * len(shape)
    lined[axis] = -1
    return parameter.reshape(lined) if isinstance(parameter, np.ndarray) else ops.reshape(parameter, lined)


def _check_inputs(node: Node) -> None:
    """FileFormatError where an input that the operator must have is left out, or there are more than it takes."""
    defs = package().defs
    if not defs.has(node.op, node.version):
        return
    schema = defs.get_schema(node.op, node.version)
    if not schema.min_input <= len(node) <= schema.max_input:
        raise FileFormatError(
            f"{node.label}: {len(node)} inputs; {node.op} takes {schema.min_input} to {schema.max_input}"
        )
    for formal, given in zip(schema.inputs, node.proto.input, strict=False):
        if not given and formal.option == defs.OpSchema.FormalParameterOption.Single:
            raise FileFormatError(f"{node.label}: its input {formal.name!r} is left out, and it must be there")


def size_name(text: str) -> str:
    """A run-time size's name as an identifier."""
    name = re.sub(r"\W+", "_", text).strip("_")
    return name if name and not name[0].isdigit() else f"size_{name}"


def declared_shape(value: Any, given: Any, where: str) -> tuple[SizeLike, ...]:
    """The shape of a graph input: what is given, else what the file says, with names for what only a run knows."""
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        if given is None:
            raise Unsupported(f"{where} has no shape; load with shapes={{{value.name!r}: shape}}")
        return tuple(given)
    said: list[SizeLike] = []
    for axis, dim in enumerate(tensor.shape.dim):
        if dim.HasField("dim_value") and dim.dim_value >= 0:
            said.append(int(dim.dim_value))
        elif re.search(r"\w", dim.dim_param):  # "?" names no size: each is its own
            said.append(size_name(dim.dim_param))
        else:
            said.append(size_name(f"{value.name}_{axis}"))
    if given is None:
        check_size([n for n in said if isinstance(n, int)], where)
        return tuple(said)
    given = tuple(given)
    if len(given) != len(said):
        raise FileFormatError(f"{where} has {len(said)} dimensions; shapes= gives {len(given)}")
    for n, s in zip(given, said, strict=True):
        if isinstance(s, int) and s > 0 and isinstance(n, int) and n != s:
            raise FileFormatError(f"{where} is {tuple(said)}; shapes= gives {given}")
    return given


def declared_type(value: Any, where: str) -> np.dtype[Any]:
    if not value.type.HasField("tensor_type"):
        raise Unsupported(f"{where} is no tensor; sequences, maps and optionals are not read")
    return element_type(value.type.tensor_type.elem_type, where)
