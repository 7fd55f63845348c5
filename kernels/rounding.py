"""The rounding rules by name, and the fixed-point form of a ratio: plain Python, needed before any kernel is."""

from __future__ import annotations

import math

from ..primitives.errors import QuantizationError

ROUNDINGS = ("half_even", "half_away", "half_up", "toward_zero", "floor", "stochastic")

SMALLEST = (1 << 30, -31)  # 2**-32: every int32 accumulator rounds to 0


def quantize_multiplier(real: float) -> tuple[int, int]:
    """The (multiplier, shift) whose multiplier * 2**(shift - 31) is nearest to a real ratio.

    real      0 < real < 2**30
    returns   multiplier in 2**30 .. 2**31 - 1, shift in -31 .. 30

    A mantissa that rounds up to 2**31 is halved and the shift raised by one. A ratio below 2**-32 becomes 2**-32:
    either gives 0 for every int32 accumulator.
    Source: TensorFlow Lite, QuantizeMultiplier.
    Raises QuantizationError for a ratio that is not finite, not positive, or 2**30 and above.
    """
    real = float(real)
    if not math.isfinite(real) or real <= 0:
        raise QuantizationError(f"ratio {real} cannot be a multiplier; it must be finite and positive")
    mantissa, shift = math.frexp(real)  # mantissa in [0.5, 1)
    multiplier = math.floor(mantissa * 2.0**31 + 0.5)
    if multiplier == 1 << 31:
        multiplier, shift = 1 << 30, shift + 1
    if shift > 30:
        raise QuantizationError(
            f"ratio {real} is too large for fixed point: below 2**30 works; arithmetic='float' takes any"
        )
    return (multiplier, shift) if shift >= -31 else SMALLEST
