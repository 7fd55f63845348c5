"""How products are summed: one strategy per instruction; all integer ones give the same integers.

A strategy adds `group` consecutive products along K to each 32-bit lane: `acc[l] += sum_g a[g] * b[l, g]`. The rows
of A are read 4 bytes at a time and broadcast; packed B holds 4 bytes a lane. Where the group is 4 these are bytes;
where it is 2 they are int16, widened when A and B are packed, so that no intermediate sum can saturate. Two int16
products are summed modulo 2**32 by every instruction here: twice -32768 * -32768 wraps as int32 addition does.

float32 sums are one chain of fused multiply-adds in ascending k, so a lane has one accumulator and the group is 1.
vdpbf16ps is the exception: see _vdpbf16ps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .. import isa
from ..simd import F64, I8, I16, I32, I64, Emitter, vector


@dataclass(frozen=True)
class Dot:
    """
    group     products per lane and step
    element   what A's rows must hold: "u8", "s8", "s16", "f32" or "bf16"; B's elements are s8 where A's are bytes, else
              of A's type
    real      whether the sums are float32
    by_lane   whether a row is best loaded 16 bytes at a time, each step broadcasting one of its four lanes
    emit      (emitter, acc, a, b) -> acc, all vectors of i32
    """

    name: str
    group: int
    element: str
    emit: Callable[[Emitter, Any, Any, Any], Any]
    by_lane: bool = False
    real: bool = False


def _vpdpbusd(e: Emitter, acc: Any, a: Any, b: Any) -> Any:
    bits = 32 * acc.type.count
    return e.call(f"llvm.x86.avx512.vpdpbusd.{bits}", acc.type, acc, a, b)


def _pairs(e: Emitter, x: Any) -> Any:
    return e.b.bitcast(x, vector(I16, 2 * x.type.count))


def _vpmaddwd(e: Emitter, acc: Any, a: Any, b: Any) -> Any:
    name = {16: "llvm.x86.avx512.pmaddw.d.512", 8: "llvm.x86.avx2.pmadd.wd", 4: "llvm.x86.sse2.pmadd.wd"}
    return e.b.add(acc, e.call(name[acc.type.count], acc.type, _pairs(e, a), _pairs(e, b)))


def _vpmaddubsw(e: Emitter, acc: Any, a: Any, b: Any) -> Any:
    n = acc.type.count
    bytes_, halves = vector(I8, 4 * n), vector(I16, 2 * n)
    name = {16: "llvm.x86.avx512.pmaddubs.w.512", 8: "llvm.x86.avx2.pmadd.ub.sw"}
    sums = e.call(name[n], halves, e.b.bitcast(a, bytes_), e.b.bitcast(b, bytes_))
    name = {16: "llvm.x86.avx512.pmaddw.d.512", 8: "llvm.x86.avx2.pmadd.wd"}
    return e.b.add(acc, e.call(name[n], acc.type, sums, e.constant(halves, 1)))


def _plain(e: Emitter, acc: Any, a: Any, b: Any) -> Any:
    """No intrinsic at all; LLVM finds pmaddwd in it on any x86-64."""
    n = acc.type.count
    wide = vector(I32, 2 * n)
    products = e.b.mul(e.b.sext(_pairs(e, a), wide), e.b.sext(_pairs(e, b), wide))
    even, odd = e.shuffle(products, range(0, 2 * n, 2)), e.shuffle(products, range(1, 2 * n, 2))
    return e.b.add(acc, e.b.add(even, odd))


def _vpdpwssd(e: Emitter, acc: Any, a: Any, b: Any) -> Any:
    return e.call(f"llvm.x86.avx512.vpdpwssd.{32 * acc.type.count}", acc.type, acc, a, b)


def _vdpbf16ps(e: Emitter, acc: Any, a: Any, b: Any) -> Any:
    """Two products a lane, each added with a rounding of its own; subnormals are taken, and given, as zeros."""
    ints = vector(I32, acc.type.count)
    name = f"llvm.x86.avx512bf16.dpbf16ps.{32 * acc.type.count}"
    return e.call(name, acc.type, acc, e.b.bitcast(a, ints), e.b.bitcast(b, ints))


def _fma(e: Any, acc: Any, a: Any, b: Any) -> Any:
    features = e.level.features
    if "fma" in features or "avx512f" in features or isa.host_arch() == "aarch64":
        return e.call(f"llvm.fma.v{acc.type.count}f32", acc.type, a, b, acc)
    return _fma_in_float64(e, acc, a, b)


def _fma_in_float64(e: Emitter, acc: Any, a: Any, b: Any) -> Any:
    """The same bits without the instruction: the exact product, the sum rounded to odd, then to float32.

    kernels/reference/arithmetic.py: fma32 says why.
    """
    builder, n = e.b, acc.type.count
    wide, bits = vector(F64, n), vector(I64, n)
    x, y, c = (builder.fpext(v, wide) for v in (a, b, acc))
    product = builder.fmul(x, y)
    total = builder.fadd(product, c)
    virtual = builder.fsub(total, product)
    error = builder.fadd(builder.fsub(product, builder.fsub(total, virtual)), builder.fsub(c, virtual))
    zero, word, one = e.constant(wide, 0.0), builder.bitcast(total, bits), e.constant(bits, 1)
    # an infinite or NaN total has a NaN error, which is neither below nor above zero
    inexact = builder.fcmp_ordered("!=", error, zero)
    even = builder.icmp_signed("==", builder.and_(word, one), e.constant(bits, 0))
    away = builder.icmp_signed("==", builder.fcmp_ordered(">", error, zero), builder.fcmp_ordered(">", total, zero))
    moved = builder.add(word, builder.select(away, one, e.constant(bits, -1)))
    odd = builder.bitcast(builder.select(builder.and_(inexact, even), moved, word), wide)
    return builder.fptrunc(odd, acc.type)


def _aarch64(op: str) -> Callable[[Emitter, Any, Any, Any], Any]:
    def emit(e: Emitter, acc: Any, a: Any, b: Any) -> Any:
        bytes_ = vector(I8, 16)
        x, y = e.b.bitcast(a, bytes_), e.b.bitcast(b, bytes_)
        # the by-element form wants the broadcast operand last, where the operation is symmetric
        operands = (x, y) if op == "usdot" else (y, x)
        return e.call(f"llvm.aarch64.neon.{op}.v4i32.v16i8", acc.type, acc, *operands)

    return emit


DOTS: dict[str, Dot] = {
    dot.name: dot
    for dot in (
        Dot("vpdpbusd", 4, "u8", _vpdpbusd),
        Dot("vpmaddubsw", 4, "u8", _vpmaddubsw),  # exact only where the weights prove it: packing.pairs_fit
        Dot("vpmaddwd", 2, "s16", _vpmaddwd),
        Dot("vpdpwssd", 2, "s16", _vpdpwssd),
        Dot("fma", 1, "f32", _fma, real=True),
        Dot("vdpbf16ps", 2, "bf16", _vdpbf16ps, real=True),
        Dot("plain", 2, "s16", _plain),
        Dot("usdot", 4, "u8", _aarch64("usdot"), by_lane=True),
        Dot("sdot", 4, "s8", _aarch64("sdot"), by_lane=True),
    )
}
