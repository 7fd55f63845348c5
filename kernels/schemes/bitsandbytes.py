"""bitsandbytes' 4-bit and 8-bit codes: the nearest value of a table to x / absmax.

NF4 and FP4 take the first of two values that are as near; FP4's codes 0 and 8 are both 0. Their packed order (the first
weight in the high half of a byte) is executors/schemes/layouts. `int8_vectorwise` is LLM.int8()'s: half to even of
x * (127 / absmax), a scale a row.
"""

import numpy as np

from .definition import Definition as Scheme
from .integers import absmax
from .normalfloat import NF4

FP4_HALF = [0.0, 0.005208333333, 0.66666667, 1.0, 0.33333333, 0.5, 0.16666667, 0.25]
FP4 = np.array([*FP4_HALF, *(-v for v in FP4_HALF)], np.float32)


def largest(x):
    return (absmax(x),)


def by_table(name, table, block):
    """Codes 0 .. 15 for the values of a table in any order, the lowest code of those that are as near."""
    levels = np.asarray(table, np.float32)

    def encode(x, m):
        y = min(max(x * (1.0 / m), -1.0), 1.0) if m > 0.0 else 0.0
        code = 0
        least = abs(y - levels[0])
        for k in range(1, 16):
            error = abs(y - levels[k])
            if error < least:
                least = error
                code = k
        return code

    def decode(code, m):
        return levels[code] * m

    return Scheme(name, 4, block, {"absmax": "f32"}, largest, encode, decode)


def by_sorted_table(name, table, block):
    """Codes of 8 bits for 256 rising values: bitsandbytes' blockwise quantization with its dynamic map."""
    levels = np.asarray(table, np.float32)
    middles = (levels[1:] + levels[:-1]) * np.float32(0.5)

    def encode(x, m):
        y = x / m if m > 0.0 else 0.0
        code = 0
        step = 128
        while step > 0:
            if code + step <= 255 and y > middles[min(code + step - 1, 254)]:
                code += step
            step = step >> 1
        return code

    def decode(code, m):
        return levels[code] * m

    return Scheme(name, 8, block, {"absmax": "f32"}, largest, encode, decode)


def vectorwise_encode(x, m):
    return np.rint(x * (127.0 / m)) if m > 0.0 else 0.0


def vectorwise_decode(code, m):
    return code * (m * 0.007874015748031496)


SCHEMES = [
    *(by_table(f"bnb_nf4_g{g}", NF4, g) for g in (64, 128)),
    *(by_table(f"bnb_fp4_g{g}", FP4, g) for g in (64, 128)),
    Scheme("int8_vectorwise", 8, "row", {"absmax": "f32"}, largest, vectorwise_encode, vectorwise_decode, signed=True),
]
