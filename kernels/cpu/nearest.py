"""Codes that are whole numbers nearest to quotients by a number of the block, without dividing each weight.

    clamp(rint(a / s) + zero, least, most)        a: the weight, or the weight and a parameter added or subtracted

With r = 1 / s rounded and ulp its last place, lo = r - 4 ulp and hi = r + 4 ulp bracket the quotient q = a / s, rounded:
for a > 0, a * lo <= (1 - 2.9 * 2**-24) * a / s and q is no less than (1 - 2**-24) * a / s; above alike, and for a < 0 the
other way round. Adding rounds to whole numbers where sums are 2**23 and more, and rounding keeps order, so

    t_lo = a * lo + BIAS + zero <= BIAS + zero + rint(q) <= a * hi + BIAS + zero = t_hi

where BIAS is 1.5 * 2**23, with the products rounded or not. If both are the same then the low bits of t_lo are the code.
A tie q lies between a * lo and a * hi, so which of both neighbours is even does not matter. For |q| > 2**21.9 they are
more than one apart, and t_hi - t_lo is not zero for infinities and NaN either. `nearest` tells if it is not zero
anywhere: then the functions as they were written have to encode these weights. Of s, 2**-100 < s < 2**100 is asked, so
that nothing here overflows, and quotients that underflow are zero either way; for any other s, hi is made NaN.

A division of 16 numbers takes 10 cycles on Zen 4, a conversion of them to integers 2, and all of this 5.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, reduce
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..capture import Captured
from ..schemes.definition import INDEX
from . import isa
from .simd import F32, I8, I16, I32, I64, Emitter, vector

BIAS = 12582912.0  # 1.5 * 2**23
BIAS_BITS = 0x4B400000
LEAST_DIVISOR = 2.0**-100
ONE_BITS, NAN_BITS = 0x3F800000, 0x7FC00000
MOST_ZERO = 256.0  # of zero points, so that BIAS and codes stay between 2**23 and 2**24
LANES = 16  # weights that are encoded side by side, at least


@dataclass(frozen=True)
class Quotient:
    """What an `encode` computes, as text over its parameters, which are called s0, s1, ...

    divisor       what the weight is divided by
    shift         what is added to the weight before; "" for nothing
    zero          what is added to the whole number; "" for nothing
    least, most   ends of the codes
    """

    divisor: str
    shift: str
    zero: str
    least: int
    most: int


def quotient(encode: Captured, code_range: tuple[int, int]) -> Quotient | None:
    """The quotient that a captured `encode(x, *params)` rounds and clamps; None where it does anything else."""
    expression = _straight(encode)
    if expression is None:
        return None
    kinds = dict(zip(encode.parameters, encode.arg_kinds, strict=True))
    x = encode.parameters[0]
    least, most = code_range
    if least < -128 or most > 255:
        return None
    while True:  # from the outside in: what is clamped last comes first
        if (cast := _argument(expression, "to_int")) is not None:
            expression = cast
            continue
        found = _bounded(expression)
        if found is None:
            break
        expression, low, high = found
        least, most = (
            min(max(low, least), most) if low is not None else least,
            min(max(high, least), most) if high is not None else most,
        )
    zero = None
    if isinstance(expression, ast.BinOp) and isinstance(expression.op, ast.Add):
        zero = _zero(expression.right, kinds)
        if zero is None:
            return None
        expression = expression.left
        if (cast := _argument(expression, "to_int")) is not None:
            expression = cast
    ratio = _argument(expression, "rint")
    if not isinstance(ratio, ast.BinOp) or not isinstance(ratio.op, ast.Div):
        return None
    if not isinstance(ratio.left, ast.Name):
        shift = _shift(ratio.left, x, kinds)
        if shift is None:
            return None
    elif ratio.left.id == x:
        shift = None
    else:
        return None
    divisor = ratio.right
    if _names(divisor) & {x, INDEX} or not _names(divisor) & set(kinds) or _arrays(divisor, kinds):
        return None
    named = {name: ast.Name(f"s{n}") for n, name in enumerate(encode.parameters[1:])}
    divided, shifted, added = (ast.unparse(_Put(named).visit(part)) if part else "" for part in (divisor, shift, zero))
    return Quotient(divided, shifted, added, least, most)


def _straight(encode: Captured) -> ast.expr | None:
    """What is returned, as one expression: of a function without branches that calls no other one of the user."""
    if set(encode.source) != {"main"} or not isinstance(encode.returns, str):
        return None
    body = ast.parse(encode.source["main"]).body[0].body  # type: ignore[attr-defined]
    values: dict[str, ast.expr] = {}
    for line in body[:-1]:
        if not isinstance(line, ast.Assign) or len(line.targets) != 1 or not isinstance(line.targets[0], ast.Name):
            return None
        values[line.targets[0].id] = _Put(values).visit(line.value)
    if not body or not isinstance(body[-1], ast.Return) or body[-1].value is None:
        return None
    return _Put(values).visit(body[-1].value)  # type: ignore[no-any-return]


class _Put(ast.NodeTransformer):
    """Names replaced by what was assigned to them."""

    def __init__(self, values: Mapping[str, ast.expr]) -> None:
        self.values = dict(values)

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.values.get(node.id, node)


def _names(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def _arrays(node: ast.AST, kinds: Mapping[str, Any]) -> bool:
    return any(kinds.get(name) not in ("f", "i", None) for name in _names(node))


def _argument(node: ast.AST, function: str) -> ast.expr | None:
    """The argument of a call of `function`."""
    if isinstance(node, ast.Call) and ast.unparse(node.func) == function and len(node.args) == 1:
        return node.args[0]
    return None


def _number(node: ast.expr) -> int | None:
    """The whole number that a constant is."""
    for cast in ("f32", "i32"):
        inner = _argument(node, cast)
        node = node if inner is None else inner
    try:
        value = ast.literal_eval(node)
    except ValueError:
        return None
    whole = isinstance(value, (int, float)) and abs(value) < 2**20 and value == int(value)
    return int(value) if whole else None


def _bounded(node: ast.expr) -> tuple[ast.expr, int | None, int | None] | None:
    """(what is bounded, from below, from above) of a call of min, max or clip with constants."""
    if not isinstance(node, ast.Call):
        return None
    name = ast.unparse(node.func)
    if name == "clip" and len(node.args) == 3:
        low, high = _number(node.args[1]), _number(node.args[2])
        return (node.args[0], low, high) if low is not None and high is not None and low <= high else None
    if name not in ("py_min", "py_max", "minimum", "maximum") or len(node.args) != 2:
        return None
    for value, end in (node.args, node.args[::-1]):
        if (bound := _number(end)) is not None:
            return (value, None, bound) if name in ("py_min", "minimum") else (value, bound, None)
    return None


def _zero(node: ast.expr, kinds: Mapping[str, Any]) -> ast.expr | None:
    """A zero point: a constant, or an integer parameter; None for anything else."""
    if (value := _number(node)) is not None:
        return ast.Constant(float(value))
    inner = _argument(node, "f32")
    node = node if inner is None else inner
    return node if isinstance(node, ast.Name) and kinds.get(node.id) == "i" and node.id != INDEX else None


def _shift(node: ast.expr, x: str, kinds: Mapping[str, Any]) -> ast.expr | None:
    """The parameter that is added to the weight, or its negative; None for anything else."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.left, ast.Name) or node.left.id != x:
        return None
    other = node.right
    if not isinstance(other, ast.Name) or other.id == x or kinds.get(other.id) != "f":
        return None
    return {ast.Add: other, ast.Sub: ast.UnaryOp(ast.USub(), other)}.get(type(node.op))


