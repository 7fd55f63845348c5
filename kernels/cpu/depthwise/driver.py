"""depthwise conv on the CPU: rows of the output, from a ring of rows of the image.

kernels/reference/conv.py says what it computes. Each row of the image is copied once between positions of the zero
point, into a ring that holds as many rows as a unit (kernel.Unit) reads; rows of padding are one row of zero points. A
unit that would pass the end of the output begins earlier and stores some of it twice.
"""

from __future__ import annotations

from ..epilogues.epilogue import CONSTANTS
from ..gemm import driver as gemm
from ..integers import integers, native_entry
from ..simd import address_of, call_entry, copy_bytes, get_s32, get_s64, get_u8, put_s64, put_u8
from .kernel import call

# Operands of the block, in order: x, out and residual (N, D, H, W, C); tables (bytes,), columns (bytes,), table (256,),
# scratch (bytes,) and blocks (n, DESCRIPTION). Then these parameters, then what a generated finish reads.
# A block of channels is described by: its first channel; the address of the kernel for a whole unit, and where in
# `tables` its table is; the same for the kernel of a single output.
DESCRIPTION = 5
NAMES = (
    "kd", "kh", "kw", "sd", "sh", "sw", "pd", "ph", "pw", "ld", "lh", "lw", "ud", "uh", "uw",  # window.words()
    "slots",  # rows of the ring, for each plane
    "pitch",  # bytes of one
    "flip",  # what is added to each byte of the image: 0, or 128 where it is s8
    "finish",  # address of the entry that finishes rows of int32; 0 if the kernel stores by itself
    "plane",  # bytes of a column plane
    "item",  # bytes of an element of out
    "at_rows", "at_zeros", "at_ring", "at_tile", "at_block",  # places in scratch
    "a_shift",  # what the zero point of the columns has beyond that of x
    "tall", "wide",  # outputs of a whole unit along H and W
    "held",  # int32 of one position where a finish reads them: at least as many as a kernel stores
    "extras",
)  # fmt: skip
X, OUT, RESIDUAL, TABLES, COLUMNS, TABLE, SCRATCH, BLOCKS, PARAMETERS = 0, 12, 24, 36, 40, 44, 48, 52, 58
(
    KD, KH, KW, SD, SH, SW, PD, PH, PW, LD, LH, LW, UD, UH, UW, SLOTS, PITCH, FLIP, FINISH, PLANE, ITEM, AT_ROWS,
    AT_ZEROS, AT_RING, AT_TILE, AT_BLOCK, A_SHIFT, TALL, WIDE, HELD, EXTRAS,
) = range(PARAMETERS, PARAMETERS + len(NAMES))  # fmt: skip
WORDS = PARAMETERS + len(NAMES)
EXTRA = 12
MOST_COLUMNS = 64  # that a finish takes at once
_ZERO_POINT = CONSTANTS["a_zero_point"] // 4
_GEMM_OUT, _GEMM_COLUMNS, _GEMM_RESIDUAL, _GEMM_TABLE = (
    gemm.OPERANDS[name] for name in ("out", "columns", "residual", "table")
)
_GEMM_PLANE = gemm.PARAMETERS + gemm.NAMES.index("plane")


@integers
def _fill(target, value, n):
    for i in range(n):
        put_u8(target, i, value)


@integers
def _copied(target, source, n, step, inner, channels, flip):
    """n positions of the image next to each other; flip inverts the top bits of its bytes."""
    if inner == 1 and step == channels:
        if flip:
            for i in range(n * channels):
                put_u8(target, i, get_u8(source, i) ^ 0x80)
        else:
            copy_bytes(target, source, n * channels)
        return
    for v in range(n):
        for c in range(channels):
            put_u8(target + v * channels, c, get_u8(source + v * step, c * inner) ^ flip)


@integers
def _shown(bases, block, virtual, n, d, h):
    """The row of the result as the finish of a GEMM wants it (gemm.OPERANDS): positions are rows, channels columns."""
    put_s64(virtual, _GEMM_OUT, 0)
    out = bases[block[OUT]] + block[OUT + 1] + n * block[OUT + 7] + d * block[OUT + 8] + h * block[OUT + 9]
    put_s64(virtual, _GEMM_OUT + 1, out)
    put_s64(virtual, _GEMM_OUT + 4, block[OUT + 10])
    put_s64(virtual, _GEMM_OUT + 5, block[OUT + 11])
    put_s64(virtual, _GEMM_COLUMNS, 0)
    put_s64(virtual, _GEMM_COLUMNS + 1, bases[block[COLUMNS]] + block[COLUMNS + 1])
    residual = bases[block[RESIDUAL]] + block[RESIDUAL + 1]
    put_s64(virtual, _GEMM_RESIDUAL, 0)
    residual += n * block[RESIDUAL + 7] + d * block[RESIDUAL + 8] + h * block[RESIDUAL + 9]
    put_s64(virtual, _GEMM_RESIDUAL + 1, residual)
    put_s64(virtual, _GEMM_RESIDUAL + 4, block[RESIDUAL + 10])
    put_s64(virtual, _GEMM_RESIDUAL + 5, block[RESIDUAL + 11])
    for k in range(4):
        put_s64(virtual, _GEMM_TABLE + k, block[TABLE + k])
    put_s64(virtual, _GEMM_PLANE, block[PLANE])
    for k in range(block[EXTRAS]):
        at, word = WORDS + EXTRA * k, gemm.WORDS + 6 * k
        place = bases[block[at]] + block[at + 1] + n * block[at + 7] + d * block[at + 8] + h * block[at + 9]
        put_s64(virtual, word, 0)
        put_s64(virtual, word + 1, place)
        put_s64(virtual, word + 4, block[at + 10])
        put_s64(virtual, word + 5, block[at + 11])


