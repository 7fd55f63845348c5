"""Codes of a run of elements with one scale, as LLVM IR: by the inverse of the scale, as a division costs more than the rest.

    clip(rint(x / scale) + zero_point), NaN to the zero point

Three roundings, of the inverse, the product and the quotient, keep guess and quotient within 1.5 * 2**-23 of each other:
of what does not saturate, below 2**9, less than 2**-13. Only a tie as near tells them apart. Pieces with an element that
may be rounded to another code than the quotient would be are divided, and all where the inverse may not be a number.
Float32 that fill four vectors are bracketed instead (kernels/cpu/nearest.py), which takes half as many instructions.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ....primitives import dtypes
from ...floatops import bits, f32, fabs, from_bits, select
from ...reference.quantize import quantize
from .. import isa
from ..elements import memory
from ..nearest import BIAS, Codes, some_of
from ..simd import I8, I32, I64, Emitter, function
from ..vectormath import F32, Lanes, native_operations
from .bodies import codes
from .passes import BYTES, COUNT, FOLDS, Writer

PIECE = 128  # elements that are divided where one of them is nearly a tie
NEAR = f32(0.5 - 2.0**-13)


def near_of(scale: Any) -> Any:
    """How far a guess may be from its code; nothing is near enough where the inverse of the scale is out of bounds."""
    return select(scale > f32(2.0**-100), select(scale < f32(2.0**100), NEAR, f32(-1.0)), f32(-1.0))


def chunks(lanes: Writer, first: Any, end: Any, each: Callable[[Any, Any], None]) -> None:
    """`each(p, mask)` over whole vectors of first .. end, then over what is left."""
    b = lanes.b
    count = b.sub(end, first)
    whole = b.add(first, b.and_(count, ir.Constant(I64, -COUNT)))
    with cgutils.for_range_slice(b, first, whole, ir.Constant(I64, COUNT)) as (p, _):
        each(p, None)
    rest = b.sub(end, whole)
    with b.if_then(b.icmp_signed(">", rest, ir.Constant(I64, 0))):
        each(whole, lanes.first(b.trunc(rest, I32)))


class CodeRun:
    """Writes the loops over a run. What is the same for all elements comes as vectors.

    source, dtype  of the elements and the codes, of 8 bits
    low, high      ends of the codes that are used
    level          name of the instruction set
    """

    def __init__(self, lanes: Writer, source: str, dtype: str, low: int, high: int, level: str) -> None:
        self.lanes, self.source, self.dtype = lanes, source, dtype
        self.bracketed = Codes(isa.LEVELS[level], False, low, high, 255)
        self.low, self.high = f32(low), f32(high)
        self.kind = ir.VectorType(F32, COUNT)

    def write(
        self, n: Any, x: Any, y: Any, scale: Lanes, inverse: Lanes, zero: Lanes, near: Any, ahead: Any = None
    ) -> None:
        """ahead: so many bytes on is what is read next, and is asked for; 0: it is not."""
        b, lanes = self.lanes.b, self.lanes
        least, most = self.low - zero, self.high - zero
        whole = lanes.value(b.fptosi(zero.value, ir.VectorType(I32, COUNT)), "i")
        farthest, divided = FOLDS["farthest"][2], codes(self.low, self.high)
        off = cgutils.alloca_once(b, self.kind)
        numbers = self._bracket(inverse, zero, near) if self.source == "f32" else []
        with cgutils.for_range_slice(b, ir.Constant(I64, 0), n, ir.Constant(I64, PIECE)) as (first, _):
            end = b.add(first, ir.Constant(I64, PIECE))
            end = b.select(b.icmp_signed("<", end, n), end, n)
            b.store(lanes.constant(0.0), off)
            if ahead is not None:
                self._ask(b.add(x, b.add(ahead, b.mul(first, ir.Constant(I64, BYTES[self.source])))), ahead)

            def guess(p: Any, mask: Any) -> None:
                g = lanes.load(self.source, x, p, mask) * inverse
                g = select(g < least, least, g)
                g = select(g > most, most, g)
                number = g.primitive("nearest_int", g)
                lanes.store(self.dtype, y, p, number + whole, mask)
                apart = fabs(lanes.value(b.sitofp(number.value, self.kind), "f") - g)
                b.store(farthest(lanes.value(b.load(off), "f"), apart).value, off)

            def divide(p: Any, mask: Any) -> None:
                lanes.store(self.dtype, y, p, divided(lanes.load(self.source, x, p, mask), scale, zero), mask)

            middle, apart = self._quick(first, end, x, y, numbers) if numbers else (first, None)
            chunks(lanes, middle, end, guess)
            doubt = b.fcmp_unordered(">", b.load(off), near)
            some = b.icmp_unsigned("!=", b.bitcast(doubt, ir.IntType(COUNT)), ir.Constant(ir.IntType(COUNT), 0))
            some = some if apart is None else b.or_(some, apart)
            with b.if_then(some, likely=False):
                chunks(lanes, first, end, divide)

    def _ask(self, address: Any, ahead: Any) -> None:
        """Prefetch a piece, if it is `ahead` of what is read now."""
        e = Emitter(self.lanes.b)
        with e.b.if_then(e.b.icmp_signed("!=", ahead, e.i64(0))):
            for line in range(0, PIECE * BYTES[self.source], 64):
                e.prefetch(e.offset(address, line), keep=2)

    def _bracket(self, inverse: Lanes, zero: Lanes, near: Any) -> list[Any]:
        """What elements are multiplied by to be below and above, and what is added: kernels/cpu/nearest.py."""
        b, word = self.lanes.b, bits(inverse)
        above = select(self.lanes.value(near, "f") > f32(0.0), from_bits(word + 4), f32(np.nan))
        found = (from_bits(word - 4), above, zero + f32(BIAS), zero)
        return [b.extract_element(x.value, ir.Constant(I32, 0)) for x in found]

    def _quick(self, first: Any, end: Any, x: Any, y: Any, numbers: list[Any]) -> tuple[Any, Any]:
        """Codes of what fills four vectors: how far that is, and whether one is in doubt."""
        b, width = self.lanes.b, self.bracketed.width
        middle = b.add(first, b.and_(b.sub(end, first), ir.Constant(I64, -width)))
        kind = ir.VectorType(I32, width // 4)
        apart = cgutils.alloca_once(b, kind)
        b.store(ir.Constant(kind, None), apart)
        with cgutils.for_range_slice(b, first, middle, ir.Constant(I64, width)) as (p, _):
            places = b.add(x, b.mul(p, ir.Constant(I64, 4))), b.add(y, p)
            found = self.bracketed.step(Emitter(b), width // 4, *places, [numbers] * 4)
            b.store(b.or_(b.load(apart), found), apart)
        return middle, b.icmp_unsigned("!=", some_of(Emitter(b), b.load(apart)), ir.Constant(I32, 0))


@cache
def run_quantizer(source: str, dtype: str, level: str) -> Any:
    """An intrinsic `(n, y, y_step, x, x_step, scale, zero_point)`: n elements, all codes of the type.

    y, x   addresses of the first ones, and bytes from one to the next. Where these are not next to each other, pieces are
           copied together first
    """

    @intrinsic
    def run(typingctx: Any, n: Any, y: Any, y_step: Any, x: Any, x_step: Any, scale: Any, zero: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            name = f"quantize_run_{source}_{dtype}"
            made = builder.module.globals.get(name)
            if made is None:
                made = function(builder.module, name, 7)
                _write(made, native_operations(*context.codegen().magic_tuple()), source, dtype, level)
            zero = context.cast(builder, args[6], signature.args[6], types.int64)
            word = builder.zext(builder.bitcast(args[5], I32), I64)
            builder.call(made, [*args[:5], word, zero])
            return context.get_dummy_value()

        return types.void(*[types.int64] * 5, types.float32, zero), codegen

    def plain(n: int, y: int, y_step: int, x: int, x_step: int, scale: Any, zero: Any) -> None:
        stored = dtypes.get(source).numpy
        info = dtypes.get(dtype)
        ends = {"lo": int(info.min), "hi": int(info.max), "dtype": info.numpy}
        memory(y, info.numpy, n, y_step)[:] = quantize(memory(x, stored, n, x_step), scale, zero, **ends)

    run.plain = plain
    return run


def _write(made: Any, native: frozenset[str], source: str, dtype: str, level: str) -> None:
    b = ir.IRBuilder(made.append_basic_block("entry"))
    lanes = Writer(b, native)
    n, y, y_step, x, x_step, scale, zero = made.args
    info, item = dtypes.get(dtype), BYTES[source]
    scale = lanes.value(lanes.splat(b.bitcast(b.trunc(scale, I32), F32)), "f")
    zero = lanes.value(lanes.splat(b.sitofp(zero, F32)), "f")
    given = (scale, f32(1.0) / scale, zero, near_of(scale).value)
    run = CodeRun(lanes, source, dtype, int(info.min), int(info.max), level)
    apart = b.or_(b.icmp_signed("!=", x_step, ir.Constant(I64, item)), b.icmp_signed("!=", y_step, ir.Constant(I64, 1)))
    with b.if_else(b.and_(apart, b.icmp_signed(">", n, ir.Constant(I64, 1)))) as (strided, together):
        with together:
            run.write(n, x, y, *given)
        with strided:
            wide = ir.IntType(8 * item)
            buffers = [cgutils.alloca_once(b, ir.ArrayType(kind, PIECE)) for kind in (wide, I8)]
            near, coded = (b.ptrtoint(buffer, I64) for buffer in buffers)
            with cgutils.for_range_slice(b, ir.Constant(I64, 0), n, ir.Constant(I64, PIECE)) as (first, _):
                count = b.sub(n, first)
                count = b.select(b.icmp_signed("<", count, ir.Constant(I64, PIECE)), count, ir.Constant(I64, PIECE))
                _copy(b, count, wide, near, ir.Constant(I64, item), b.add(x, b.mul(first, x_step)), x_step)
                run.write(count, near, coded, *given)
                _copy(b, count, I8, b.add(y, b.mul(first, y_step)), y_step, coded, ir.Constant(I64, 1))
    b.ret_void()


def _copy(b: Any, count: Any, kind: Any, target: Any, by: Any, source: Any, step: Any) -> None:
    with cgutils.for_range(b, count, intp=I64) as loop:
        ends = [
            b.inttoptr(b.add(at, b.mul(loop.index, d)), kind.as_pointer()) for at, d in ((target, by), (source, step))
        ]
        loaded = b.load(ends[1])
        loaded.align = 1
        b.store(loaded, ends[0]).align = 1
