"""What a pool does with the channels of one tap, as LLVM IR, and where its windows lie.

As text of the tile these loops take Numba longer than all the rest of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .elements import memory
from .simd import F32, I64, Emitter, vector

WIDE, LANES = 64, 16  # bytes at once, then elements at once, then one


def _widths(item: int) -> list[int]:
    return sorted({WIDE // item, LANES, 1}, reverse=True)


def _over(builder: Any, n: Any, widths: list[int], runs: Any, body: Callable[[Any, int], None]) -> None:
    """Loops over n elements, the widest first; body(p, count) does `count` of them from p on: one unless they are runs."""
    begin: Any = ir.Constant(I64, 0)
    for width in widths:
        end = (
            builder.and_(n, ir.Constant(I64, -width))
            if width == 1
            else builder.and_(builder.select(runs, n, ir.Constant(I64, 0)), ir.Constant(I64, -width))
        )
        with cgutils.for_range_slice(builder, begin, end, ir.Constant(I64, width)) as (p, _):
            body(p, width)
        begin = end


def _element(dtype: Any) -> Any:
    return F32 if isinstance(dtype, types.Float) else ir.IntType(dtype.bitwidth)


def _item(element: Any) -> int:
    return 4 if element == F32 else int(element.width) // 8


def _spread(context: Any, builder: Any, kind: Any, array: Any) -> Any:
    """Bytes from one channel to the next: the stride of an array's last axis."""
    return cgutils.unpack_tuple(builder, context.make_array(kind)(context, builder, array).strides)[-1]


def _are_runs(builder: Any, *spreads: tuple[Any, Any]) -> Any:
    """Whether elements of these types lie at these distances without gaps."""
    found = None
    for element, spread in spreads:
        here = builder.icmp_signed("==", spread, ir.Constant(I64, _item(element)))
        found = here if found is None else builder.and_(found, here)
    return found


def _row(e: Emitter, address: Any, element: Any, spread: Any, p: Any, width: int) -> Any:
    """The address of element p of a row, and the type of `width` of them."""
    return e.b.add(address, e.b.mul(p, spread)), vector(element, width) if width > 1 else element


def _fold(e: Emitter, at: Any, kind: Any, source: Any, step: Any, taps: Any, join: Callable[[Any, Any], Any]) -> None:
    """The value at an address joined with those of `taps` places, `step` bytes apart, in their order."""
    total = cgutils.alloca_once_value(e.b, e.load(at, kind, 1))
    with cgutils.for_range(e.b, taps) as loop:
        e.b.store(join(e.b.load(total), e.b.add(source, e.b.mul(loop.index, step))), total)
    e.store(e.b.load(total), at, 1)


@intrinsic
def keep_larger(typingctx: Any, x: Any, y: Any, out: Any, row: Any, n: Any, taps: Any, step: Any) -> Any:
    """out[i] = row[i] where that is larger, or NaN, for `taps` rows, `step` bytes apart; i goes along the last axes."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        e, element = Emitter(builder), _element(y.dtype)
        near, far = (_spread(context, builder, *each) for each in ((x, args[0]), (y, args[1])))

        def body(p: Any, width: int) -> None:
            at, kind = _row(e, args[2], element, far, p, width)

            def join(old: Any, place: Any) -> Any:
                new = e.load(place, kind, 1)
                if element == F32:
                    larger = builder.or_(builder.fcmp_ordered(">", new, old), builder.fcmp_unordered("!=", new, new))
                else:
                    larger = (builder.icmp_signed if y.dtype.signed else builder.icmp_unsigned)(">", new, old)
                return builder.select(larger, new, old)

            _fold(e, at, kind, _row(e, args[3], element, near, p, width)[0], args[6], args[5], join)

        runs = _are_runs(builder, (element, near), (element, far))
        _over(builder, args[4], _widths(_item(element)), runs, body)
        return context.get_dummy_value()

    return types.void(x, y, *[types.int64] * 5), codegen


@intrinsic
def add_rows(typingctx: Any, totals: Any, x: Any, out: Any, row: Any, n: Any, taps: Any, step: Any) -> Any:
    """out[i] = out[i] + row[i] for `taps` rows, `step` bytes apart; i goes along the last axes."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        e, wide, element = Emitter(builder), _element(totals.dtype), _element(x.dtype)
        far, near = (_spread(context, builder, *each) for each in ((totals, args[0]), (x, args[1])))

        def body(p: Any, width: int) -> None:
            at, kind = _row(e, args[2], wide, far, p, width)
            source, narrow = _row(e, args[3], element, near, p, width)

            def join(old: Any, place: Any) -> Any:
                new = e.load(place, narrow, 1)
                if wide == F32:
                    return builder.fadd(old, new)
                return builder.add(old, (builder.sext if x.dtype.signed else builder.zext)(new, kind))

            _fold(e, at, kind, source, args[6], args[5], join)

        _over(builder, args[4], [LANES, 1], _are_runs(builder, (wide, far), (element, near)), body)
        return context.get_dummy_value()

    return types.void(totals, x, *[types.int64] * 5), codegen


