"""Schemes: a user's fit, encode and decode over the blocks of a matrix, one block and one weight after another.

The functions are the captured ones: the user's text in float32 and int32 arithmetic, run by Python itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..schemes.definition import WHOLE, Definition
from ..schemes.packing import pack, unpack
from ..schemes.storage import FLOATS, Stored
from ..sequence import SEQUENCES
from .scheme_bytes import decode_bytes, encode_bytes

Array = NDArray[Any]


def blocks(scheme: Definition, rows: int, columns: int) -> Iterator[tuple[tuple[int, int], slice, slice]]:
    """((down, across), rows, columns) of every block, those at the edges cut off."""
    down, across = scheme.edges
    down, across = rows if down == WHOLE else down, columns if across == WHOLE else across
    for i in range(scheme.grid(rows, columns)[0]):
        for j in range(scheme.grid(rows, columns)[1]):
            yield (i, j), slice(i * down, min((i + 1) * down, rows)), slice(j * across, min((j + 1) * across, columns))


def fit(scheme: Definition, x: ArrayLike) -> list[Array]:
    """The parameters of every block of x, float32 (N, K), as they are stored.

    Returns one array for each parameter: (blocks down, blocks across) of its stored type, with a last axis for a
    table. A float is rounded to its type by the sequence that kernels/schemes/storage.py names; an integer loses its
    fraction and saturates, NaN is 0.
    """
    x = np.asarray(x, np.float32)
    grid = scheme.grid(*x.shape)
    made = [np.empty(grid + ((p.table,) if p.table else ()), p.numpy) for p in scheme.stored]
    if scheme.captured_fit is None:
        return made
    run = scheme.captured_fit.main
    with np.errstate(all="ignore"):
        for at, r, c in blocks(scheme, *x.shape):
            found = run(np.ascontiguousarray(x[r, c]).reshape(-1))
            for parameter, array, value in zip(
                scheme.stored, made, found if isinstance(found, tuple) else (found,), strict=True
            ):
                array[at] = store(parameter, value)
    return made


def store(parameter: Stored, value: Any) -> Array:
    """Values of a parameter, float32, in the type that it is stored as."""
    value = np.asarray(value, np.float32)
    if parameter.dtype not in FLOATS:
        info = np.iinfo(parameter.numpy)
        whole = np.where(np.isnan(value), np.float32(0), np.trunc(value)).astype(np.float64)
        return np.clip(whole, info.min, info.max).astype(parameter.numpy)
    codec = FLOATS[parameter.dtype]
    if codec is None:
        return value
    codes = np.asarray(SEQUENCES[codec[0]](np.atleast_1d(value)))
    size = parameter.numpy.itemsize
    return codes.astype(np.uint16 if size == 2 else np.uint8).view(parameter.numpy).reshape(value.shape)


def load(parameter: Stored, kept: Array) -> Array:
    """Stored values as the scheme's functions see them: float32 or int32."""
    if parameter.dtype not in FLOATS:
        return kept.astype(np.int32)
    codec = FLOATS[parameter.dtype]
    if codec is None:
        return np.asarray(kept, np.float32)
    codes = np.ascontiguousarray(kept).view(np.uint16 if parameter.numpy.itemsize == 2 else np.uint8)
    return np.asarray(SEQUENCES[codec[1]](codes.astype(np.int32).reshape(-1))).reshape(kept.shape)


def code_of(value: Any, low: int, high: int) -> int:
    """What `encode` returned, as a code: a float loses its fraction, the rest saturates, NaN is 0."""
    if value != value:
        return 0
    if np.isinf(value):
        return high if value > 0 else low
    return min(max(int(value), low), high)


def encode(scheme: Definition, x: ArrayLike, params: Sequence[Array], run: Callable[..., Any] | None = None) -> Array:
    """The packed codes of x, float32 (N, K): uint8 (N, row bytes).

    params   as `fit` returns them, those that another scheme stores as float32
    run      another function than the captured one: the user's own
    """
    x = np.asarray(x, np.float32)
    if scheme.block_bytes is not None:
        return encode_bytes(scheme, x, run)
    return pack(encode_codes(scheme, x, params, run), scheme.bits)


def encode_codes(
    scheme: Definition, x: Array, params: Sequence[Array], run: Callable[..., Any] | None = None
) -> NDArray[np.int32]:
    """The codes of x, int32 (N, codes in a row), not packed."""
    if scheme.block_bytes is not None:
        return encode_bytes(scheme, x, run).astype(np.int32)
    run = scheme.captured_encode.main if run is None else run
    low, high = scheme.code_range
    codes = np.zeros((x.shape[0], scheme.codes_in_row(x.shape[1])), np.int32)
    loaded = [load(p, a) for p, a in zip(scheme.stored, params, strict=True)]
    with np.errstate(all="ignore"):
        for at, rows, columns in blocks(scheme, *x.shape):
            values = _values(loaded, at)
            for n in range(rows.start, rows.stop):
                start = n * x.shape[1] + columns.start
                if scheme.blockwise:
                    first = columns.start // scheme.vector
                    made = np.zeros(-(-(columns.stop - columns.start) // scheme.vector), np.int32)
                    more = (start,) if scheme.encode_takes_index else ()
                    run(np.ascontiguousarray(x[n, columns]), made, *values, *more)
                    codes[n, first : first + made.size] = np.clip(made, low, high)
                    continue
                for i, v in enumerate(x[n, columns]):
                    more = (start + i,) if scheme.encode_takes_index else ()
                    codes[n, columns.start + i] = code_of(run(v, *values, *more), low, high)
    return codes


def decode(
    scheme: Definition, codes: ArrayLike, params: Sequence[Array], columns: int, run: Callable[..., Any] | None = None
) -> NDArray[np.float32]:
    """The weights of packed codes, float32 (N, columns)."""
    if scheme.block_bytes is not None:
        return decode_bytes(scheme, codes, columns, run)
    run = scheme.captured_decode.main if run is None else run
    unpacked = unpack(codes, scheme.bits, scheme.codes_in_row(columns), scheme.signed)
    out = np.empty((unpacked.shape[0], columns), np.float32)
    loaded = [load(p, a) for p, a in zip(scheme.stored, params, strict=True)]
    with np.errstate(all="ignore"):
        for at, rows, across in blocks(scheme, *out.shape):
            values = _values(loaded, at)
            for n in range(rows.start, rows.stop):
                start = n * columns + across.start
                if scheme.blockwise or scheme.decode is None:
                    first, count = across.start // scheme.vector, across.stop - across.start
                    made = np.zeros(count, np.float32)
                    more = (start,) if scheme.decode_takes_index else ()
                    run(unpacked[n, first : first + -(-count // scheme.vector)], made, *values, *more)
                    out[n, across] = made
                    continue
                for i in range(across.start, across.stop):
                    more = (n * columns + i,) if scheme.decode_takes_index else ()
                    out[n, i] = np.float32(run(int(unpacked[n, i]), *values, *more))
    return out


def _values(loaded: Sequence[Array], at: tuple[int, int]) -> list[Any]:
    """A block's parameters as the functions take them: np.float32, int, or an array."""
    values: list[Any] = []
    for array in loaded:
        value = array[at]
        values.append(value if isinstance(value, np.ndarray) else int(value) if array.dtype.kind == "i" else value)
    return values
