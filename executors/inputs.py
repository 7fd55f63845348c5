"""The doors of a run: what a caller gives is checked here, before any kernel sees it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ..primitives.buffer import Buffer
from ..primitives.dtypes import DType
from ..primitives.errors import (
    AliasError,
    ArgumentError,
    BufferAccessError,
    DTypeMismatch,
    LayoutError,
    PipelineError,
    ShapeMismatch,
    SizeError,
    TileworkError,
)
from ..primitives.kernel import ArgSpec
from ..primitives.memory import address_of, aligned_bytes, alignment_of
from ..primitives.pipeline import Pipeline, Step, Value, number
from ..primitives.sizes import evaluate_shape, names, show, solve

Array = np.ndarray[Any, Any]


def wanted(pipe: Pipeline) -> dict[str, Value]:
    """The values that a run must be given: inputs and arguments, by name."""
    return {**pipe.of_kind("input"), **pipe.of_kind("argument")}


def stored_shape(dtype: DType, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of the bytes: codes of less than 8 bits are packed along the last dimension, rows to whole bytes."""
    if dtype.bits >= 8 or dtype.per_byte == 1 or not shape:
        return shape
    return (*shape[:-1], -(-shape[-1] // dtype.per_byte))


def stored_bytes(dtype: DType, shape: tuple[int, ...]) -> int:
    """The bytes that a value of this type and shape takes."""
    return math.prod(stored_shape(dtype, shape)) * dtype.numpy.itemsize


def check_outputs(given: Iterable[str], outputs: Mapping[str, Value]) -> None:
    """Raise ArgumentError for a name in out= that is no output."""
    for name in given:
        if name not in outputs:
            raise ArgumentError(f"there is no output {name!r}; there is {', '.join(outputs) or 'none'}")


def as_mapping(given: Any, what: str) -> Mapping[str, Any]:
    """{name: array}; ArgumentError for anything else."""
    if not isinstance(given, Mapping):
        raise ArgumentError(f"{what} is {type(given).__name__}; a dictionary {{name: array}} is needed")
    return given


def check_names(given: Iterable[str], expected: Mapping[str, Value], what: str) -> None:
    """Raise ArgumentError unless the names are exactly those expected."""
    given = set(given)
    for name in given - expected.keys():
        raise ArgumentError(f"there is no {what} {name!r}; there is {', '.join(expected) or 'none'}")
    missing = [
        f"{name} ({value.dtype or 'function'} {show(value.shape)})"
        for name, value in expected.items()
        if name not in given
    ]
    if missing:
        raise ArgumentError(f"missing {what}: {', '.join(missing)}")


def as_array(value: Value, given: Any) -> Any:
    """What was given for an input or argument, as an array of its type; a function stays one.

    Python numbers become arguments of the value's type. Anything with DLPack or an array interface is taken without
    a copy where possible. Raises DTypeMismatch where the type differs: nothing is cast behind the caller's back.
    """
    where = f"{value.kind} {value.name!r}"
    if value.dtype is None:
        if not callable(given):
            raise DTypeMismatch(f"{where} is a function, but {type(given).__name__} was given")
        return given
    if type(given) is np.ndarray and given.dtype == value.dtype.numpy:
        return aligned_elements(given, where)
    if isinstance(given, Buffer):
        if given.dtype != value.dtype:
            raise DTypeMismatch(f"{where} is {value.dtype}, but a buffer of {given.dtype} was given")
        return given.view()
    if isinstance(given, (bool, int, float, np.generic)) and not value.shape:
        return _scalar(value, given, where)
    if isinstance(given, Value):
        raise PipelineError(f"{where} was given {given!r}, which is a value of a pipeline; give an array")
    if isinstance(given, (list, tuple)) and value.kind == "argument":
        return _listed(value, given, where)
    if not any(hasattr(given, name) for name in ("__dlpack__", "__array_interface__", "__cuda_array_interface__")):
        given = _listed(None, given, where)
    buffer = Buffer.from_array(given)
    if buffer.dtype != value.dtype and not (buffer.dtype.numpy == value.dtype.numpy):
        raise DTypeMismatch(
            f"{where} is {value.dtype}, but {buffer.dtype} was given; cast it with .astype() if that is meant"
        )
    return aligned_elements(buffer.view(), where)


def aligned_elements(array: Array, where: str) -> Array:
    """The array; BufferAccessError where its elements do not lie at multiples of their size, as compiled code expects."""
    if not array.flags.aligned:
        raise BufferAccessError(
            f"{where} is {array.dtype} at address {address_of(array)} with strides {array.strides}: elements of "
            f"{array.itemsize} bytes lie at multiples of that; pass a copy, array.copy()"
        )
    return array


def _listed(value: Value | None, given: Any, where: str) -> Array:
    """A list of numbers as an array; for an argument, of its type, each number as it is or not at all."""
    try:
        found = np.asarray(given)
    except ValueError as error:
        raise ArgumentError(f"{where}: {type(given).__name__} {str(given)[:60]} is no array ({error})") from None
    if value is None or value.dtype is None or found.dtype == value.dtype.numpy:
        return found
    if found.size and found.dtype.kind not in "biuf":
        raise DTypeMismatch(f"{where} is {value.dtype}, but {found.dtype} was given; give numbers")
    numbers = [number(x, value.dtype, where) for x in found.ravel().tolist()]
    return np.array(numbers, value.dtype.numpy).reshape(found.shape)


def _scalar(value: Value, given: Any, where: str) -> Array:
    assert value.dtype is not None
    plain = given.item() if isinstance(given, np.generic) else given
    if not isinstance(plain, (bool, int, float)):
        raise DTypeMismatch(f"{where} is {value.dtype}, but {given!r} ({type(given).__name__}) was given")
    return number(plain, value.dtype, where)


def learn_sizes(pipe: Pipeline, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """The value of every run-time size, from the shapes of the inputs; raises where they contradict each other."""
    env: dict[str, int] = {}
    values = wanted(pipe)
    known = -1
    while len(env) > known:  # a size that is an expression may wait for another input to name its parts
        known = len(env)
        for name, shape in shapes.items():
            value = values[name]
            solve(value.shape, shape, env, f"{value.kind} {name!r}")
    unknown = {n for name in shapes for x in values[name].shape for n in names(x)} - env.keys()
    if unknown:
        raise SizeError(f"sizes {', '.join(sorted(unknown))} cannot be told from the inputs' shapes")
    pipe.check_sizes(env)
    return env


def sizes_so_far(pipe: Pipeline, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """Those run-time sizes that the shapes of some inputs tell; nothing is checked, and what contradicts tells nothing."""
    known = wanted(pipe)
    try:
        return learn_sizes(pipe, {name: shape for name, shape in shapes.items() if name in known})
    except TileworkError:
        return {}


def logical_shape(value: Value, array: Any) -> tuple[int, ...]:
    """The shape that an array stands for; packed codes count by their value's declared last size."""
    if value.dtype is None:
        return ()
    if value.dtype.per_byte == 1 or not value.shape:
        return tuple(array.shape)
    last = value.shape[-1]
    if not isinstance(last, int):
        raise SizeError(
            f"{value.kind} {value.name!r} is {value.dtype}, packed: its last size must be an integer, not {last}"
        )
    found = tuple(array.shape)
    expected = -(-last // value.dtype.per_byte)
    if len(found) != len(value.shape) or found[-1] != expected:
        raise ShapeMismatch(
            f"{value.kind} {value.name!r} is {value.dtype} {show(value.shape)}, stored in rows of {expected} bytes; "
            f"shape {found} was given"
        )
    return (*found[:-1], last)


def check_output(
    name: str,
    value: Value,
    array: Any,
    shape: tuple[int, ...],
    inputs: Mapping[str, Any],
    others: Mapping[str, Any] | None = None,
    in_place: Iterable[str] = (),
) -> Array:
    """The caller's own output array, or an error: type, shape, writable, in nobody's way.

    others     outputs that have their arrays already
    in_place   inputs whose memory it may take over exactly
    """
    dtype = value.dtype
    assert dtype is not None
    if not isinstance(array, np.ndarray):
        raise ArgumentError(f"out[{name!r}] is {type(array).__name__}; a NumPy array or a Buffer is needed")
    if array.dtype != dtype.numpy:
        raise DTypeMismatch(f"out[{name!r}] is {array.dtype}, but the output is {dtype}")
    if array.shape != stored_shape(dtype, shape):
        raise ShapeMismatch(f"out[{name!r}] has shape {array.shape}, but the output has {stored_shape(dtype, shape)}")
    if not array.flags.writeable:
        raise BufferAccessError(f"out[{name!r}] is read-only; give a writable array")
    if array.size and has_overlap(array):
        raise AliasError(f"out[{name!r}] overlaps itself: strides {array.strides} for shape {array.shape}")
    aligned_elements(array, f"out[{name!r}]")
    for kind, arrays in (("input", inputs), ("output", others or {})):
        for other, given in arrays.items():
            if not isinstance(given, np.ndarray) or not overlap(array, given):
                continue
            if kind == "input" and other in in_place and is_same(array, given):
                continue
            raise AliasError(f"out[{name!r}] overlaps {kind} {other!r}; give the output memory of its own")
    return array


def is_same(a: Array, b: Array) -> bool:
    """Whether two arrays are the same elements of the same memory."""
    return address_of(a) == address_of(b) and (a.shape, a.strides, a.dtype) == (b.shape, b.strides, b.dtype)


def in_place_inputs(pipe: Pipeline) -> dict[str, frozenset[str]]:
    """For every output, the inputs whose memory it may take over: those that only the step which writes it reads.

    Element-wise kernels say so in their ArgSpec; everything else needs memory of its own.
    """
    kept = [*pipe.outputs.values(), *pipe.updates.values()]
    found = {}
    for name, value in pipe.outputs.items():
        writer, slot = value.producer or (None, "")
        allowed: set[str] = set()
        if writer is not None:
            slots = next(spec.in_place for spec in writer.specs if spec.slot == slot)
            for source in {id(v): v for s, v in writer.inputs.items() if s in slots}.values():
                readers = [(step, s) for step in pipe.steps for s, v in step.inputs.items() if v is source]
                if source.kind == "input" and not any(v is source for v in kept):
                    if all(step is writer and s in slots for step, s in readers):
                        allowed.add(source.name)
        found[name] = frozenset(allowed)
    return found


def overlap(a: Array, b: Array) -> bool:
    """Whether two arrays share a byte; exact where that is cheap, else as if they did."""
    if not np.may_share_memory(a, b):
        return False
    try:
        return bool(np.shares_memory(a, b, max_work=100_000))  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def has_overlap(a: Array) -> bool:
    """Whether two elements of one array share memory (a broadcast, or a window)."""
    extent = a.itemsize
    for size, stride in sorted(zip(a.shape, a.strides, strict=False), key=lambda item: abs(item[1])):
        if size > 1:
            if abs(stride) < extent:
                return True
            extent = abs(stride) * (size - 1) + extent
    return False


def state_content(name: str, value: Value, kept: Mapping[str, Any], shape: tuple[int, ...]) -> Any:
    """What a state starts a run with: what an earlier run or the caller left in `kept`, or its initial value."""
    if name not in kept:
        return value.data
    assert value.dtype is not None
    given = kept[name]
    if not isinstance(given, np.ndarray) or given.dtype != value.dtype.numpy:
        raise DTypeMismatch(
            f"state {name!r} is {value.dtype}, but {getattr(given, 'dtype', type(given).__name__)} was given"
        )
    if given.shape != shape:
        raise ArgumentError(
            f"state {name!r} has shape {given.shape} from an earlier run, but {shape} at these sizes; "
            f"give state={{...}} of its own to a run of other sizes"
        )
    return given


def fresh(shape: tuple[int, ...], dtype: DType, align: int = 1) -> Array:
    """Memory of its own, of a stored shape."""
    if align <= 16:  # what NumPy gives
        return np.empty(shape, dtype.numpy)
    return aligned_bytes(math.prod(shape) * dtype.numpy.itemsize, align).view(dtype.numpy).reshape(shape)


def arrays_of(out: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """The caller's outputs, where they are Buffers or tensors of other libraries the arrays on their memory."""
    if out is None or all(type(given) is np.ndarray for given in as_mapping(out, "out").values()):
        return out
    return {name: _writable(name, given) for name, given in out.items()}


def _writable(name: str, given: Any) -> Any:
    """The array on the memory of a Buffer or of another library's tensor; anything else as it is."""
    if isinstance(given, np.ndarray):
        return given
    if isinstance(given, Buffer):
        return given.view_mut()
    if not (hasattr(given, "__dlpack__") or hasattr(given, "__array_interface__")):
        raise ArgumentError(
            f"out[{name!r}] is {type(given).__name__}; a NumPy array or a Buffer is needed, or what speaks DLPack"
        )
    buffer = Buffer.from_array(given)
    if buffer.copied:
        raise BufferAccessError(f"out[{name!r}] is {type(given).__name__}, whose memory is not reached without a copy")
    return buffer.view_mut()


def alignments(order: Iterable[Step]) -> dict[str, int]:
    """By value, the largest alignment that a slot asks for, where one asks for any."""
    found: dict[str, int] = {}
    for step in order:
        for spec in step.specs:
            value = step.inputs.get(spec.slot) or step.outputs.get(spec.slot)
            if value is not None and spec.align > 1:
                found[value.name] = max(spec.align, found.get(value.name, 1))
    return found


def asked_slots(order: Iterable[Step]) -> list[tuple[str, ArgSpec, Value]]:
    """(step's name, slot, what lies there) wherever a slot asks for an alignment or for strides."""
    found = []
    for step in order:
        for spec in step.specs:
            value = step.inputs.get(spec.slot) or step.outputs.get(spec.slot)
            if value is not None and (spec.align > 1 or spec.strides != "any"):
                found.append((step.name, spec, value))
    return found


def check_slots(asked: Iterable[tuple[str, ArgSpec, Value]], arrays: Mapping[str, Any]) -> None:
    """Raise where an array (by value name) lies otherwise than a slot asks: BufferAccessError, LayoutError."""
    for step, spec, value in asked:
        array = arrays.get(value.name)
        if not isinstance(array, np.ndarray):
            continue
        if array.size and address_of(array) % spec.align:
            raise BufferAccessError(
                f"{value.kind} {value.name!r} is aligned to {alignment_of(address_of(array))} bytes; step "
                f"{step!r}, slot {spec.slot!r}, needs {spec.align}: take memory from "
                f"Buffer.from_array(array, align={spec.align})"
            )
        check_strides(step, spec, array)


def suited(value: Value, order: Iterable[Step], align: int) -> Any:
    """A constant's array as the slots that read it need it: contiguous, aligned; a copy only where it has to be."""
    data = value.data
    if not isinstance(data, np.ndarray):
        return data
    if not address_of(data) % align:
        specs = (spec for step in order for spec in step.specs if step.inputs.get(spec.slot) is value)
        if data.flags.c_contiguous or all(spec.strides == "any" for spec in specs):
            return data
    copy = aligned_bytes(data.nbytes, align).view(data.dtype).reshape(data.shape)
    copy[...] = data
    copy.flags.writeable = False
    return copy


def value_shapes(pipe: Pipeline, env: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """Every value's shape in numbers."""
    return {
        name: evaluate_shape(value.shape, env, f"{value.kind} {name!r}")
        for name, value in pipe.values.items()
        if value.dtype is not None
    }


def prove_sums(order: Iterable[Step], shapes: Mapping[str, tuple[int, ...]], proven: set[tuple[str, Any]]) -> None:
    """Ask every kernel that can overflow (`prove`) whether it may, at these sizes; `proven` remembers what holds."""
    for step in order:
        prove = getattr(step.kernel, "prove", None)
        if prove is None:
            continue
        mine = {slot: shapes[v.name] for slot, v in step.inputs.items() if v.dtype is not None}
        key = (step.name, tuple(shape[-1] for shape in mine.values() if shape))
        if key not in proven:
            prove(f"step {step.name!r}", step.inputs, mine)
            proven.add(key)


def check_strides(step: str, spec: Any, operand: Any) -> None:
    """Raise LayoutError where a slot asks for contiguous rows or memory and the operand has other strides."""
    if spec.strides == "any" or operand.size == 0:
        return
    item = operand.itemsize
    inner = operand.ndim == 0 or operand.shape[-1] <= 1 or operand.strides[-1] == item
    if spec.strides == "rows" and inner:
        return
    step_size, whole = item, True
    for n, stride in zip(reversed(operand.shape), reversed(operand.strides), strict=False):
        whole = whole and (n <= 1 or stride == step_size)
        step_size *= n
    if spec.strides == "contiguous" and whole:
        return
    raise LayoutError(
        f"step {step!r}, slot {spec.slot!r}: strides {operand.strides} for shape {operand.shape}; it needs "
        f"{'contiguous memory' if spec.strides == 'contiguous' else 'a contiguous last dimension'}: pass np.ascontiguousarray(...)"
    )
