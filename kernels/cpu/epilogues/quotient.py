"""Codes of x / scale without a division: where an inverse and two fused multiply-adds give every code that it gives.

    guess = x * inverse;  quotient = fma(fma(-guess, scale, x), inverse, guess)

The inverse and the guess are rounded, so that the guess is within 1.5 units in the last place; what is left of x is
exact but for a bit, and the last rounding is of a number within 2**-22 such units of x / scale. It is another number than
the rounded quotient only where x / scale is as near to the middle between two neighbouring float32, and only by those
around a tie is it rounded to another code. No x / scale is in that middle, as a middle has 25 bits; whether one comes as
near is found by trying the few x beside each. A division costs ten cycles of Zen 4 a vector of 16, this three.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

NEAR = 2.0**-20  # units in the last place: four times what the quotient may be off before its last rounding
LARGEST = 256  # codes of 8 bits less their zero point are below


def emit(e: Any, level: str, x: Any, scale: Any, inverse: Any) -> Any:
    """x / scale of vectors, or what gives the same codes; x is finite, and so is x * inverse."""
    if level == "generic":  # which has no fused multiply-add
        return e.b.fdiv(x, scale)
    fma, guess = f"llvm.fma.v{x.type.count}f32", e.b.fmul(x, inverse)
    return e.call(fma, x.type, e.call(fma, x.type, e.b.fneg(guess), scale, x), inverse, guess)


@lru_cache(maxsize=4096)
def serves(scale: float) -> bool:
    """Whether the quotient by this float32 gives the 8-bit codes of every x that the division gives."""
    if not 2.0**-100 < scale < 2.0**100:
        return False
    ties = np.arange(LARGEST + 1, dtype=np.float32) + np.float32(0.5)
    unit = np.spacing(ties, dtype=np.float32).astype(np.float64)
    for side in (0.0, np.inf):
        middle = (ties.astype(np.float64) + np.nextafter(ties, np.float32(side)).astype(np.float64)) / 2
        exact = middle * np.float64(scale)  # of 49 bits
        x = exact.astype(np.float32)
        for near in (x, np.nextafter(x, np.float32(0)), np.nextafter(x, np.float32(np.inf))):
            if (np.abs(near.astype(np.float64) - exact) < NEAR * unit * scale).any():
                return False
    return True
