"""What happens to a tile's accumulators while they are still in registers: conversion, scaling, clamping, the store.

"s32" stores them as they are. "f32" multiplies by the column's multiplier. "u8" and "s8" requantize:

    out = clamp(round(float32(acc) * multiplier[n]) + zero_point, lo, hi)

or, where dequantize comes before quantize, round(float32(acc) * multiplier[n] / scale) (quotient.py), with

ties to even, float32 throughout. The upper clamp is applied before the conversion, where it also catches what would not
fit an int32; below, x86 converts to INT_MIN and AArch64 saturates, and either clamps to lo.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from .. import isa
from ..isa import host_arch as host_arch
from ..simd import F32, I8, I16, I32, Emitter, vector
from . import quotient

# The record at `epilogue`: name, offset in bytes. int32 unless the name ends in _f32.
CONSTANTS = {
    "zero_point": 0,  # of the codes; clamps are lo <= code <= hi
    "lo": 4,
    "hi": 8,
    "top_f32": 12,  # hi - zero_point
    "bottom_f32": 16,  # lo - zero_point
    "flip": 20,  # 0x80808080: inverts the top bit of each byte
    "a_zero_point": 24,  # as stored; read where B is asymmetric
    # a residual is added as kernels/reference/elementwise/basic.py adds codes (finish.py)
    "code_scale_f32": 28,
    "residual_scale_f32": 32,
    "residual_zero_point": 36,
    "sum_scale_f32": 40,
    "sum_zero_point": 44,
    "sum_top_f32": 48,
    "sum_bottom_f32": 52,
    "sum_inverse_f32": 56,  # where a product serves instead of a division by sum_scale_f32 (residual.py)
    "quotient_f32": 60,  # what real numbers are divided by before they are codes, and its inverse (quotient.py)
    "quotient_inverse_f32": 64,
}
CONSTANTS_SIZE = 128


def emit_store(e: Any, tile: Any, sums: list[Any], arg: dict[str, Any]) -> None:
    """Store a tile's corrected sums (row-major list of vectors) through its epilogue."""
    level = isa.LEVELS[tile.level]
    lanes, n = level.lanes, tile.vectors
    rows = e.row_addresses(arg["c"], arg["ldc"])
    if tile.store in ("u8", "s8"):
        _store_codes(e, tile, level, sums, rows, arg)
        return
    if tile.store == "f32":
        multipliers = _multipliers(e, n, lanes, arg)
        sums = [e.b.fmul(e.b.sitofp(x, vector(F32, lanes)), multipliers[k % n]) for k, x in enumerate(sums)]
    mask = _mask(e, lanes, 1, e.offset(arg["valid"], -lanes * (n - 1))) if tile.masked else None
    for k, x in enumerate(sums):
        address = e.offset(rows[k // n], 4 * lanes * (k % n))
        if mask is not None and k % n == n - 1:
            e.masked_store(x, address, 4, mask)
        else:
            e.store(x, address, 4)


def _multipliers(e: Emitter, n: int, lanes: int, arg: dict[str, Any]) -> list[Any]:
    plane = e.b.add(arg["columns"], arg["plane"])
    return [e.load(e.offset(plane, 4 * lanes * j), vector(F32, lanes), 4) for j in range(n)]


def _mask(e: Emitter, lanes: int, vectors: int, valid: Any) -> Any:
    """Lanes below `valid`. i8 lanes are compared as i8, which is one instruction: valid is at most 64."""
    kind = I32 if lanes * vectors <= 16 else I8
    order = ir.Constant(vector(kind, lanes * vectors), list(range(lanes * vectors)))
    return e.b.icmp_signed("<", order, e.splat(e.b.trunc(valid, kind), lanes * vectors))


def _store_codes(e: Any, tile: Any, level: Any, sums: list[Any], rows: list[Any], arg: dict[str, Any]) -> None:
    lanes, n = level.lanes, tile.vectors
    arch = level.arch or host_arch()
    multipliers = _multipliers(e, n, lanes, arg)
    top = e.splat(e.load(e.offset(arg["epilogue"], CONSTANTS["top_f32"]), F32, 4), lanes)
    divided = divider(e, tile.level, arg["epilogue"], lanes) if tile.after is not None else lambda x: x

    def rounded(k: int) -> Any:
        x = divided(e.b.fmul(e.b.sitofp(sums[k], vector(F32, lanes)), multipliers[k % n]))
        return e.round_to_int(e.fmin(x, top), arch)

    # vectors are narrowed four at a time: one row of four, two rows of two, or four rows of one
    group = {1: 4, 2: 2, 3: 1, 4: 1}[n]
    narrow = _narrow_x86 if arch == "x86_64" and lanes >= 8 else _narrow
    constants = [e.load(e.offset(arg["epilogue"], CONSTANTS[name]), I32, 4) for name in ("zero_point", "lo")]
    finish = narrow(e, lanes, tile.store, constants)
    per_row = lanes * n if n != 3 else lanes * 4
    masks = {}
    for i in range(0, tile.rows, group):
        quad = [rounded(min(i + r, tile.rows - 1) * n + j) for r in range(group) for j in range(n)]
        quad += [quad[-1]] * (4 - len(quad))
        codes = finish(quad)
        for r in range(min(group, tile.rows - i)):
            row = codes if group == 1 else e.shuffle(codes, range(r * per_row, (r + 1) * per_row))
            if tile.masked:
                if "mask" not in masks:
                    masks["mask"] = _mask(e, per_row, 1, arg["valid"])
                e.masked_store(row, rows[i + r], 1, masks["mask"])
            else:
                width = lanes * n
                e.store(row if width == per_row else e.shuffle(row, range(width)), rows[i + r], 1)


def divider(e: Any, level: str, constants: Any, lanes: int) -> Callable[[Any], Any]:
    """What divides vectors by the scale of the record at `constants`."""
    names = ("quotient_f32", "quotient_inverse_f32")
    scale, inverse = (e.splat(e.load(e.offset(constants, CONSTANTS[n]), F32, 4), lanes) for n in names)
    return lambda x: quotient.emit(e, level, x, scale, inverse)


def _narrow(e: Emitter, lanes: int, store: str, constants: list[Any]) -> Any:
    """Four vectors of i32 to one of bytes, in plain IR."""
    zero_point, lo = (e.splat(x, lanes) for x in constants)
    floor = e.constant(vector(I32, lanes), -(2**24))  # adding the zero point to INT_MIN must not wrap

    def finish(quad: list[Any]) -> Any:
        quad = [e.smax(e.b.add(e.smax(x, floor), zero_point), lo) for x in quad]
        return e.b.trunc(e.concat(quad), vector(I8, 4 * lanes))

    return finish


def _narrow_x86(e: Emitter, lanes: int, store: str, constants: list[Any]) -> Any:
    """The same through the saturating packs, which do most of the clamping. They work in 128-bit lanes, so one
    permutation of dwords follows."""
    words, bytes_ = vector(I16, 2 * lanes), vector(I8, 4 * lanes)
    zero_point = e.splat(e.b.trunc(constants[0], I16), 2 * lanes)
    lo = e.splat(e.b.trunc(constants[1], I8), 4 * lanes)
    prefix, suffix = ("llvm.x86.avx512.", ".512") if lanes == 16 else ("llvm.x86.avx2.", "")
    to_words = {16: "packssdw", 8: "packssdw"}[lanes]
    to_bytes = "packuswb" if store == "u8" else "packsswb"
    blocks = lanes // 4

    def finish(quad: list[Any]) -> Any:
        halves = [e.call(prefix + to_words + suffix, words, quad[k], quad[k + 1]) for k in (0, 2)]
        halves = [e.call(f"llvm.sadd.sat.v{2 * lanes}i16", words, x, zero_point) for x in halves]
        codes = e.call(prefix + to_bytes + suffix, bytes_, *halves)
        compare = e.b.icmp_unsigned if store == "u8" else e.b.icmp_signed
        codes = e.b.select(compare(">", codes, lo), codes, lo)
        dwords = e.b.bitcast(codes, vector(I32, lanes))
        dwords = e.shuffle(dwords, [4 * block + v for v in range(4) for block in range(blocks)])
        return e.b.bitcast(dwords, bytes_)

    return finish


def range_constants(zero_point: int, lo: int, hi: int, prefix: str = "") -> dict[str, float]:
    """The constants of a clamp to lo..hi around a zero point; prefix "sum_" for those after a residual."""
    ends = {
        f"{prefix}zero_point": zero_point,
        f"{prefix}top_f32": hi - zero_point,
        f"{prefix}bottom_f32": lo - zero_point,
    }
    return ends if prefix else {**ends, "lo": lo, "hi": hi}
