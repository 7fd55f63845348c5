"""conv on the CPU: rows of the output, from an image and packed weights, through the micro-kernels.

kernels/reference/conv.py says what it computes; this file only reorders the work. An output position is a row of A
that begins at an offset of its own (microkernel: addressing "table"), and its window is a few segments of contiguous
bytes. Where there is padding, or the image does not lie so, the rows of the image that a band of output rows needs are
first copied, between positions that hold the zero point (band.py): a window is never laid out for itself.

One function serves all types, windows, epilogues and instruction sets. What takes tiles to the output is that of the
GEMM, and is shown the output of a band as if it were a GEMM's (gemm.OPERANDS).
"""

from __future__ import annotations

import numpy as np

from ..epilogues.epilogue import CONSTANTS, CONSTANTS_SIZE
from ..gemm import driver as gemm
from ..gemm.driver import HELD
from ..gemm.microkernel import call
from ..integers import integers, native_entry
from ..simd import address_of, call_entry, get_s32, get_s64, put_s32, put_s64

# Operands of the driver's block, in order, and the word that each begins at (kernels/entry.py).
OPERANDS = {
    "x": 0,  # (N, D, H, W, C), any strides
    "packed": 12,  # (groups, bytes) packing.PanelLayout
    "columns": 18,  # (groups, bytes) packing.Columns
    "out": 24,  # (N, D, H, W, O)
    "residual": 36,  # (N, D, H, W, O); size 0 if there is none
    "table": 48,  # (256,); size 0 if there is none
    "scratch": 52,  # (bytes,), one per thread
}
PARAMETERS = 56
NAMES = (
    "kd", "kh", "kw", "sd", "sh", "sw", "pd", "ph", "pw", "ld", "lh", "lw", "ud", "uh", "uw",  # window.words()
    "full_tiles", "rest_tiles",  # as in gemm.NAMES
    "full_finish", "rest_finish",
    "mr", "nr", "rest_width",
    "steps",  # whole steps of a segment
    "segments",
    "item",  # bytes of one element of `out`
    "plane",  # bytes of a column plane
    "own",
    "depth",  # bytes from the channels of one group to those of the next, as they are read
    "outputs",  # of a group
    "panel",  # bytes from what one panel reads of a position to what the next one does; 0 if they read the same
    "band",  # most rows of output that are made from one copy
    "copy",  # address of the entry that copies the rows of a band (band.py); 0 if they are read in place
    "factor",  # address of the entry that finds the factors of the output positions; 0 if there is none
    "inside",  # address of the entry that does all where only windows past the edges are copied (inside.py); or 0
    "margin",  # positions at the end of an image's row that such an entry does not read in place
    "pixel",  # bytes from a position of the copied image, or of x, to the next along W, H, and among planes
    "row",
    "layer",
    "fewer",  # whether taps that fall on padding may be left out: NEVER, ALWAYS, or WITHOUT_ZERO_POINT
    "side",  # whether tiles read positions side by side, and so rows of one row of the output
    "joint",  # taps along W that are one segment: kw, or 1
    "deep",  # taps along H that are one segment: kh, or 1
    "at_block", "at_segments", "at_rows", "at_factors", "at_sums", "at_tile", "at_band", "at_edge",  # places in scratch
    "a_shift",
    "signed_a",
    "extras",  # operands that follow: what a generated finish reads
)  # fmt: skip
WORDS = PARAMETERS + len(NAMES)
EXTRA = 12  # words of each operand that follows
(
    KD, KH, KW, SD, SH, SW, PD, PH, PW, LD, LH, LW, UD, UH, UW,
    FULL_TILES, REST_TILES, FULL_FINISH, REST_FINISH, MR, NR, REST_WIDTH, STEPS, SEGMENTS, ITEM, PLANE, OWN, DEPTH,
    OUTPUTS, PANEL, BAND, COPY, FACTOR, INSIDE, MARGIN, PIXEL, ROW, LAYER, FEWER, SIDE, JOINT, DEEP,
    AT_BLOCK, AT_SEGMENTS, AT_ROWS, AT_FACTORS, AT_SUMS, AT_TILE, AT_BAND, AT_EDGE, A_SHIFT, SIGNED_A, EXTRAS,
) = range(PARAMETERS, WORDS)  # fmt: skip
_X, _OUT, _RESIDUAL = OPERANDS["x"], OPERANDS["out"], OPERANDS["residual"]
_PACKED, _COLUMNS, _TABLE, _SCRATCH = (OPERANDS[name] for name in ("packed", "columns", "table", "scratch"))
_GEMM_OUT, _GEMM_COLUMNS, _GEMM_RESIDUAL, _GEMM_TABLE = (
    gemm.OPERANDS[name] for name in ("out", "columns", "residual", "table")
)
_ZERO_POINT = CONSTANTS["a_zero_point"] // 4
_GEMM_PLANE = gemm.PARAMETERS + gemm.NAMES.index("plane")
NEVER, WITHOUT_ZERO_POINT, ALWAYS = range(3)


