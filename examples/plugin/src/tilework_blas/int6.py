"""int6_row: six bits a weight and one scale for each output channel."""

import numpy as np

import tilework as tw


def fit(x):
    m = np.float32(0)
    for v in x:
        m = max(m, abs(v))
    return (m / 31.0 if m > 0.0 else np.float32(1),)


def encode(x, scale):
    return min(max(np.rint(x / scale), -31.0), 31.0)


def decode(q, scale):
    return q * scale


int6_row = tw.Scheme("int6_row", 6, "row", {"scale": "f32"}, fit, encode, decode, signed=True)
