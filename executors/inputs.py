"""The doors of a run: what a caller gives is checked here, before any kernel sees it."""

from __future__ import annotations

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
    PipelineError,
    ShapeMismatch,
    SizeError,
)
from ..primitives.pipeline import Pipeline, Step, Value
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
        return given
    if isinstance(given, Buffer):
        if given.dtype != value.dtype:
            raise DTypeMismatch(f"{where} is {value.dtype}, but a buffer of {given.dtype} was given")
        return given.view()
    if isinstance(given, (bool, int, float, np.generic)) and not value.shape:
        return _scalar(value, given, where)
    if isinstance(given, (list, tuple)) and value.kind == "argument":
        return np.asarray(given, value.dtype.numpy)
    if isinstance(given, Value):
        raise PipelineError(f"{where} was given {given!r}, which is a value of a pipeline; give an array")
    buffer = Buffer.from_array(
        given if hasattr(given, "__dlpack__") or hasattr(given, "__array_interface__") else np.asarray(given)
    )
    if buffer.dtype != value.dtype and not (buffer.dtype.numpy == value.dtype.numpy):
        raise DTypeMismatch(
            f"{where} is {value.dtype}, but {buffer.dtype} was given; cast it with .astype() if that is meant"
        )
    return buffer.view()


def _scalar(value: Value, given: Any, where: str) -> Array:
    dtype = value.dtype
    assert dtype is not None
    if dtype.kind in ("uint", "int"):
        if int(given) != given or not dtype.min <= int(given) <= dtype.max:
            raise DTypeMismatch(f"{where} is {dtype} ({dtype.min} to {dtype.max}), but {given!r} was given")
        return np.asarray(int(given), dtype.numpy)
    return np.asarray(given).astype(dtype.numpy)


def learn_sizes(pipe: Pipeline, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """The value of every run-time size, from the shapes of the inputs; raises where they contradict each other."""
    env: dict[str, int] = {}
    values = wanted(pipe)
    for _ in range(2):  # a size that is an expression may wait for another input to name its parts
        for name, shape in shapes.items():
            value = values[name]
            solve(value.shape, shape, env, f"{value.kind} {name!r}")
    unknown = {n for name in shapes for x in values[name].shape for n in names(x)} - env.keys()
    if unknown:
        raise SizeError(f"sizes {', '.join(sorted(unknown))} cannot be told from the inputs' shapes")
    pipe.check_sizes(env)
    return env


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


def check_output(name: str, value: Value, array: Any, shape: tuple[int, ...], inputs: Mapping[str, Any]) -> Array:
    """The caller's own output array, or an error: type, shape, writable, in nobody's way."""
    if isinstance(array, Buffer):
        array = array.view_mut()
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
    for other, given in inputs.items():
        if isinstance(given, np.ndarray) and overlap(array, given):
            raise AliasError(f"out[{name!r}] overlaps input {other!r}; give the output memory of its own")
    return array


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
