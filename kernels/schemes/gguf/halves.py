"""What the functions of several GGUF types share: float16 inside bytes, and NumPy's casts of floats to integers."""

import numpy as np

from ...minifloat import f16_value


def f16_at(codes, at):
    """The float16 in two bytes, lower byte first."""
    return f16_value(codes[at] | (codes[at + 1] << 8))


def has_nan(x):
    """1 where one of a block is NaN, else 0."""
    found = 0
    for v in x:
        if v != v:
            found = 1
    return found


def spread(x):
    """(lowest, highest) of a block."""
    lo = x[0]
    hi = x[0]
    for v in x:
        lo = min(lo, v)
        hi = max(hi, v)
    return lo, hi


def magnitude(x):
    """The largest magnitude of a block, NaN passed over."""
    m = np.float32(0)
    for v in x:
        m = max(m, abs(v))
    return m


def signed_extreme(x):
    """The first of the elements with the largest magnitude."""
    lo = x[0]
    hi = x[0]
    for v in x:
        lo = min(lo, v)
        hi = max(hi, v)
    if hi == -lo:
        for v in x:
            if abs(v) == hi:
                return v
    return lo if -lo > hi else hi


def inverse(d):
    """1 / d, and 0 where d is 0."""
    return np.float32(0) if d == 0.0 else np.float32(1) / d


def as_byte(y):
    """A float cast to an integer as NumPy does on x86: what int32 does not hold, and NaN, become 0 in the low byte."""
    return int(y) & 255 if abs(y) < 2147483648.0 else 0


def half_away(y):
    """The nearest integer, halves away from zero."""
    whole = np.trunc(y)
    return whole + np.trunc(2.0 * (y - whole))
