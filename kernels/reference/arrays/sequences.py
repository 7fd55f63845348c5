"""Rearrangements that depend on the data: of sequences of unequal lengths, and of bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....primitives import dtypes
from ....primitives.sizes import size, substitute
from ...arrays import array_function

Array = np.ndarray[Any, Any]


@array_function(lambda x, lengths, **_: [x])
def reverse_sequences(x: Array, lengths: Array, batch_axis: int, time_axis: int) -> Array:
    """The first lengths[b] elements along time of each sequence backwards (ONNX ReverseSequence)."""
    moved = np.moveaxis(x, (batch_axis, time_axis), (0, 1))
    found = moved.copy()
    for b, n in enumerate(lengths):
        if not 0 <= n <= moved.shape[1]:
            raise ValueError(f"sequence {b} is {n} long, but there are {moved.shape[1]} places")
        found[b, :n] = moved[b, :n][::-1]
    return np.moveaxis(found, (0, 1), (batch_axis, time_axis))


@array_function(lambda x, **_: [x])
def reinterpret(x: Array, dtype: str) -> Array:
    """The bytes of each element as another type of the same size (ONNX BitCast)."""
    return np.ascontiguousarray(x).view(dtypes.get(dtype).numpy)


@array_function(lambda x, *more, **_: [x])
def write_at(x: Array, update: Array, starts: Array | None = None, *, axis: int, circular: int) -> Array:
    """x with `update` from place starts[b] of an axis on, for each entry b of axis 0 (ONNX TensorScatter)."""
    found, n = x.copy(), x.shape[axis]
    for b in range(x.shape[0]):
        places = np.arange(update.shape[axis]) + (0 if starts is None else int(starts[b]))
        places = places % n if circular else places
        if len(places) and (places.min() < 0 or places.max() >= n):
            raise ValueError(f"entry {b} is written from {places.min()} to {places.max()}, but there are {n} places")
        np.moveaxis(found[b], axis - 1, 0)[places] = np.moveaxis(update[b], axis - 1, 0)
    return found


@array_function(lambda *shapes, sizes, shape: [shape])
def extents(*arrays: Array, sizes: tuple[str, ...], shape: tuple[int, ...]) -> Array:
    """Expressions of the sizes of at most three arrays, whose axes are I0, I1, .., then J0, .., then K0, .."""
    env = {f"{prefix}{d}": n for x, prefix in zip(arrays, "IJK", strict=False) for d, n in enumerate(x.shape)}
    return np.array([int(str(substitute(size(text), env))) for text in sizes], np.int64).reshape(shape)
