"""Q4_0, Q4_1, Q5_0, Q5_1, Q8_0: 32 weights with one or two float16 numbers.

Source: ggml-quants.c, and the classes of these names in gguf/quants.py of the package gguf, whose bytes these equal.
"""

import numpy as np

from ...minifloat import f16_bits
from ..definition import Definition as Scheme
from ..grouped import Grouped
from .halves import as_byte, f16_at, half_away, has_nan, inverse, magnitude, signed_extreme, spread

BLOCK = 32


def q4_0_encode(x, codes):
    d = np.float32(np.nan) if has_nan(x) else signed_extreme(x) / -8.0
    scale = inverse(d)
    bits = f16_bits(d)
    codes[0] = bits & 255
    codes[1] = bits >> 8
    for i in range(16):
        low = min(as_byte(x[i] * scale + 8.5), 15)
        high = min(as_byte(x[i + 16] * scale + 8.5), 15)
        codes[2 + i] = low | (high << 4)


def q4_0_split(codes, q, scale):
    scale[0] = f16_at(codes, 0)
    for i in range(16):
        q[i] = (codes[2 + i] & 15) - 8
    for i in range(16):
        q[i + 16] = (codes[2 + i] >> 4) - 8


def q4_1_encode(x, codes):
    lo, hi = spread(x)
    if has_nan(x):
        lo = np.float32(np.nan)
        hi = lo
    d = (hi - lo) / 15.0
    scale = inverse(d)
    bits = f16_bits(d)
    low_bits = f16_bits(lo)
    codes[0] = bits & 255
    codes[1] = bits >> 8
    codes[2] = low_bits & 255
    codes[3] = low_bits >> 8
    for i in range(16):
        low = min(as_byte((x[i] - lo) * scale + 0.5), 15)
        high = min(as_byte((x[i + 16] - lo) * scale + 0.5), 15)
        codes[4 + i] = low | (high << 4)


def q4_1_split(codes, q, scale, offset):
    scale[0] = f16_at(codes, 0)
    offset[0] = f16_at(codes, 2)
    for i in range(16):
        q[i] = codes[4 + i] & 15
    for i in range(16):
        q[i + 16] = codes[4 + i] >> 4


def q5_0_encode(x, codes):
    d = np.float32(np.nan) if has_nan(x) else signed_extreme(x) / -16.0
    scale = inverse(d)
    bits = f16_bits(d)
    codes[0] = bits & 255
    codes[1] = bits >> 8
    high_bits = 0
    for i in range(16):
        low = min(as_byte(x[i] * scale + 16.5), 31)
        high = min(as_byte(x[i + 16] * scale + 16.5), 31)
        codes[6 + i] = (low & 15) | ((high & 15) << 4)
        high_bits = high_bits | ((low >> 4) << i) | ((high >> 4) << (i + 16))
    for i in range(4):
        codes[2 + i] = (high_bits >> (8 * i)) & 255


def q5_0_split(codes, q, scale):
    scale[0] = f16_at(codes, 0)
    low_half = codes[2] | (codes[3] << 8)
    high_half = codes[4] | (codes[5] << 8)
    for i in range(16):
        q[i] = ((codes[6 + i] & 15) | (((low_half >> i) & 1) << 4)) - 16
    for i in range(16):
        q[i + 16] = ((codes[6 + i] >> 4) | (((high_half >> i) & 1) << 4)) - 16


def q5_1_encode(x, codes):
    lo, hi = spread(x)
    if has_nan(x):
        lo = np.float32(np.nan)
        hi = lo
    d = (hi - lo) / 31.0
    scale = inverse(d)
    bits = f16_bits(d)
    low_bits = f16_bits(lo)
    codes[0] = bits & 255
    codes[1] = bits >> 8
    codes[2] = low_bits & 255
    codes[3] = low_bits >> 8
    high_bits = 0
    for i in range(16):
        low = min(as_byte((x[i] - lo) * scale + 0.5), 31)
        high = min(as_byte((x[i + 16] - lo) * scale + 0.5), 31)
        codes[8 + i] = (low & 15) | ((high & 15) << 4)
        high_bits = high_bits | ((low >> 4) << i) | ((high >> 4) << (i + 16))
    for i in range(4):
        codes[4 + i] = (high_bits >> (8 * i)) & 255


def q5_1_split(codes, q, scale, offset):
    scale[0] = f16_at(codes, 0)
    offset[0] = f16_at(codes, 2)
    low_half = codes[4] | (codes[5] << 8)
    high_half = codes[6] | (codes[7] << 8)
    for i in range(16):
        q[i] = (codes[8 + i] & 15) | (((low_half >> i) & 1) << 4)
    for i in range(16):
        q[i + 16] = (codes[8 + i] >> 4) | (((high_half >> i) & 1) << 4)


def q8_0_encode(x, codes):
    d = np.float32(np.nan) if has_nan(x) else magnitude(x) / 127.0
    scale = inverse(d)
    bits = f16_bits(d)
    codes[0] = bits & 255
    codes[1] = bits >> 8
    for i in range(32):
        codes[2 + i] = as_byte(half_away(x[i] * scale))


def q8_0_split(codes, q, scale):
    scale[0] = f16_at(codes, 0)
    for i in range(32):
        q[i] = (codes[2 + i] ^ 128) - 128


SCHEMES = [
    Scheme(
        "q4_0",
        8,
        BLOCK,
        {},
        block_bytes=18,
        encode_block=q4_0_encode,
        grouped=Grouped(q4_0_split, 4, BLOCK, signed=True),
    ),
    Scheme(
        "q4_1",
        8,
        BLOCK,
        {},
        block_bytes=20,
        encode_block=q4_1_encode,
        grouped=Grouped(q4_1_split, 4, BLOCK, offset=True),
    ),
    Scheme(
        "q5_0",
        8,
        BLOCK,
        {},
        block_bytes=22,
        encode_block=q5_0_encode,
        grouped=Grouped(q5_0_split, 5, BLOCK, signed=True),
    ),
    Scheme(
        "q5_1",
        8,
        BLOCK,
        {},
        block_bytes=24,
        encode_block=q5_1_encode,
        grouped=Grouped(q5_1_split, 5, BLOCK, offset=True),
    ),
    Scheme(
        "q8_0",
        8,
        BLOCK,
        {},
        block_bytes=34,
        encode_block=q8_0_encode,
        grouped=Grouped(q8_0_split, 8, BLOCK, signed=True),
    ),
]
