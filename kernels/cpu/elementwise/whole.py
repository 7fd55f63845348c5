"""Integer arithmetic whose cases the language leaves open: division by zero, overflow, shifts past the end.

kernels/reference/elementwise/whole.py says what each does.
"""

from __future__ import annotations

import numpy as np

from ..scalar import scalar


@scalar
def fmod32(a, b):
    return np.float32(np.fmod(a, b))


@scalar
def quotient_signed(a, b):
    a, b = np.int64(a), np.int64(b)
    if b == 0:
        return np.int64(0)
    if b == -1:
        return np.int64(-a)
    q = a // b
    return np.int64(q + 1) if q < 0 and q * b != a else q


@scalar
def quotient_unsigned(a, b):
    a, b = np.uint64(a), np.uint64(b)
    return np.uint64(0) if b == np.uint64(0) else a // b


@scalar
def rest_signed(a, b):
    a, b = np.int64(a), np.int64(b)
    return a if b == 0 else np.int64(a - quotient_signed(a, b) * b)


@scalar
def remainder_signed(a, b):
    a, b = np.int64(a), np.int64(b)
    r = rest_signed(a, b)
    return np.int64(r + b) if b != 0 and r != 0 and (r < 0) != (b < 0) else r


@scalar
def remainder_unsigned(a, b):
    a, b = np.uint64(a), np.uint64(b)
    return a if b == np.uint64(0) else a % b


@scalar
def power_unsigned(a, b):
    a, b, y = np.uint64(a), np.uint64(b), np.uint64(1)
    for _ in range(64):
        if b & np.uint64(1):
            y = np.uint64(y * a)
        a = np.uint64(a * a)
        b = np.uint64(b >> np.uint64(1))
        if b == np.uint64(0):
            break
    return y


@scalar
def power_signed(a, b):
    a, b = np.int64(a), np.int64(b)
    if b >= 0:
        return np.int64(power_unsigned(np.uint64(a), np.uint64(b)))
    if a == 1:
        return np.int64(1)
    if a == -1:
        return np.int64(-1) if b & 1 else np.int64(1)
    return np.int64(0)


@scalar
def shifted_left(a, b, bits):
    return np.int64(np.int64(a) << np.int64(b)) if 0 <= b < bits else np.int64(0)


@scalar
def shifted_right_signed(a, b):
    return np.int64(a) >> np.int64(b if 0 <= b < 64 else 63)


@scalar
def shifted_right_unsigned(a, b):
    return np.uint64(a) >> np.uint64(b) if b < np.uint64(64) else np.uint64(0)
