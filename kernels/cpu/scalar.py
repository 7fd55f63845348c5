"""Scalar float32 and int32 arithmetic for tile functions: exact widening, rounding rules, saturation.

kernels/reference/ says what each does. Numba would widen int32 + int32 to int64 and float32 with a Python float to
float64, which changes bits and halves the vectors, so every step here says its type. Each function also runs as plain
Python, where NUMBA_DISABLE_JIT=1 asks for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic, overload

from ..reference import arithmetic

scalar = njit(nogil=True, error_model="numpy")

_HALF = np.float32(0.5)
_ZERO = np.float32(0)
_ONE = np.float32(1)
_INFINITY = np.float32(np.inf)
_SUBNORMAL_F16 = np.float32(2.0**-24)
_UNIT24 = np.float32(2.0**-24)
_FAR_NARROW = np.float32(2.0**18)  # beyond every 16-bit code, whatever the zero point
_FAR_WIDE = np.float32(2.0**40)
_GAMMA, _MIX1, _MIX2 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


# One LLVM instruction each. np.rint, np.floor and np.trunc would call libm element by element ------------------------


def rint32(x: Any) -> Any:
    """The nearest integer, ties to even, as float32."""
    return np.float32(np.rint(x))


def floor32(x: Any) -> Any:
    """The integer below, as float32."""
    return np.float32(np.floor(x))


def trunc32(x: Any) -> Any:
    """The integer towards zero, as float32."""
    return np.float32(np.trunc(x))


def nearest32(x: Any) -> Any:
    """The nearest integer, ties to even, as int32, which has to hold it."""
    return np.int32(np.rint(x))


def fma32(a: Any, b: Any, c: Any) -> Any:
    """a * b + c of float32, rounded once."""
    return arithmetic.fma32(a, b, c)[()]


def _instruction(name: str) -> Callable[..., Any]:
    @intrinsic
    def lowered(typingctx, x):
        def codegen(context, builder, signature, args):
            return builder.call(builder.module.declare_intrinsic(name, [ir.FloatType()]), args)

        return types.float32(types.float32), codegen

    return lowered


_rint, _floor, _trunc = (_instruction(name) for name in ("llvm.rint", "llvm.floor", "llvm.trunc"))


@intrinsic
def _fma(typingctx, a, b, c):
    def codegen(context, builder, signature, args):
        return builder.fma(*args)

    return types.float32(types.float32, types.float32, types.float32), codegen


@intrinsic
def _nearest(typingctx, x):
    def codegen(context, builder, signature, args):
        kind = ir.FunctionType(ir.IntType(32), [ir.FloatType()])
        return builder.call(cgutils.get_or_insert_function(builder.module, kind, "llvm.lrint.i32.f32"), args)

    return types.int32(types.float32), codegen


@overload(nearest32)
def _lower_nearest(x):
    return lambda x: _nearest(x)


@overload(rint32)
def _lower_rint(x):
    return lambda x: _rint(x)


@overload(floor32)
def _lower_floor(x):
    return lambda x: _floor(x)


@overload(trunc32)
def _lower_trunc(x):
    return lambda x: _trunc(x)


@overload(fma32)
def _lower_fma(a, b, c):
    return lambda a, b, c: _fma(a, b, c)


# Widening ------------------------------------------------------------------------------------------------------------


@scalar
def f16_to_f32(bits):
    """The float32 value of a float16 given as its 16 bits."""
    sign = np.uint32((np.uint32(bits) & np.uint32(0x8000)) << np.uint32(16))
    rest = np.uint32(np.uint32(bits) & np.uint32(0x7FFF))
    if rest < np.uint32(0x400):  # zero and subnormals: rest * 2**-24, exactly
        magnitude = np.float32(np.float32(rest) * _SUBNORMAL_F16).view(np.uint32)
    elif rest >= np.uint32(0x7C00):
        magnitude = np.uint32(np.uint32(rest << np.uint32(13)) | np.uint32(0x7F800000))
    else:
        magnitude = np.uint32(np.uint32(rest << np.uint32(13)) + np.uint32(112 << 23))
    return np.uint32(sign | magnitude).view(np.float32)


@scalar
def bf16_to_f32(bits):
    """The float32 value of a bfloat16 given as its 16 bits."""
    return np.uint32(np.uint32(bits) << np.uint32(16)).view(np.float32)


# Rounding rules: (r, seed, index) -> the float32 integer next to r ---------------------------------------------------


@scalar
def half_even(r, seed, index):
    return rint32(r)


@scalar
def half_away(r, seed, index):
    whole = trunc32(r)
    part = np.float32(r - whole)
    if part >= _HALF:
        return np.float32(whole + _ONE)
    if part <= -_HALF:
        return np.float32(whole - _ONE)
    return whole


@scalar
def half_up(r, seed, index):
    below = floor32(r)
    return np.float32(below + _ONE) if np.float32(r - below) >= _HALF else below


@scalar
def toward_zero(r, seed, index):
    return trunc32(r)


@scalar
def floor(r, seed, index):
    return floor32(r)


@scalar
def stochastic(r, seed, index):
    below = floor32(r)
    return np.float32(below + _ONE) if uniform24(seed, index) < np.float32(r - below) else below


@scalar
def _mix(z):
    z = np.uint64(np.uint64(z ^ (z >> np.uint64(30))) * _MIX1)
    z = np.uint64(np.uint64(z ^ (z >> np.uint64(27))) * _MIX2)
    return np.uint64(z ^ (z >> np.uint64(31)))


@scalar
def uniform24(seed, index):
    """kernels/reference/arithmetic.py: uniform24."""
    key = _mix(np.uint64(np.uint64(seed) + _GAMMA))
    z = _mix(np.uint64(key + np.uint64((np.uint64(index) + np.uint64(1)) * _GAMMA)))
    return np.float32(np.float32(np.uint32(z >> np.uint64(40))) * _UNIT24)


# Saturation: clip(r + zero_point, lo, hi) with NaN -> zero_point -----------------------------------------------------


@scalar
def saturate_narrow(r, zero_point, lo, hi):
    """For codes of at most 16 bits: int32 is wide enough once r is bounded."""
    if r != r:
        r = _ZERO
    bounded = np.int32(min(max(r, -_FAR_NARROW), _FAR_NARROW))
    return min(max(np.int32(bounded + np.int32(zero_point)), np.int32(lo)), np.int32(hi))


@scalar
def saturate_wide(r, zero_point, lo, hi):
    """For 32-bit codes."""
    if r != r:
        r = _ZERO
    bounded = np.int64(min(max(r, -_FAR_WIDE), _FAR_WIDE))
    return min(max(bounded + np.int64(zero_point), np.int64(lo)), np.int64(hi))


@scalar
def shift_rounded(acc, multiplier, shift, zero_point, lo, hi):
    """clip(round_half_up(acc * multiplier * 2**(shift - 31)) + zero_point, lo, hi); shift in -31 .. 30."""
    t = np.int64(31) - np.int64(shift)
    rounded = (np.int64(acc) * np.int64(multiplier) + (np.int64(1) << (t - np.int64(1)))) >> t
    return min(max(rounded + np.int64(zero_point), np.int64(lo)), np.int64(hi))


# Doubts about run-time parameters: True makes the tile return a status -----------------------------------------------


@scalar
def bad_scale(scale):
    return not (_ZERO < scale < _INFINITY)


@scalar
def bad_multiplier(multiplier):
    return not (_ZERO <= multiplier < _INFINITY)


@scalar
def bad_fixed(multiplier, shift):
    return np.int32(multiplier) < np.int32(1 << 30) or not (np.int32(-31) <= np.int32(shift) <= np.int32(30))


# Small steps ---------------------------------------------------------------------------------------------------------


@scalar
def dequantized(code, scale, zero_point):
    """float32(code - zero_point) * scale for codes of at most 16 bits."""
    return np.float32(np.int32(np.int32(code) - np.int32(zero_point))) * scale


@scalar
def bounded(x, lo, hi):
    """x in lo .. hi; NaN stays, and where lo > hi the result is hi."""
    raised = lo if x < lo else x
    return hi if raised > hi else raised
