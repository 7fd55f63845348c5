"""Parameters of blocks in the fewest bytes that give the same float32 back: a product of few rows is as fast as it reads.

    f32     as they are
    f16     float16
    power   powers of two: the exponent's byte, so that float32 has the bits byte << 23
    shared  a byte from -128 to 127 times a float16, the factor, that several blocks along K share: exact in float32

Which one it is, is found in the numbers themselves, whatever scheme they are from: every value has to come back with
the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from llvmlite import ir

from ..simd import F32, I8, I16, I32, Emitter, vector

Array = np.ndarray[Any, Any]
BYTES = {"f32": 4, "f16": 2, "power": 1, "shared": 1}  # of a number
FACTOR = 2  # bytes of a factor
SHARED = (16, 8)  # blocks that may share one
SAMPLE = 64  # rows that are tried first
LARGEST = 127
MANTISSA = 24  # bits of a float32
HAS_INSTRUCTION = 64  # bytes of a vector from which on every level widens float16 by itself


@dataclass(frozen=True)
class Numbers:
    """
    values   of each parameter: (N, blocks) in float32, float16, uint8 or int8
    factors  of each parameter: float16 (N, groups), where the form is "shared"
    shared   blocks of a group; 0 in other forms
    """

    form: str
    values: tuple[Array, ...]
    factors: tuple[Array, ...] = ()
    shared: int = 0


def kept(parameters: Sequence[Array]) -> Numbers:
    """float32 (N, blocks) each in the smallest form."""
    given = tuple(np.ascontiguousarray(p, np.float32) for p in parameters)
    if given[0].size:
        for attempt in (_powers, *(_sharing(n) for n in SHARED), _halves):
            if attempt(tuple(p[:SAMPLE] for p in given)) is not None and (found := attempt(given)) is not None:
                return found
    return Numbers("f32", given)


def _same(made: Array, given: Array) -> bool:
    return bool((made.view(np.uint32) == given.view(np.uint32)).all())


def _powers(given: tuple[Array, ...]) -> Numbers | None:
    bits = [p.view(np.uint32) for p in given]
    if any((b & 0x807FFFFF).any() or (b == 0x7F800000).any() for b in bits):
        return None
    return Numbers("power", tuple((b >> 23).astype(np.uint8) for b in bits))


def _halves(given: tuple[Array, ...]) -> Numbers | None:
    with np.errstate(over="ignore"):
        halves = tuple(p.astype(np.float16) for p in given)
    fits = all(np.isfinite(p).all() and _same(h.astype(np.float32), p) for h, p in zip(halves, given, strict=True))
    return Numbers("f16", halves) if fits else None


def _sharing(blocks: int) -> Any:
    def attempt(given: tuple[Array, ...]) -> Numbers | None:
        if given[0].shape[1] < blocks:
            return None
        found = [_factored(p, blocks) for p in given]
        parts = [x for x in found if x is not None]
        if len(parts) < len(found):
            return None
        return Numbers("shared", tuple(v for v, _ in parts), tuple(f for _, f in parts), blocks)

    return attempt


def _factored(given: Array, blocks: int) -> tuple[Array, Array] | None:
    """Bytes (N, blocks) and factors (N, groups) whose products are the given numbers; None where there are none.

    Every number is a whole multiple of a power of two, so those of a group have a greatest common divisor; a factor is
    that divisor, or a part of it where the divisor has too many bits for a float16.
    """
    rows, count = given.shape
    groups = -(-count // blocks)
    x = np.pad(given, ((0, 0), (0, groups * blocks - count)), mode="edge").reshape(rows, groups, blocks)
    if not np.isfinite(x).all():
        return None
    mantissa, exponent = np.frexp(np.abs(x))
    used = mantissa > 0
    empty = ~used.any(axis=2)
    least = np.where(used, exponent, 1 << 10).min(axis=2, keepdims=True)
    least[empty] = MANTISSA
    above = np.where(used, exponent - least, 0)
    if above.max(initial=0) > LARGEST.bit_length():  # of a number up to 128 to 1
        return None
    whole = np.ldexp(mantissa, MANTISSA).astype(np.int64) << above
    divisor = np.maximum(np.gcd.reduce(whole, axis=2), 1)
    values = whole // divisor[..., None]
    top = values.max(axis=2)
    if top.max(initial=0) > LARGEST + 1:
        return None
    room = np.maximum(LARGEST // np.maximum(top, 1), 1)  # what values may still be multiplied by
    part = _part(divisor, room, least[..., 0] - MANTISSA)
    if part is None:
        return None
    factor = np.where(empty, 0.0, np.ldexp((divisor // part).astype(np.float32), least[..., 0] - MANTISSA))
    negative = _negative(x, top)
    factor = np.where(negative, -factor, factor).astype(np.float16)
    signs = np.where((x != 0) & (np.signbit(x) != negative[..., None]), -1, 1)
    bytes_ = (values * part[..., None] * signs).astype(np.int8)
    made = bytes_.astype(np.float32) * factor[..., None].astype(np.float32)
    if not _same(made, np.ascontiguousarray(x)):
        return None
    return np.ascontiguousarray(bytes_.reshape(rows, -1)[:, :count]), factor


def _negative(x: Array, top: Array) -> Array:
    """Where factors are negative: as zeros want it, which become 0 times them; else so that 128 is -128."""
    sign, zero = np.signbit(x), x == 0
    largest = np.take_along_axis(sign, np.abs(x).argmax(axis=2)[..., None], axis=2)[..., 0]
    others = np.where(top > LARGEST, ~largest, sign.all(axis=2))
    return np.where(zero.any(axis=2), (sign & zero).any(axis=2), others)


def _part(divisor: Array, room: Array, exponent: Array) -> Array | None:
    """The least divisor of each divisor, up to `room`, that leaves a float16; 1 where it is one already."""
    part = np.ones_like(divisor)
    with np.errstate(over="ignore", under="ignore"):

        def fits(n: Array, e: Array) -> Array:
            number = np.ldexp(n.astype(np.float64), e)
            return number.astype(np.float16) == number  # type: ignore[no-any-return]

        open_ = np.flatnonzero(~fits(divisor, exponent).reshape(-1))
        for t in range(2, LARGEST + 1):
            if not open_.size:
                break
            n, e = divisor.reshape(-1)[open_], exponent.reshape(-1)[open_]
            done = (n % t == 0) & (room.reshape(-1)[open_] >= t) & fits(n // t, e)
            part.reshape(-1)[open_[done]] = t
            open_ = open_[~done]
    return None if open_.size else part


# In native code ------------------------------------------------------------------------------------------------------


def halves(e: Emitter, address: Any, lanes: int) -> Any:
    """float16 at an address, all of them finite, as float32."""
    bits = e.load(address, vector(I16, lanes), 2)
    ints, floats = vector(I32, lanes), vector(F32, lanes)
    if 4 * lanes == HAS_INSTRUCTION:
        return e.b.fpext(e.b.bitcast(bits, vector(ir.HalfType(), lanes)), floats)
    wide = e.b.sext(bits, ints)
    rest = e.b.and_(wide, e.constant(ints, 0x7FFF))
    normal = e.b.add(e.b.shl(rest, e.constant(ints, 13)), e.constant(ints, 112 << 23))
    small = e.b.fmul(e.b.sitofp(rest, floats), e.constant(floats, 2.0**-24))
    is_small = e.b.icmp_signed("<", rest, e.constant(ints, 0x400))
    found = e.b.select(is_small, e.b.bitcast(small, ints), normal)
    return e.b.bitcast(e.b.or_(found, e.b.and_(wide, e.constant(ints, -0x80000000))), floats)


def expanded(e: Emitter, form: str, address: Any, lanes: int, factor: Any) -> Any:
    """A vector of numbers at an address as float32. factor: the vector of factors, where the form is "shared"."""
    floats, ints = vector(F32, lanes), vector(I32, lanes)
    if form == "f32":
        return e.load(address, floats, 4)
    if form == "f16":
        return halves(e, address, lanes)
    narrow = e.load(address, vector(I8, lanes), 1)
    if form == "power":
        return e.b.bitcast(e.b.shl(e.b.zext(narrow, ints), e.constant(ints, 23)), floats)
    return e.b.fmul(e.b.sitofp(e.b.sext(narrow, ints), floats), factor)
