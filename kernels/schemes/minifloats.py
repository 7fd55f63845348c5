"""Small floats: FP4, FP6 and FP8 of several kinds, and bfloat16, each a cast of one number to one code.

Rounding is to the nearest, halves to the even code, subnormals included. What is too large saturates, or becomes what
the format has for it (infinity or NaN): schemes whose name ends in _nonsat. A NaN becomes the format's NaN; FP6 and FP4
have none, and store a zero of the other sign as ml_dtypes does; those with a scale store -0, as which sign a NaN has
that an operation made is not defined.
Sources: OCP 8-bit Floating Point Specification 1.0; OCP Microscaling Formats 1.0; ml_dtypes.
"""

import math
from dataclasses import dataclass

import numpy as np

from ..minifloat import bf16_bits, bf16_value, e8m0_bits, e8m0_value
from .definition import Definition as Scheme
from .integers import absmax


@dataclass(frozen=True)
class Format:
    """A float of one sign bit, `exponent` and `fraction` bits.

    bias       of the exponent
    largest    the code of the largest finite value, without the sign
    beyond     the code of what is larger, where it does not saturate
    nan        the code of a NaN
    unsigned_zero   whether there is no -0, because its code is the NaN (the fnuz formats)
    """

    exponent: int
    fraction: int
    bias: int
    largest: int
    beyond: int
    nan: int
    unsigned_zero: bool = False

    @property
    def bits(self) -> int:
        return 1 + self.exponent + self.fraction

    @property
    def values(self):
        """The value of every code, float32."""
        sign = 1 << (self.bits - 1)
        found = np.zeros(2 * sign, np.float32)
        for code in range(sign):
            e, f = code >> self.fraction, code & ((1 << self.fraction) - 1)
            value = math.ldexp(f if e == 0 else (1 << self.fraction) + f, max(e, 1) - self.bias - self.fraction)
            if code > self.largest:
                value = math.inf if code == self.beyond != self.nan else math.nan
            found[code], found[code | sign] = value, -value
        if self.unsigned_zero:
            found[sign] = np.nan
        return found

    @property
    def maximum(self) -> float:
        return float(self.values[self.largest])


FORMATS = {
    "e4m3": Format(4, 3, 7, 0x7E, 0x7F, 0x7F),
    "e5m2": Format(5, 2, 15, 0x7B, 0x7C, 0x7E),
    "e4m3fnuz": Format(4, 3, 8, 0x7F, 0x80, 0x80, unsigned_zero=True),
    "e5m2fnuz": Format(5, 2, 16, 0x7F, 0x80, 0x80, unsigned_zero=True),
    "e4m3b11fnuz": Format(4, 3, 11, 0x7F, 0x80, 0x80, unsigned_zero=True),
    "e4m3_ieee": Format(4, 3, 7, 0x77, 0x78, 0x7C),
    "e3m4": Format(3, 4, 3, 0x6F, 0x70, 0x78),
    "e2m3": Format(2, 3, 1, 0x1F, 0x1F, 0x20),
    "e3m2": Format(3, 2, 3, 0x1F, 0x1F, 0x20),
    "e2m1": Format(2, 1, 1, 0x7, 0x7, 0x8),
}


def rounding(form, saturate=True, signed_nan=False):
    """A function from a number to its code. `signed_nan`: a NaN has the sign that it came with, as no operation made it."""
    fraction, lowest = form.fraction, 1 - form.bias
    largest, nan = form.largest, form.nan
    beyond = form.largest if saturate else form.beyond
    limit = 2.0 * form.maximum
    sign = 1 << (form.bits - 1)
    turned = signed_nan and form.nan == sign and not form.unsigned_zero  # a zero of the other sign, as in ml_dtypes
    negative_zero = 0 if form.unsigned_zero else sign

    def code_of(x):
        a = abs(x)
        if a != a:
            return 0 if turned and np.copysign(1.0, x) < 0.0 else nan
        code = beyond if a > 0.0 else 0
        if a < limit and a > 0.0:
            e = max(math.frexp(a)[1] - 1, lowest)
            code = ((e - lowest) << fraction) + int(np.rint(math.ldexp(a, fraction - e)))
            if code > largest:
                code = beyond
        if code == 0:
            return negative_zero if np.copysign(1.0, x) < 0.0 else 0
        return code | sign if x < 0.0 else code

    return code_of


def element(name, form, saturate=True):
    """A cast: no parameters, every number on its own."""
    values = form.values

    def decode(code):
        return values[code]

    return Scheme(name, form.bits, "tensor", {}, None, rounding(form, saturate, signed_nan=True), decode)


def scaled(name, form, block):
    """A cast of x / scale, with the largest magnitude of a block at the largest value."""
    values, top, code_of = form.values, form.maximum, rounding(form)

    def fit(x):
        m = absmax(x)
        return (m / top if m > 0.0 else np.float32(1),)

    def encode(x, scale):
        return code_of(x / scale)

    def decode(code, scale):
        return values[code] * scale

    return Scheme(name, form.bits, block, {"scale": "f32"}, fit, encode, decode)


def bf16_encode(x):
    return bf16_bits(x)


def bf16_decode(code):
    return bf16_value(code)


def e8m0_encode(x):
    return e8m0_bits(x)


def e8m0_decode(code):
    return e8m0_value(code)


WIDTH = {8: "fp8", 6: "fp6", 4: "fp4"}
SCHEMES = [
    *(element(f"{WIDTH[f.bits]}_{name}", f) for name, f in FORMATS.items()),
    *(element(f"fp8_{name}_nonsat", f, saturate=False) for name, f in FORMATS.items() if f.bits == 8),
    Scheme("bf16", 16, "tensor", {}, None, bf16_encode, bf16_decode),
    Scheme("e8m0", 8, "tensor", {}, None, e8m0_encode, e8m0_decode),
    *(scaled(f"fp8_{name}_channel", FORMATS[name], "row") for name in ("e4m3", "e5m2")),
    *(scaled(f"{WIDTH[FORMATS[name].bits]}_{name}_g32", FORMATS[name], 32) for name in ("e2m1", "e2m3", "e3m2")),
]
