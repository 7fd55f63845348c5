"""One-dimensional contiguous views, which compiled loops vectorise over, of arrays whose strides Numba does not know.

Also small arrays that live on the stack, or in registers where the loops over them are unrolled.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array

I64 = ir.IntType(64)


def _view_type(array: Any, item: Any = None) -> Any:
    return types.Array(item or array.dtype, 1, "C")


def _view(context: Any, builder: Any, kind: Any, start: Any, count: Any) -> Any:
    item = context.get_data_type(kind.dtype)
    size = ir.Constant(I64, kind.dtype.bitwidth // 8)
    made = make_array(kind)(context, builder)
    populate_array(
        made,
        data=builder.bitcast(start, item.as_pointer()),
        shape=cgutils.pack_array(builder, [count], I64),
        strides=cgutils.pack_array(builder, [size], I64),
        itemsize=size,
        meminfo=None,
    )
    return made._getvalue()


@intrinsic
def row_at(typingctx: Any, array: Any, n: Any) -> Any:
    """Row n of a matrix whose rows are contiguous. It owns nothing: the matrix has to outlive it."""
    kind = _view_type(array)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        found = make_array(array)(context, builder, args[0])
        strides, shape = (cgutils.unpack_tuple(builder, t) for t in (found.strides, found.shape))
        start = builder.bitcast(found.data, ir.IntType(8).as_pointer())
        start = builder.gep(start, [builder.mul(args[1], strides[0])], inbounds=True)
        return _view(context, builder, kind, start, shape[1])

    return kind(array, types.int64), codegen


@intrinsic
def rows_at(typingctx: Any, array: Any, n: Any, rows: Any) -> Any:
    """Rows n .. n + rows of a contiguous matrix, one after another."""
    kind = _view_type(array)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        found = make_array(array)(context, builder, args[0])
        strides, shape = (cgutils.unpack_tuple(builder, t) for t in (found.strides, found.shape))
        start = builder.bitcast(found.data, ir.IntType(8).as_pointer())
        start = builder.gep(start, [builder.mul(args[1], strides[0])], inbounds=True)
        return _view(context, builder, kind, start, builder.mul(args[2], shape[1]))

    return kind(array, types.int64, types.int64), codegen


@intrinsic
def part(typingctx: Any, row: Any, start: Any, count: Any) -> Any:
    """Elements start .. start + count of a contiguous vector."""
    kind = _view_type(row)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        found = make_array(row)(context, builder, args[0])
        return _view(context, builder, kind, builder.gep(found.data, [args[1]], inbounds=True), args[2])

    return kind(row, types.int64, types.int64), codegen


def _as_words(kind: Any) -> Any:
    @intrinsic
    def words(typingctx: Any, row: Any) -> Any:
        """The bytes of a contiguous vector as wider integers. They need not be aligned on the processors that are supported."""
        made = _view_type(row, kind)
        shift = (kind.bitwidth // 8).bit_length() - 1

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            found = make_array(row)(context, builder, args[0])
            (n,) = cgutils.unpack_tuple(builder, found.shape)
            return _view(context, builder, made, found.data, builder.lshr(n, ir.Constant(I64, shift)))

        return made(row), codegen

    return words


as_u16, as_u32, as_u64 = map(_as_words, (types.uint16, types.uint32, types.uint64))


def _zeros(element: Any) -> Any:
    @intrinsic(prefer_literal=True)
    def zeros(typingctx: Any, n: Any) -> Any:
        """A local array of n zeros, n written as a number. It ends with the function that it is made in."""
        if not isinstance(n, types.IntegerLiteral):
            return None
        kind = types.Array(element, 1, "C")

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            room = ir.ArrayType(context.get_data_type(element), n.literal_value)
            place = cgutils.alloca_once(builder, room)
            builder.store(ir.Constant(room, None), place)
            return _view(context, builder, kind, place, ir.Constant(I64, n.literal_value))

        return kind(n), codegen

    return zeros


zeros_f32, zeros_i32 = _zeros(types.float32), _zeros(types.int32)
