"""B that arrives at run time: packed by compiled code, and the planes of its columns folded.

packing.py does the same for constants, with NumPy, and says what the layouts are. Whole vectors of columns and whole
steps of K go through vector code where B has unit stride along one of its axes; what is left goes value by value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from .. import isa
from ..epilogues.epilogue import CONSTANTS, CONSTANTS_SIZE
from ..simd import (
    I8,
    I16,
    I32,
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
from .dot import DOTS
from .rows import ROW_SUM, ROW_ZERO

# Block of the pack entry: b (K, N), packed (bytes,), sums (N,) int32, then these. Ranges: n0, n1.
PACK_PARAMETERS = ("nr", "rest_width", "steps")
# Block of the fold entry: sums (N,), bias (N,) s32, multiplier (N,) f32 or s32, shift (N,) s32, a_zero_point (1,),
# b_zero_point (N,), record (64 bytes), columns (bytes,), then these. Size 0 where there is none, stride 0 where there
# is one for all. Zero points have the types of the operands. Ranges: n0, n1.
FOLD_PARAMETERS = ("plane", "a_shift", "b_shift", "terms", "signed_a", "signed_b")
_ZERO_POINT = CONSTANTS["a_zero_point"]


class _Strip(Emitter):
    """Some vectors of columns, all whole steps: `(target, pitch, source, k stride, n stride, steps, vectors, sums)`.

    Where B lies along N, all vectors of a step come before the next step, so that a cache line is read once; along K,
    all steps of a vector come first, for the same reason.
    """

    def __init__(self, level: isa.Level, dot: str, dtype: str, along_n: bool, made: Any):
        super().__init__(ir.IRBuilder(made.append_basic_block("entry")))
        self.lanes, self.dot, self.dtype = level.lanes, DOTS[dot], dtype
        self.kind = vector(I32, self.lanes)
        target, pitch, source, stride_k, stride_n, steps, vectors, sums = made.args
        ones = self.constant(self.kind, 0x01010101 if self.dot.group == 4 else 0x00010001)
        b = self.b
        outer, inner = (steps, vectors) if along_n else (vectors, steps)
        with cgutils.for_range(b, outer) as first, cgutils.for_range(b, inner) as second:
            step, j = (first.index, second.index) if along_n else (second.index, first.index)
            row = b.add(source, b.mul(b.mul(stride_k, self.i64(self.dot.group)), step))
            at = b.add(row, b.mul(b.mul(stride_n, self.i64(self.lanes)), j))
            values = self.interleaved(at, stride_k) if along_n else self.gathered(at, stride_n)
            place = b.mul(j, self.i64(4 * self.lanes))
            self.store(values, b.add(b.add(target, b.mul(pitch, step)), place), 4)
            total = b.add(sums, place)
            self.store(self.dot.emit(self, self.load(total, self.kind, 4), ones, values), total, 4)
        b.ret_void()

    def stored(self, values: Any) -> Any:
        """Bytes as packed: u8 with the top bit inverted where they stay bytes, else widened."""
        b = self.b
        if self.dot.group == 4:
            if self.dtype == "u8":
                values = b.xor(values, self.constant(values.type, 0x80))
            return b.bitcast(values, self.kind)
        widen = b.zext if self.dtype == "u8" else b.sext
        return b.bitcast(widen(values, vector(I16, 2 * self.lanes)), self.kind)

    def interleaved(self, source: Any, stride_k: Any) -> Any:
        """Rows of B side by side: value g of column c goes to byte c * group + g."""
        lanes, rows = self.lanes, []
        for _ in range(self.dot.group):
            rows.append(self.load(source, vector(I8, lanes), 1))
            source = self.b.add(source, stride_k)
        pair = [n for c in range(lanes) for n in (c, c + lanes)]
        if self.dot.group == 2:
            return self.stored(self.shuffle(rows[0], pair, rows[1]))
        halves = [self.b.bitcast(self.shuffle(rows[g], pair, rows[g + 1]), vector(I16, lanes)) for g in (0, 2)]
        return self.stored(self.b.bitcast(self.shuffle(halves[0], pair, halves[1]), vector(I8, 4 * lanes)))

    def gathered(self, source: Any, stride_n: Any) -> Any:
        """Columns of B contiguous along K: one load a column."""
        element = I32 if self.dot.group == 4 else I16
        values = ir.Constant(vector(element, self.lanes), ir.Undefined)
        for c in range(self.lanes):
            values = self.b.insert_element(values, self.load(source, element, 1), ir.Constant(I32, c))
            source = self.b.add(source, stride_n)
        return self.stored(self.b.bitcast(values, vector(I8, self.dot.group * self.lanes)))


def _strip(level: str, dot: str, dtype: str, along_n: bool) -> Any:
    def emit(module: Any) -> Any:
        name = f"strip_{level}_{dot}_{dtype}_{along_n}"
        made = module.globals.get(name)
        if made is None:
            made = function(module, name, 8, isa.restriction(isa.LEVELS[level]))
            _Strip(isa.LEVELS[level], dot, dtype, along_n, made)
        return made

    @intrinsic
    def strip(
        typingctx: Any, target: Any, pitch: Any, source: Any, sk: Any, sn: Any, steps: Any, n: Any, sums: Any
    ) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            builder.call(emit(builder.module), args)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 8), codegen

    return strip


def pack_entry(level: str, dot: str, dtype: str) -> Callable[..., Any]:
    """The entry that packs panels n0:n1 and sums their columns. n0 and n1 are multiples of nr, or n1 is N."""
    along_n, along_k = _strip(level, dot, dtype, True), _strip(level, dot, dtype, False)
    lanes, group = isa.LEVELS[level].lanes, DOTS[dot].group
    flip = 0x80 if group == 4 and dtype == "u8" else 0
    get = get_u8 if dtype == "u8" else get_s8

    @njit(error_model="numpy")
    def rest(target, pitch, source, stride_k, stride_n, k0, depth, columns, width, sums):
        """Values k0:depth of some columns; the columns up to width are zero."""
        for p in range(k0, depth):
            at = target + p // group * pitch
            for c in range(columns):
                value = get(source + p * stride_k, c * stride_n)
                if group == 4:
                    put_u8(at + p % 4, 4 * c, value ^ flip)
                    value -= flip
                else:
                    put_s16(at, 2 * c + p % 2, value)
                put_s32(sums, c, get_s32(sums, c) + value)

    def entry(bases, block, ranges):
        depth, columns, stride_k, stride_n = block[2], block[3], block[4], block[5]
        source = bases[block[0]] + block[1]
        packed, sums = bases[block[6]] + block[7], bases[block[10]] + block[11]
        nr, rest_width, steps = block[14], block[15], block[16]
        whole = depth // group
        for col in range(ranges[0], ranges[1], nr):
            width = nr if col + nr <= columns else rest_width
            have = min(columns - col, width)
            pitch = 4 * width
            panel = packed + 4 * col * steps
            fast = 0
            if whole and (stride_n == 1 or stride_k == 1):
                fast = have // lanes * lanes
            zero_bytes(sums + 4 * col, 4 * have)
            if fast:
                at = source + col * stride_n
                if stride_n == 1:
                    along_n(panel, pitch, at, stride_k, stride_n, whole, fast // lanes, sums + 4 * col)
                else:
                    along_k(panel, pitch, at, stride_k, stride_n, whole, fast // lanes, sums + 4 * col)
            if fast < width or depth % group or depth == 0:
                for s in range(whole if fast else 0, steps):
                    zero_bytes(panel + s * pitch, 4 * fast)
                for s in range(steps):
                    zero_bytes(panel + s * pitch + 4 * fast, pitch - 4 * fast)
                at = source + col * stride_n
                rest(panel, pitch, at, stride_k, stride_n, whole * group, depth, fast, width, sums + 4 * col)
                rest(
                    panel + 4 * fast, pitch, at + fast * stride_n, stride_k, stride_n, 0, depth, have - fast, width,
                    sums + 4 * (col + fast),
                )  # fmt: skip
        return np.int32(0)

    return entry


def fold_entry(bases, block, ranges):
    """Fold bias and zero points into the planes of columns n0:n1, as packing.fold does."""
    n0, n1 = ranges[0], ranges[1]
    sums = bases[block[0]] + block[1]
    bias, multiplier = bases[block[4]] + block[5], bases[block[8]] + block[9]
    shift, zeros = bases[block[12]] + block[13], bases[block[20]] + block[21]
    columns = bases[block[28]] + block[29]
    plane, terms, signed_b = block[32], block[35], block[37]
    za = 0
    if block[18]:
        at = bases[block[16]] + block[17]
        za = get_s8(at, 0) if block[36] else np.int64(get_u8(at, 0))
    if not terms & ROW_ZERO:
        za += block[33]
    if n0 == 0:
        copy_bytes(columns, bases[block[24]] + block[25], CONSTANTS_SIZE)
        put_s32(columns + _ZERO_POINT, 0, za)
    columns += CONSTANTS_SIZE
    asymmetric = 3 if terms & ROW_ZERO else 2
    for n in range(n0, n1):
        total = get_s32(sums, n)
        start = -za * total
        if block[6]:
            start += get_s32(bias + n * block[7], 0)
        put_s32(columns, n, start)
        if block[10]:
            put_s32(columns + plane, n, get_s32(multiplier + n * block[11], 0))
        if block[14]:
            put_s32(columns + 4 * plane, n, 31 - get_s32(shift + n * block[15], 0))
        if terms & ROW_ZERO:
            put_s32(columns + 2 * plane, n, total)
        if terms & ROW_SUM:
            zb = block[34]
            if block[22]:
                zb += get_s8(zeros + n * block[23], 0) if signed_b else np.int64(get_u8(zeros + n * block[23], 0))
            put_s32(columns + asymmetric * plane, n, zb)
    return np.int32(0)
