"""MXFP4, MXFP6, MXFP8 and MXINT8: elements that share a power of two over 32, and the four rules for that power.

    floor   2**(floor(log2 amax) - p), where 2**p is the largest power of two of the element: OCP's rule
    ceil    with the ceiling of the logarithm
    even    floor, after amax was rounded to the fraction of the element
    rceil   the ceiling of log2(amax / largest element): nothing saturates

Elements saturate. `floor` has no ending in a scheme's name, the others have theirs. Blocks and codes equal torchao's
(prototype/mx_formats/mx_tensor.py), whose float32 logarithm rceil has, rounding included.
Source: OCP Microscaling Formats (MX) Specification 1.0, 2023.
"""

import math

import numpy as np

from .definition import Definition as Scheme
from .minifloats import FORMATS, rounding

MODES = ("floor", "ceil", "even", "rceil")
LEAST = 2.0**-127
SMALLEST_NORMAL = 2.0**-126


def magnitude(x):
    """The largest magnitude; NaN where there is one."""
    m = np.float32(0)
    for v in x:
        m = max(m, abs(v))
    bad = 0
    for v in x:
        bad = bad | (1 if v != v else 0)
    return np.float32(np.nan) if bad else m


def power(e):
    """2**e held between 2**-127 and 2**127."""
    return math.ldexp(1.0, min(max(e, -127), 127))


def log2_ceil(m):
    """ceil(log2(m)) as float32 has it: just above a power of two, the logarithm rounds down to a whole number."""
    mantissa, exponent = math.frexp(m)
    whole = exponent - 1
    size = whole if whole > 0 else -whole - 1
    step = 0.5
    while size > 0:
        size = size >> 1
        step = step * 2.0
    above = (2.0 * mantissa - 1.0) * 16777216.0 * 1.442695
    return whole if above == 0.0 or (above < step and whole != 0) else exponent


def fitting(mode, largest_power, fraction, largest):
    """fit for a rule."""
    tie = 1.0 - 0.25 * 0.5**fraction  # a mantissa in 0.5 .. 1 that rounds to 1 with `fraction` bits behind the point

    def floor_fit(x):
        m = magnitude(x)
        e = 129 if m > 3.4028235e38 else math.frexp(m)[1]
        return (m if m != m else power(e - 1 - largest_power) if m > 0.0 else LEAST,)

    def ceil_fit(x):
        m = magnitude(x)
        mantissa, e = math.frexp(m)
        e = 129 if m > 3.4028235e38 else e - 1 if mantissa == 0.5 else e
        return (m if m != m else power(e - largest_power) if m > 0.0 else LEAST,)

    def even_fit(x):
        m = magnitude(x)
        mantissa, e = math.frexp(m)
        e = 129 if m > 3.4028235e38 else e + 1 if mantissa >= tie else e
        return (m if m != m else power(e - 1 - largest_power) if m > 0.0 else LEAST,)

    def rceil_fit(x):
        m = magnitude(x) / largest
        whole = 127 if m > 3.4028235e38 else log2_ceil(m)
        return (m if m != m else power(whole) if m > 0.0 else LEAST,)

    return {"floor": floor_fit, "ceil": ceil_fit, "even": even_fit, "rceil": rceil_fit}[mode]


def held(x, scale):
    """x / scale; the least scale counts as the smallest normal number, and NaN as infinity, as in torchao."""
    return x / (np.float32(np.inf) if scale != scale else max(scale, SMALLEST_NORMAL))


def held_rceil(x, scale):
    """x times the reciprocal; the least scale counts as 1."""
    return x * (1.0 if scale == LEAST else 1.0 / scale)


def mx(name, element, mode="floor", block=32):
    """A scheme with elements of a small float."""
    form = FORMATS[element]
    values, code_of = form.values, rounding(form)
    dividing = held_rceil if mode == "rceil" else held
    fit = fitting(mode, math.frexp(form.maximum)[1] - 1, form.fraction, form.maximum)

    def encode(x, scale):
        return code_of(dividing(x, scale))

    def decode(code, scale):
        return values[code] * scale

    return Scheme(name, form.bits, block, {"scale": "e8m0"}, fit, encode, decode)


def mxint8(name, mode="floor", block=32):
    """Elements are eight-bit integers over 64, so from -2 to 1.984375; encoding stays inside +-127."""
    fit = fitting(mode, 0, 6, 1.984375)

    def encode(x, scale):
        return min(max(np.rint(held(x, scale) * 64.0), -127.0), 127.0)

    def decode(code, scale):
        return code * 0.015625 * scale

    return Scheme(name, 8, block, {"scale": "e8m0"}, fit, encode, decode, signed=True)


NAMES = {
    "mxfp8_e4m3": "e4m3",
    "mxfp8_e5m2": "e5m2",
    "mxfp6_e2m3": "e2m3",
    "mxfp6_e3m2": "e3m2",
    "mxfp4": "e2m1",
}
SCHEMES = [
    *(
        mx(name if mode == "floor" else f"{name}_{mode}", element, mode)
        for name, element in NAMES.items()
        for mode in MODES
        if (name, mode) != ("mxfp4", "floor")  # microscaling.py has it
    ),
    *(mxint8("mxint8" if mode == "floor" else f"mxint8_{mode}", mode) for mode in MODES),
]
