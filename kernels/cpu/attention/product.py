"""A product of a few rows with 16 or 64 columns on registers, as LLVM IR: both products of attention are made of it."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from ..simd import F32, I32, I64, Emitter, function, vector
from ..vectormath import Lanes, native_operations
from .blocks import multiplier

LANES = Lanes.lanes
MR = 4  # rows: with 4 vectors of columns, 16 sums in flight hide the latency of fma


def product(module: Any, target: tuple[str, str, str], vectors: int) -> Any:
    """A function `(depth, c, ldc, a, lda, b, ldb, from_c)`: MR rows of c, `vectors` vectors wide.

        c[r, :] = (c[r, :] if from_c else 0) + sum over p of a[r, p] * b[p, :], fused, in ascending p

    c, a, b   addresses; rows of a are contiguous; ld*: bytes from row to row
    """
    name = f"attention_product_{vectors}"
    made = module.globals.get(name)
    if made is not None:
        return made
    native = native_operations(*target)
    made = function(module, name, 8)
    b = ir.IRBuilder(made.append_basic_block("entry"))
    e = Emitter(b)
    depth, c, ldc, a, lda, panel, ldb, from_c = made.args
    kind = vector(F32, LANES)
    rows = [b.add(c, b.mul(ldc, ir.Constant(I64, r))) for r in range(MR)]
    keep = b.icmp_signed("!=", from_c, ir.Constant(I64, 0))
    zero = ir.Constant(kind, [0.0] * LANES)
    starts = [
        b.select(keep, e.load(e.offset(row, 4 * LANES * j), kind, 4), zero) for row in rows for j in range(vectors)
    ]
    before, loop, done = b.block, made.append_basic_block("loop"), made.append_basic_block("done")
    b.cbranch(b.icmp_signed(">", depth, ir.Constant(I64, 0)), loop, done)
    b.position_at_end(loop)
    p, left = b.phi(I64), b.phi(I64)
    p.add_incoming(ir.Constant(I64, 0), before)
    left.add_incoming(panel, before)
    sums = [b.phi(kind) for _ in starts]
    for phi, start in zip(sums, starts, strict=True):
        phi.add_incoming(start, before)
    columns = [Lanes(b, e.load(e.offset(left, 4 * LANES * j), kind, 4), "f", native) for j in range(vectors)]
    new = []
    for r in range(MR):
        place = b.add(b.add(a, b.mul(lda, ir.Constant(I64, r))), b.shl(p, ir.Constant(I64, 2)))
        factor = Lanes(b, e.splat(e.load(place, F32, 4), LANES), "f", native)
        for j in range(vectors):
            total = Lanes(b, sums[r * vectors + j], "f", native)
            new.append(factor.primitive("fma", factor, columns[j], total).value)
    following = b.add(p, ir.Constant(I64, 1))
    p.add_incoming(following, b.block)
    left.add_incoming(b.add(left, ldb), b.block)
    for phi, value in zip(sums, new, strict=True):
        phi.add_incoming(value, b.block)
    b.cbranch(b.icmp_signed("<", following, depth), loop, done)
    last = b.block
    b.position_at_end(done)
    for n, (start, value) in enumerate(zip(starts, new, strict=True)):
        result = b.phi(kind)
        result.add_incoming(start, before)
        result.add_incoming(value, last)
        starts[n] = result
    for n, value in enumerate(starts):
        e.store(value, e.offset(rows[n // vectors], 4 * LANES * (n % vectors)), 4)
    b.ret_void()
    return made


def product_codes(module: Any, target: tuple[str, str, str], vectors: int) -> Any:
    """A function `(steps, c, ldc, a, lda, b, ldb)`: MR rows of int32 c, `vectors` vectors wide, from zero.

    c[r, n] = sum over p and g < 4 of a[r, 4 p + g] * b[p, 4 n + g]      a: u8, b: s8
    """
    name = f"attention_codes_{vectors}"
    made = module.globals.get(name)
    if made is not None:
        return made
    made = function(module, name, 7)
    b = ir.IRBuilder(made.append_basic_block("entry"))
    e = Emitter(b)
    steps, c, ldc, a, lda, panel, ldb = made.args
    kind = vector(I32, LANES)
    before, loop, done = b.block, made.append_basic_block("loop"), made.append_basic_block("done")
    b.branch(loop)
    b.position_at_end(loop)
    p, left = b.phi(I64), b.phi(I64)
    p.add_incoming(ir.Constant(I64, 0), before)
    left.add_incoming(panel, before)
    sums = [b.phi(kind) for _ in range(MR * vectors)]
    for phi in sums:
        phi.add_incoming(ir.Constant(kind, [0] * LANES), before)
    columns = [e.load(e.offset(left, 4 * LANES * j), kind, 4) for j in range(vectors)]
    new = []
    for r in range(MR):
        place = b.add(b.add(a, b.mul(lda, ir.Constant(I64, r))), b.shl(p, ir.Constant(I64, 2)))
        four = e.splat(e.load(place, I32, 1), LANES)
        for j in range(vectors):
            new.append(dot_codes(e, sums[r * vectors + j], four, columns[j], "+avx512vnni" in target[2].split(",")))
    following = b.add(p, ir.Constant(I64, 1))
    p.add_incoming(following, b.block)
    left.add_incoming(b.add(left, ldb), b.block)
    for phi, value in zip(sums, new, strict=True):
        phi.add_incoming(value, b.block)
    b.cbranch(b.icmp_signed("<", following, steps), loop, done)
    b.position_at_end(done)
    for n, value in enumerate(new):
        row = b.add(c, b.mul(ldc, ir.Constant(I64, n // vectors)))
        e.store(value, e.offset(row, 4 * LANES * (n % vectors)), 4)
    b.ret_void()
    return made


def dot_codes(e: Emitter, total: Any, a: Any, b: Any, vnni: bool) -> Any:
    """total + the four products of u8 and s8 in each lane, exact."""
    if vnni:
        return e.call("llvm.x86.avx512.vpdpbusd.512", total.type, total, a, b)
    kind, byte = total.type, e.constant(total.type, 255)
    for g in range(4):
        x = e.b.and_(e.b.lshr(a, e.constant(kind, 8 * g)), byte)
        y = e.b.ashr(e.b.shl(b, e.constant(kind, 24 - 8 * g)), e.constant(kind, 24))
        total = e.b.add(total, e.b.mul(x, y))
    return total


multiply = multiplier("attention_multiply", product, MR, ("from_c",))
multiply_codes = multiplier("attention_multiply_codes", product_codes, MR)
