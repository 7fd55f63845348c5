"""OCP microscaling formats: small floats that share a power of two over 32 elements."""

import math

import numpy as np

from .definition import Definition as Scheme
from .integers import absmax

# Source: OCP Microscaling Formats (MX) Specification 1.0, 2023.
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)


def fit_e2m1(x):
    """The largest power of two in the block, divided by 4, the largest power of two of E2M1."""
    m = absmax(x)
    if not m > 0.0:
        return (np.float32(1),)
    return (math.ldexp(1.0, math.frexp(m)[1] - 3),)


def encode_e2m1(x, scale):
    """The nearest level, ties to the even code; what is above 6 is 6, and the sign is bit 3."""
    y = abs(x) / scale
    code = 0
    if y > 0.25:
        code = 1
    if y >= 0.75:
        code = 2
    if y > 1.25:
        code = 3
    if y >= 1.75:
        code = 4
    if y > 2.5:
        code = 5
    if y >= 3.5:
        code = 6
    if y > 5.0:
        code = 7
    return code | 8 if x < 0.0 else code


def decode_e2m1(q, scale):
    return (-E2M1[q & 7] if q & 8 else E2M1[q]) * scale


SCHEMES = [Scheme("mxfp4", 4, 32, {"scale": "e8m0"}, fit_e2m1, encode_e2m1, decode_e2m1)]
