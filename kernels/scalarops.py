"""What a user's function needs beside vector math: min, max, clip, casts and int32 arithmetic, as written sequences.

Two minima exist because Python and NumPy differ on NaN, and each keeps its own meaning in every mode:
`min(a, b)` is Python's, `b if b < a else a`, so a NaN in b is passed over and one in a is kept; `np.minimum` returns a
NaN if there is one. Out of range, integer operations are defined here instead of raising: x // 0 and x % 0 are 0 and x,
a shift count outside 0..31 shifts everything out, an index past an end reads the end, and int32 wraps.
"""

from __future__ import annotations

from .floatops import INF, bits, f32, fabs, from_bits, int_divide, select, to_float, to_int
from .sequence import register, sequence


@sequence("ii->i", "ff->f")
def py_min(a, b):
    """Python's min(a, b): b if b < a else a."""
    return select(b < a, b, a)


@sequence("ii->i", "ff->f")
def py_max(a, b):
    """Python's max(a, b): b if b > a else a."""
    return select(b > a, b, a)


@sequence("ii->i", "ff->f")
def minimum(a, b):
    """np.minimum: the smaller, or NaN if either is."""
    return select((a < b) | (a != a), a, b)


@sequence("ii->i", "ff->f")
def maximum(a, b):
    """np.maximum: the larger, or NaN if either is."""
    return select((a > b) | (a != a), a, b)


@sequence("iii->i", "fff->f")
def clip(x, low, high):
    """np.clip: minimum(maximum(x, low), high)."""
    return minimum.fn(maximum.fn(x, low), high)


@sequence("i->i", "f->f")
def absolute(x):
    """Magnitude; the smallest int32 stays as it is."""
    return select(x < 0, -x, x) if _is_int(x) else fabs(x)


@sequence("i->i", "f->f")
def sign(x):
    """-1, 0 or 1; NaN for NaN."""
    if _is_int(x):
        return select(x > 0, 1, select(x < 0, -1, 0))
    return select(x > f32(0.0), f32(1.0), select(x < f32(0.0), f32(-1.0), select(x == x, f32(0.0), x)))


def _is_int(x):
    return getattr(x, "kind", None) == "i" or getattr(getattr(x, "dtype", None), "kind", "") == "i"


@sequence("f->b")
def isnan(x):
    """Whether x is NaN."""
    return x != x


@sequence("f->b")
def isinf(x):
    """Whether x is an infinity."""
    return fabs(x) == INF


@sequence("f->b")
def isfinite(x):
    """Whether x is neither infinite nor NaN."""
    return fabs(x) < INF


@sequence("ii->i")
def floor_divide(a, b):
    """a // b as Python does, rounding down; 0 where b is 0."""
    q = int_divide(a, b)
    return select((b != 0) & (q * b != a) & ((a ^ b) < 0), q - 1, q)


@sequence("ii->i")
def remainder(a, b):
    """a % b as Python does, with the sign of b; a where b is 0."""
    r = a - int_divide(a, b) * b
    return select((b != 0) & (r != 0) & ((r ^ b) < 0), r + b, r)


@sequence("ii->i")
def shift_left(a, count):
    """a << count modulo 2**32; 0 for a count outside 0..31."""
    return select((count & -32) == 0, a << (count & 31), 0)


@sequence("ii->i")
def shift_right(a, count):
    """a >> count, arithmetic; only the sign is left for a count outside 0..31."""
    return a >> select((count & -32) == 0, count, 31)


@sequence("ii->i")
def at(i, size):
    """The index i of a table of `size` elements: negative from the end, then held inside the table."""
    i = select(i < 0, i + size, i)
    return select(i < 0, 0, select(i >= size, size - 1, i))


def _ordered(i):
    """The bits of a float as an integer that orders like it, -0 below 0; its own inverse."""
    return i ^ ((i >> 31) & 0x7FFFFFFF)


@sequence("f->i")
def largest_key(x):
    """An integer that orders like x; below all others for NaN."""
    return select(x == x, _ordered(bits(x)), 1 - 2**31)  # not -2**31, with which LLVM sees through the maximum


@sequence("f->i")
def smallest_key(x):
    """An integer that orders like x; above all others for NaN."""
    return select(x == x, _ordered(bits(x)), 2**31 - 2)  # not 2**31 - 1, with which LLVM sees through the minimum


@sequence("i->f")
def key_value(key):
    """The float whose key this is."""
    return from_bits(_ordered(key))


register(select, "bbb->b", "bii->i", "bff->f")
register(to_int, "f->i")
register(to_float, "i->f")
