"""Packing a row of codes into a stream of bits, and back. kernels/schemes/packing.py says what the stream is.

Eight codes at a time move between a word that holds one in each byte and `bits` bytes of the stream, in three steps
that join or part neighbours.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numba import njit

from .simd import get_s64, get_u8, put_s64, put_u8

GROUP = 8  # codes of a word

bare = njit(error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)


def padded(n: int) -> int:
    """Bytes of a scratch row for n codes: whole words."""
    return -(-n // GROUP) * GROUP


def _fields(width: int, first: int, last: int) -> Any:
    """A mask of bits first .. last of every field of `width` bits."""
    mask = sum(((1 << last) - (1 << first)) << at for at in range(0, 64, width))
    return np.int64(mask - (1 << 64) if mask >> 63 else mask)


def _steps(bits: int) -> list[tuple[int, Any, Any]]:
    """(distance, what stays, what moves) of the three steps that join neighbours: pairs, fours, then all eight."""
    return [((8 - bits) * n, _fields(16 * n, 0, bits * n), _fields(16 * n, bits * n, 2 * bits * n)) for n in (1, 2, 4)]


@cache
def packer(bits: int) -> Callable[..., None]:
    """`pack(codes, packed, n)`: n codes, one a byte and zeros after them to whole words, into a row of the stream."""
    (by1, stay1, move1), (by2, stay2, move2), (by3, stay3, move3) = _steps(bits)

    @bare
    def joined(x):
        x = (x & stay1) | ((x >> by1) & move1)
        x = (x & stay2) | ((x >> by2) & move2)
        return (x & stay3) | ((x >> by3) & move3)

    @bare
    def pack(codes, packed, n):
        source, target = codes.ctypes.data, packed.ctypes.data
        whole = max(0, (packed.size - 8) // bits + 1)  # words whose eight bytes may be stored
        whole = min(whole, n // GROUP)
        for j in range(whole):
            put_s64(target + bits * j, 0, joined(get_s64(source, j)))
        for j in range(whole, (n + GROUP - 1) // GROUP):
            x = joined(get_s64(source, j))
            for k in range(bits):
                if bits * j + k < packed.size:
                    put_u8(target, bits * j + k, np.uint8((x >> (8 * k)) & 255))

    @bare
    def pack_nibbles(codes, packed, n):
        for i in range(packed.size):
            packed[i] = codes[2 * i] | (codes[2 * i + 1] << np.uint8(4))

    return pack_nibbles if bits == 4 else pack  # type: ignore[no-any-return]


@cache
def unpacker(bits: int) -> Callable[..., None]:
    """`unpack(packed, codes, n)`: the inverse of `packer`; codes has room for whole words."""
    (by1, stay1, move1), (by2, stay2, move2), (by3, stay3, move3) = _steps(bits)
    back1, back2, back3 = (np.int64(move << by) for move, by in ((move1, by1), (move2, by2), (move3, by3)))

    @bare
    def parted(x):
        x = (x & stay3) | ((x << by3) & back3)
        x = (x & stay2) | ((x << by2) & back2)
        return (x & stay1) | ((x << by1) & back1)

    @bare
    def unpack(packed, codes, n):
        source, target = packed.ctypes.data, codes.ctypes.data
        whole = max(0, (packed.size - 8) // bits + 1)
        whole = min(whole, (n + GROUP - 1) // GROUP)
        for j in range(whole):
            put_s64(target, j, parted(get_s64(source + bits * j, 0)))
        for j in range(whole, (n + GROUP - 1) // GROUP):
            x = np.int64(0)
            for k in range(bits):
                if bits * j + k < packed.size:
                    x |= np.int64(get_u8(source, bits * j + k)) << np.int64(8 * k)
            put_s64(target, j, parted(x))

    @bare
    def unpack_nibbles(packed, codes, n):
        for i in range(packed.size):
            codes[2 * i] = packed[i] & np.uint8(15)
            codes[2 * i + 1] = packed[i] >> np.uint8(4)

    return unpack_nibbles if bits == 4 else unpack  # type: ignore[no-any-return]
