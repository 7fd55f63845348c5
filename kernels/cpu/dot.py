"""How int8 products are summed: one strategy per instruction, all with the same integers.

A strategy adds `group` consecutive products along K to each 32-bit lane: `acc[l] += sum_g a[g] * b[l, g]`. The rows
of A are read 4 bytes at a time and broadcast; packed B holds 4 bytes a lane. Where the group is 4 these are bytes;
where it is 2 they are int16, widened when A and B are packed, so that no intermediate sum can saturate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .simd import I8, I16, I32, Emitter, vector


@dataclass(frozen=True)
class Dot:
    """
    group     products per lane and step
    element   what A's rows must hold: "u8", "s8" or "s16"; B's elements are s8, or s16 where A's are
    by_lane   whether a row is best loaded 16 bytes at a time, each step broadcasting one of its four lanes
    emit      (emitter, acc, a, b) -> acc, all vectors of i32
    """

    name: str
    group: int
    element: str
    emit: Callable[[Emitter, Any, Any, Any], Any]
    by_lane: bool = False


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
        Dot("plain", 2, "s16", _plain),
        Dot("usdot", 4, "u8", _aarch64("usdot"), by_lane=True),
        Dot("sdot", 4, "s8", _aarch64("sdot"), by_lane=True),
    )
}
