"""IQ1_S to IQ3_XXS: 256 weights whose magnitudes are points of a lattice, eight or four at once, with signs beside them.

Source: ggml-quants.c (dequantize_row_iq2_xxs and so on), and the classes of these names in gguf/quants.py. The lattices
are ggml's; grids.npz holds a point in 16 bits, two or four for each of its numbers.
"""

from pathlib import Path

import numpy as np

from ...minifloat import f16_value
from ..definition import Definition as Scheme
from .halves import f16_at

BLOCK = 256
with np.load(Path(__file__).with_name("grids.npz"), allow_pickle=False) as _file:
    POINTS = {name: _file[name].astype(np.int32) for name in _file.files}
IQ2_XXS, IQ2_XS, IQ2_S = POINTS["iq2_xxs"], POINTS["iq2_xs"], POINTS["iq2_s"]
IQ3_XXS, IQ3_S, IQ1 = POINTS["iq3_xxs"], POINTS["iq3_s"], POINTS["iq1_s"]


def word(codes, at):
    return codes[at] | (codes[at + 1] << 8) | (codes[at + 2] << 16) | (codes[at + 3] << 24)


def with_parity(signs):
    """Seven sign bits and the eighth, which makes their number even."""
    p = signs ^ (signs >> 4)
    p = p ^ (p >> 2)
    p = p ^ (p >> 1)
    return signs | ((p & 1) << 7)


def of_two(point, j):
    """Number j of a point of IQ2: 8, 25 or 43."""
    i = (point >> (2 * j)) & 3
    return 8 + 17 * i + (i >> 1)


def sign(signs, j):
    return 1 - 2 * ((signs >> j) & 1)


def iq2_xxs_decode(codes, x):
    d = f16_at(codes, 0)
    for part in range(8):
        rest = word(codes, 6 + part * 8)
        scale = d * (0.5 + ((rest >> 28) & 15)) * 0.25
        for k in range(4):
            point = IQ2_XXS[codes[2 + part * 8 + k]]
            signs = with_parity((rest >> (7 * k)) & 127)
            for j in range(8):
                x[part * 32 + k * 8 + j] = scale * of_two(point, j) * sign(signs, j)


def iq2_xs_decode(codes, x):
    d = f16_at(codes, 0)
    for k in range(32):
        code = codes[2 + 2 * k] | (codes[3 + 2 * k] << 8)
        s = (codes[66 + (k >> 2)] >> (4 * ((k >> 1) & 1))) & 15
        scale = d * (0.5 + s) * 0.25
        point = IQ2_XS[code & 511]
        signs = with_parity(code >> 9)
        for j in range(8):
            x[k * 8 + j] = scale * of_two(point, j) * sign(signs, j)


def iq2_s_decode(codes, x):
    d = f16_at(codes, 0)
    for k in range(32):
        high = (codes[66 + (k >> 2)] >> (2 * (k & 3))) & 3
        s = (codes[74 + (k >> 2)] >> (4 * ((k >> 1) & 1))) & 15
        scale = d * (0.5 + s) * 0.25
        point = IQ2_S[codes[2 + k] | (high << 8)]
        signs = codes[34 + k]
        for j in range(8):
            x[k * 8 + j] = scale * of_two(point, j) * sign(signs, j)


def iq3_xxs_decode(codes, x):
    d = f16_at(codes, 0)
    for part in range(8):
        rest = word(codes, 66 + part * 4)
        scale = d * (0.5 + ((rest >> 28) & 15)) * 0.5
        for k in range(4):
            first = IQ3_XXS[codes[2 + part * 8 + 2 * k]]
            second = IQ3_XXS[codes[3 + part * 8 + 2 * k]]
            point = (first & 65535) | (second << 16)
            signs = with_parity((rest >> (7 * k)) & 127)
            for j in range(8):
                i = (point >> (4 * j)) & 7
                x[part * 32 + k * 8 + j] = scale * (4 + 8 * i + 2 * ((i + 1) >> 3)) * sign(signs, j)


def iq3_s_decode(codes, x):
    d = f16_at(codes, 0)
    for k in range(32):
        s = (codes[106 + (k >> 3)] >> (4 * ((k >> 2) & 1))) & 15
        scale = d * (1 + 2 * s)
        high = codes[66 + (k >> 2)] >> (2 * (k & 3))
        first = IQ3_S[codes[2 + 2 * k] | ((high & 1) << 8)]
        second = IQ3_S[codes[3 + 2 * k] | (((high >> 1) & 1) << 8)]
        point = (first & 65535) | (second << 16)
        signs = codes[74 + k]
        for j in range(8):
            x[k * 8 + j] = scale * (1 + 2 * ((point >> (4 * j)) & 7)) * sign(signs, j)


def iq1_s_decode(codes, x):
    d = f16_at(codes, 0)
    for part in range(8):
        high = codes[34 + 2 * part] | (codes[35 + 2 * part] << 8)
        scale = d * (2 * ((high >> 12) & 7) + 1)
        delta = -0.125 if high & 32768 else 0.125
        for k in range(4):
            point = IQ1[codes[2 + part * 4 + k] | (((high >> (3 * k)) & 7) << 8)]
            for j in range(8):
                x[part * 32 + k * 8 + j] = scale * ((((point >> (2 * j)) & 3) - 1) + delta)


def iq1_m_decode(codes, x):
    d = f16_value((codes[49] >> 4) | (codes[51] & 240) | ((codes[53] & 240) << 4) | ((codes[55] & 240) << 8))
    for k in range(32):
        scales = codes[48 + 2 * (k >> 3)] | (codes[49 + 2 * (k >> 3)] << 8)
        scale = d * (2 * ((scales >> (3 * ((k >> 1) & 3))) & 7) + 1)
        high = codes[32 + (k >> 1)] >> (4 * (k & 1))
        delta = -0.125 if high & 8 else 0.125
        point = IQ1[codes[k] | ((high & 7) << 8)]
        for j in range(8):
            x[k * 8 + j] = scale * ((((point >> (2 * j)) & 3) - 1) + delta)


SCHEMES = [
    Scheme("iq2_xxs", 8, BLOCK, {}, block_bytes=66, decode_block=iq2_xxs_decode),
    Scheme("iq2_xs", 8, BLOCK, {}, block_bytes=74, decode_block=iq2_xs_decode),
    Scheme("iq2_s", 8, BLOCK, {}, block_bytes=82, decode_block=iq2_s_decode),
    Scheme("iq3_xxs", 8, BLOCK, {}, block_bytes=98, decode_block=iq3_xxs_decode),
    Scheme("iq3_s", 8, BLOCK, {}, block_bytes=110, decode_block=iq3_s_decode),
    Scheme("iq1_s", 8, BLOCK, {}, block_bytes=50, decode_block=iq1_s_decode),
    Scheme("iq1_m", 8, BLOCK, {}, block_bytes=56, decode_block=iq1_m_decode),
]
