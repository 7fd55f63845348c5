"""The real paths of linear on the CPU: one rectangle of the output, from rows of x and packed weights.

kernels/reference/linear.py says what it computes; this file only reorders the work: weights are decoded a chunk of a
panel at a time, which stays in L1 while all rows pass over it. The words of its operands are those of gemm.OPERANDS, so
that sums leave through the same finish entries.
"""

from __future__ import annotations

from ..gemm import driver as gemm
from ..gemm.microkernel import call
from ..integers import integers, native_entry
from ..simd import address_of, ask_for, call_entry, get_s64, put_s64, zero_bytes

# Parameters, by position. As many as gemm.NAMES, with the plane where finish entries look for it.
NAMES = (
    "tiles",  # address of an int64 table: address of the tile with r + 1 rows at [r]
    "decode",  # address of what decodes units of a block
    "finish",  # address of the entry that takes float32 sums to the output
    "mr",  # rows of the tallest tile
    "nr",  # columns of a panel
    "panel",  # bytes of a packed panel
    "record",  # bytes of its records
    "depth",  # values of K in a block
    "chunk",  # values of K that are decoded together
    "unit",  # values of K in a unit
    "header",  # bytes of a record's parameters
    "round",  # address of what rounds a decoded chunk; 0 if it is used as it is
    "plane",  # bytes of a column plane
    "mc",  # rows of x in a pass
    "K",
    "x_item",  # bytes of an element of x
    "group",  # values of K in a step of the tiles
    "user",  # address of the entry that decodes codes by a user's function; 0 if there is none
    "decoded",  # bytes of a decoded chunk
    "few",  # whether one tile takes all rows (few_rows)
)
FILL = len(gemm.NAMES) - len(NAMES)  # words without meaning that follow


@integers
def decode_chunk(block, work, panel, decoded, table, k, now):
    """Decode `now` values of K from k on; returns where the rows for the tiles are."""
    nr, record, depth, unit, header = block[42], block[44], block[45], block[47], block[48]
    room = block[56]
    done = 0
    while done < now:
        inside = (k + done) % depth
        part = min(depth - inside, now - done)
        parameters = panel + (k + done) // depth * record
        codes = parameters + header + inside // unit * 4 * nr
        target = decoded + done * 4 * nr
        units = (part + unit - 1) // unit
        if block[55]:
            call(block[39], decoded + room, 0, units, 0, codes, 0, parameters, 0, 0, 0, 0, table, 0, 1, 0, 0)
            put_s64(work, 0, target)
            put_s64(work, 1, decoded + room)
            put_s64(work, 2, parameters)
            put_s64(work, 3, part)
            put_s64(work, 4, inside)
            call_entry(block[55], work, work, work)
        else:
            call(block[39], target, 0, units, 0, codes, 0, parameters, 0, 0, 0, 0, table, 0, 1, 0, 0)
        done += part
    if not block[49]:
        return decoded
    group = block[54]
    zero_bytes(decoded + now * 4 * nr, 4 * nr)
    rounded = decoded + 2 * room
    call(block[49], rounded, 0, (now + group - 1) // group, 0, decoded, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0)
    return rounded


@integers
def few_rows(bases, block, ranges):
    """The same for few rows, which one tile takes: weights are decoded in registers, two panels at a time.

    "decode" and "round" are here the addresses of the tile for two panels and for one, "mr" the panels of the first.
    Blocks are whole units.
    """
    x, pitch = bases[block[0]] + block[1] + ranges[0] * block[4], block[4]
    packed, n_total, rows = bases[block[6]] + block[7], block[13], ranges[1] - ranges[0]
    table, work = bases[block[30]] + block[31], bases[block[34]] + block[35]
    nr, record, depth, unit, depth_all = block[42], block[44], block[45], block[47], block[52]
    sums = work + gemm.WORK
    whole = depth_all // depth
    rest = (depth_all - whole * depth) // unit
    col = ranges[2]
    while col < ranges[3]:
        two = block[41] == 2 and col + nr < ranges[3]
        width = 2 * nr if two else nr
        tile = block[39] if two else block[49]
        b = packed + col // nr * block[43]
        zero_bytes(sums, 4 * width * rows)
        if whole:
            call(tile, x, pitch, depth // unit, 0, b, record, sums, 4 * width, 0, block[43], 0, table, 0, whole, 0, 0)
        if rest:
            at = x + whole * depth * block[53]
            call(
                tile,
                at,
                pitch,
                rest,
                0,
                b + whole * record,
                record,
                sums,
                4 * width,
                0,
                block[43],
                0,
                table,
                0,
                1,
                0,
                0,
            )
        put_s64(work, 0, sums)
        put_s64(work, 1, 4 * width)
        put_s64(work, 2, ranges[0])
        put_s64(work, 3, ranges[1])
        put_s64(work, 4, col)
        put_s64(work, 5, min(col + width, n_total))
        if call_entry(block[40], address_of(bases), address_of(block), work):
            return 1
        col += width
    return 0


@native_entry
def linear_entry(bases, block, ranges):
    """Compute rows m0:m1 and columns n0:n1. n0 is a multiple of nr; so is n1, unless it is N."""
    if block[57]:
        return few_rows(bases, block, ranges)
    x, pitch = bases[block[0]] + block[1], block[4]
    packed, n_total = bases[block[6]] + block[7], block[13]
    table, work = bases[block[30]] + block[31], bases[block[34]] + block[35]
    tiles, finish, mr, nr, record = block[38], block[40], block[41], block[42], block[44]
    depth, chunk, mc, depth_all = block[45], block[46], block[51], block[52]
    group = block[54]
    sums = work + gemm.WORK
    decoded = sums + 4 * nr * mc
    for mb in range(ranges[0], ranges[1], mc):
        rows = min(mc, ranges[1] - mb)
        count = (rows + mr - 1) // mr  # of nearly equal height: the first ones have one row more
        height = rows // count
        split = (rows - height * count) * (height + 1)
        for col in range(ranges[2], ranges[3], nr):
            panel = packed + col // nr * block[43]
            zero_bytes(sums, 4 * nr * rows)
            k = 0
            while k < depth_all:
                now = min(chunk, depth_all - k)
                if chunk < depth:  # a chunk never reaches into another block
                    now = min(now, depth - k % depth)
                b = decode_chunk(block, work, panel, decoded, table, k, now)
                # codes of the next chunk, as in driver.linear_entry
                after = k + now
                ahead = panel + after // depth * record + after % depth // block[47] * 4 * nr
                share = ((now * record // depth // count) & -64) + 64
                r = 0
                while r < rows:
                    for line in range(0, share, 64):
                        ask_for(ahead + line)
                    ahead += share
                    tall = height + 1 if r < split else height
                    call(
                        get_s64(tiles, tall - 1), x + (mb + r) * pitch + k * block[53], pitch, (now + group - 1) // group,
                        0, b, 4 * nr, sums + 4 * nr * r, 4 * nr, 0, 0, 0, 0, nr, 1, 0, 0,
                    )  # fmt: skip
                    r += tall
                k += now
            put_s64(work, 0, sums)
            put_s64(work, 1, 4 * nr)
            put_s64(work, 2, mb)
            put_s64(work, 3, mb + rows)
            put_s64(work, 4, col)
            put_s64(work, 5, min(col + nr, n_total))
            if call_entry(finish, address_of(bases), address_of(block), work):
                return 1
    return 0
