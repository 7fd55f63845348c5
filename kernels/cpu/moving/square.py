"""Transposed copies of matrices, in squares that are turned in registers.

A square of L x L elements is L vectors from the source and L to the target. Interleaving row n with row n + L / 2, for
every n below L / 2, log2(L) times over, transposes it: each time the bits of an element's row and column number, written one
after the other, rotate by one place.

A result that is streamed (stores.py) is written in whole lines, from a band of rows of the source at a time.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from ..simd import Emitter, vector
from ..stores import LINE, store_past, streamed

LANES = {1: 16, 2: 8, 4: 8, 8: 4}  # of a square, by the bytes of an element
TILE = 64  # elements a side that are turned before the next: its pages stay in the first translation buffer


def _turn(item: int, lanes: int, past: bool) -> Any:
    kind = vector(ir.IntType(8 * item), lanes)

    @intrinsic
    def turn(typingctx: Any, target: Any, target_step: Any, source: Any, source_step: Any) -> Any:
        """Write the square at `source`, whose lines lie source_step bytes apart, turned to `target`."""

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            to, to_step, from_, from_step = args
            e = Emitter(builder)
            rows = [e.load(builder.add(from_, builder.mul(from_step, e.i64(n))), kind, 1) for n in range(lanes)]
            halves = [[n // 2 + lanes * (n % 2) + half for n in range(lanes)] for half in (0, lanes // 2)]
            for _ in range(lanes.bit_length() - 1):
                pairs = zip(rows[: lanes // 2], rows[lanes // 2 :], strict=True)
                rows = [e.shuffle(a, order, b) for a, b in pairs for order in halves]
            for n, row in enumerate(rows):
                place = builder.add(to, builder.mul(to_step, e.i64(n)))
                if past:
                    store_past(builder, row, e.pointer(place, kind))
                else:
                    e.store(row, place, 1)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 4), codegen

    return turn


def _square(item: int) -> Any:
    lanes, lines = LANES[item], LINE // item
    turn, streams = _turn(item, lanes, False), item >= 4
    turn_line = _turn(item, lines if streams else lanes, streams)

    @njit(nogil=True, error_model="numpy")
    def square(x: Any, y: Any, past: int) -> None:
        """y[...] = x[...] for two matrices of one shape, x contiguous down its columns and y along its rows.

        past   the result is streamed, where its rows begin at the same place of a line
        """
        rows, columns = y.shape
        from_, from_step, to, to_step = x.ctypes.data, x.strides[1], y.ctypes.data, y.strides[0]
        ahead = (-to % LINE) // item
        if streams and past and to % item == 0 and to_step % LINE == 0 and columns >= ahead + lines:
            first, whole_rows = ahead, rows - rows % lines
            whole_columns = columns - (columns - first) % lines
            for j in range(first, whole_columns, lines):
                for i in range(0, whole_rows, lines):
                    turn_line(to + i * to_step + j * item, to_step, from_ + j * from_step + i * item, from_step)
            streamed()
        else:
            first, whole_rows, whole_columns = 0, rows - rows % lanes, columns - columns % lanes
            for i0 in range(0, whole_rows, TILE):
                for j0 in range(0, whole_columns, TILE):
                    for i in range(i0, min(i0 + TILE, whole_rows), lanes):
                        for j in range(j0, min(j0 + TILE, whole_columns), lanes):
                            turn(to + i * to_step + j * item, to_step, from_ + j * from_step + i * item, from_step)
        for i in range(rows):
            for j in range(first if i < whole_rows else 0):
                y[i, j] = x[i, j]
            for j in range(whole_columns if i < whole_rows else first, columns):
                y[i, j] = x[i, j]

    return square


square1, square2, square4, square8 = (_square(item) for item in LANES)
