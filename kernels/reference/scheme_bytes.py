"""Schemes whose blocks are bytes in a layout of their own, one block after another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..schemes.definition import Definition


def encode_bytes(scheme: Definition, x: ArrayLike, run: Callable[..., Any] | None = None) -> NDArray[np.uint8]:
    """The blocks of x, float32 (N, K): uint8 (N, row bytes). A last block that is not full is filled up with zeros.

    run   another function than the captured one: the user's own
    """
    run = scheme.captured_encode.main if run is None else run
    block, size = int(scheme.block), int(scheme.block_bytes or 0)  # type: ignore[arg-type]
    x = np.asarray(x, np.float32)
    blocks = -(-x.shape[1] // block)
    full = np.zeros((x.shape[0], blocks * block), np.float32)
    full[:, : x.shape[1]] = x
    codes = np.zeros((x.shape[0], blocks, size), np.int32)
    with np.errstate(all="ignore"):
        for n in range(x.shape[0]):
            for g in range(blocks):
                run(full[n, g * block : (g + 1) * block], codes[n, g])
    return codes.astype(np.uint8).reshape(x.shape[0], blocks * size)


def decode_bytes(
    scheme: Definition, codes: ArrayLike, columns: int, run: Callable[..., Any] | None = None
) -> NDArray[np.float32]:
    """The weights of blocks, float32 (N, columns)."""
    block, size = int(scheme.block), int(scheme.block_bytes or 0)  # type: ignore[arg-type]
    codes = np.asarray(codes, np.uint8).astype(np.int32)
    if scheme.grouped is not None:
        return joined(scheme, *split_bytes(scheme, codes, codes.shape[1] // size * block, run))[:, :columns].copy()
    run = scheme.captured_decode.main if run is None else run
    out = np.zeros((codes.shape[0], codes.shape[1] // size, block), np.float32)
    with np.errstate(all="ignore"):
        for n, g in np.ndindex(*out.shape[:2]):
            run(codes[n, g * size : (g + 1) * size], out[n, g])
    return out.reshape(codes.shape[0], -1)[:, :columns].copy()


def split_bytes(
    scheme: Definition, codes: ArrayLike, columns: int, run: Callable[..., Any] | None = None
) -> tuple[NDArray[np.int32], NDArray[np.float32], NDArray[np.float32] | None]:
    """The integers (N, columns), and the scales and offsets (N, groups) of blocks."""
    grouped = scheme.grouped
    assert grouped is not None
    run = scheme.captured_split("i[]").main if run is None else run
    block, size = int(scheme.block), int(scheme.block_bytes or 0)  # type: ignore[arg-type]
    codes = np.asarray(codes).astype(np.int32)
    rows, blocks = codes.shape[0], codes.shape[1] // size
    q = np.zeros((rows, blocks, block), np.int32)
    numbers = np.zeros((2, rows, blocks, block // grouped.group), np.float32)
    with np.errstate(all="ignore"):
        for n, g in np.ndindex(rows, blocks):
            more = (numbers[1, n, g],) if grouped.offset else ()
            run(codes[n, g * size : (g + 1) * size], q[n, g], numbers[0, n, g], *more)
    groups = -(-columns // grouped.group)
    scale, offset = (a.reshape(rows, -1)[:, :groups].copy() for a in numbers)
    return q.reshape(rows, -1)[:, :columns].copy(), scale, offset if grouped.offset else None


def joined(
    scheme: Definition, q: NDArray[np.int32], scale: NDArray[np.float32], offset: NDArray[np.float32] | None
) -> NDArray[np.float32]:
    grouped = scheme.grouped
    assert grouped is not None
    spread = np.repeat(scale, grouped.group, axis=1)
    with np.errstate(all="ignore"):
        if grouped.table is not None:
            values = np.asarray(grouped.table, np.float32)[q]
            return np.asarray(values * spread, np.float32)
        y = (q - grouped.zero).astype(np.float32) * spread
        return np.asarray(y if offset is None else y + np.repeat(offset, grouped.group, axis=1), np.float32)
