"""cast on the CPU, one element at a time. kernels/reference/cast.py says what it computes."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from ...primitives import dtypes
from ..cast import BYTES, Cast
from ..factory import WithParams, register
from ..indexing import whole
from . import isa as levels
from .nest import Element, nest
from .quantize import WIDEN

_scalar = njit(nogil=True, error_model="numpy", inline="never")
INTEGERS = {"u8": "uint8", "s8": "int8", "u16": "uint16", "s16": "int16", "u32": "uint32", "s32": "int32"}
INTEGERS |= {"u64": "uint64", "s64": "int64"}


@register("cast", backend="cpu")
def build(kernel: Cast, isa: str | None = None) -> WithParams:
    table = (
        kernel.source not in WIDEN and dtypes.get(kernel.source).kind in ("float", "scale") and kernel.source != "f64"
    )
    real = kernel.source in (*WIDEN, "f64") or table
    value = "{values}[{x}]" if table else "{x}"
    if kernel.source in BYTES:
        value = f"low_bits(np.int64({{x}}), {dtypes.get(kernel.source).bits}, {kernel.source[0] == 's'})"
    home = f"from {__package__}.cast import half, low_bits, odd, power_of_two, small_float\n"
    home += f"from {__package__}.cast import toward_zero, toward_zero32, toward_zero_u64"
    element = Element(
        kernel.rank,
        [("x", whole(kernel.rank))],
        result=_converted(kernel, value, real, kernel.source == "f64", levels.converts_f16(levels.select(isa))),
        widen={"x": WIDEN.get(kernel.source, "{}")},
        tables=("values",) if table else (),
        prelude=home,
    )
    return nest(element)


def _converted(kernel: Cast, value: str, real: bool, double: bool, f16: bool) -> str:
    target = dtypes.get(kernel.dtype)
    if kernel.dtype == "bool":
        return f"{value} != 0"
    if target.kind in ("uint", "int"):
        if kernel.dtype == "s32" and real:
            return f"toward_zero32(np.float64({value}))"
        if kernel.dtype == "u64" and real:
            return f"np.uint64(toward_zero_u64(np.float64({value})))"
        number = f"toward_zero(np.float64({value}))" if real else value
        if kernel.dtype in BYTES:  # as ml_dtypes stores them: the other bits are 0
            return f"low_bits(np.int64({number}), {target.bits}, False)"
        if target.packed:
            return f"low_bits(np.int64({number}), {target.bits}, {target.kind == 'int'})"
        return f"np.{INTEGERS[kernel.dtype]}({number})"
    if kernel.dtype in ("f32", "f64"):
        return f"np.{'float32' if kernel.dtype == 'f32' else 'float64'}({value})"
    exact = real and not double
    if not real:
        source = dtypes.get(kernel.source)
        exact = source.kind == "bool" or source.bits <= 16
    single = f"np.float32({value})" if exact else f"odd(np.float64({value}))"
    if target.kind == "scale":
        rounding = {"half_up": 0x00400000, "up": 0x007FFFFF, "down": 0}[kernel.scale_rounding]
        return f"power_of_two({single}, {rounding}, 254, 255)"
    if kernel.dtype == "f16" and f16:
        return f"half({single}, {', '.join(map(repr, small_format('f16', kernel.saturate)[-3:-1]))})"
    return f"small_float({single}, {', '.join(map(repr, small_format(kernel.dtype, kernel.saturate)))})"


def small_format(dtype: str, saturate: bool) -> tuple[int, ...]:
    """What `small_float` has to know of a format: exponent and fraction bits, bias, codes of its special values."""
    kind = dtypes.get(dtype)
    numpy = kind.numpy
    code = np.uint16 if numpy.itemsize == 2 else np.uint8

    def of(x: float) -> int:
        return int(np.array(x, np.float32).astype(numpy).view(code))

    largest = of(float(kind.max))
    one = of(1.0)
    fraction = _fraction_bits(numpy, code)
    bits = kind.bits - 1 - fraction
    bias = one >> fraction
    inside = saturate and kind.bits <= 8
    sign = 1 << (kind.bits - 1)
    over = (largest, largest | sign) if inside else (of(np.inf), of(-np.inf))
    zero_sign = 0 if of(-0.0) == 0 else 1
    return (bits, fraction, bias, largest, *over, of(np.nan), of(-np.nan), zero_sign)


def _fraction_bits(numpy: Any, code: Any) -> int:
    one, two = (int(np.array(x, np.float32).astype(numpy).view(code)) for x in (1.0, 2.0))
    return (two - one).bit_length() - 1


@intrinsic
def _word(typingctx, x):
    """The bits of a float32."""

    def codegen(context, builder, signature, args):
        return builder.bitcast(args[0], cgutils.int32_t)

    return types.uint32(types.float32), codegen


@intrinsic
def _single(typingctx, i):
    """The float32 with these bits."""

    def codegen(context, builder, signature, args):
        return builder.bitcast(args[0], context.get_value_type(types.float32))

    return types.float32(types.uint32), codegen


@_scalar
def toward_zero(x):
    """Toward zero as s64; -2**63 for what it does not hold."""
    if x >= -9223372036854775808.0 and x < 9223372036854775808.0:
        return np.int64(x)
    return np.int64(-9223372036854775808)


@_scalar
def toward_zero_u64(x):
    """Toward zero as the bits of a u64; as s64 for what that does not hold."""
    if x >= 9223372036854775808.0 and x < 18446744073709551616.0:
        return np.int64(x - 9223372036854775808.0) ^ np.int64(-9223372036854775808)
    return toward_zero(x)


@_scalar
def toward_zero32(x):
    """Toward zero as s32; -2**31 for what it does not hold."""
    if x > -2147483649.0 and x < 2147483648.0:
        return np.int32(x)
    return np.int32(-2147483648)


@_scalar
def low_bits(x, bits, signed):
    """The low bits of an integer, as a code of so many bits."""
    code = x & ((1 << bits) - 1)
    return code - (1 << bits) if signed and code >= (1 << (bits - 1)) else code


@_scalar
def odd(x):
    """float64 to float32, rounded to odd."""
    y = np.float32(x)
    if not (np.isfinite(x)) or np.float64(y) == x:
        return y
    i = np.int64(_word(y))
    if abs(np.float64(y)) > abs(x):
        i -= 1
    return _single(np.uint32(i | 1))


@_scalar
def small_float(x, exponent_bits, fraction_bits, bias, largest, over, under, nan, negative_nan, signed_zero):
    """The code of x in a small format: to the nearest, ties to even. minifloat.py derives the steps.

    over, under   codes for what is above the largest finite value, and below its negative
    signed_zero   1: the format has a negative zero; 0: it has none
    """
    i = _word(np.float32(x))
    m = np.uint32(i & np.uint32(0x7FFFFFFF))
    drop = np.uint32(23 - fraction_bits)
    # Adding the power of two whose last place is the subnormal step rounds to that step.
    align = np.uint32(np.uint32(151 - bias - fraction_bits) << np.uint32(23))
    subnormal = np.uint32(_word(np.float32(_single(m) + _single(align))) - align)
    least = np.uint32(np.uint32(127 - bias) << np.uint32(23))
    half = np.uint32(np.uint32(np.uint32(1) << np.uint32(drop - np.uint32(1))) - np.uint32(1))
    last = np.uint32(np.uint32(m >> drop) & np.uint32(1))
    normal = np.uint32(np.uint32(np.uint32(np.uint32(m - least) + half) + last) >> drop)
    code = subnormal if m < np.uint32(least + np.uint32(1 << 23)) else normal
    negative = np.uint32(i >> np.uint32(31))
    sign = np.uint32(negative << np.uint32(exponent_bits + fraction_bits))
    signed = np.uint32(code | sign) if code != np.uint32(0) or signed_zero else code
    beyond = np.uint32(under) if negative else np.uint32(over)
    found = beyond if code > np.uint32(largest) or m >= np.uint32(0x7F800000) else signed
    missing = np.uint32(negative_nan) if negative else np.uint32(nan)
    return missing if m > np.uint32(0x7F800000) else found


@intrinsic
def _half(typingctx, x):
    """The bits of the nearest float16, ties to even; a NaN keeps what fits of its own bits."""

    def codegen(context, builder, signature, args):
        return builder.bitcast(builder.fptrunc(args[0], ir.HalfType()), ir.IntType(16))

    return types.uint16(types.float32), codegen


@_scalar
def half(x, nan, negative_nan):
    """small_float for float16, by the processor's instruction."""
    i = _word(np.float32(x))
    missing = np.uint16(negative_nan) if np.uint32(i >> np.uint32(31)) else np.uint16(nan)
    return missing if np.uint32(i & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000) else _half(np.float32(x))


@_scalar
def power_of_two(x, rounding, largest, nan):
    """The code of x in E8M0, 2**(code - 127): nan for what is negative or beyond, and for 0 where it rounds to nearest.

    rounding   what is added to the bits: half of the exponent's last place, all but nothing of it, or 0
    """
    i = np.int64(_word(np.float32(x)))
    m = i & 0x7FFFFFFF
    if m == 0:
        return nan if rounding == 0x00400000 else np.int64(0)
    if i >> 31 or m >= 0x7F800000:
        return nan
    if m < 0x00800000:  # above 2**-127 and below 2**-126, whose codes are 0 and 1
        return np.int64(1 if m > 0x00400000 and rounding else 0)
    code = (m + rounding) >> 23
    return nan if code > largest else code
