"""Four schemes as a user writes them: int8 by row, asymmetric int4, NF4 with scales in int8, and MXFP4."""

import math

import numpy as np

from tilework import Scheme


# fmt: off
# 1  per-channel int8, symmetric (7 lines)
def absmax(x):
    m = np.float32(0)
    for v in x: m = max(m, abs(v))
    return (m / 127.0 if m > 0.0 else np.float32(1),)
def s8(x, scale): return min(max(np.rint(x / scale), -127.0), 127.0)
def affine(q, scale): return q * scale
int8 = Scheme("int8_sym", 8, "row", {"scale": "f4"}, absmax, s8, affine, signed=True)


# 2  group-128 asymmetric int4 (8 lines)
def minmax(x):
    lo = hi = x[0]
    for v in x: lo = min(lo, v); hi = max(hi, v)
    return ((hi - lo) / 15.0 if hi > lo else np.float32(1), lo)
def u4(x, scale, lo): return min(max(np.rint((x - lo) / scale), 0.0), 15.0)
def offset(q, scale, lo): return q * scale + lo
int4 = Scheme("int4_minmax_g128", 4, 128, {"scale": "f4", "lo": "f4"}, minmax, u4, offset)


# 3  NF4 with double quantization (21 lines with the levels)
NF4 = np.array(
    [-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
     -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
     0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0], np.float32)
MID = (NF4[1:] + NF4[:-1]) / np.float32(2)
def minmax255(x):
    lo = hi = x[0]
    for v in x: lo = min(lo, v); hi = max(hi, v)
    return ((hi - lo) / 255.0 if hi > lo else np.float32(1), lo)
def u8(x, scale, lo): return min(max(np.rint((x - lo) / scale), 0.0), 255.0)
scales8 = Scheme("scales_u8", 8, 256, {"scale": "f4", "lo": "f4"}, minmax255, u8, offset)
def amax(x):
    m = np.float32(0)
    for v in x: m = max(m, abs(v))
    return (m if m > 0.0 else np.float32(1),)
def nf4_encode(x, absmax):
    y = x / absmax; c = 0
    for i in range(15):
        if y > MID[i]: c += 1
    return c
def nf4_decode(q, absmax): return NF4[q] * absmax
nf4 = Scheme("nf4_dq", 4, 64, {"absmax": scales8}, amax, nf4_encode, nf4_decode)


# 4  MXFP4: E2M1 elements, E8M0 per 32 (18 lines)
E2M1 = np.array([0, .5, 1, 1.5, 2, 3, 4, 6], np.float32)
def mx_fit(x):
    m = np.float32(0)
    for v in x: m = max(m, abs(v))
    return (math.ldexp(1.0, math.frexp(m)[1] - 3) if m > 0.0 else np.float32(1),)
def mx_encode(x, scale):
    y = abs(x) / scale; c = 0
    if y > 0.25: c = 1
    if y >= 0.75: c = 2
    if y > 1.25: c = 3
    if y >= 1.75: c = 4
    if y > 2.5: c = 5
    if y >= 3.5: c = 6
    if y > 5.0: c = 7
    return c | 8 if x < 0.0 else c
def mx_decode(q, scale): return (-E2M1[q & 7] if q & 8 else E2M1[q]) * scale
mxfp4 = Scheme("mxfp4", 4, 32, {"scale": "e8m0"}, mx_fit, mx_encode, mx_decode)
# fmt: on

WORKED = [int8, int4, nf4, mxfp4]
