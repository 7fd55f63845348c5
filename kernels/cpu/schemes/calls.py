"""What tiles of schemes call, written as LLVM's instructions where it is called.

Numba compiles, optimises and links each compiled function that a tile calls by itself, which takes 20 to 150 ms: min and
max of Python as well, and np.zeros. An edit of a scheme waits for all of that.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array

from ..simd import F32, I32, I64, Emitter

FAR = 2.0**18  # beyond every code of 16 bits
LINE = 16  # float32 numbers of a cache line, which has 64 bytes


@intrinsic
def smaller(typingctx: Any, a: Any, b: Any) -> Any:
    """The smaller of two sizes."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return Emitter(builder).smin(*args)

    return types.int64(types.int64, types.int64), codegen


@intrinsic
def larger(typingctx: Any, a: Any, b: Any) -> Any:
    """The larger of two sizes."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return Emitter(builder).smax(*args)

    return types.int64(types.int64, types.int64), codegen


@intrinsic
def held_whole(typingctx: Any, code: Any, low: Any, high: Any) -> Any:
    """An int32 held between two others."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        e = Emitter(builder)
        return e.smin(e.smax(args[0], args[1]), args[2])

    return types.int32(types.int32, types.int32, types.int32), codegen


@intrinsic
def held(typingctx: Any, x: Any, low: Any, high: Any) -> Any:
    """A float32 without its fraction, as int32, held between two others of at most 16 bits; NaN is 0."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        e, (x, low, high) = Emitter(builder), args
        x = builder.select(builder.fcmp_ordered("ord", x, x), x, ir.Constant(F32, 0.0))
        near = e.fmin(e.fmax(x, ir.Constant(F32, -FAR)), ir.Constant(F32, FAR))
        return e.smin(e.smax(builder.fptosi(near, I32), low), high)

    return types.int32(types.float32, types.int32, types.int32), codegen


@intrinsic
def fetch(typingctx: Any, row: Any, start: Any, count: Any) -> Any:
    """Prefetch into L2 the cache lines of `count` float32 numbers, from number `start` of the row at an address."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        e, (row, start, count) = Emitter(builder), args
        first = builder.sdiv(start, e.i64(LINE))
        last = builder.sdiv(builder.add(builder.add(start, count), e.i64(LINE - 1)), e.i64(LINE))
        with cgutils.for_range(builder, builder.sub(last, first), intp=I64) as loop:
            e.prefetch(builder.add(row, builder.mul(builder.add(first, loop.index), e.i64(4 * LINE))), keep=2)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


@intrinsic
def fetch_to_write(typingctx: Any, row: Any) -> Any:
    """Prefetch the cache lines of a contiguous vector, to be written."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        e, found = Emitter(builder), make_array(row)(context, builder, args[0])
        (n,) = cgutils.unpack_tuple(builder, found.shape)
        start = builder.ptrtoint(found.data, I64)
        size = row.dtype.bitwidth // 8
        lines = builder.udiv(builder.add(builder.mul(n, e.i64(size)), e.i64(63)), e.i64(64))
        with cgutils.for_range(builder, lines, intp=I64) as loop:
            e.prefetch(builder.add(start, builder.mul(loop.index, e.i64(64))), write=True)
        return context.get_dummy_value()

    return types.void(row), codegen


def _zeroed(element: Any) -> Any:
    size = element.bitwidth // 8

    @intrinsic
    def zeroed(typingctx: Any, n: Any) -> Any:
        """An array of n zeros, in memory of its own, which begins at a cache line; of none where there is no memory.

        Nothing is raised: a tile that is compiled into its entry has nobody to catch it.
        """
        kind = types.Array(element, 1, "C")

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            (n,) = args
            nbytes = builder.mul(n, ir.Constant(I64, size))
            owner = context.nrt.meminfo_alloc_aligned_unchecked(builder, nbytes, 64)
            absent = cgutils.is_null(builder, owner)
            at = cgutils.alloca_once_value(builder, cgutils.get_null_value(ir.IntType(8).as_pointer()))
            with builder.if_then(builder.not_(absent)):
                data = context.nrt.meminfo_data(builder, owner)
                cgutils.memset(builder, data, nbytes, 0)
                builder.store(data, at)
            n, data = builder.select(absent, ir.Constant(I64, 0), n), builder.load(at)
            made = make_array(kind)(context, builder)
            populate_array(
                made,
                data=builder.bitcast(data, context.get_data_type(element).as_pointer()),
                shape=cgutils.pack_array(builder, [n], I64),
                strides=cgutils.pack_array(builder, [ir.Constant(I64, size)], I64),
                itemsize=ir.Constant(I64, size),
                meminfo=owner,
            )
            return made._getvalue()

        return kind(types.int64), codegen

    return zeroed


zeroed_u8, zeroed_f32 = _zeroed(types.uint8), _zeroed(types.float32)
