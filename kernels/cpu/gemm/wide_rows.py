"""Rows of A whose elements have 2 or 4 bytes, copied at unit stride, or widened to float32.

rows.py does the same for bytes, and says when rows are copied at all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

from ..scalar import bf16_to_f32, f16_to_f32
from ..simd import copy_bytes, get_f32, get_s16, put_f32, put_s16, zero_bytes

COPY_2, COPY_4, WIDEN_BF16, WIDEN_F16 = 4, 5, 6, 7  # beside rows.COPY and those after it
TOGETHER = 16  # rows that lie side by side and are read as one cache line


@njit(error_model="numpy")
def get_bf16(address, n):
    """Element n of the bfloat16 at an address, as float32."""
    return bf16_to_f32(np.uint16(get_s16(address, n)))


@njit(error_model="numpy")
def get_f16(address, n):
    """Element n of the float16 at an address, as float32."""
    return f16_to_f32(np.uint16(get_s16(address, n)))


_READ = {
    COPY_2: (get_s16, put_s16, 2, 2),
    COPY_4: (get_f32, put_f32, 4, 4),
    WIDEN_BF16: (get_bf16, put_f32, 2, 4),
    WIDEN_F16: (get_f16, put_f32, 2, 4),
}


def copy_entry(read_a: int) -> Callable[..., Any]:
    """A prepare entry (gemm.gemm_entry) that copies rows."""
    get, put, item, size = _READ[read_a]

    @njit(error_model="numpy")
    def contiguous(target, source, depth):
        for p in range(depth):
            put(target, p, get(source, p))

    @njit(error_model="numpy")
    def along(target, source, stride, depth):
        for p in range(depth):
            put(target, p, get(source + p * stride, 0))

    def entry(bases, block, ranges):
        lda, stride, depth = block[4], block[5], block[3]
        rows, target, pitch, width = ranges[3] - ranges[2], ranges[1], block[53], 4 * block[48]
        source = bases[block[0]] + block[1] + ranges[2] * lda
        for r in range(rows):
            zero_bytes(target + r * pitch + depth * size, width - depth * size)
        if stride == item:
            for r in range(rows):
                if item == size:
                    copy_bytes(target + r * pitch, source + r * lda, depth * size)
                else:
                    contiguous(target + r * pitch, source + r * lda, depth)
        elif lda == item:
            for first in range(0, rows, TOGETHER):
                last = min(first + TOGETHER, rows)
                for p in range(depth):
                    for r in range(first, last):
                        put(target + r * pitch + p * size, 0, get(source + r * lda + p * stride, 0))
        else:
            for r in range(rows):
                along(target + r * pitch, source + r * lda, stride, depth)
        return np.int32(0)

    return entry
