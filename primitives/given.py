"""What a user gives for a value: numbers, start values and quantization, each checked against the type that it is for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from . import dtypes
from .buffer import Buffer
from .dtypes import DType
from .errors import DTypeMismatch, QuantizationError, ShapeMismatch
from .quantization import QuantParams
from .sizes import Shape, SizeLike, show, size

MOST_DIMENSIONS = 64  # what NumPy holds


def sizes_of(shape: Iterable[SizeLike], where: str) -> Shape:
    """The sizes of a shape; raises ShapeMismatch for what is none, SizeError for a size that is none."""
    if isinstance(shape, (str, bytes)) or not isinstance(shape, Iterable):
        raise ShapeMismatch(f"{where} has shape {shape!r}; a tuple of sizes is needed, like ('M', 768) or ('M',)")
    sizes = tuple(size(x) for x in shape)
    if any(isinstance(x, int) and x < 0 for x in sizes):
        raise ShapeMismatch(f"{where} has shape {show(sizes)}; sizes are 0 or more")
    if len(sizes) > MOST_DIMENSIONS:
        raise ShapeMismatch(f"{where} has {len(sizes)} dimensions; at most {MOST_DIMENSIONS} work")
    return sizes


def check_quant(quant: Any, dtype: DType | None, where: str) -> None:
    """Raise unless quantization parameters speak of codes that this type holds."""
    if not isinstance(quant, QuantParams):
        raise QuantizationError(f"{where} has quant={quant!r}; a QuantParams is needed")
    codes = dtypes.get(quant.dtype)
    if dtype is not None and dtype not in (codes,) and dtype.numpy not in (codes.numpy, codes.code):
        raise QuantizationError(
            f"{where} is {dtype}, but its quantization is of {codes} codes; give QuantParams of {dtype}"
        )


def number(given: bool | int | float, dtype: DType, where: str) -> np.ndarray[Any, Any]:
    """A Python number as the type that `where` takes: exactly, but that a float is rounded to the type.

    Raises DTypeMismatch for an integer out of range, a fraction or NaN for an integer type, and a float too large.
    """
    if dtype.kind in ("uint", "int", "bool"):
        if given != given or given in (float("inf"), float("-inf")) or int(given) != given:
            raise DTypeMismatch(f"{where} takes {dtype} ({dtype.min} to {dtype.max}), not {given!r}")
        if not dtype.min <= given <= dtype.max:
            raise DTypeMismatch(f"{where} takes {dtype} ({dtype.min} to {dtype.max}), not {given!r}")
        return np.asarray(int(given), dtype.numpy)
    try:
        exact = np.float64(given)
    except OverflowError:
        raise DTypeMismatch(f"{where} takes {dtype}; {given!r} is too large for it") from None
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        found = np.asarray(exact).astype(dtype.numpy)
        if np.isfinite(exact) and not np.isfinite(found.astype(np.float64)):
            raise DTypeMismatch(f"{where} takes {dtype} ({dtype.min} to {dtype.max}); {given!r} is too large for it")
    return found


def array_of(given: Any, where: str) -> np.ndarray[Any, Any]:
    """np.asarray; raises ShapeMismatch for nested lists of different lengths, which are no array."""
    try:
        return np.asarray(given)
    except ValueError as error:
        raise ShapeMismatch(f"{where} is no array: {error}") from None


def initial_of(given: Any, dtype: DType, shape: Shape, where: str) -> np.ndarray[Any, Any]:
    """A read-only copy of what a state starts as: a number, or an array of its type that broadcasts to its shape."""
    if isinstance(given, Buffer):
        given = given.numpy()
    data = number(given, dtype, where) if isinstance(given, (bool, int, float)) else np.array(given)
    if data.dtype != dtype.numpy:
        raise DTypeMismatch(f"{where} is {data.dtype}, but the state is {dtype}; cast it with .astype()")
    stored = shape
    if shape and isinstance(shape[-1], int):
        stored = (*shape[:-1], -(-shape[-1] // dtype.per_byte))
    fits = len(data.shape) <= len(shape) and all(
        n == 1 or n == x or not isinstance(x, int) for n, x in zip(reversed(data.shape), reversed(stored), strict=False)
    )
    if not fits:
        raise ShapeMismatch(f"{where} has shape {data.shape}, which does not broadcast to {show(stored)}")
    data.setflags(write=False)
    return data