@integers
def starts_of(block, starts, layer, row, pixel):
    """Write where each segment of a window begins, from where the window does. layer, row: from one tap to the next."""
    s = 0
    for a in range(block[KD]):
        for b in range(0, block[KH], block[DEEP]):
            for c in range(0, block[KW], block[JOINT]):
                place = a * layer + b * row + c * block[LW] * pixel
                put_s32(starts, s, np.int32(place))
                s += 1


@integers
def shown(block, virtual, ldc, residual_step):
    """What of the output and of what is read beside it stays: a block as the finish of a GEMM wants it."""
    put_s64(virtual, _GEMM_OUT, 0)
    put_s64(virtual, _GEMM_OUT + 4, ldc)
    put_s64(virtual, _GEMM_OUT + 5, block[_OUT + 11])
    put_s64(virtual, _GEMM_COLUMNS, 0)
    put_s64(virtual, _GEMM_RESIDUAL, 0)
    put_s64(virtual, _GEMM_RESIDUAL + 4, residual_step)
    put_s64(virtual, _GEMM_RESIDUAL + 5, block[_RESIDUAL + 11])
    for k in range(4):
        put_s64(virtual, _GEMM_TABLE + k, block[_TABLE + k])
    put_s64(virtual, _GEMM_PLANE, block[PLANE])


@integers
def shown_group(bases, block, virtual, n, d, h, g, along):
    """Where output, columns and the rest begin for an image, plane, row and group. along: axis of the rows."""
    first = g * block[OUTPUTS]
    image = n * block[_OUT + 7] + d * block[_OUT + 8] + h * block[_OUT + 9] + first * block[_OUT + 11]
    put_s64(virtual, _GEMM_OUT + 1, bases[block[_OUT]] + block[_OUT + 1] + image)
    constants = bases[block[_COLUMNS]] + block[_COLUMNS + 1] + g * block[_COLUMNS + 4]
    put_s64(virtual, _GEMM_COLUMNS + 1, constants)
    residual = bases[block[_RESIDUAL]] + block[_RESIDUAL + 1] + n * block[_RESIDUAL + 7]
    residual += d * block[_RESIDUAL + 8] + h * block[_RESIDUAL + 9] + first * block[_RESIDUAL + 11]
    put_s64(virtual, _GEMM_RESIDUAL + 1, residual)
    for k in range(block[EXTRAS]):
        at = WORDS + EXTRA * k
        place = bases[block[at]] + block[at + 1] + n * block[at + 7] + d * block[at + 8]
        place += h * block[at + 9] + first * block[at + 11]
        word = gemm.WORDS + 6 * k
        put_s64(virtual, word, 0)
        put_s64(virtual, word + 1, place)
        put_s64(virtual, word + 4, block[at + along])
        put_s64(virtual, word + 5, block[at + 11])


@integers
def tiles_of(bases, block, work, r0, r1, a, offsets, starts, pixel, virtual, panels, start, end, s0, s1):
    """Rows r0:r1 and columns start:end of what `virtual` shows, tile by tile; a status.

    offsets  address of the rows' offsets from a, that of row r0 first
    pixel    bytes from one position of A to the next
    s0, s1   segments that are added; at least one
    """
    mr, nr, steps, segments, outputs = block[MR], block[NR], block[STEPS], block[SEGMENTS], block[OUTPUTS]
    factors, tile_at, item = work + block[AT_FACTORS] + 8 * r0, work + block[AT_TILE], block[ITEM]
    out, ldc = get_s64(virtual, _GEMM_OUT + 1), get_s64(virtual, _GEMM_OUT + 4)
    constants, rows = get_s64(virtual, _GEMM_COLUMNS + 1), r1 - r0
    tiles = (rows + mr - 1) // mr  # of nearly equal height: the first ones have one row more
    height = rows // tiles
    split = (rows - height * tiles) * (height + 1)
    for col in range(start, end, nr):
        last = 0 if col + nr <= outputs else 1  # the last panel's words follow those of full ones
        pitch = 4 * block[NR + last]
        finish, table = block[FULL_FINISH + last], block[FULL_TILES + last]
        valid = min(outputs - col, nr)
        r = first = 0  # rows from `first` on wait to be finished
        while r < rows:
            tall = height + 1 if r < split else height
            c, c_step = out + (r0 + r) * ldc + col * item, ldc
            if finish:
                c, c_step = tile_at + (r - first) * pitch, pitch
            call(
                get_s64(table, tall - 1), a + col // nr * block[PANEL], offsets + 4 * r, steps, pixel,
                panels + 4 * col * steps * segments + s0 * steps * pitch, pitch, c, c_step,
                constants + CONSTANTS_SIZE + 4 * col, block[PLANE], factors + 8 * r, constants, valid,
                s1 - s0, starts + 4 * s0, block[OWN],
            )  # fmt: skip
            r += tall
            if finish and (r == rows or r - first > (HELD - 1) * mr):
                put_s64(work, 0, tile_at)
                put_s64(work, 1, pitch)
                put_s64(work, 2, r0 + first)
                put_s64(work, 3, r0 + r)
                put_s64(work, 4, col)
                put_s64(work, 5, col + valid)
                first = r
                if call_entry(finish, address_of(bases), virtual, work):
                    return 1
    return 0


