"""Packed codes: each row one stream of bits, the first code in the lowest bits of the first byte.

For 1, 2, 4 and 8 bits this is what primitives.dtypes.pack does. A row is padded with zero bits to whole bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...primitives.errors import ShapeMismatch


def pack(codes: ArrayLike, bits: int) -> NDArray[np.uint8]:
    """Pack integer codes (N, n) of `bits` bits each; negative ones in two's complement. Returns uint8 (N, bytes)."""
    codes = np.asarray(codes)
    rows, n = codes.shape
    if bits == 16:
        return np.ascontiguousarray(codes.astype(np.int64).astype("<u2")).view(np.uint8).reshape(rows, 2 * n)
    spread = (codes.astype(np.int64)[:, :, None] >> np.arange(bits)) & 1
    return np.packbits(spread.astype(np.uint8).reshape(rows, n * bits), axis=1, bitorder="little")


def unpack(packed: ArrayLike, bits: int, n: int, signed: bool = False) -> NDArray[Any]:
    """Undo `pack`: codes (N, n), int32. Raises ShapeMismatch where rows have another number of bytes."""
    packed = np.asarray(packed, np.uint8)
    rows = packed.shape[0]
    if packed.shape[1] != -(-n * bits // 8):
        raise ShapeMismatch(f"{n} codes of {bits} bits take {-(-n * bits // 8)} bytes a row; found {packed.shape[1]}")
    if bits == 16:
        codes = np.ascontiguousarray(packed).view("<u2").astype(np.int32).reshape(rows, n)
    else:
        spread = np.unpackbits(packed, axis=1, bitorder="little", count=n * bits).reshape(rows, n, bits)
        codes = (spread.astype(np.int32) << np.arange(bits, dtype=np.int32)).sum(axis=2, dtype=np.int32)
    sign = 1 << (bits - 1)
    return (codes ^ sign) - sign if signed else codes
