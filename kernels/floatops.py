"""The IEEE operations that every written sequence is made of, on float32 and int32.

Each takes NumPy scalars, NumPy arrays, or `Traced` values. On the first two it computes; a `Traced` value belongs to a
backend that writes a program instead (kernels/cpu/vectormath.py writes LLVM IR), so that one Python function is at once
the definition, the oracle and the source of the compiled code.

Kinds: "f" float32, "i" int32 (wrapping), "b" bool. Operators on the values are IEEE float32 (+ - * /, compares) and
two's complement int32 (+ - *, & | ^, << and arithmetic >> by a constant).
"""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np

f32 = np.float32

ONE_BITS = 0x3F800000
NAN = f32(np.nan)  # 0x7fc00000, the only NaN that a sequence makes
INF = f32(np.inf)


class Traced:
    """A value of a program that is being written. A backend subclasses it, with the operators and `primitive`."""

    __slots__ = ()
    __array_ufunc__ = None  # so that np.float32 * Traced asks Traced

    def primitive(self, name: str, *args: Any) -> Any:
        """Write the operation `name` of this file on `args` (traced values or constants)."""
        raise NotImplementedError


def traced(*args: Any) -> Traced | None:
    """Return the first traced value among `args`, if there is one."""
    for a in args:
        if isinstance(a, Traced):
            return a
    return None


def _is_array(a: Any, b: Any, c: Any) -> bool:
    return isinstance(a, np.ndarray) or isinstance(b, np.ndarray) or isinstance(c, np.ndarray)


def select(condition: Any, yes: Any, no: Any) -> Any:
    """Return `yes` where `condition` holds, else `no`. Both were computed."""
    if t := traced(condition, yes, no):
        return t.primitive("select", condition, yes, no)
    yes, no = (np.int32(v) if type(v) is int else v for v in (yes, no))
    if _is_array(condition, yes, no):
        return np.where(condition, yes, no)
    return yes if condition else no


def fma(a: Any, b: Any, c: Any) -> Any:
    """Return a * b + c with one rounding.

    Emulated exactly: the product of two float32 is exact in float64; the sum is rounded to odd there, so that the last
    rounding to float32 is the only one that counts (Boldo and Melquiond, 2008).
    """
    if t := traced(a, b, c):
        return t.primitive("fma", a, b, c)
    if _is_array(a, b, c):
        return _fma_array(a, b, c)
    p, q = float(a) * float(b), float(c)
    s = p + q
    z = s - p
    e = (p - (s - z)) + (q - z)
    if e > 0.0 or e < 0.0:  # false for NaN, which comes from infinities
        (code,) = struct.unpack("<q", struct.pack("<d", s))
        if not code & 1:
            s = math.nextafter(s, math.inf if e > 0.0 else -math.inf)
    return f32(s)


def _fma_array(a: Any, b: Any, c: Any) -> Any:
    p, q = np.asarray(a, np.float64) * np.asarray(b, np.float64), np.asarray(c, np.float64)
    s = p + q
    z = s - p
    e = (p - (s - z)) + (q - z)
    code = s.view(np.int64)
    step = np.where((e > 0) == (s > 0), 1, -1)
    inexact_even = ((e > 0) | (e < 0)) & ((code & 1) == 0)
    return np.where(inexact_even, code + step, code).view(np.float64).astype(f32)


def sqrt(x: Any) -> Any:
    """Return the square root, correctly rounded; NaN below zero, -0 for -0."""
    if t := traced(x):
        return t.primitive("sqrt", x)
    return np.sqrt(x)


def rint(x: Any) -> Any:
    """Round to the nearest integer, ties to even."""
    if t := traced(x):
        return t.primitive("rint", x)
    return np.rint(x)


def floor(x: Any) -> Any:
    """Round down."""
    if t := traced(x):
        return t.primitive("floor", x)
    return np.floor(x)


def ceil(x: Any) -> Any:
    """Round up."""
    if t := traced(x):
        return t.primitive("ceil", x)
    return np.ceil(x)


def trunc(x: Any) -> Any:
    """Round toward zero."""
    if t := traced(x):
        return t.primitive("trunc", x)
    return np.trunc(x)


def fabs(x: Any) -> Any:
    """Clear the sign bit."""
    if t := traced(x):
        return t.primitive("fabs", x)
    return np.fabs(x)


def copysign(x: Any, sign: Any) -> Any:
    """Return the magnitude of `x` with the sign bit of `sign`."""
    if t := traced(x, sign):
        return t.primitive("copysign", x, sign)
    return np.copysign(x, sign)


def bits(x: Any) -> Any:
    """Reinterpret a float32 as int32."""
    if t := traced(x):
        return t.primitive("bits", x)
    return x.view(np.int32)


def from_bits(i: Any) -> Any:
    """Reinterpret an int32 as float32."""
    if t := traced(i):
        return t.primitive("from_bits", i)
    return i.view(f32)


def to_float(i: Any) -> Any:
    """Convert an int32 to float32, half to even."""
    if t := traced(i):
        return t.primitive("to_float", i)
    return i.astype(f32)


def to_int(x: Any) -> Any:
    """Convert a float32 to int32: toward zero, saturating, NaN to 0."""
    if t := traced(x):
        return t.primitive("to_int", x)
    wide = np.trunc(x.astype(np.float64))
    wide = np.where(wide == wide, np.clip(wide, -(2.0**31), 2.0**31 - 1), 0.0)
    return wide.astype(np.int32)[()]


def scale(x: Any, k: Any) -> Any:
    """Return x * 2**k with one rounding, for 2**-8 < |x| < 2**30 (0 and infinity if k is 0) and -230 < k < 130.

    Half of k goes into the exponent bits of x, exactly; the product with the other half rounds once.
    """
    if t := traced(x, k):
        return t.primitive("scale", x, k)
    return scale_in_halves(x, k)


def scale_in_halves(x: Any, k: Any) -> Any:
    """`scale` where no instruction does it."""
    half = k >> 1
    return from_bits(bits(x) + (half << 23)) * from_bits(((k - half) << 23) + ONE_BITS)


def int_divide(a: Any, b: Any) -> Any:
    """Divide int32 toward zero, wrapping; 0 where `b` is 0."""
    if t := traced(a, b):
        return t.primitive("int_divide", a, b)
    wide, by = np.asarray(a, np.int64), np.asarray(b, np.int64)
    q = np.where(by == 0, 0, np.abs(wide) // np.maximum(np.abs(by), 1))
    return np.where((wide < 0) == (by < 0), q, -q).astype(np.int32)[()]
