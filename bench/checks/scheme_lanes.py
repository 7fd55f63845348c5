"""Schemes by plain functions over all blocks at once: what kernels/reference/schemes.py says, thousands of times as fast.

The functions are run by bench/checks/lanes.py. That both are one is checked by running both (bench/checks/schemes.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ...executors.schemes import checking
from ...executors.schemes.scheme import Scheme
from ...kernels.reference import scheme_bytes
from ...kernels.reference import schemes as reference
from ...kernels.schemes.definition import WHOLE, Definition
from ...kernels.schemes.packing import pack, unpack
from .lanes import Lanes

Array = np.ndarray[Any, Any]


def parts(scheme: Scheme, x: Array) -> dict[str, Array]:
    """Parameters, codes and weights by name, as executors/schemes/checking.py has them of plain Python."""
    found: dict[str, Array] = {}
    used = []
    for p, array in zip(scheme.stored, fit(scheme, x), strict=True):
        inner = scheme.nested.get(p.name)
        found[f"parameter {p.name}"] = array
        if inner is not None:
            flat = array.reshape(1, -1) if isinstance(inner.block, int) else array
            own = fit(inner, flat)
            array = decode(inner, encode_codes(inner, flat, own), own, flat.shape[1]).reshape(array.shape)
            found[f"decoded {p.name}"] = array
        used.append(array)
    if scheme.encodes:
        codes = encode_codes(scheme, x, used)
    else:
        codes = unpack(checking.planted_bytes(scheme, x), scheme.bits, scheme.codes_in_row(x.shape[1]), scheme.signed)
    found["code"] = unpack(pack(codes, scheme.bits), scheme.bits, codes.shape[1], scheme.signed)
    found["weight"] = decode(scheme, found["code"], used, x.shape[1])
    return found


def regions(scheme: Definition, rows: int, columns: int) -> Iterator[tuple[slice, slice, slice, slice]]:
    """(rows, columns, blocks down, blocks across) of the parts in which all blocks are of one size: at most four."""
    down, across = scheme.edges
    for r, down_blocks in _spans(rows, rows if down == WHOLE else down):
        for c, across_blocks in _spans(columns, columns if across == WHOLE else across):
            yield r, c, down_blocks, across_blocks


def _spans(size: int, edge: int) -> Iterator[tuple[slice, slice]]:
    full = size // edge
    if full:
        yield slice(0, full * edge), slice(0, full)
    if size % edge:
        yield slice(full * edge, size), slice(full, full + 1)


def fit(scheme: Definition, x: Array) -> list[Array]:
    """As reference.schemes.fit."""
    grid = scheme.grid(*x.shape)
    made = [np.empty(grid + ((p.table,) if p.table else ()), p.numpy) for p in scheme.stored]
    if scheme.captured_fit is None:
        return made
    run = Lanes(scheme.captured_fit).run
    for r, c, i, j in regions(scheme, *x.shape):
        part, down, across = x[r, c], i.stop - i.start, j.stop - j.start
        h, w = part.shape[0] // down, part.shape[1] // across
        lanes = part.reshape(down, h, across, w).transpose(1, 3, 0, 2).reshape(h * w, down * across)
        found = run(down * across, np.ascontiguousarray(lanes))
        with np.errstate(all="ignore"):
            for p, array, value in zip(
                scheme.stored, made, found if isinstance(found, tuple) else (found,), strict=True
            ):
                if p.table:
                    value = np.stack([np.broadcast_to(v, (down * across,)) for v in value], axis=-1)
                    array[i, j] = reference.store(p, value).reshape(down, across, p.table)
                else:
                    value = np.broadcast_to(np.asarray(value, np.float32), (down * across,))
                    array[i, j] = reference.store(p, np.ascontiguousarray(value)).reshape(down, across)
    return made


def encode_codes(scheme: Definition, x: Array, params: Sequence[Array]) -> Array:
    """As reference.schemes.encode_codes: int32 (N, codes in a row)."""
    if scheme.block_bytes is not None:
        return _encode_bytes(scheme, x)
    run, (low, high) = Lanes(scheme.captured_encode).run, scheme.code_range
    takes_index = scheme.encode_takes_index
    if not scheme.blockwise:
        more = [_index(x.shape).reshape(-1)] if takes_index else []
        return _codes_of(
            run(x.size, x.reshape(-1), *_spread(scheme, params, x.shape), *more), x.size, low, high
        ).reshape(x.shape)
    codes = np.zeros((x.shape[0], scheme.codes_in_row(x.shape[1])), np.int32)
    for r, c, i, j in regions(scheme, *x.shape):
        rows, across = r.stop - r.start, j.stop - j.start
        w = (c.stop - c.start) // across
        wide = -(-w // scheme.vector)
        made = np.zeros((wide, rows * across), np.int32)
        lanes = np.ascontiguousarray(x[r, c].reshape(rows * across, w).T)
        run(rows * across, lanes, made, *_of_rows(scheme, params, i, j, rows), *_starts(takes_index, x.shape, r, c, w))
        first = c.start // scheme.vector
        codes[r, first : first + wide * across] = np.clip(made, low, high).T.reshape(rows, across * wide)
    return codes


def decode(scheme: Definition, codes: Array, params: Sequence[Array], columns: int) -> Array:
    """As reference.schemes.decode, of codes that are not packed: float32 (N, columns)."""
    if scheme.block_bytes is not None:
        return _decode_bytes(scheme, codes, columns)
    run = Lanes(scheme.captured_decode).run
    shape, takes_index = (codes.shape[0], columns), scheme.decode_takes_index
    if scheme.decode is not None:
        more = [_index(shape).reshape(-1)] if takes_index else []
        made = run(codes.size, codes.reshape(-1), *_spread(scheme, params, shape), *more)
        return np.broadcast_to(np.asarray(made, np.float32), (codes.size,)).reshape(shape)
    out = np.empty(shape, np.float32)
    for r, c, i, j in regions(scheme, *shape):
        rows, across = r.stop - r.start, j.stop - j.start
        w = (c.stop - c.start) // across
        wide, first = -(-w // scheme.vector), c.start // scheme.vector
        made = np.zeros((w, rows * across), np.float32)
        lanes = np.ascontiguousarray(codes[r, first : first + wide * across].reshape(rows * across, wide).T)
        run(rows * across, lanes, made, *_of_rows(scheme, params, i, j, rows), *_starts(takes_index, shape, r, c, w))
        out[r, c] = made.T.reshape(rows, across * w)
    return out


def _index(shape: tuple[int, int]) -> Array:
    return np.arange(shape[0] * shape[1], dtype=np.int32).reshape(shape)


def _starts(wanted: bool, shape: tuple[int, int], r: slice, c: slice, w: int) -> list[Array]:
    """The position of the first weight of each row of each block, where the function asks for it."""
    return [np.ascontiguousarray(_index(shape)[r, c][:, ::w]).reshape(-1)] if wanted else []


def _spread(scheme: Definition, params: Sequence[Array], shape: tuple[int, int]) -> list[Array]:
    """The parameters of each weight: (rows * columns,); tables are (length, rows * columns)."""
    down, across = (n if n != WHOLE else size for n, size in zip(scheme.edges, shape, strict=True))
    found = []
    for p, kept in zip(scheme.stored, params, strict=True):
        loaded = reference.load(p, kept)
        wide = np.repeat(np.repeat(loaded, down, axis=0)[: shape[0]], across, axis=1)[:, : shape[1]]
        found.append(np.ascontiguousarray(wide.reshape(shape[0] * shape[1], *loaded.shape[2:]).T))
    return found


def _of_rows(scheme: Definition, params: Sequence[Array], i: slice, j: slice, rows: int) -> list[Array]:
    """The parameters of each row of each block of a region."""
    found = []
    for p, kept in zip(scheme.stored, params, strict=True):
        loaded = reference.load(p, kept)[i, j]
        tall = np.repeat(loaded, rows // loaded.shape[0], axis=0)
        found.append(np.ascontiguousarray(tall.reshape(rows * loaded.shape[1], *loaded.shape[2:]).T))
    return found


def _codes_of(value: Any, count: int, low: int, high: int) -> Array:
    """As reference.schemes.code_of."""
    value = np.broadcast_to(np.asarray(value), (count,))
    if value.dtype.kind != "f":
        return np.clip(value, low, high).astype(np.int32)
    whole = np.where(np.isnan(value), 0.0, np.trunc(value.astype(np.float64)))
    return np.clip(whole, low, high).astype(np.int32)


def _encode_bytes(scheme: Definition, x: Array) -> Array:
    block, size = int(scheme.block), int(scheme.block_bytes or 0)  # type: ignore[arg-type]
    blocks = -(-x.shape[1] // block)
    full = np.zeros((x.shape[0], blocks * block), np.float32)
    full[:, : x.shape[1]] = x
    codes = np.zeros((size, x.shape[0] * blocks), np.int32)
    Lanes(scheme.captured_encode).run(codes.shape[1], np.ascontiguousarray(full.reshape(-1, block).T), codes)
    return codes.astype(np.uint8).astype(np.int32).T.reshape(x.shape[0], blocks * size)


def _decode_bytes(scheme: Definition, codes: Array, columns: int) -> Array:
    block, size = int(scheme.block), int(scheme.block_bytes or 0)  # type: ignore[arg-type]
    rows, blocks = codes.shape[0], codes.shape[1] // size
    lanes = np.ascontiguousarray(codes.astype(np.uint8).astype(np.int32).reshape(rows * blocks, size).T)
    if scheme.grouped is None:
        out = np.zeros((block, rows * blocks), np.float32)
        Lanes(scheme.captured_decode).run(rows * blocks, lanes, out)
        return out.T.reshape(rows, blocks * block)[:, :columns].copy()
    grouped, per = scheme.grouped, block // scheme.grouped.group
    q = np.zeros((block, rows * blocks), np.int32)
    numbers = np.zeros((2, per, rows * blocks), np.float32)
    more = (numbers[1],) if grouped.offset else ()
    Lanes(scheme.captured_split("i[]")).run(rows * blocks, lanes, q, numbers[0], *more)
    scale, offset = (a.T.reshape(rows, blocks * per) for a in numbers)
    joined = scheme_bytes.joined(scheme, q.T.reshape(rows, blocks * block), scale, offset if grouped.offset else None)
    return joined[:, :columns].copy()
