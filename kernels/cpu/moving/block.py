"""A block of elements copied between any strides, as LLVM IR.

Assigning a part of an array to another makes Numba compile the message of an error that cannot happen: two seconds.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..simd import I1, I8, I64


def _plain(target: Any, to: tuple[int, ...], source: Any, start: tuple[int, ...], counts: tuple[int, ...]) -> None:
    lead = len(to) - len(counts)

    def cut(first: tuple[int, ...]) -> tuple[Any, ...]:
        return (*first[:lead], *(slice(n, n + count) for n, count in zip(first[lead:], counts, strict=True)))

    target[cut(to)] = source[cut(start)]


@intrinsic
def copy_block(typingctx: Any, target: Any, to: Any, source: Any, start: Any, counts: Any) -> Any:
    """`counts` elements along the last axes of source, from the index `start` on, to the index `to` of target.

    to, start, counts  tuples of int64; the first two hold an index for every axis
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        item = context.get_abi_sizeof(context.get_data_type(target.dtype))
        sizes = cgutils.unpack_tuple(builder, args[4])
        ends, steps = [], []
        for array, value, index in ((target, args[0], args[1]), (source, args[2], args[3])):
            made = context.make_array(array)(context, builder, value)
            strides = cgutils.unpack_tuple(builder, made.strides)
            at = builder.ptrtoint(made.data, I64)
            for n, stride in zip(cgutils.unpack_tuple(builder, index), strides, strict=True):
                at = builder.add(at, builder.mul(n, stride))
            ends.append(at)
            steps.append(strides[array.ndim - len(sizes) :])
        pointer, kind = I8.as_pointer(), ir.IntType(8 * item).as_pointer()
        memcpy = builder.module.declare_intrinsic("llvm.memcpy", [pointer, pointer, I64])

        def along(d: int, ends: list[Any]) -> None:
            if d < len(sizes) - 1:
                with cgutils.for_range(builder, sizes[d], intp=I64) as loop:
                    along(d + 1, moved(d, ends, loop.index))
            elif sizes:
                runs = [builder.icmp_signed("==", by[d], ir.Constant(I64, item)) for by in steps]
                with builder.if_else(builder.and_(*runs)) as (together, apart):
                    with together:
                        near, far = (builder.inttoptr(x, pointer) for x in ends)
                        nbytes = builder.mul(sizes[d], ir.Constant(I64, item))
                        builder.call(memcpy, [near, far, nbytes, ir.Constant(I1, 0)])
                    with apart, cgutils.for_range(builder, sizes[d], intp=I64) as loop:
                        one(moved(d, ends, loop.index))
            else:
                one(ends)

        def moved(d: int, ends: list[Any], n: Any) -> list[Any]:
            return [builder.add(x, builder.mul(n, by[d])) for x, by in zip(ends, steps, strict=True)]

        def one(ends: list[Any]) -> None:
            near, far = (builder.inttoptr(x, kind) for x in ends)
            loaded = builder.load(far)
            loaded.align = 1
            builder.store(loaded, near).align = 1

        along(0, ends)
        return context.get_dummy_value()

    if target.dtype != source.dtype:
        return None
    tuples = [types.UniTuple(types.int64, len(t)) for t in (to, start, counts)]
    return types.void(target, tuples[0], source, *tuples[1:]), codegen


copy_block.plain = _plain  # what forge.python_tile puts in its place
