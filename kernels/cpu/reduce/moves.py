"""Rows that are no runs of memory: whether they are, and copies of them to scratch and back, as LLVM IR.

Rows are what lies along the last dimensions of an array, from `first` on. As text of a tile these loops take Numba
longer than what is computed with the rows.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ...reduce.rows import WIDTH
from ..simd import I1, I64


def parts(context: Any, builder: Any, array: Any, value: Any) -> tuple[list[Any], list[Any], int]:
    """Sizes, strides and the bytes of an element."""
    made = context.make_array(array)(context, builder, value)
    sizes, strides = (list(cgutils.unpack_tuple(builder, t)) for t in (made.shape, made.strides))
    return sizes, strides, context.get_abi_sizeof(context.get_data_type(array.dtype))


@cache
def are_runs(first: int) -> Any:
    """An intrinsic `(array) -> bool`: whether each row is one run of memory."""

    @intrinsic
    def runs(typingctx: Any, array: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            sizes, strides, item = parts(context, builder, array, args[0])
            step, found = ir.Constant(I64, item), ir.Constant(I1, 1)
            for size, stride in list(zip(sizes, strides, strict=True))[: first - 1 if first else None : -1]:
                short = builder.icmp_signed("<=", size, ir.Constant(I64, 1))
                found = builder.and_(found, builder.or_(short, builder.icmp_signed("==", stride, step)))
                step = builder.mul(step, size)
            return found

        return types.boolean(array), codegen

    return runs


@cache
def elements_of(first: int) -> Any:
    """An intrinsic `(array) -> int`: the elements of a row."""

    @intrinsic
    def elements(typingctx: Any, array: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            count = ir.Constant(I64, 1)
            for size in parts(context, builder, array, args[0])[0][first:]:
                count = builder.mul(count, size)
            return count

        return types.int64(array), codegen

    return elements


@cache
def mover(first: int, out: bool) -> Any:
    """An intrinsic `(array, near, pitch, far, step, rows)`: rows copied to scratch, or back (`out`).

    near, pitch  where the first row goes, and bytes from one row to the next there
    far, step    where the first row lies, and bytes from one to the next

    Neighbouring rows are innermost, so that whole cache lines are used.
    """

    @intrinsic
    def move(typingctx: Any, array: Any, near: Any, pitch: Any, far: Any, step: Any, rows: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            near, pitch, far, step, rows = args[1:]
            sizes, strides, item = parts(context, builder, array, args[0])
            pointer = ir.IntType(8 * item).as_pointer()
            at = cgutils.alloca_once_value(builder, near)

            def along(d: int, there: Any) -> None:
                if d < array.ndim:
                    with cgutils.for_range(builder, sizes[d], intp=I64) as loop:
                        along(d + 1, builder.add(there, builder.mul(loop.index, strides[d])))
                    return
                here = builder.load(at)
                with cgutils.for_range(builder, rows, intp=I64) as loop:
                    ends = [
                        builder.inttoptr(builder.add(start, builder.mul(loop.index, by)), pointer)
                        for start, by in ((here, pitch), (there, step))
                    ]
                    source, target = ends if out else reversed(ends)
                    loaded = builder.load(source)
                    loaded.align = 1
                    builder.store(loaded, target).align = 1
                builder.store(builder.add(here, ir.Constant(I64, item)), at)

            along(first, far)
            return context.get_dummy_value()

        return types.void(array, *[types.int64] * 5), codegen

    return move


def _count(budget: int) -> Any:
    """An intrinsic `(size) -> int`: how many of so large ones a budget holds, 1 to 16."""

    @intrinsic
    def count(typingctx: Any, size: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            one, most = ir.Constant(I64, 1), ir.Constant(I64, 16)
            size = builder.select(builder.icmp_signed(">", args[0], one), args[0], one)
            found = builder.udiv(ir.Constant(I64, budget), size)
            found = builder.select(builder.icmp_signed(">", found, one), found, one)
            return builder.select(builder.icmp_signed("<", found, most), found, most)

        return types.int64(types.int64), codegen

    return count


width_of = _count(
    WIDTH
)  # rows of so many bytes that are copied at once: kernels/reduce/rows.py counts their scratch so
together = _count(4096)  # rows of so many elements that are worked on at once: what stays in the nearest cache
