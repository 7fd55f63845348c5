"""Integers: 8, 4, 3 and 2 bits, symmetric and asymmetric, for a tensor, a channel or a group."""

import numpy as np

from .definition import Definition as Scheme


def absmax(x):
    m = np.float32(0)
    for v in x:
        m = max(m, abs(v))
    return m


def symmetric(name, bits, block):
    """Codes -(2^(bits-1) - 1) .. 2^(bits-1) - 1 times one scale, absmax at the largest."""
    top = float(2 ** (bits - 1) - 1)

    def fit(x):
        m = absmax(x)
        return (m / top if m > 0.0 else np.float32(1),)

    def encode(x, scale):
        return min(max(np.rint(x / scale), -top), top)

    def decode(q, scale):
        return q * scale

    return Scheme(name, bits, block, {"scale": "f32"}, fit, encode, decode, signed=True)


def asymmetric(name, bits, block):
    """Codes 0 .. 2^bits - 1 with an integer zero point, the range stretched to hold 0: real = (q - zero) * scale."""
    top = float(2**bits - 1)

    def fit(x):
        lo = np.float32(0)
        hi = np.float32(0)
        for v in x:
            lo = min(lo, v)
            hi = max(hi, v)
        scale = (hi - lo) / top if hi > lo else np.float32(1)
        return scale, min(max(np.rint(-lo / scale), 0.0), top)

    def encode(x, scale, zero):
        return min(max(np.rint(x / scale) + zero, 0.0), top)

    def decode(q, scale, zero):
        return (q - zero) * scale

    return Scheme(name, bits, block, {"scale": "f32", "zero": "u8"}, fit, encode, decode)


SCHEMES = [
    *(symmetric(f"int8_{'channel' if block == 'row' else block}", 8, block) for block in ("tensor", "row")),
    *(asymmetric(f"int8_{'channel' if block == 'row' else block}_asym", 8, block) for block in ("tensor", "row")),
    *(symmetric(f"int{bits}_g{g}", bits, g) for bits in (4, 3, 2) for g in (32, 64, 128)),
    *(asymmetric(f"int{bits}_g{g}_asym", bits, g) for bits in (4, 3, 2) for g in (32, 64, 128)),
]
