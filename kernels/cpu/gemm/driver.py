"""gemm on the CPU: one rectangle of the output, from rows of A and packed B, through the micro-kernels.

kernels/reference/gemm.py says what it computes; this file only reorders the work. The driver is one function for all
types, epilogues and instruction sets: it reaches the micro-kernels by address, so a new specialisation compiles tiles
and nothing else.
"""

from __future__ import annotations

from ..epilogues.epilogue import CONSTANTS_SIZE
from ..integers import native_entry
from ..simd import address_of, call_entry, get_s64, put_s64
from .microkernel import call

# Operands of the driver's block, in order, and the word that each begins at (kernels/entry.py).
OPERANDS = {
    "a": 0,  # (M, K), any strides
    "packed_b": 6,  # (bytes,) packing.PanelLayout
    "out": 10,  # (M, N), any row stride; inner stride of one element unless there is a finish
    "columns": 16,  # (bytes,) packing.Columns
    "row_zero_points": 20,  # (M,) of A's type; size 0 if A has one zero point
    "residual": 24,  # (M, N); size 0 if there is none
    "table": 30,  # (256,); size 0 if there is none
    "scratch": 34,  # (bytes,), one per thread
}
PARAMETERS = 38
# Parameters that follow, by position.
NAMES = (
    "full_tiles",  # address of an int64 table: address of the tile with r + 1 rows at [r], for full panels
    "rest_tiles",  # the same for the last, narrower panel
    "full_resume",  # tiles that continue from an int32 tile, where K is split
    "rest_resume",
    "full_finish",  # address of an entry that takes int32 tiles to `out`; 0 if full panels' tiles store by themselves
    "rest_finish",  # the same for the last panel
    "prepare",  # address of the entry that copies rows of A and finds their factors (rows.py); 0 if not needed
    "mr",  # rows of the tallest tile
    "nr",  # columns of a full panel
    "rest_width",  # columns of the last panel as packed
    "steps",  # steps of K in packed B
    "item",  # bytes of one element of `out`
    "plane",  # bytes of a column plane
    "mc",  # rows of A that stay in L2
    "kc",  # steps of K per pass; `steps` if K is not split
    "copied",  # bytes between copied rows; 0 if tiles read A in place
    "read_a",  # how rows are copied: rows.COPY, WIDEN_U8, WIDEN_S8
    "terms",  # rows.ROW_ZERO + rows.ROW_SUM: which factors rows have
    "signed_a",  # whether A's bytes are s8: row sums
    "a_shift",  # what storing A adds to its zero points
    "tail",  # bytes of K after the last whole step, where rows are read in place
    "own",  # whether the output is too large for L2 (microkernel.ARGUMENTS)
)
WORDS = PARAMETERS + len(NAMES)
HELD = 4  # tiles that are finished together: one after the other costs 4.7 ns a vector more on Zen 4
WORK = 2048  # bytes at the start of scratch: the ranges that a prepare or finish entry gets, and room for its rows


@native_entry
def gemm_entry(bases, block, ranges):
    """Compute rows m0:m1 and columns n0:n1. n0 is a multiple of nr; so is n1, unless it is N.

    A finish entry gets as its ranges: address and row pitch of an int32 tile, then m0, m1, n0, n1 of what it holds.
    A prepare entry gets the addresses of factors and copied rows, then m0, m1.
    """
    a, lda = bases[block[0]] + block[1], block[4]
    packed = bases[block[6]] + block[7]
    out, n_total, ldc = bases[block[10]] + block[11], block[13], block[14]
    constants = bases[block[16]] + block[17]
    work = bases[block[34]] + block[35]
    mr, nr, steps, item, mc, kc, copied = block[45], block[46], block[48], block[49], block[51], block[52], block[53]
    tail, own = block[58], block[59]
    whole = kc == steps
    factors = work + WORK
    tile_at = factors + ((8 * mc + 63) & -64)
    rows_at = tile_at + 4 * nr * (HELD * mr if whole else mc)

    for mb in range(ranges[0], ranges[1], mc):
        rows = min(mc, ranges[1] - mb)
        a_rows, a_step = a + mb * lda, lda
        if block[44]:
            put_s64(work, 0, factors)
            put_s64(work, 1, rows_at)
            put_s64(work, 2, mb)
            put_s64(work, 3, mb + rows)
            call_entry(block[44], address_of(bases), address_of(block), work)
            if copied:
                a_rows, a_step = rows_at, copied
        tiles = (rows + mr - 1) // mr  # of nearly equal height: the first ones have one row more
        height = rows // tiles
        split = (rows - height * tiles) * (height + 1)
        for col in range(ranges[2], ranges[3], nr):
            last = 0 if col + nr <= n_total else 1  # the last panel's words follow those of full ones
            pitch, finish, table = 4 * block[46 + last], block[42 + last], block[38 + last]
            valid = min(n_total - col, nr)
            done = 0
            while done < steps:
                ends = done + kc >= steps
                now = steps - done if ends else kc
                rest = tail if ends else 0
                r = first = 0  # rows from `first` on wait to be finished
                while r < rows:
                    tall = height + 1 if r < split else height
                    c, c_step = out + (mb + r) * ldc + col * item, ldc
                    if finish:
                        c, c_step = tile_at + (r - first) * pitch, pitch
                    call(
                        get_s64(table, tall - 1), a_rows + r * a_step + 4 * done, a_step,
                        now - (1 if rest else 0), rest, packed + 4 * col * steps + done * pitch, pitch, c, c_step,
                        constants + CONSTANTS_SIZE + 4 * col, block[50], factors + 8 * r, constants, valid, 1, 0, own,
                    )  # fmt: skip
                    r += tall
                    if finish and ends and (r == rows or (whole and r - first > (HELD - 1) * mr)):
                        put_s64(work, 0, tile_at)
                        put_s64(work, 1, pitch)
                        put_s64(work, 2, mb + first)
                        put_s64(work, 3, mb + r)
                        put_s64(work, 4, col)
                        put_s64(work, 5, col + valid)
                        first = r
                        if call_entry(finish, address_of(bases), address_of(block), work):
                            return 1
                done += now
                table = block[40 + last]
    return 0
