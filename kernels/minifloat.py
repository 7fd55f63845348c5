"""float32 to and from float16, bfloat16 and the two fp8 formats, as integer operations that vectorise.

Codes are int32 holding the bits of the small float. Rounding is to the nearest, ties to even, subnormals included.
Results equal ml_dtypes' casts bit for bit; a NaN keeps its sign and becomes the one quiet code of its format, where
NumPy's float16 cast keeps payload bits. `*_sat` holds infinities and overflow at the largest finite value, as hardware
and torch do for e4m3fn.
"""

from __future__ import annotations

from .floatops import bits, f32, from_bits, select, to_float
from .sequence import sequence

MAGNITUDE = 0x7FFFFFFF
INFINITY = 0x7F800000
QUIET_NAN = 0x7FC00000


def _encode(x, exponent_bits, fraction_bits, overflow, nan):
    """Return the code of x with its sign bit; `overflow` replaces what rounds to it or beyond, unless it is NaN."""
    drop = 23 - fraction_bits
    bias = (1 << (exponent_bits - 1)) - 1
    i = bits(x)
    m = i & MAGNITUDE
    least_normal = (128 - bias) << 23
    # adding the power of two whose last place is the subnormal step rounds to that step
    align = (127 - bias + 1 + drop) << 23
    subnormal = bits(from_bits(m) + from_bits_constant(align)) - align
    normal = (m + (((1 << (drop - 1)) - 1) - ((127 - bias) << 23)) + ((m >> drop) & 1)) >> drop
    code = select(m < least_normal, subnormal, normal)
    code = select((code > overflow) | (m >= INFINITY), overflow, code)
    code = select(m > INFINITY, nan, code)
    return code | ((i >> (31 - exponent_bits - fraction_bits)) & (1 << (exponent_bits + fraction_bits)))


def from_bits_constant(i):
    """Return the float32 constant with bits i."""
    return f32(2.0) ** ((i >> 23) - 127)


def _decode(code, exponent_bits, fraction_bits, first_special, first_nan):
    """Return the float32 of a code: from `first_special` up the exponent is all ones, from `first_nan` up it is NaN."""
    bias = (1 << (exponent_bits - 1)) - 1
    width = exponent_bits + fraction_bits
    m = code & ((1 << width) - 1)
    i = m << (23 - fraction_bits)
    value = bits(from_bits(i) * from_bits_constant((254 - bias) << 23))
    value = select(m >= first_special, i | INFINITY, value)
    value = select(m >= first_nan, QUIET_NAN, value)
    return from_bits(value | ((code & (1 << width)) << (31 - width)))


@sequence("f->i")
def f16_bits(x):
    """float16 code of x; infinity on overflow."""
    return _encode(x, 5, 10, 0x7C00, 0x7E00)


@sequence("i->f")
def f16_value(code):
    """float32 value of a float16 code, exact."""
    return _decode(code, 5, 10, 0x7C00, 0x8000)


@sequence("f->i")
def bf16_bits(x):
    """bfloat16 code of x; infinity on overflow."""
    i = bits(x)
    rounded = ((i + (((i >> 16) & 1) + 0x7FFF)) >> 16) & 0xFFFF
    return select((i & MAGNITUDE) > INFINITY, ((i >> 16) & 0x8000) | 0x7FC0, rounded)


@sequence("i->f")
def bf16_value(code):
    """float32 value of a bfloat16 code, exact."""
    return from_bits(code << 16)


@sequence("f->i")
def e4m3_bits(x):
    """float8 e4m3fn code of x; NaN on overflow and for infinities, as ml_dtypes."""
    return _encode(x, 4, 3, 0x7F, 0x7F)


@sequence("f->i")
def e4m3_bits_sat(x):
    """float8 e4m3fn code of x; 448 on overflow and for infinities, as torch."""
    return _encode(x, 4, 3, 0x7E, 0x7F)


@sequence("i->f")
def e4m3_value(code):
    """float32 value of a float8 e4m3fn code, exact."""
    return _decode(code, 4, 3, 0x7F, 0x7F)


@sequence("f->i")
def e5m2_bits(x):
    """float8 e5m2 code of x; infinity on overflow."""
    return _encode(x, 5, 2, 0x7C, 0x7E)


@sequence("f->i")
def e5m2_bits_sat(x):
    """float8 e5m2 code of x; 57344 on overflow and for infinities."""
    return _encode(x, 5, 2, 0x7B, 0x7E)


@sequence("i->f")
def e5m2_value(code):
    """float32 value of a float8 e5m2 code, exact."""
    return _decode(code, 5, 2, 0x7C, 0x7D)


@sequence("i->f")
def e8m0_value(code):
    """float32 value of an E8M0 scale, 2**(code - 127); NaN for 255."""
    code = code & 255
    return from_bits(select(code == 0, 0x00400000, select(code == 255, QUIET_NAN, code << 23)))


@sequence("f->i")
def e8m0_bits(x):
    """Code of the nearest power of two as an E8M0 scale, ties up; 2**-127 for zero; NaN (255) below 0 and for infinity.

    Equals ml_dtypes, which rounds everything between 2**-127 and 2**-126 up, but for zero, which is NaN there.
    """
    i = bits(x)
    normal = ((i + 0x00400000) >> 23) & 0x1FF
    code = select((i & MAGNITUDE) < 0x00800000, select(i > 0x00400000, 1, 0), normal)
    code = select(code > 254, 255, code)
    return select((i > INFINITY - 1) | ((i < 0) & ((i & MAGNITUDE) != 0)), 255, code)


@sequence("i->i")
def wrap_s8(i):
    """Low eight bits of i as a signed number."""
    return (i << 24) >> 24


@sequence("i->i")
def wrap_s16(i):
    """Low sixteen bits of i as a signed number."""
    return (i << 16) >> 16


@sequence("i->f")
def unsigned_value(i):
    """float32 of the bits of i read as uint32."""
    return to_float((i >> 16) & 0xFFFF) * f32(65536.0) + to_float(i & 0xFFFF)