@integers
def taps_of(block, h):
    """First and last + 1 of the taps along H that fall inside the image, for a row of the output; at least one tap."""
    top = h * block[SH] - block[PH]
    first = min(max(0, (block[LH] - 1 - top) // block[LH]), block[KH] - 1)
    last = min(block[KH], (block[_X + 4] - top + block[LH] - 1) // block[LH])
    return first, max(last, first + 1)


@native_entry
def conv_entry(bases, block, ranges):
    """Images n0:n1, planes d0:d1, rows h0:h1 and channels o0:o1 of the output.

    Where there are groups o0 and o1 lie between groups; else o0 is a multiple of nr, and so is o1, unless it is O.
    A copy entry gets as its ranges: where to, image, plane, first row with its padding, number of rows. A factor entry
    gets: where from, group, plane, first row of output, rows of output. An inside entry does all of it (inside.py).
    """
    if block[INSIDE]:
        return call_entry(block[INSIDE], address_of(bases), address_of(block), address_of(ranges))
    x, packed = bases[block[_X]] + block[_X + 1], bases[block[_PACKED]] + block[_PACKED + 1]
    work = bases[block[_SCRATCH]] + block[_SCRATCH + 1]
    width, outputs = block[_OUT + 5], block[OUTPUTS]
    starts, offsets = work + block[AT_SEGMENTS], work + block[AT_ROWS]
    copied, virtual = work + block[AT_BAND], work + block[AT_BLOCK]
    along = 9 if width == 1 else 10  # the axis that leads from one output position to the next: H or W
    starts_of(block, starts, block[LAYER], block[LH] * block[ROW], block[PIXEL])
    bands = (ranges[5] - ranges[4] + block[BAND] - 1) // block[BAND]
    most = (ranges[5] - ranges[4] + bands - 1) // bands
    for r in range(most):
        first = r * block[SH] * block[ROW]
        for v in range(width):
            put_s32(offsets, r * width + v, np.int32(first + v * block[SW] * block[PIXEL]))
    shown(block, virtual, block[_OUT + along], block[_RESIDUAL + along])
    # padding that is multiplied as 0 adds nothing, so rows at the edges take fewer taps
    fewer = block[FEWER] == ALWAYS or (
        block[FEWER] == WITHOUT_ZERO_POINT and get_s32(bases[block[_COLUMNS]] + block[_COLUMNS + 1], _ZERO_POINT) == 0
    )
    each = block[KW] // block[JOINT]  # segments of a tap along H
    for n in range(ranges[0], ranges[1]):
        for d in range(ranges[2], ranges[3]):
            for h in range(ranges[4], ranges[5], most):
                count = min(most, ranges[5] - h)
                source = copied
                if block[COPY]:
                    put_s64(work, 0, copied)
                    put_s64(work, 1, n)
                    put_s64(work, 2, d)
                    put_s64(work, 3, h * block[SH])
                    put_s64(work, 4, (count - 1) * block[SH] + (block[KH] - 1) * block[LH] + 1)
                    call_entry(block[COPY], address_of(bases), address_of(block), work)
                else:
                    source = x + n * block[_X + 7] + d * block[SD] * block[_X + 8] + h * block[SH] * block[_X + 9]
                for g in range(ranges[6] // outputs, (ranges[7] + outputs - 1) // outputs):
                    if block[FACTOR]:
                        put_s64(work, 0, source)
                        put_s64(work, 1, g)
                        put_s64(work, 2, h)
                        put_s64(work, 3, count)
                        call_entry(block[FACTOR], address_of(bases), address_of(block), work)
                    shown_group(bases, block, virtual, n, d, h, g, along)
                    start, end = max(ranges[6] - g * outputs, 0), min(ranges[7] - g * outputs, outputs)
                    a, panels = source + g * block[DEPTH], packed + g * block[_PACKED + 4]
                    # a panel goes over all rows of the band while what they share is in a cache
                    wide = block[NR] if fewer or block[SIDE] else end - start
                    for col in range(start, end, wide):
                        i = 0
                        while i < count:
                            s0, s1, j = 0, block[SEGMENTS], i + 1 if block[SIDE] else count
                            if fewer:
                                s0, s1 = taps_of(block, h + i)
                                j = i + 1
                                while not block[SIDE] and j < count and taps_of(block, h + j) == (s0, s1):
                                    j += 1
                                s0, s1 = s0 * each, s1 * each
                            if tiles_of(
                                bases, block, work, i * width, j * width, a, offsets + 4 * i * width, starts,
                                block[PIXEL], virtual, panels, col, min(col + wide, end), s0, s1,
                            ):  # fmt: skip
                                return 1
                            i = j
    return 0
