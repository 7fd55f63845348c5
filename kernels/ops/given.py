"""What an op is given: values, arrays and numbers, checked and made into values of the pipeline."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...primitives import dtypes
from ...primitives.buffer import Buffer
from ...primitives.errors import (
    ArgumentError,
    DTypeMismatch,
    PipelineError,
    QuantizationError,
    ShapeMismatch,
)
from ...primitives.pipeline import Pipeline, Value

Operand = Any  # a pipeline value, or what becomes a constant: a number, an array, a Buffer
Axis = int | tuple[int, int] | None
Block = int | tuple[int, int] | None


def pipeline_of(op: str, *given: Any) -> Pipeline:
    for x in given:
        if isinstance(x, Value):
            return x.pipeline
    raise PipelineError(
        f"{op}: none of the operands is a value of a pipeline; use pipe.input(...) or pipe.constant(...), "
        f"or tilework.eager.{op}, which takes arrays"
    )


def only(written: Any) -> Value:
    assert isinstance(written, Value)
    return written


def dtype_of(x: Any) -> str:
    return str(x.dtype.name) if x.dtype is not None else "a function"


def value_of(pipe: Pipeline, given: Any, op: str, name: str, number: str | None = None) -> Value:
    """An operand as a value; a constant is made of anything else. Python numbers take the type `number`."""
    if isinstance(given, Value):
        return given
    if isinstance(given, Buffer):
        return pipe.constant(given)
    if given is None or callable(given):
        raise ArgumentError(f"{op}: {name} is {given!r}; a value, an array or a number is asked for")
    if number is not None and isinstance(given, (bool, int, float)):
        return pipe.constant(constant_like(given, number, f"{op}: {name}"))
    if isinstance(given, (bool, int, float)):
        raise ArgumentError(
            f"{op}: {name} is the number {given!r}, whose type is not known; give an array, as np.float32(...)"
        )
    array = np.asarray(given)
    check_native(array, f"{op}: {name}")
    return pipe.constant(array)


def narrowed(given: Any, what: str) -> Any:
    """A constant argument of a user's function in a type that functions take: reals f32, integers s32, bool itself."""
    if isinstance(given, (Value, Buffer)) or given is None or callable(given):
        return given
    array = np.asarray(given)
    if array.dtype == bool:
        return array
    if array.dtype.kind in "iu":
        return integers(array, "s32", what)
    return reals(array, what)


def check_native(array: np.ndarray[Any, Any], what: str) -> None:
    if array.dtype.kind in "OUSVMmc" and array.dtype.names is None and array.dtype.kind != "V":
        raise DTypeMismatch(f"{what} is an array of {array.dtype}; integers and real numbers work")
    if not array.dtype.isnative:
        raise DTypeMismatch(
            f"{what} is {array.dtype}, in the other byte order; .astype({array.dtype.newbyteorder('=').name!r}) works"
        )


def reals(given: Any, what: str) -> np.ndarray[Any, Any]:
    """Constant scales or multipliers as float32; types of fewer bits are widened exactly."""
    array = np.asarray(given)
    check_native(array, what)
    if array.dtype.kind == "b":
        raise DTypeMismatch(f"{what} is bool; a real number works")
    with np.errstate(all="ignore"):
        return array.astype(np.float32)


def integers(given: Any, dtype: str, what: str) -> np.ndarray[Any, Any]:
    """A constant of an integer type, exactly."""
    array = np.asarray(given)
    check_native(array, what)
    known = dtypes.get(dtype)
    if array.dtype.kind == "f" and np.isfinite(array).all() and (array == np.rint(array)).all():
        array = array.astype(np.int64) if (np.abs(array.astype(np.float64)) < 2.0**62).all() else array
    if array.dtype.kind not in "iu":
        if array.dtype.kind == "O" or (array.dtype.kind == "f" and array.size):
            raise ArgumentError(f"{what} is {given!r}; an integer of {dtype} ({known.min} to {known.max}) works")
        raise DTypeMismatch(f"{what} is {array.dtype}; an integer of {dtype} ({known.min} to {known.max}) works")
    if array.size and not (int(array.min()) >= known.min and int(array.max()) <= known.max):
        bad = array[(array < known.min) | (array > known.max)].flat[0]
        raise ArgumentError(f"{what} {bad} is outside {dtype}, which is {known.min} to {known.max}")
    return array.astype(known.code)


def one(array: np.ndarray[Any, Any], what: str) -> np.ndarray[Any, Any]:
    """A constant of which there is one, whatever its dimensions."""
    if array.size != 1:
        raise ShapeMismatch(f"{what} has shape {array.shape}; one works")
    return array.reshape(())


def zero_points(given: Any, dtype: str, what: str) -> np.ndarray[Any, Any]:
    """Constant zero points, in the range of the codes."""
    try:
        return integers(given, dtype, what)
    except DTypeMismatch:
        raise
    except ArgumentError as error:
        raise QuantizationError(str(error)) from None


def constant_like(given: Any, dtype: str, what: str) -> np.ndarray[Any, Any]:
    """A constant of the type of the data that it meets."""
    if dtype == "bool" and np.asarray(given).dtype == bool:
        return np.asarray(given)
    if not dtypes.get(dtype).is_float:
        return integers(given, dtype, what)
    found = reals(given, what)  # refuses what is no real number
    with np.errstate(all="ignore"):
        return found if dtype == "f32" else np.asarray(given).astype(dtypes.get(dtype).numpy)


def check_order(op: str, lo: Any, hi: Any) -> None:
    if not isinstance(lo, Value) and not isinstance(hi, Value) and not np.all(np.less_equal(lo, hi)):
        raise ArgumentError(f"{op}: lo {lo} is above hi {hi}; nothing lies between them")
