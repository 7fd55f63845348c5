"""Scalar float32 and integer arithmetic for kernels: exact widening, rounding rules, saturation.

kernels/reference/ says what each does. Integers are 64 bits wide in a register, so sums of codes need no care; float32
operations are ptx.add and its like, which the compiler leaves as they are.
"""

from __future__ import annotations

import numpy as np

from . import ptx
from .seam import device

_HALF, _ONE, _ZERO = np.float32(0.5), np.float32(1), np.float32(0)
_MINUS_HALF, _MINUS_ONE = np.float32(-0.5), np.float32(-1)
_INFINITY = np.float32(np.inf)
_UNIT24 = np.float32(2.0**-24)
_FAR = 2**40  # beyond every 32-bit code, whatever the zero point
_GAMMA, _MIX1, _MIX2 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31, _S40, _U1 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(40), np.uint64(1)


# Elements of a word ------------------------------------------------------------------------------------------------------


@device
def byte_u8(word, n):
    """Byte n of a word."""
    return (word >> (8 * n)) & 255


@device
def byte_s8(word, n):
    return (((word >> (8 * n)) & 255) ^ 128) - 128


@device
def half_u16(word, n):
    """Half n of a word."""
    return (word >> (16 * n)) & 65535


@device
def half_s16(word, n):
    return (((word >> (16 * n)) & 65535) ^ 32768) - 32768


@device
def pack_bytes(a, b, c, d):
    """Four codes of 8 bits in a word, the first one lowest."""
    return np.int32((a & 255) | ((b & 255) << 8) | ((c & 255) << 16) | ((d & 255) << 24))


@device
def pack_halves(a, b):
    return np.int32((a & 65535) | ((b & 65535) << 16))


# Widening ----------------------------------------------------------------------------------------------------------------


@device
def f16_to_f32(bits):
    """The float32 value of a float16 given as its 16 bits."""
    return ptx.from_half(np.int32(bits))


@device
def bf16_to_f32(bits):
    """The float32 value of a bfloat16 given as its 16 bits."""
    return ptx.from_bits(np.int32(bits << 16))


# Rounding rules: (r, seed, index) -> the float32 integer next to r -------------------------------------------------------


@device
def half_even(r, seed, index):
    return ptx.rint(r)


@device
def half_away(r, seed, index):
    whole = ptx.trunc(r)
    part = ptx.sub(r, whole)
    if part >= _HALF:
        return ptx.add(whole, _ONE)
    if part <= _MINUS_HALF:
        return ptx.add(whole, _MINUS_ONE)
    return whole


@device
def half_up(r, seed, index):
    below = ptx.floor(r)
    return ptx.add(below, _ONE) if ptx.sub(r, below) >= _HALF else below


@device
def toward_zero(r, seed, index):
    return ptx.trunc(r)


@device
def floor(r, seed, index):
    return ptx.floor(r)


@device
def stochastic(r, seed, index):
    below = ptx.floor(r)
    return ptx.add(below, _ONE) if uniform24(seed, index) < ptx.sub(r, below) else below


@device
def mix64(z):
    z = (z ^ (z >> _S30)) * _MIX1
    z = (z ^ (z >> _S27)) * _MIX2
    return z ^ (z >> _S31)


@device
def uniform24(seed, index):
    """kernels/reference/arithmetic.py: uniform24."""
    key = mix64(seed + _GAMMA)
    z = mix64(key + (np.uint64(index) + _U1) * _GAMMA)
    return ptx.mul(np.float32(np.int64(z >> _S40)), _UNIT24)


# Saturation: clip(r + zero_point, lo, hi) with NaN -> zero_point ---------------------------------------------------------


@device
def saturate_narrow(r, zero_point, lo, hi):
    """For codes of at most 16 bits: what leaves int32 has left the codes."""
    return min(max(np.int64(ptx.to_int(r)) + zero_point, lo), hi)


@device
def saturate_wide(r, zero_point, lo, hi):
    """For 32-bit codes."""
    whole = ptx.to_int64(r) if r == r else np.int64(0)
    return min(max(min(max(whole, -_FAR), _FAR) + zero_point, lo), hi)


@device
def shift_rounded(acc, multiplier, shift, zero_point, lo, hi):
    """clip(round_half_up(acc * multiplier * 2**(shift - 31)) + zero_point, lo, hi); shift in -31 .. 30."""
    t = min(
        max(31 - np.int64(shift), 1), 62
    )  # a shift out of range has its status; it must not shift out of range here
    rounded = (np.int64(acc) * multiplier + (np.int64(1) << (t - 1))) >> t
    return min(max(rounded + zero_point, lo), hi)


# Doubts about run-time parameters ----------------------------------------------------------------------------------------


@device
def bad_scale(scale):
    return not (_ZERO < scale and scale < _INFINITY)


@device
def bad_multiplier(multiplier):
    return not (_ZERO <= multiplier and multiplier < _INFINITY)


@device
def bad_fixed(multiplier, shift):
    return multiplier < 1073741824 or shift < -31 or shift > 30


# Small steps -------------------------------------------------------------------------------------------------------------


@device
def dequantized(code, scale, zero_point):
    """float32(code - zero_point) * scale."""
    return ptx.mul(np.float32(np.int64(code) - zero_point), scale)


@device
def bounded(x, lo, hi):
    """x in lo .. hi; NaN stays, and where lo > hi the result is hi."""
    raised = lo if x < lo else x
    return hi if raised > hi else raised


# Other types -------------------------------------------------------------------------------------------------------------

_LEAST32, _MOST32 = np.int64(-(2**31)), np.int64(2**31 - 1)
_LEAST64, _PAST64, _PASTU64 = np.int64(-(2**63)), np.float32(2.0**63), np.float32(2.0**64)
_SIGN64, _ABOVE32 = np.uint64(2**63), np.int64(2**32)


@device
def whole_s32(x):
    """Toward zero; -2**31 for what an s32 does not hold."""
    found = ptx.to_int64(x)
    return found if found >= _LEAST32 and found <= _MOST32 else _LEAST32


@device
def whole_s64(x):
    """Toward zero; -2**63 for what an s64 does not hold."""
    return ptx.to_int64(x) if x < _PAST64 else _LEAST64


@device
def whole_u64(x):
    """The bits of a u64, toward zero; those of whole_s64 for what a u64 does not hold."""
    return ptx.to_int64(ptx.sub(x, _PAST64)) ^ _LEAST64 if x >= _PAST64 and x < _PASTU64 else whole_s64(x)


@device
def order_f32(x):
    """An integer that orders float32: zeros alike, NaN above everything."""
    if x != x:
        return _ABOVE32
    if x == _ZERO:
        return np.int64(0)
    word = np.int64(ptx.bits(x))
    return word if word >= 0 else np.int64(-1) - (word & 2147483647)


@device
def order_u64(x):
    """An s64 that orders u64."""
    return np.int64(np.uint64(x) ^ _SIGN64)
