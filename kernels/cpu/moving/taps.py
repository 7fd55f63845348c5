"""The elements around a place, as LLVM IR: where they lie, and their weighed sum.

There are up to 64 of them; as text of a tile they take Numba longer than all the rest of it.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ...moving.sampling import CHUNK
from ..elements import load_at
from ..simd import F32, I64

ABSENT = -(1 << 62)  # no element's offset: those are below 0 where an axis runs backwards


def _word(builder: Any, address: Any, kind: Any, n: int, p: Any) -> Any:
    """The pointer to word p of array n of CHUNK words."""
    start = builder.inttoptr(address, kind.as_pointer())
    return builder.gep(start, [builder.add(p, ir.Constant(I64, CHUNK * n))])


def _load(builder: Any, address: Any, kind: Any, n: int, p: Any) -> Any:
    return builder.load(_word(builder, address, kind, n, p))


@cache
def put_places(taps: int, spatial: int, zeros: bool) -> Any:
    """An intrinsic `(x, places, p, indices)`: offsets in bytes of the elements around place p of x, after two axes.

    indices  along each axis, those of its taps; they are moved inside of the axis, or (zeros) their element is ABSENT
    places   address of int64 (taps ** spatial, CHUNK), the last axis fastest
    """

    @intrinsic
    def put(typingctx: Any, x: Any, places: Any, p: Any, indices: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            made = context.make_array(x)(context, builder, args[0])
            sizes, strides = (list(cgutils.unpack_tuple(builder, t))[2:] for t in (made.shape, made.strides))
            given = cgutils.unpack_tuple(builder, args[3])
            zero, one = (ir.Constant(I64, n) for n in (0, 1))
            found: list[tuple[Any, Any]] = [(zero, None)]
            for d in range(spatial):
                last = builder.sub(sizes[d], one)
                along = []
                for index in given[d * taps : (d + 1) * taps]:
                    raised = builder.select(builder.icmp_signed(">", index, zero), index, zero)
                    inside = builder.select(builder.icmp_signed("<", raised, last), raised, last)
                    along.append((builder.mul(inside, strides[d]), builder.icmp_signed("==", inside, index)))
                found = [
                    (builder.add(at, by), here if known is None else builder.and_(known, here))
                    for at, known in found
                    for by, here in along
                ]
            for n, (at, known) in enumerate(found):
                stored = builder.select(known, at, ir.Constant(I64, ABSENT)) if zeros else at
                builder.store(stored, _word(builder, args[1], I64, n, args[2]))
            return context.get_dummy_value()

        return types.void(x, types.int64, types.int64, types.UniTuple(types.int64, taps * spatial)), codegen

    return put


@cache
def put_weights(count: int) -> Any:
    """An intrinsic `(shares, n, p, weights)`: float32 weights of place p to array n of CHUNK words and the following."""

    @intrinsic
    def put(typingctx: Any, shares: Any, n: Any, p: Any, weights: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            first = builder.add(builder.mul(args[1], ir.Constant(I64, CHUNK)), args[2])
            for t, value in enumerate(cgutils.unpack_tuple(builder, args[3])):
                builder.store(value, _word(builder, args[0], F32, t, first))
            return context.get_dummy_value()

        return types.void(*[types.int64] * 3, types.UniTuple(types.float32, count)), codegen

    return put


@cache
def blended(taps: int, spatial: int, zeros: bool) -> Any:
    """An intrinsic `(x, plane, places, shares, p)`: the weighed sum of the elements around place p, or the only one.

    plane   address that the offsets count from
    shares  address of float32 weights (spatial, taps, CHUNK)
    """

    @intrinsic
    def blend(typingctx: Any, x: Any, plane: Any, places: Any, shares: Any, p: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            _, plane, places, shares, p = args

            def element(n: int) -> Any:
                at = _load(builder, places, I64, n, p)
                if not zeros:
                    return load_at(context, builder, x, plane, at)
                before = builder.block
                with builder.if_then(builder.icmp_signed("!=", at, ir.Constant(I64, ABSENT)), likely=True):
                    value = load_at(context, builder, x, plane, at)
                    inside = builder.block
                found = builder.phi(F32)
                found.add_incoming(value, inside)
                found.add_incoming(ir.Constant(F32, 0.0), before)
                return found

            if taps == 1:
                return element(0)
            weights = [_load(builder, shares, F32, n, p) for n in range(spatial * taps)]

            def along(d: int, first: int) -> Any:
                if d == spatial:
                    return element(first)
                total = None
                for t in range(taps):
                    part = builder.fmul(weights[d * taps + t], along(d + 1, first + t * taps ** (spatial - 1 - d)))
                    total = part if total is None else builder.fadd(total, part)
                return total

            return along(0, 0)

        return types.float32(x, *[types.int64] * 4), codegen

    return blend
