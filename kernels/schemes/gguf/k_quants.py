"""Q2_K to Q6_K: 256 weights in groups of 16 or 32, whose scales are integers times one or two float16 numbers.

Source: ggml-quants.c (dequantize_row_q2_K and so on), and the classes of these names in gguf/quants.py.
"""

from ..definition import Definition as Scheme
from ..grouped import Grouped
from .halves import f16_at

BLOCK = 256


def q2_k_split(codes, q, scale, offset):
    d = f16_at(codes, 80)
    dmin = f16_at(codes, 82)
    for j in range(16):
        scale[j] = d * (codes[j] & 15)
        offset[j] = -(dmin * (codes[j] >> 4))
    for half in range(2):
        for shift in range(4):
            for i in range(32):
                q[half * 128 + shift * 32 + i] = (codes[16 + half * 32 + i] >> (2 * shift)) & 3


def q3_k_split(codes, q, scale):
    d = f16_at(codes, 108)
    for j in range(16):
        low = codes[96 + (j & 7)] >> (4 * (j >> 3))
        high = codes[104 + (j & 3)] >> (2 * (j >> 2))
        scale[j] = d * (((low & 15) | ((high & 3) << 4)) - 32)
    for half in range(2):
        for shift in range(4):
            for i in range(32):
                low = (codes[32 + half * 32 + i] >> (2 * shift)) & 3
                high = (codes[i] >> (half * 4 + shift)) & 1
                q[half * 128 + shift * 32 + i] = (low | (high << 2)) - 4


def six_bits(codes, j):
    """(scale, minimum) number j of the eight that Q4_K and Q5_K keep in 12 bytes from byte 4 on."""
    if j < 4:
        return codes[4 + j] & 63, codes[8 + j] & 63
    last = codes[8 + j]
    return (last & 15) | ((codes[j] >> 6) << 4), (last >> 4) | ((codes[4 + j] >> 6) << 4)


def q4_k_split(codes, q, scale, offset):
    d = f16_at(codes, 0)
    dmin = f16_at(codes, 2)
    for j in range(8):
        s, m = six_bits(codes, j)
        scale[j] = d * s
        offset[j] = -(dmin * m)
    for pair in range(4):
        for i in range(32):
            q[pair * 64 + i] = codes[16 + pair * 32 + i] & 15
        for i in range(32):
            q[pair * 64 + 32 + i] = codes[16 + pair * 32 + i] >> 4


def q5_k_split(codes, q, scale, offset):
    d = f16_at(codes, 0)
    dmin = f16_at(codes, 2)
    for j in range(8):
        s, m = six_bits(codes, j)
        scale[j] = d * s
        offset[j] = -(dmin * m)
    for pair in range(4):
        for i in range(32):
            high = (codes[16 + i] >> (2 * pair)) & 1
            q[pair * 64 + i] = (codes[48 + pair * 32 + i] & 15) | (high << 4)
        for i in range(32):
            high = (codes[16 + i] >> (2 * pair + 1)) & 1
            q[pair * 64 + 32 + i] = (codes[48 + pair * 32 + i] >> 4) | (high << 4)


def q6_k_split(codes, q, scale):
    d = f16_at(codes, 208)
    for j in range(16):
        scale[j] = d * ((codes[192 + j] ^ 128) - 128)
    for half in range(2):
        for part in range(4):
            for i in range(32):
                low = codes[half * 64 + (part & 1) * 32 + i] >> (4 * (part >> 1))
                high = codes[128 + half * 32 + i] >> (2 * part)
                q[half * 128 + part * 32 + i] = ((low & 15) | ((high & 3) << 4)) - 32


SCHEMES = [
    Scheme("q2_k", 8, BLOCK, {}, block_bytes=84, grouped=Grouped(q2_k_split, 2, 16, offset=True)),
    Scheme("q3_k", 8, BLOCK, {}, block_bytes=110, grouped=Grouped(q3_k_split, 3, 16, signed=True)),
    Scheme("q4_k", 8, BLOCK, {}, block_bytes=144, grouped=Grouped(q4_k_split, 4, 32, offset=True)),
    Scheme("q5_k", 8, BLOCK, {}, block_bytes=176, grouped=Grouped(q5_k_split, 5, 32, offset=True)),
    Scheme("q6_k", 8, BLOCK, {}, block_bytes=210, grouped=Grouped(q6_k_split, 6, 16, signed=True)),
]
