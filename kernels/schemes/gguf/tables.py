"""IQ4_NL, IQ4_XS, MXFP4 and NVFP4: codes that stand for a value of a table, times a scale.

Source: ggml-quants.c, and the classes of these names in gguf/quants.py of the package gguf. MXFP4 equals its bytes: the
nearest of the doubled E2M1 values, the smaller magnitude where two are as near, which is not what OCP's rule does.
"""

import math

import numpy as np

from ..definition import Definition as Scheme
from ..grouped import Grouped
from .halves import f16_at, has_nan, magnitude

NONLINEAR = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32)
E2M1_DOUBLED = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.float32)


def iq4_nl_split(codes, q, scale):
    scale[0] = f16_at(codes, 0)
    for i in range(16):
        q[i] = codes[2 + i] & 15
    for i in range(16):
        q[i + 16] = codes[2 + i] >> 4


def iq4_xs_split(codes, q, scale):
    d = f16_at(codes, 0)
    high = codes[2] | (codes[3] << 8)
    for j in range(8):
        low = (codes[4 + (j >> 1)] >> (4 * (j & 1))) & 15
        scale[j] = d * ((low | (((high >> (2 * j)) & 3) << 4)) - 32)
    for j in range(8):
        for i in range(16):
            q[j * 32 + i] = codes[8 + j * 16 + i] & 15
        for i in range(16):
            q[j * 32 + 16 + i] = codes[8 + j * 16 + i] >> 4


def half_power(e):
    """2**(e - 128): half of an E8M0 scale, because the values are doubled; 255 is no NaN here."""
    return math.ldexp(1.0, e - 128)


def log2_floor(m):
    """floor(log2(m)) as float32 has it: just below a power of two, the logarithm rounds up to a whole number."""
    mantissa, exponent = math.frexp(m)  # m is a little less than 2**exponent where the mantissa is a little less than 1
    size = exponent - 1 if exponent > 0 else -exponent
    step = 0.5  # half the distance of floats near the logarithm, in units of 2**-24
    while size > 0:
        size = size >> 1
        step = step * 2.0
    return exponent if (1.0 - mantissa) * 16777216.0 * 1.442695 < step else exponent - 1


def mxfp4_encode(x, codes):
    m = np.float32(np.nan) if has_nan(x) else magnitude(x)
    e = (log2_floor(m) + 125) & 255 if m > 0.0 else 0
    codes[0] = e
    d = half_power(e)
    for i in range(16):
        codes[1 + i] = nearest(x[i], d) | (nearest(x[i + 16], d) << 4)


def nearest(v, d):
    """The first of the sixteen values times d that is nearest to v."""
    a = abs(v)
    least = a
    code = 0
    for k in range(1, 8):
        error = abs(d * E2M1_DOUBLED[k] - a)
        if error < least:
            least = error
            code = k
    return code + 8 if v < 0.0 and code > 0 else code


def mxfp4_split(codes, q, scale):
    scale[0] = half_power(codes[0])
    for i in range(16):
        q[i] = codes[1 + i] & 15
    for i in range(16):
        q[i + 16] = codes[1 + i] >> 4


def half_e4m3(code):
    """Half of an unsigned E4M3 scale; 0x7F is 0."""
    exponent = (code >> 3) & 15
    fraction = code & 7
    if code == 127:
        return 0.0
    if exponent == 0:
        return fraction * 0.0009765625
    return (8 + fraction) * math.ldexp(1.0, exponent - 11)


def nvfp4_split(codes, q, scale):
    for j in range(4):
        scale[j] = half_e4m3(codes[j])
        for i in range(8):
            q[j * 16 + i] = codes[4 + j * 8 + i] & 15
        for i in range(8):
            q[j * 16 + 8 + i] = codes[4 + j * 8 + i] >> 4


SCHEMES = [
    Scheme("iq4_nl", 8, 32, {}, block_bytes=18, grouped=Grouped(iq4_nl_split, 4, 32, table=NONLINEAR)),
    Scheme("iq4_xs", 8, 256, {}, block_bytes=136, grouped=Grouped(iq4_xs_split, 4, 32, table=NONLINEAR)),
    Scheme(
        "mxfp4_gguf",
        8,
        32,
        {},
        block_bytes=17,
        encode_block=mxfp4_encode,
        grouped=Grouped(mxfp4_split, 4, 32, table=E2M1_DOUBLED),
    ),
    Scheme("nvfp4_gguf", 8, 64, {}, block_bytes=36, grouped=Grouped(nvfp4_split, 4, 16, table=E2M1_DOUBLED)),
]