@intrinsic
def fill_row(typingctx: Any, y: Any, out: Any, value: Any, n: Any) -> Any:
    """out[i] = value; i goes along y's last axis."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        e, element = Emitter(builder), _element(y.dtype)
        spread = _spread(context, builder, y, args[0])
        one = context.cast(builder, args[2], signature.args[2], y.dtype)

        def body(p: Any, width: int) -> None:
            e.store(e.splat(one, width) if width > 1 else one, _row(e, args[1], element, spread, p, width)[0], 1)

        _over(builder, args[3], _widths(_item(element)), _are_runs(builder, (element, spread)), body)
        return context.get_dummy_value()

    return types.void(y, types.int64, value, types.int64), codegen


def window_plain(
    i: int,
    n: int,
    outputs: int,
    size: int,
    stride: int,
    before: int,
    after: int,
    step: int,
    adaptive: int,
    padding: int,
) -> tuple[int, int, int]:
    """Of window i along an axis of n: the first position inside, how many taps are inside, how many count in a mean."""
    if adaptive:
        first = i * n // outputs
        taps = ((i + 1) * n + outputs - 1) // outputs - first
        return first, taps, max(taps, 1)
    at = i * stride - before
    skipped = (-at + step - 1) // step if at < 0 else 0
    first = at + skipped * step
    taps = max(min(size - skipped, (n - first + step - 1) // step), 0)
    counted = min(size, (n + after - at + step - 1) // step) if padding else taps
    return first, taps, max(counted, 1)


@intrinsic
def window(
    typingctx: Any, i: Any, n: Any, outputs: Any, size: Any, stride: Any, before: Any, after: Any, step: Any,
    adaptive: Any, padding: Any,
) -> Any:  # fmt: skip
    """`window_plain` in code; what is divided is never below 0 where its quotient counts."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        i, n, outputs, size, stride, before, after, step, adaptive, padding = args
        b, zero, one = builder, ir.Constant(I64, 0), ir.Constant(I64, 1)

        def least(x: Any, y: Any) -> Any:
            return b.select(b.icmp_signed("<", x, y), x, y)

        def most(x: Any, y: Any) -> Any:
            return b.select(b.icmp_signed(">", x, y), x, y)

        def steps(x: Any, by: Any) -> Any:
            """ceil(x / by), 0 where x is below."""
            return b.sdiv(b.add(most(x, zero), b.sub(by, one)), by)

        fixed = b.icmp_signed("==", adaptive, zero)
        many = most(outputs, one)
        begin = b.sdiv(b.mul(i, n), many)
        among = b.sub(steps(b.mul(b.add(i, one), n), many), begin)
        at = b.sub(b.mul(i, stride), before)
        skipped = steps(b.sub(zero, at), step)
        first = b.add(at, b.mul(skipped, step))
        taps = most(least(b.sub(size, skipped), steps(b.sub(n, first), step)), zero)
        whole = least(size, steps(b.sub(b.add(n, after), at), step))
        counted = b.select(b.icmp_signed("==", padding, zero), taps, whole)
        found = (
            b.select(fixed, first, begin), b.select(fixed, taps, among), most(b.select(fixed, counted, among), one)
        )  # fmt: skip
        return context.make_tuple(builder, signature.return_type, found)

    return types.UniTuple(types.int64, 3)(*[types.int64] * 10), codegen


def _plain_larger(x: Any, y: Any, out: int, row: int, n: int, taps: int, step: int) -> None:
    for t in range(taps):
        old, new = memory(out, y.dtype, n, y.strides[-1]), memory(row + t * step, x.dtype, n, x.strides[-1])
        old[:] = np.where((new > old) | (new != new), new, old)


def _plain_add(totals: Any, x: Any, out: int, row: int, n: int, taps: int, step: int) -> None:
    for t in range(taps):
        memory(out, totals.dtype, n, totals.strides[-1])[:] += memory(row + t * step, x.dtype, n, x.strides[-1])


def _plain_fill(y: Any, out: int, value: Any, n: int) -> None:
    memory(out, y.dtype, n, y.strides[-1])[:] = value


keep_larger.plain, add_rows.plain, fill_row.plain, window.plain = _plain_larger, _plain_add, _plain_fill, window_plain
__all__ = ["add_rows", "fill_row", "keep_larger", "window"]
