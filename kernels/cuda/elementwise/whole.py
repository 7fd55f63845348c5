"""Integer arithmetic whose cases the language leaves open: division by zero, overflow, shifts past the end.

kernels/reference/elementwise/whole.py says what each does.
"""

from __future__ import annotations

import numpy as np

from ..seam import device

_U0, _U1, _U64 = np.uint64(0), np.uint64(1), np.uint64(64)


@device
def quotient_signed(a, b):
    if b == 0:
        return np.int64(0)
    if b == -1:
        return np.int64(-a)
    q = np.int64(a) // b
    return q + 1 if q < 0 and q * b != a else q


@device
def quotient_unsigned(a, b):
    a = np.uint64(a)
    b = np.uint64(b)
    return _U0 if b == _U0 else a // b


@device
def rest_signed(a, b):
    a = np.int64(a)
    return a if b == 0 else a - quotient_signed(a, b) * b


@device
def remainder_signed(a, b):
    r = rest_signed(a, b)
    return r + b if b != 0 and r != 0 and (r < 0) != (b < 0) else r


@device
def remainder_unsigned(a, b):
    a = np.uint64(a)
    b = np.uint64(b)
    return a if b == _U0 else a % b


@device
def power_unsigned(a, b):
    a = np.uint64(a)
    b = np.uint64(b)
    y = _U1
    for _ in range(64):
        if (b & _U1) == _U1:
            y = y * a
        a = a * a
        b = b >> _U1
        if b == _U0:
            break
    return y


@device
def power_signed(a, b):
    if b >= 0:
        return np.int64(power_unsigned(np.uint64(a), np.uint64(b)))
    if a == 1:
        return np.int64(1)
    if a == -1:
        return np.int64(-1) if b & 1 else np.int64(1)
    return np.int64(0)


@device
def shifted_left(a, b, bits):
    return np.int64(a) << np.int64(b) if 0 <= b and b < bits else np.int64(0)


@device
def shifted_right_signed(a, b):
    return np.int64(a) >> np.int64(b if 0 <= b and b < 64 else 63)


@device
def shifted_right_unsigned(a, b):
    return np.uint64(a) >> np.uint64(b) if np.uint64(b) < _U64 else _U0
