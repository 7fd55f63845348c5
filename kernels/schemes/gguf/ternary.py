"""TQ1_0 and TQ2_0: 256 weights of -1, 0 and 1 times one float16 number.

Source: ggml-quants.c, and the classes of these names in gguf/quants.py of the package gguf, whose bytes these equal.
TQ1_0 keeps five weights in a byte, as the digits of a number in base 3 that is scaled to 256; the last 16 weights lie
four to a byte.
"""

import numpy as np

from ...minifloat import f16_bits
from ..definition import Definition as Scheme
from ..grouped import Grouped
from .halves import as_byte, f16_at, half_away, has_nan, inverse, magnitude

BLOCK = 256


def trit(v, scale):
    return (as_byte(half_away(v * scale)) + 1) & 255


def in_256(digits):
    """A number of five digits in base 3, scaled up so that multiplying by 3 brings one digit after another to the top."""
    return ((digits & 255) * 256 + 242) // 243


def tq1_0_encode(x, codes):
    d = np.float32(np.nan) if has_nan(x) else magnitude(x)
    scale = inverse(d)
    for i in range(32):
        digits = trit(x[i], scale) * 81 + trit(x[i + 32], scale) * 27 + trit(x[i + 64], scale) * 9
        codes[i] = in_256(digits + trit(x[i + 96], scale) * 3 + trit(x[i + 128], scale)) & 255
    for i in range(16):
        digits = trit(x[i + 160], scale) * 81 + trit(x[i + 176], scale) * 27 + trit(x[i + 192], scale) * 9
        codes[32 + i] = in_256(digits + trit(x[i + 208], scale) * 3 + trit(x[i + 224], scale)) & 255
    for i in range(4):
        digits = trit(x[i + 240], scale) * 81 + trit(x[i + 244], scale) * 27
        codes[48 + i] = in_256(digits + trit(x[i + 248], scale) * 9 + trit(x[i + 252], scale) * 3) & 255
    bits = f16_bits(d)
    codes[52] = bits & 255
    codes[53] = bits >> 8


POWERS = np.array([1, 3, 9, 27, 81], np.int32)


def tq1_0_split(codes, q, scale):
    scale[0] = f16_at(codes, 52)
    for digit in range(5):
        for i in range(32):
            q[digit * 32 + i] = (((codes[i] * POWERS[digit]) & 255) * 3) >> 8
    for digit in range(5):
        for i in range(16):
            q[160 + digit * 16 + i] = (((codes[32 + i] * POWERS[digit]) & 255) * 3) >> 8
    for digit in range(4):
        for i in range(4):
            q[240 + digit * 4 + i] = (((codes[48 + i] * POWERS[digit]) & 255) * 3) >> 8


def tq2_0_encode(x, codes):
    d = np.float32(np.nan) if has_nan(x) else magnitude(x)
    scale = inverse(d)
    for half in range(2):
        for i in range(32):
            a = trit(x[half * 128 + i], scale) | (trit(x[half * 128 + 32 + i], scale) << 2)
            b = trit(x[half * 128 + 64 + i], scale) | (trit(x[half * 128 + 96 + i], scale) << 2)
            codes[half * 32 + i] = (a | (b << 4)) & 255
    bits = f16_bits(d)
    codes[64] = bits & 255
    codes[65] = bits >> 8


def tq2_0_split(codes, q, scale):
    scale[0] = f16_at(codes, 64)
    for half in range(2):
        for shift in range(4):
            for i in range(32):
                q[half * 128 + shift * 32 + i] = (codes[half * 32 + i] >> (2 * shift)) & 3


SCHEMES = [
    Scheme(
        "tq1_0", 8, BLOCK, {}, block_bytes=54, encode_block=tq1_0_encode, grouped=Grouped(tq1_0_split, 2, BLOCK, zero=1)
    ),
    Scheme(
        "tq2_0", 8, BLOCK, {}, block_bytes=66, encode_block=tq2_0_encode, grouped=Grouped(tq2_0_split, 2, BLOCK, zero=1)
    ),
]