@native_entry
def depthwise_entry(bases, block, ranges):
    """Images n0:n1, planes d0:d1 and rows h0:h1 of the output; channels are not cut."""
    work, blocks = bases[block[SCRATCH]] + block[SCRATCH + 1], bases[block[BLOCKS]] + block[BLOCKS + 1]
    tables, constants = bases[block[TABLES]] + block[TABLES + 1], bases[block[COLUMNS]] + block[COLUMNS + 1]
    depth, height, across, channels = block[X + 3], block[X + 4], block[X + 5], block[X + 6]
    width, item = block[OUT + 5], block[ITEM]
    rows, zeros, ring = work + block[AT_ROWS], work + block[AT_ZEROS], work + block[AT_RING]
    tile, virtual = work + block[AT_TILE], work + block[AT_BLOCK]
    slots, pitch, flip = block[SLOTS], block[PITCH], block[FLIP]
    padding = (get_s32(constants, _ZERO_POINT) - block[A_SHIFT]) ^ flip
    reach = (width - 1) * block[SW] + (block[KW] - 1) * block[LW] + 1
    before = min(block[PW], reach)
    have = max(min(across, reach - before), 0)
    span = (block[KH] - 1) * block[LH] + 1
    _fill(zeros, padding, reach * channels)
    for a in range(block[KD] * slots):
        _fill(ring + a * pitch, padding, before * channels)
        _fill(ring + a * pitch + (before + have) * channels, padding, (reach - before - have) * channels)
    for n in range(ranges[0], ranges[1]):
        image = bases[block[X]] + block[X + 1] + n * block[X + 7]
        for d in range(ranges[2], ranges[3]):
            done = ranges[4] * block[SH] - block[PH]  # first row of the image that is not in the ring yet
            h = ranges[4]
            while h < ranges[5]:
                tall = 0
                count = 1
                if ranges[5] - ranges[4] >= block[TALL]:
                    tall = 1
                    count = block[TALL]
                    h = min(h, ranges[5] - count)
                top = h * block[SH] - block[PH]
                done = max(done, top)
                end = top + (count - 1) * block[SH] + span
                for a in range(block[KD]):
                    z = d * block[SD] - block[PD] + a * block[LD]
                    if not 0 <= z < depth:
                        continue
                    for y in range(max(done, 0), min(end, height)):
                        source = image + z * block[X + 8] + y * block[X + 9]
                        target = ring + (a * slots + y % slots) * pitch + before * channels
                        _copied(target, source, have, block[X + 10], block[X + 11], channels, flip)
                done = end
                k = 0
                for a in range(block[KD]):
                    z = d * block[SD] - block[PD] + a * block[LD]
                    for y in range(top, end):
                        inside = 0 <= z < depth and 0 <= y < height
                        put_s64(rows, k, ring + (a * slots + y % slots) * pitch if inside else zeros)
                        k += 1
                out = bases[block[OUT]] + block[OUT + 1]
                out += n * block[OUT + 7] + d * block[OUT + 8] + h * block[OUT + 9]
                out_row, pixel = block[OUT + 9], block[OUT + 10]
                if block[FINISH]:
                    out, out_row, pixel = tile, width * block[HELD] * 4, block[HELD] * 4
                for k in range(block[BLOCKS + 2]):
                    at = blocks + 8 * DESCRIPTION * k
                    channel = get_s64(at, 0)
                    kernel, table = get_s64(at, 1), tables + get_s64(at, 2)
                    wide = block[WIDE]
                    if not tall or width < wide:
                        kernel, table, wide = get_s64(at, 3), tables + get_s64(at, 4), 1
                    for r in range(1 if wide == block[WIDE] and tall else count):
                        target = out + channel * item + r * out_row
                        step = wide * block[SW] * channels
                        skip = rows + 8 * r * block[SH]
                        call(
                            kernel, skip, channel, width // wide, step, channels, table, target, out_row, pixel,
                            wide * pixel, constants, channels,
                        )  # fmt: skip
                        if width % wide:
                            back = width - wide
                            call(
                                kernel, skip, channel + back * block[SW] * channels, 1, step, channels, table,
                                target + back * pixel, out_row, pixel, 0, constants, channels,
                            )  # fmt: skip
                if block[FINISH]:
                    for r in range(count):
                        _shown(bases, block, virtual, n, d, h + r)
                        for c in range(0, channels, MOST_COLUMNS):  # a finish has room for a panel
                            put_s64(work, 0, tile + r * out_row + 4 * c)
                            put_s64(work, 1, pixel)
                            put_s64(work, 2, 0)
                            put_s64(work, 3, width)
                            put_s64(work, 4, c)
                            put_s64(work, 5, min(c + MOST_COLUMNS, channels))
                            if call_entry(block[FINISH], address_of(bases), virtual, work):
                                return 1
                h += count
    return 0
