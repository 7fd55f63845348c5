"""float32 arithmetic that NumPy lacks: the fused multiply-add, exact widening, and the rounding rules."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..rounding import ROUNDINGS

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MIX1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX2 = np.uint64(0x94D049BB133111EB)


def to_f32(x: ArrayLike) -> NDArray[np.float32]:
    """float32 values of f16, bf16, f32 or 8-bit float data; exact for every one of them."""
    with np.errstate(invalid="ignore"):  # a signalling NaN warns as it is widened
        return np.asarray(x).astype(np.float32)


def fma32(a: ArrayLike, b: ArrayLike, c: ArrayLike) -> NDArray[np.float32]:
    """Fused multiply-add: a * b + c rounded once to float32.

        out = round_f32(a * b + c)

    a, b, c   float32, broadcast against each other

    The product of two float32 is exact in float64 (48 bits). Adding c in float64 and rounding again to float32 could
    round twice, so the sum is first rounded *to odd*: where it is inexact, the neighbour with an odd last bit is
    taken. 53 bits are more than 24 + 2, hence the second rounding gives what one would (subnormals too).
    Signed zeros, infinities and NaN behave as in IEEE 754; the payload of a NaN is not defined.
    Source: Boldo and Melquiond, "Emulation of a FMA and correctly rounded sums: proved algorithms using rounding to
    odd", IEEE Transactions on Computers 57(4), 2008.
    """
    with np.errstate(all="ignore"):  # a signalling NaN warns as it is widened
        a, b, c = (np.asarray(x, np.float32).astype(np.float64) for x in (a, b, c))
        product = a * b
        total = np.asarray(product + c)
        # Knuth's two-sum: product + c == total + error, exactly
        virtual = total - product
        error = (product - (total - virtual)) + (c - virtual)
        bits = total.view(np.int64)
        inexact_and_even = np.isfinite(total) & (error != 0) & (bits & 1 == 0)
        away_from_zero = (error > 0) == (total > 0)
        odd = (bits + np.where(inexact_and_even, np.where(away_from_zero, 1, -1), 0)).view(np.float64)
        return odd.astype(np.float32)


def uniform24(seed: int | np.integer, index: ArrayLike) -> NDArray[np.float32]:
    """The random number of one element: uniform over k * 2**-24, k in 0..2**24 - 1; a function of both arguments only.

        key = mix(seed + gamma);  out = (mix(key + (index + 1) * gamma) >> 40) * 2**-24       modulo 2**64

    seed    integer, taken modulo 2**64
    index   int64, the element's position in C order of the whole tensor

    mix is the finalizer of SplitMix64, gamma = 0x9E3779B97F4A7C15. It counts, so tiles and threads don't matter.
    Source: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
    """
    with np.errstate(over="ignore"):
        key = _mix(np.uint64(int(seed) % 2**64) + _GAMMA)
        counter = np.asarray(index).astype(np.uint64) + np.uint64(1)
        return (_mix(key + counter * _GAMMA) >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-24)


def _mix(z: NDArray[np.uint64] | np.uint64) -> NDArray[np.uint64]:
    z = (z ^ (z >> np.uint64(30))) * _MIX1
    z = (z ^ (z >> np.uint64(27))) * _MIX2
    return z ^ (z >> np.uint64(31))


def round_f32(r: ArrayLike, rounding: str = "half_even", seed: int | np.integer = 0) -> NDArray[np.float32]:
    """The integer next to r, as float32, by one of the rules; NaN and infinities pass through.

    r         float32, any shape
    rounding  half_even     nearest, ties to the even one: -1.5 -0.5 0.5 1.5 -> -2 0 0 2
              half_away     nearest, ties away from zero:                    -> -2 -1 1 2
              half_up       nearest, ties up:                                -> -1 0 1 2
              toward_zero   drops the fraction:                              -> -1 0 0 1
              floor         the one below:                                   -> -2 -1 0 1
              stochastic    the one above with probability r - floor(r), else the one below: an integer stays
    seed      for stochastic: element i (C order) takes uniform24(seed, i)

    Raises ValueError for another rule.
    """
    r = np.asarray(r, np.float32)
    with np.errstate(all="ignore"):
        if rounding == "half_even":
            return np.rint(r)
        if rounding == "toward_zero":
            return np.trunc(r)
        if rounding == "floor":
            return np.floor(r)
        if rounding == "half_away":
            whole = np.trunc(r)
            return np.where(np.abs(r - whole) >= np.float32(0.5), whole + np.copysign(np.float32(1), r), whole)
        below = np.floor(r)
        if rounding == "half_up":
            return np.where(r - below >= np.float32(0.5), below + np.float32(1), below)
        if rounding == "stochastic":
            draw = uniform24(seed, np.arange(r.size).reshape(r.shape))
            return np.where(draw < r - below, below + np.float32(1), below)
    raise ValueError(f"rounding {rounding!r} is none of {', '.join(ROUNDINGS)}")
