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

from .views import as_u16, as_u32, as_u64

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
        words = as_u64(codes)
        whole = min(packed.size // bits, n // GROUP)
        for j in range(whole):
            x = joined(np.int64(words[j]))
            for k in range(bits):
                packed[bits * j + k] = np.uint8(x >> (8 * k))
        for j in range(whole, (n + GROUP - 1) // GROUP):
            x = joined(np.int64(words[j]))
            for k in range(bits):
                if bits * j + k < packed.size:
                    packed[bits * j + k] = np.uint8(x >> (8 * k))

    @bare
    def pack_ones(codes, packed, n):
        words = as_u64(codes)
        for i in range(packed.size):
            packed[i] = np.uint8(joined(np.int64(words[i])))

    @bare
    def pack_pairs(codes, packed, n):
        words = as_u32(codes)
        for i in range(packed.size):
            x = words[i]
            packed[i] = np.uint8(x | (x >> np.uint32(6)) | (x >> np.uint32(12)) | (x >> np.uint32(18)))

    @bare
    def pack_nibbles(codes, packed, n):
        words = as_u16(codes)
        for i in range(packed.size):
            packed[i] = np.uint8(words[i] | (words[i] >> np.uint16(4)))

    return {1: pack_ones, 2: pack_pairs, 4: pack_nibbles}.get(bits, pack)


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
        words = as_u64(codes)
        whole = min(packed.size // bits, (n + GROUP - 1) // GROUP)
        for j in range(whole):
            x = np.int64(0)
            for k in range(bits):
                x |= np.int64(packed[bits * j + k]) << np.int64(8 * k)
            words[j] = np.uint64(parted(x))
        for j in range(whole, (n + GROUP - 1) // GROUP):
            x = np.int64(0)
            for k in range(bits):
                if bits * j + k < packed.size:
                    x |= np.int64(packed[bits * j + k]) << np.int64(8 * k)
            words[j] = np.uint64(parted(x))

    @bare
    def unpack_ones(packed, codes, n):
        words = as_u64(codes)
        for i in range(packed.size):
            words[i] = np.uint64(parted(np.int64(packed[i])))

    @bare
    def unpack_pairs(packed, codes, n):
        words = as_u32(codes)
        for i in range(packed.size):
            x = np.uint32(packed[i])
            x |= (x << np.uint32(6)) | (x << np.uint32(12)) | (x << np.uint32(18))
            words[i] = x & np.uint32(0x03030303)

    @bare
    def unpack_nibbles(packed, codes, n):
        words = as_u16(codes)
        for i in range(packed.size):
            x = np.uint16(packed[i])
            words[i] = (x | (x << np.uint16(4))) & np.uint16(0x0F0F)

    return {1: unpack_ones, 2: unpack_pairs, 4: unpack_nibbles}.get(bits, unpack)
