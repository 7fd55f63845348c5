"""Windows that lie inside the image are read where they lie; only those that pass its edges are copied.

For convolutions of float32 whose columns read the channels of their own group: so few products a position that copying
every row between padding, as band.py does, would be most of the time. A copied window is its positions one after the
other, zeros where it is outside.
"""

from __future__ import annotations

import numpy as np

from ..integers import integers, native_entry
from ..simd import copy_bytes, put_s32, zero_bytes
from . import driver as w


@integers
def _gathered(block, target, image, d, h, v, positions, pitch):
    """What the windows of outputs v, v + 1, .. of row h read: so many positions of every row that has taps."""
    depth, height, width, nbytes = block[3], block[4], block[5], 4 * block[6]
    for a in range(block[w.KD]):
        z = d * block[w.SD] - block[w.PD] + a * block[w.LD]
        for b in range(block[w.KH]):
            y = h * block[w.SH] - block[w.PH] + b * block[w.LH]
            row = image + z * block[8] + y * block[9]
            for c in range(positions):
                q = v * block[w.SW] - block[w.PW] + c
                if 0 <= z < depth and 0 <= y < height and 0 <= q < width:
                    copy_bytes(target, row + q * block[10], nbytes)
                else:
                    zero_bytes(target, nbytes)
                target += pitch


@native_entry
def inside_entry(bases, block, ranges):
    """As driver.conv_entry; there is one group of columns."""
    x, panels = bases[block[w._X]] + block[w._X + 1], bases[block[w._PACKED]] + block[w._PACKED + 1]
    work = bases[block[w._SCRATCH]] + block[w._SCRATCH + 1]
    starts, offsets, copied = work + block[w.AT_SEGMENTS], work + block[w.AT_ROWS], work + block[w.AT_BAND]
    virtual, mr, width, taps = work + block[w.AT_BLOCK], block[w.MR], block[w._OUT + 5], block[w.SEGMENTS]
    reach, pitch = (block[w.KW] - 1) * block[w.LW] + 1, (4 * block[6] + 63) // 64 * 64
    edge_offsets, edge_starts = work + block[w.AT_EDGE], work + block[w.AT_EDGE] + 4 * mr
    w.starts_of(block, starts, block[w.LAYER], block[w.LH] * block[w.ROW], block[w.PIXEL])
    for r in range(mr):
        put_s32(edge_offsets, r, np.int32(r * block[w.SW] * pitch))
    for v in range(width):
        put_s32(offsets, v, np.int32(v * block[w.SW] * block[w.PIXEL]))
    w.shown(block, virtual, block[w._OUT + 10], block[w._RESIDUAL + 10])
    # outputs whose windows lie between the edges along W
    across = block[5] - block[w.MARGIN] - reach + 1 + block[w.PW]
    left = min(max((block[w.PW] + block[w.SW] - 1) // block[w.SW], 0), width)
    right = min(max((across + block[w.SW] - 1) // block[w.SW], left), width)
    for n in range(ranges[0], ranges[1]):
        image = x + n * block[w._X + 7]
        for d in range(ranges[2], ranges[3]):
            z = d * block[w.SD] - block[w.PD]
            between = z >= 0 and z + (block[w.KD] - 1) * block[w.LD] < block[3]
            for h in range(ranges[4], ranges[5]):
                y = h * block[w.SH] - block[w.PH]
                whole = between and y >= 0 and y + (block[w.KH] - 1) * block[w.LH] < block[4]
                lo, hi = left if whole else width, right if whole else width
                w.shown_group(bases, block, virtual, n, d, h, 0, 10)
                v = 0
                while v < width:
                    if lo <= v < hi:
                        end, at, first, pixel = hi, offsets + 4 * v, starts, block[w.PIXEL]
                        begin = image + z * block[w._X + 8] + y * block[w._X + 9] - block[w.PW] * pixel
                    else:
                        end = min(v + mr, lo if v < lo else width)
                        positions = (end - v - 1) * block[w.SW] + reach
                        at, first, begin, pixel = edge_offsets, edge_starts, copied, pitch
                        row = positions * pitch
                        w.starts_of(block, edge_starts, block[w.KH] * row, row, pitch)
                        _gathered(block, copied, image, d, h, v, positions, pitch)
                    if w.tiles_of(
                        bases,
                        block,
                        work,
                        v,
                        end,
                        begin,
                        at,
                        first,
                        pixel,
                        virtual,
                        panels,
                        ranges[6],
                        ranges[7],
                        0,
                        taps,
                    ):
                        return 1
                    v = end
    return 0