# Compiled --------------------------------------------------------------------------------------------------------


@intrinsic
def bracket(typingctx: Any, low: Any, high: Any, bias: Any) -> Any:
    """LANES divisors at `low` become what quotients lie between, at `low` and `high`; zero points at `bias` what is added.

    The arguments are addresses. Of fewer divisors the rest may be anything.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        e, b = Emitter(builder), builder
        numbers, bits = vector(F32, LANES), vector(I32, LANES)
        s, zero = (e.load(place, numbers, 4) for place in (args[0], args[2]))
        ends = (
            b.fcmp_ordered(">", s, e.constant(numbers, LEAST_DIVISOR)),
            b.fcmp_ordered("<", s, e.constant(numbers, 1 / LEAST_DIVISOR)),
            b.fcmp_ordered(">=", zero, e.constant(numbers, -MOST_ZERO)),
            b.fcmp_ordered("<=", zero, e.constant(numbers, MOST_ZERO)),
        )
        usual = reduce(b.and_, ends)
        r = b.bitcast(b.fdiv(e.constant(numbers, 1.0), s), bits)
        for place, ulps, otherwise in ((args[0], -4, ONE_BITS), (args[1], 4, NAN_BITS)):
            e.store(b.select(usual, b.add(r, e.constant(bits, ulps)), e.constant(bits, otherwise)), place, 4)
        e.store(b.fadd(zero, e.constant(numbers, BIAS)), args[2], 4)
        return context.get_dummy_value()

    return types.void(*(types.int64,) * 3), codegen


@cache
def encoder(level_name: str, least: int, most: int, mask: int, shifted: bool) -> Any:
    """`nearest(x, ahead, codes, count, low, high, bias, shift)`: a byte for each weight; whether any is in doubt.

    x, codes          addresses of the weights, and of the bytes
    ahead             address of as many weights that are wanted next
    count             weights, whole vectors of LANES, of one block
    low, high, bias   a block's from `bracket`
    shift             what is added to the weights first, where `shifted`

    mask              bits of a byte that are the code's
    """
    level = isa.LEVELS[level_name]
    steps = [n for n in (64, 32, 16) if n <= Codes(level, shifted, least, most, mask).width]

    @intrinsic
    def nearest(
        typingctx: Any, x: Any, ahead: Any, codes: Any, count: Any, low: Any, high: Any, bias: Any, shift: Any
    ) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            e = Emitter(builder)
            x, ahead, codes, count, *numbers = args
            code = Codes(level, shifted, least, most, mask)
            doubt = cgutils.alloca_once_value(builder, ir.Constant(I32, 0))
            loaded = [numbers] * 4
            start: Any = ir.Constant(I64, 0)
            for step in steps:  # four vectors at a time, then four of half the width, then of a quarter
                apart = cgutils.alloca_once_value(builder, ir.Constant(vector(I32, step // 4), None))
                turns = builder.udiv(builder.sub(count, start), e.i64(step))
                with cgutils.for_range(builder, turns, intp=I64) as loop:
                    at = builder.add(start, builder.mul(loop.index, e.i64(step)))
                    place = builder.mul(at, e.i64(4))
                    for line in range(0, 4 * step, 64):
                        e.prefetch(e.offset(builder.add(ahead, place), line), keep=2)
                    different = code.step(e, step // 4, builder.add(x, place), builder.add(codes, at), loaded)
                    builder.store(builder.or_(builder.load(apart), different), apart)
                some = some_of(e, builder.load(apart))
                builder.store(builder.or_(builder.load(doubt), some), doubt)
                start = builder.add(start, builder.mul(turns, e.i64(step)))
            return builder.icmp_unsigned("!=", builder.load(doubt), ir.Constant(I32, 0))

        return types.boolean(*(types.int64,) * 4, *(types.float32,) * 4), codegen

    return nearest


def some_of(e: Emitter, x: Any) -> Any:
    """Not zero where any element is not."""
    zero = ir.Constant(x.type, None)
    bits = e.b.bitcast(e.b.icmp_unsigned("!=", x, zero), ir.IntType(x.type.count))
    return e.b.zext(bits, I32)


@dataclass(frozen=True)
class Codes:
    """How a vector of weights becomes codes."""

    level: isa.Level
    shifted: bool
    least: int
    most: int
    mask: int

    @property
    def width(self) -> int:
        """Weights that fill four vectors."""
        return self.level.vector_bytes if self.level.arch == "x86_64" and self.level in isa.available() else 16

    def step(self, e: Emitter, lanes: int, x: Any, codes: Any, loaded: list[list[Any]]) -> Any:
        """Four vectors of weights to one of codes; what is not zero where one is in doubt."""
        quad = []
        apart: Any = ir.Constant(vector(I32, lanes), None)
        for k, numbers in enumerate(loaded):
            low, high, bias, shift = (e.splat(number, lanes) for number in numbers)
            a = e.load(e.offset(x, 4 * lanes * k), low.type, 4)
            if self.shifted:
                a = e.b.fadd(a, shift)
            below, above = (self.sum(e, a, by, bias) for by in (low, high))
            apart = e.b.or_(apart, e.b.bitcast(e.b.fsub(above, below), apart.type))
            quad.append(e.b.sub(e.b.bitcast(below, apart.type), e.constant(apart.type, BIAS_BITS)))
        e.store(self.bytes_of(e, quad), codes, 1)
        return apart

    def sum(self, e: Emitter, a: Any, by: Any, bias: Any) -> Any:
        """a * by + bias, whichever way is fastest: the proof above is about both."""
        if self.level.name == "generic":  # it may have no fused instruction
            return e.b.fadd(e.b.fmul(a, by), bias)
        return e.call(f"llvm.fma.v{a.type.count}f32", a.type, a, by, bias)

    def bytes_of(self, e: Emitter, quad: list[Any]) -> Any:
        """Four vectors of i32, clamped, to one of bytes."""
        lanes = quad[0].type.count
        kind = vector(I8, 4 * lanes)
        mask = ir.Constant(kind, [self.mask] * kind.count)
        if self.level.arch != "x86_64" or self.level not in isa.available():
            least, most = (e.constant(quad[0].type, end) for end in (self.least, self.most))
            codes = e.b.trunc(e.concat([e.smin(e.smax(x, least), most) for x in quad]), kind)
            return e.b.and_(codes, mask)
        signed = self.least < 0
        prefix, suffix = {16: ("avx512", ".512"), 8: ("avx2", ""), 4: ("sse2", ".128")}[lanes]
        name = f"llvm.x86.{prefix}.packssdw{suffix}"
        halves = [e.call(name, vector(I16, 2 * lanes), quad[k], quad[k + 1]) for k in (0, 2)]
        narrow = "packsswb" if signed else "packuswb"
        codes = e.call(f"llvm.x86.{prefix}.{narrow}{suffix}", kind, *halves)
        compare = e.b.icmp_signed if signed else e.b.icmp_unsigned
        for end, beyond, there in ((self.least, ">", -128 if signed else 0), (self.most, "<", 127 if signed else 255)):
            if end != there:  # the packs have saturated
                ends = ir.Constant(kind, [end] * kind.count)
                codes = e.b.select(compare(beyond, codes, ends), codes, ends)
        dwords = e.b.bitcast(codes, vector(I32, lanes))
        dwords = e.shuffle(
            dwords, [4 * block + k for k in range(4) for block in range(lanes // 4)]
        )  # packs are of 128 bits
        return e.b.and_(e.b.bitcast(dwords, kind), mask)
