"""The largest and the smallest of a contiguous float32 vector, and whether there is a NaN in it, in vector instructions.

NaN is passed over, as Python's max and min pass it over in their second argument. Which of two zeros of different sign
is returned is open: `first_zero` tells which comes first. Without a number in x the result is an infinity that no number
is beyond.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from .simd import F32, I1, I64, Emitter, vector

LANES = 16
WIDE = 4 * LANES  # four chains of dependent instructions side by side
INFINITY = float("inf")


def _halved(e: Emitter, x: Any, combine: Callable[[Any, Any], Any]) -> Any:
    """One vector of LANES, or one number, from a vector: halves are combined until it is as short as that."""
    count, least = x.type.count, LANES if x.type.count > LANES else 1
    while count > least:
        count //= 2
        x = combine(e.shuffle(x, range(count)), e.shuffle(x, range(count, 2 * count)))
    return x if least > 1 else e.b.extract_element(x, e.i64(0))


def _turns(b: Any, n: Any) -> list[tuple[int, Any, Any]]:
    """(numbers of a turn, turns, the first number): what n numbers are walked in."""
    wide = b.and_(n, ir.Constant(I64, -WIDE))
    even = b.and_(n, ir.Constant(I64, -LANES))
    return [
        (WIDE, b.udiv(wide, ir.Constant(I64, WIDE)), ir.Constant(I64, 0)),
        (LANES, b.udiv(b.sub(even, wide), ir.Constant(I64, LANES)), wide),
        (1, b.sub(n, even), even),
    ]


def _element(b: Any, data: Any, start: Any, turn: Any, kind: Any) -> Any:
    count = kind.count if isinstance(kind, ir.VectorType) else 1
    place = b.gep(data, [b.add(start, b.mul(turn, ir.Constant(I64, count)))], inbounds=True)
    element = b.load(b.bitcast(place, kind.as_pointer()))
    element.align = 4
    return element


def _over(
    e: Emitter,
    data: Any,
    n: Any,
    starts: list[float],
    taken: Callable[[Any], Any],
    combines: list[Callable[[Any, Any], Any]],
) -> list[Any]:
    """`combine(taken(element), so far)` over n numbers in any order, several of them at once."""
    found: list[Any] = [ir.Constant(vector(F32, WIDE), [start] * WIDE) for start in starts]
    for width, turns, at in _turns(e.b, n):
        kind = vector(F32, width) if width > 1 else F32
        if width < WIDE:
            found = [_halved(e, x, combine) for x, combine in zip(found, combines, strict=True)]
        bests = [cgutils.alloca_once_value(e.b, x) for x in found]
        with cgutils.for_range(e.b, turns, intp=I64) as loop:
            element = taken(_element(e.b, data, at, loop.index, kind))
            for best, combine in zip(bests, combines, strict=True):
                e.b.store(combine(element, e.b.load(best)), best)
        found = [e.b.load(best) for best in bests]
    return found


def _vector_of(context: Any, builder: Any, kind: Any, value: Any) -> tuple[Any, Any]:
    found = make_array(kind)(context, builder, value)
    return found.data, cgutils.unpack_tuple(builder, found.shape)[0]


def _takes(x: Any) -> bool:
    return isinstance(x, types.Array) and x.ndim == 1 and x.layout == "C" and x.dtype == types.float32


def _beyond(b: Any, sign: str) -> Callable[[Any, Any], Any]:
    """The element if it is beyond the best so far, else that one: NaN is passed over."""
    return lambda element, best: b.select(b.fcmp_ordered(sign, element, best), element, best)


def _extreme(name: str, sign: str, start: float, magnitude: bool) -> Any:
    @intrinsic
    def made(typingctx: Any, x: Any) -> Any:
        if not _takes(x):
            return None

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            e = Emitter(builder)

            def taken(element: Any) -> Any:
                if not magnitude:
                    return element
                suffix = f"v{element.type.count}f32" if isinstance(element.type, ir.VectorType) else "f32"
                return e.call(f"llvm.fabs.{suffix}", element.type, element)

            return _over(e, *_vector_of(context, builder, x, args[0]), [start], taken, [_beyond(builder, sign)])[0]

        return types.float32(x), codegen

    made.__name__ = name
    return made


@intrinsic
def extent(typingctx: Any, x: Any) -> Any:
    """The smallest and the largest number, in one pass."""
    if not _takes(x):
        return None
    result = types.UniTuple(types.float32, 2)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        ends = [_beyond(builder, sign) for sign in "<>"]
        vector_ = _vector_of(context, builder, x, args[0])
        found = _over(Emitter(builder), *vector_, [INFINITY, -INFINITY], lambda element: element, ends)
        return context.make_tuple(builder, result, found)

    return result(x), codegen


largest = _extreme("largest", ">", -INFINITY, magnitude=False)
smallest = _extreme("smallest", "<", INFINITY, magnitude=False)
largest_magnitude = _extreme("largest_magnitude", ">", -INFINITY, magnitude=True)
smallest_magnitude = _extreme("smallest_magnitude", "<", INFINITY, magnitude=True)


@intrinsic
def any_nan(typingctx: Any, x: Any) -> Any:
    """Whether one of the numbers is NaN."""
    if not _takes(x):
        return None

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data, n = _vector_of(context, builder, x, args[0])
        found: Any = ir.Constant(I1, 0)
        for width, turns, at in _turns(builder, n):
            kind = vector(F32, width) if width > 1 else F32
            seen = cgutils.alloca_once_value(builder, ir.Constant(vector(I1, width) if width > 1 else I1, None))
            with cgutils.for_range(builder, turns, intp=I64) as loop:
                element = _element(builder, data, at, loop.index, kind)
                nan = builder.fcmp_unordered("uno", element, element)
                builder.store(builder.or_(builder.load(seen), nan), seen)
            bits = ir.IntType(width)
            some = builder.bitcast(builder.load(seen), bits)
            found = builder.or_(found, builder.icmp_unsigned("!=", some, ir.Constant(bits, 0)))
        return found

    return types.boolean(x), codegen


@intrinsic
def first_zero(typingctx: Any, x: Any) -> Any:
    """The first of the zeros in x; +0 if there is none. It is seldom called, and its code stands apart."""
    if not _takes(x):
        return None

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.call(_first_zero(builder.module), _vector_of(context, builder, x, args[0]))

    return types.float32(x), codegen


def _first_zero(module: Any) -> Any:
    name = "first_zero_of"
    made = module.globals.get(name)
    if made is not None:
        return made
    made = ir.Function(module, ir.FunctionType(F32, [F32.as_pointer(), I64]), name)
    made.linkage = "internal"
    for attribute in ("noinline", "nounwind", "cold"):
        made.attributes.add(attribute)
    blocks = [made.append_basic_block(n) for n in ("entry", "test", "body", "next", "found", "none")]
    entry, test, body, following, found, none = blocks
    data, n = made.args
    b = ir.IRBuilder(entry)
    n = b.asm(ir.FunctionType(I64, [I64]), "", "=r,0", [n], False)  # hidden, so that the loop is not unrolled
    b.branch(test)
    b.position_at_end(test)
    at = b.phi(I64)
    at.add_incoming(ir.Constant(I64, 0), entry)
    b.cbranch(b.icmp_unsigned("<", at, n), body, none)
    b.position_at_end(body)
    element = b.load(b.gep(data, [at]))
    b.cbranch(b.fcmp_ordered("==", element, ir.Constant(F32, 0.0)), found, following)
    b.position_at_end(following)
    at.add_incoming(b.add(at, ir.Constant(I64, 1)), following)
    b.branch(test)
    b.position_at_end(found)
    b.ret(element)
    b.position_at_end(none)
    b.ret(ir.Constant(F32, 0.0))
    return made


__all__ = ["any_nan", "extent", "first_zero", "largest", "largest_magnitude", "smallest", "smallest_magnitude"]
