"""Small arrays on the stack, which nothing can alias, and counts that LLVM vectorises over instead of unrolling."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .simd import F32
from .views import I64, _view


def _local(name: str, element: Any) -> Any:
    @intrinsic
    def made(typingctx: Any, count: Any) -> Any:
        if not isinstance(count, types.IntegerLiteral):
            return None
        kind = types.Array(element, 1, "C")
        size = count.literal_value

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            item = context.get_data_type(element)
            with builder.goto_entry_block():
                place = builder.alloca(ir.ArrayType(item, size))
            place.align = 64
            start = builder.bitcast(place, item.as_pointer())
            return _view(context, builder, kind, start, ir.Constant(I64, size))

        return kind(count), codegen

    made.__doc__ = f"An array of so many {element} on the stack, not set to anything: nothing else can alias it."
    made.__name__ = name
    return made


local_f32 = _local("local_f32", types.float32)
local_i32 = _local("local_i32", types.int32)


def _f32_view(context: Any, builder: Any, place: Any, size: int) -> Any:
    return _view(context, builder, types.Array(types.float32, 1, "C"), place, ir.Constant(I64, size))


@intrinsic(prefer_literal=True)
def f32_at(typingctx: Any, address: Any, count: Any) -> Any:
    """The `count` float32 numbers at an address, which have to outlive the view."""
    if not isinstance(count, types.IntegerLiteral):
        return None
    size = count.literal_value

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _f32_view(context, builder, builder.inttoptr(args[0], F32.as_pointer()), size)

    return types.Array(types.float32, 1, "C")(types.int64, count), codegen


@intrinsic(prefer_literal=True)
def copied_f32(typingctx: Any, address: Any, count: Any) -> Any:
    """A local copy of the `count` float32 numbers at an address: one copy of bytes, where a loop would become many moves."""
    if not isinstance(count, types.IntegerLiteral):
        return None
    size = count.literal_value

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        with builder.goto_entry_block():
            place = builder.alloca(ir.ArrayType(F32, size))
        place.align = 64
        pointer = ir.IntType(8).as_pointer()
        copy = builder.module.declare_intrinsic("llvm.memcpy", [pointer, pointer, I64])
        ends = [builder.bitcast(place, pointer), builder.inttoptr(args[0], pointer)]
        builder.call(copy, [*ends, ir.Constant(I64, 4 * size), ir.Constant(ir.IntType(1), 0)])
        return _f32_view(context, builder, builder.bitcast(place, F32.as_pointer()), size)

    return types.Array(types.float32, 1, "C")(types.int64, count), codegen


def _hidden(name: str, whole: bool) -> Any:
    @intrinsic
    def made(typingctx: Any, count: Any) -> Any:
        if not isinstance(count, types.IntegerLiteral):
            return None
        limit = count.literal_value

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kind = ir.FunctionType(I64, [I64])
            hidden = builder.asm(kind, "", "=r,0", [ir.Constant(I64, limit)], False)
            if whole:
                hidden = builder.and_(hidden, ir.Constant(I64, -(limit & -limit)))
            most = ir.Constant(I64, limit)
            return builder.select(builder.icmp_signed("<", hidden, most), hidden, most)

        return types.int64(count), codegen

    made.__name__ = name
    return made


# A count of which LLVM knows only that it is at most that (and, for `whole`, the powers of two that divide it): a loop of
# so many turns is vectorised, and not unrolled before that. Measured on Q4_K: 0.20 ns a weight, and 1.56 ns unrolled.
at_most = _hidden("at_most", whole=False)
at_most_whole = _hidden("at_most_whole", whole=True)


@intrinsic
def hidden(typingctx: Any, count: Any) -> Any:
    """A count of which LLVM knows nothing, so that a loop of so many turns is not unrolled."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.asm(ir.FunctionType(I64, [I64]), "", "=r,0", [args[0]], False)

    return types.int64(types.int64), codegen
