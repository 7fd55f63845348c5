"""The integer path of linear on the CPU: one rectangle of the output, from rows of quantized x and packed weights.

kernels/reference/linear.py says what it computes; this file only reorders the work. The words of its operands are those
of gemm.OPERANDS, so that sums leave through the same finish entries.
"""

from __future__ import annotations

from ..gemm import driver as gemm
from ..gemm.microkernel import call
from ..integers import native_entry
from ..simd import address_of, ask_for, call_entry, get_s64, put_s64, zero_bytes

# Parameters, by position. As many as gemm.NAMES, with the plane where finish entries look for it.
NAMES = (
    "tiles",  # address of an int64 table: address of the tile with r + 1 rows at [r]
    "unpack",  # address of what unpacks a pass of a panel; 0 if tiles read packed panels
    "finish",  # address of the entry that takes float32 sums to the output
    "mr",  # rows of the tallest tile
    "nr",  # columns of a panel
    "panel",  # bytes of a packed panel
    "record",  # bytes of its records
    "blocks",  # blocks along K
    "per",  # blocks that a pass takes
    "unpacked",  # bytes of a record as unpacked
    "units",  # of a block
    "x_block",  # bytes of a block of x
    "plane",  # bytes of a column plane
    "mc",  # rows of x that stay in L2
    "shared",  # blocks after a record of factors; 0 if there are none
    "factors",  # bytes of that record
    "wide",  # panels whose sums leave together
)
FILL = len(gemm.NAMES) - len(NAMES)  # words without meaning that follow


@native_entry
def linear_entry(bases, block, ranges):
    """Compute rows m0:m1 and columns n0:n1. n0 is a multiple of nr; so is n1, unless it is N."""
    x, pitch = bases[block[0]] + block[1], block[4]
    packed = bases[block[6]] + block[7]
    table, work = bases[block[30]] + block[31], bases[block[34]] + block[35]
    tiles, unpack, finish, mr, nr, record = block[38], block[39], block[40], block[41], block[42], block[44]
    blocks, per, units, x_block, mc = block[45], block[46], block[48], block[49], block[51]
    sums = work + gemm.WORK
    width = nr * block[54]
    unpacked = sums + 4 * width * mc
    for mb in range(ranges[0], ranges[1], mc):
        rows = min(mc, ranges[1] - mb)
        count = (rows + mr - 1) // mr  # of nearly equal height: the first ones have one row more
        height = rows // count
        split = (rows - height * count) * (height + 1)
        for col in range(ranges[2], ranges[3], width):
            zero_bytes(sums, 4 * width * rows)
            until = min(col + width, ranges[3])
            for first in range(col, until, nr):
                panel = packed + first // nr * block[43]
                done = 0
                while done < blocks:
                    now = min(per, blocks - done)
                    b, b_step = panel + done * record, record
                    if block[52]:
                        b += done // block[52] * block[53]
                    # codes of the next pass come from L3 or memory while this one is multiplied: a stream of so few
                    # bytes is over before the hardware has seen that it is one
                    ahead = b + now * record
                    if unpack:
                        call(unpack, unpacked, block[47], units, 0, b, record, 0, 0, 0, 0, 0, table, 0, now, 0, 0)
                        b, b_step = unpacked, block[47]
                    share = ((now * record // count) & -64) + 64 if unpack else 0
                    r = 0
                    while r < rows:
                        for line in range(0, share, 64):
                            ask_for(ahead + line)
                        ahead += share
                        tall = height + 1 if r < split else height
                        call(
                            get_s64(tiles, tall - 1), x + (mb + r) * pitch + done * x_block, pitch, units, 0, b, b_step,
                            sums + 4 * (width * r + first - col), 4 * width, 0, 0, 0, table, 0, now, x_block, 0,
                        )  # fmt: skip
                        r += tall
                    done += now
            put_s64(work, 0, sums)
            put_s64(work, 1, 4 * width)
            put_s64(work, 2, mb)
            put_s64(work, 3, mb + rows)
            put_s64(work, 4, col)
            put_s64(work, 5, until)
            if call_entry(finish, address_of(bases), address_of(block), work):
                return 1
    return 0
