"""Element-by-element operations on integers and bool: {operation: function of NumPy arrays of one type}.

Integers wrap modulo 2**bits. Where the language of a processor leaves a case open, it is settled here: x / 0 is 0 and
the remainder of a division by 0 is x; a shift count outside 0 .. bits - 1 shifts everything out; a negative exponent
gives 0, but 1 or -1 for the bases 1 and -1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray


def divide(a: NDArray, b: NDArray) -> NDArray:
    """Quotient toward zero, as ONNX Div and C; 0 where b is 0, and it wraps for the least number / -1."""
    by = np.where(b == 0, 1, b).astype(a.dtype)
    q = np.floor_divide(a, by)
    q = q + ((q < 0) & (q * by != a)).astype(a.dtype)
    return np.where(b == 0, 0, q).astype(a.dtype)


def mod(a: NDArray, b: NDArray) -> NDArray:
    """Remainder with the sign of b, as Python's %; a where b is 0."""
    by = np.where(b == 0, 1, b).astype(a.dtype)
    return np.where(b == 0, a, np.mod(a, by))


def fmod(a: NDArray, b: NDArray) -> NDArray:
    """Remainder with the sign of a, as C's %; a where b is 0."""
    by = np.where(b == 0, 1, b).astype(a.dtype)
    return np.where(b == 0, a, np.fmod(a, by))


def power(a: NDArray, b: NDArray) -> NDArray:
    """a**b modulo 2**bits; a negative exponent gives 0 unless a is 1 or -1."""
    y, base, left = np.ones(np.broadcast_shapes(a.shape, b.shape), np.uint64), a.astype(np.uint64), b.astype(np.uint64)
    while left.any():
        y = np.where(left & np.uint64(1), y * base, y)
        base, left = base * base, left >> np.uint64(1)
        if (b < 0).all():
            break
    y = y.astype(a.dtype)
    odd = (b.astype(np.uint64) & np.uint64(1)) != 0
    small = np.where(a == 1, 1, np.where(odd, a, 1)) if a.dtype.kind == "i" else y
    negative = np.where((a == 1) | (a == -1), small, 0) if a.dtype.kind == "i" else y
    return np.where(b < 0, negative, y).astype(a.dtype)


def shift_left(a: NDArray, b: NDArray) -> NDArray:
    """a * 2**b modulo 2**bits; 0 where b is outside 0 .. bits - 1."""
    bits = a.dtype.itemsize * 8
    inside = (b >= 0) & (b < bits)
    return np.where(inside, np.left_shift(a, np.where(inside, b, 0).astype(a.dtype)), 0).astype(a.dtype)


def shift_right(a: NDArray, b: NDArray) -> NDArray:
    """a / 2**b rounded down; only the sign is left where b is outside 0 .. bits - 1."""
    bits = a.dtype.itemsize * 8
    inside = (b >= 0) & (b < bits)
    shifted = np.right_shift(a, np.where(inside, b, 0).astype(a.dtype))
    return np.where(inside, shifted, np.where(a < 0, -1 if a.dtype.kind == "i" else 0, 0).astype(a.dtype))


WHOLE: dict[str, Callable[..., Any]] = {
    "sub": np.subtract,
    "add": np.add,
    "mul": np.multiply,
    "div": divide,
    "mod": mod,
    "fmod": fmod,
    "pow": power,
    "minimum": np.minimum,
    "maximum": np.maximum,
    "equal": np.equal,
    "not_equal": np.not_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
    "bitwise_not": np.invert,
    "shift_left": shift_left,
    "shift_right": shift_right,
    "neg": np.negative,
    "abs": np.absolute,
    "sign": np.sign,
    **dict.fromkeys(("floor", "ceil", "trunc", "round"), lambda x: x),
    "where": np.where,
}
