"""The rows of an image that a band of output rows needs, copied between padding, and sums over windows of them.

A copied row holds the positions of an image's row one after the other, the zero point before, between (where the image
is spread) and behind them, as bytes, or widened to what the instructions multiply. Only what windows reach is copied.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

from ..epilogues.epilogue import CONSTANTS
from ..gemm.rows import COPY, WIDEN_S8, WIDEN_U8
from ..gemm.wide_rows import COPY_2, COPY_4, WIDEN_BF16, WIDEN_F16, get_bf16, get_f16
from ..integers import integers, native_entry
from ..simd import copy_bytes, get_s8, get_s16, get_s32, get_u8, put_f32, put_s16, put_s32, put_u8
from . import driver as w

_ZERO_POINT = CONSTANTS["a_zero_point"]
# how: (reads, writes, bytes of an element of x, bytes of a copied one)
READ = {
    COPY: (get_u8, put_u8, 1, 1),
    WIDEN_U8: (get_u8, put_s16, 1, 2),
    WIDEN_S8: (get_s8, put_s16, 1, 2),
    COPY_2: (get_s16, put_s16, 2, 2),
    COPY_4: (get_s32, put_s32, 4, 4),
    WIDEN_BF16: (get_bf16, put_f32, 2, 4),
    WIDEN_F16: (get_f16, put_f32, 2, 4),
}


def copy_entry(how: int) -> Callable[..., Any]:
    """A copy entry (driver.conv_entry says what its ranges are)."""
    get, put, item, size = READ[how]
    real = how in (WIDEN_BF16, WIDEN_F16)
    written = njit(error_model="numpy") if real else integers

    @written
    def fill(target, value, n):
        for i in range(n):
            put(target, i, value)

    @written
    def contiguous(target, source, n):
        for i in range(n):
            put(target, i, get(source, i))

    @written
    def strided(target, source, step, n):
        for i in range(n):
            put(target + size * i, 0, get(source + i * step, 0))

    @written
    def positions(target, source, n, step, inner, channels):
        """n positions of an image's row to their places, which lie next to each other."""
        if inner == item and step == channels * item:
            if item == size:
                copy_bytes(target, source, n * step)
            else:
                contiguous(target, source, n * channels)
        elif inner == item:
            for v in range(n):
                contiguous(target + v * channels * size, source + v * step, channels)
        else:
            for v in range(n):
                strided(target + v * channels * size, source + v * step, inner, channels)

    def entry(bases, block, ranges):
        target, n, d, first, rows = ranges[0], ranges[1], ranges[2], ranges[3], ranges[4]
        depth, height, width, channels = block[3], block[4], block[5], block[6]
        image = bases[block[0]] + block[1] + n * block[7]
        step, inner, spread = block[10], block[11], block[w.UW]
        constants = bases[block[w._COLUMNS]] + block[w._COLUMNS + 1]
        padding = get_s32(constants, _ZERO_POINT // 4) - block[w.A_SHIFT] if size != 4 else 0
        reach = (block[w._OUT + 5] - 1) * block[w.SW] + (block[w.KW] - 1) * block[w.LW] + 1  # positions of a row
        before = min(max(block[w.PW], 0), reach)
        skipped = max(-block[w.PW], 0)  # positions of the image that are cut off
        for a in range(block[w.KD]):
            z = d * block[w.SD] - block[w.PD] + a * block[w.LD]
            inside = z >= 0 and z % block[w.UD] == 0 and z // block[w.UD] < depth
            plane = image + z // block[w.UD] * block[8]
            for r in range(rows):
                at = target + a * block[w.LAYER] + r * block[w.ROW]
                y = first + r - block[w.PH]
                if not (inside and y >= 0 and y % block[w.UH] == 0 and y // block[w.UH] < height):
                    fill(at, padding, reach * channels)
                    continue
                source = plane + y // block[w.UH] * block[9]
                if spread == 1:
                    have = max(min(width - skipped, reach - before), 0)
                    fill(at, padding, before * channels)
                    pixel = at + before * channels * size
                    positions(pixel, source + skipped * step, have, step, inner, channels)
                    fill(pixel + have * channels * size, padding, (reach - before - have) * channels)
                else:
                    fill(at, padding, reach * channels)
                    for v in range(width):
                        q = v * spread + block[w.PW]
                        if 0 <= q < reach:
                            positions(at + q * channels * size, source + v * step, 1, step, inner, channels)
        return np.int32(0) if real else 0

    return entry if real else native_entry(entry)


def factor_entry(how: int) -> Callable[..., Any]:
    """A factor entry: for each output position, taps * channels * za less the sum of its window. The band is copied."""
    get = {COPY: get_u8, WIDEN_U8: get_s16, WIDEN_S8: get_s16}[how]
    size = READ[how][3]

    @integers
    def total(source, n, signed):
        found = 0
        if size == 1 and signed:
            for i in range(n):
                found += np.int64(get_s8(source, i))
        else:
            for i in range(n):
                found += np.int64(get(source, i))
        return found

    @native_entry
    def entry(bases, block, ranges):
        work = bases[block[w._SCRATCH]] + block[w._SCRATCH + 1]
        source, group, count = ranges[0], ranges[1], ranges[3]
        sums, factors = work + block[w.AT_SUMS], work + block[w.AT_FACTORS]
        constants = bases[block[w._COLUMNS]] + block[w._COLUMNS + 1]
        zero = get_s32(constants, _ZERO_POINT // 4) - block[w.A_SHIFT]
        channels = block[w.DEPTH] // size
        pixel, row = block[w.PIXEL], block[w.ROW]
        across, rows = row // pixel, (count - 1) * block[w.SH] + (block[w.KH] - 1) * block[w.LH] + 1
        for a in range(block[w.KD]):
            for r in range(rows):
                at = source + a * block[w.LAYER] + r * row + group * block[w.DEPTH]
                for v in range(across):
                    place = (a * rows + r) * across + v
                    put_s32(sums, place, np.int32(total(at + v * pixel, channels, block[w.SIGNED_A])))
        taps = block[w.KD] * block[w.KH] * block[w.KW]
        for h in range(count):
            for v in range(block[w._OUT + 5]):
                found = taps * channels * zero
                for a in range(block[w.KD]):
                    for b in range(block[w.KH]):
                        for c in range(block[w.KW]):
                            y = (a * rows + h * block[w.SH] + b * block[w.LH]) * across
                            found -= get_s32(sums, y + v * block[w.SW] + c * block[w.LW])
                put_s32(factors, 2 * (h * block[w._OUT + 5] + v), np.int32(found))
        return 0

    return entry
