"""What has to happen to rows of A before tiles can read them: copies at unit stride, widening, and row sums.

A copied row holds the values of K one after the other, as bytes or as int16, and zeros up to whole steps. Rows that
already lie so are read in place. The entries here are called by the driver, once for each block of mc rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from ..epilogues.epilogue import CONSTANTS
from ..simd import (
    I8,
    I16,
    I32,
    I64,
    Emitter,
    copy_bytes,
    function,
    get_s8,
    get_s32,
    get_u8,
    put_s16,
    put_s32,
    put_u8,
    vector,
    zero_bytes,
)

COPY, WIDEN_U8, WIDEN_S8 = 1, 2, 3
ROW_ZERO, ROW_SUM = 1, 2
_ZERO_POINT = CONSTANTS["a_zero_point"]
BLOCK = 16  # rows and values of K that are transposed at once


def _transposer(read_a: int) -> Any:
    """An intrinsic `(target, pitch, source, stride)`: 16 values of K for 16 rows that lie side by side.

    Source holds the rows of one k in 16 consecutive bytes, `stride` from one k to the next. Four rounds of
    interleaving transpose the block in registers: 4 times as fast as byte by byte.
    """

    def emit(module: Any) -> Any:
        name = f"transpose_{read_a}"
        made = module.globals.get(name)
        if made is not None:
            return made
        made = function(module, name, 4)
        e = Emitter(ir.IRBuilder(made.append_basic_block("entry")))
        target, pitch, source, stride = made.args
        bytes_ = vector(I8, BLOCK)
        block = []
        for _ in range(BLOCK):
            block.append(e.load(source, bytes_, 1))
            source = e.b.add(source, stride)
        low = [n for i in range(8) for n in (i, i + 16)]
        high = [n + 8 for n in low]
        for _ in range(4):
            block = [
                x
                for i in range(8)
                for x in (e.shuffle(block[i], low, block[i + 8]), e.shuffle(block[i], high, block[i + 8]))
            ]
        for row in block:
            if read_a != COPY:
                row = (e.b.zext if read_a == WIDEN_U8 else e.b.sext)(row, vector(I16, BLOCK))
            e.store(row, target, 1)
            target = e.b.add(target, pitch)
        e.b.ret_void()
        return made

    @intrinsic
    def transpose(typingctx: Any, target: Any, pitch: Any, source: Any, stride: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            builder.call(emit(builder.module), args)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 4), codegen

    return transpose


def _copier(read_a: int) -> Callable[..., None]:
    """`copy(target, pitch, width, source, row_stride, stride, rows, depth)` for one way of reading."""
    transpose = _transposer(read_a)
    size = 1 if read_a == COPY else 2
    get = get_s8 if read_a == WIDEN_S8 else get_u8
    put = put_u8 if read_a == COPY else put_s16

    @njit(error_model="numpy")
    def along(target, source, stride, depth):
        for p in range(depth):
            put(target, p, get(source, p * stride))

    @njit(error_model="numpy")
    def contiguous(target, source, depth):
        for p in range(depth):
            put(target, p, get(source, p))

    @njit(error_model="numpy")
    def copy(target, pitch, width, source, row_stride, stride, rows, depth):
        for r in range(rows):
            zero_bytes(target + r * pitch + depth * size, width - depth * size)
        if row_stride == 1 and stride != 1:
            r1, p1 = rows & -16, depth & -16
            for r in range(0, r1, 16):
                for p in range(0, p1, 16):
                    transpose(target + r * pitch + p * size, pitch, source + r + p * stride, stride)
                for q in range(r, r + 16):
                    along(target + q * pitch + p1 * size, source + q + p1 * stride, stride, depth - p1)
            for r in range(r1, rows):
                along(target + r * pitch, source + r, stride, depth)
            return
        for r in range(rows):
            if stride != 1:
                along(target + r * pitch, source + r * row_stride, stride, depth)
            elif size == 1:
                copy_bytes(target + r * pitch, source + r * row_stride, depth)
            else:
                contiguous(target + r * pitch, source + r * row_stride, depth)

    return copy  # type: ignore[no-any-return]


def copy_entry(read_a: int) -> Callable[..., Any]:
    """A prepare entry that copies rows."""
    copy = _copier(read_a)

    def entry(bases, block, ranges):
        source = bases[block[0]] + block[1] + ranges[2] * block[4]
        width = 4 * block[48]
        copy(ranges[1], block[53], width, source, block[4], block[5], ranges[3] - ranges[2], block[3])
        return np.int32(0)

    return entry


def _summer(signed: bool) -> Any:
    """An intrinsic `(source, stride, depth) -> int32`, the sum of a row. Written as IR: Numba takes half a second."""

    @intrinsic
    def row_sum(typingctx: Any, source: Any, stride: Any, depth: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            source, stride, depth = args
            total = cgutils.alloca_once_value(builder, ir.Constant(I32, 0))
            start = builder.inttoptr(source, I8.as_pointer())

            def add(place: Any) -> None:
                value = builder.load(builder.gep(start, [place]))
                value = (builder.sext if signed else builder.zext)(value, I32)
                builder.store(builder.add(builder.load(total), value), total)

            with builder.if_else(builder.icmp_signed("==", stride, ir.Constant(I64, 1))) as (unit, strided):
                with unit, cgutils.for_range(builder, depth) as p:
                    add(p.index)
                with strided, cgutils.for_range(builder, depth) as p:
                    add(builder.mul(p.index, stride))
            return builder.load(total)

        return types.int32(types.int64, types.int64, types.int64), codegen

    return row_sum


def factors_entry(read_a: int, signed: bool) -> Callable[..., Any]:
    """A prepare entry that finds the factors of the rows, and copies them too unless read_a is 0.

    A pair of int32 for each row: -za where rows have zero points of their own, then K * za - rowsum.
    """
    copy = _copier(read_a) if read_a else None
    get = get_s8 if signed else get_u8
    row_sum = _summer(signed)

    def entry(bases, block, ranges):
        m0, rows, depth, lda, stride = ranges[2], ranges[3] - ranges[2], block[3], block[4], block[5]
        source = bases[block[0]] + block[1] + m0 * lda
        if copy is not None:
            copy(ranges[1], block[53], 4 * block[48], source, lda, stride, rows, depth)
        target, terms, shift = ranges[0], block[55], block[57]
        zeros = bases[block[20]] + block[21] + m0 * block[23]
        stored = get_s32(bases[block[16]] + block[17] + _ZERO_POINT, 0)  # shift included
        for r in range(rows):
            slot = 0
            za = stored
            if terms & ROW_ZERO:
                za = get(zeros + r * block[23], 0) + shift
                put_s32(target + 8 * r, 0, -za)
                slot = 1
            if terms & ROW_SUM:
                put_s32(target + 8 * r, slot, depth * (za - shift) - row_sum(source + r * lda, stride, depth))
        return np.int32(0)

    return entry
