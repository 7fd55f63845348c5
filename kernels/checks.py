"""What can be checked of a step before it runs: types that it has, and parameters that are constants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..primitives import dtypes
from ..primitives.errors import ArgumentError, DTypeMismatch, QuantizationError

# What a tile found in parameters that came at run time: {status: (error, text)}
DOUBTS = {1: (QuantizationError, "a scale given at run time is zero, negative, NaN or infinite")}
MULTIPLIER_DOUBTS = {1: (QuantizationError, "a multiplier given at run time is negative, NaN or infinite")}
FIXED_DOUBTS = {
    1: (
        QuantizationError,
        "a multiplier given at run time is outside 2**30 to 2**31 - 1, or a shift outside -31 to 30",
    )
}


def one_of(step: str, field: str, found: str, known: Sequence[str]) -> None:
    """Raise DTypeMismatch unless a type is one that the step has."""
    if found not in known:
        raise DTypeMismatch(f"{step} has no {field} {found}; it has {', '.join(known)}")


def constant(value: Any) -> np.ndarray[Any, Any] | None:
    """The array of a pipeline constant; None for what is known only at run time."""
    return value.data if value is not None and getattr(value, "kind", None) == "constant" else None


def scale(step: str, value: Any, name: str = "scale") -> None:
    """Raise QuantizationError for a constant scale that is not finite and positive."""
    data = constant(value)
    if data is not None:
        bad = ~((data > 0) & np.isfinite(data))
        if bad.any():
            raise QuantizationError(f"{step}: {name} {data[bad].flat[0]} must be finite and positive (as float32)")


def zero_point(step: str, value: Any, dtype: str, name: str = "zero_point") -> None:
    """Raise QuantizationError for a constant zero point outside the codes' range."""
    data = constant(value)
    if data is not None:
        low, high = int(dtypes.get(dtype).min), int(dtypes.get(dtype).max)
        bad = (data < low) | (data > high)
        if bad.any():
            raise QuantizationError(f"{step}: {name} {data[bad].flat[0]} is outside {dtype}, which is {low} to {high}")


def multiplier(step: str, value: Any) -> None:
    """Raise QuantizationError for a constant float multiplier that is negative or not finite."""
    data = constant(value)
    if data is not None:
        bad = ~((data >= 0) & np.isfinite(data))
        if bad.any():
            raise QuantizationError(
                f"{step}: multiplier {data[bad].flat[0]} must be finite and not negative (as float32)"
            )


def fixed(step: str, value: Any, shift: Any) -> None:
    """Raise QuantizationError for a constant fixed-point multiplier or shift out of range."""
    for name, given, low, high in (("multiplier", value, 1 << 30, (1 << 31) - 1), ("shift", shift, -31, 30)):
        data = constant(given)
        if data is not None:
            bad = (data < low) | (data > high)
            if bad.any():
                raise QuantizationError(
                    f"{step}: {name} {data[bad].flat[0]} is outside {low} to {high}; "
                    f"quantize_multiplier(ratio) gives a valid (multiplier, shift)"
                )


def seed(step: str, given: Any) -> None:
    """Raise ArgumentError for a seed that 64 bits cannot hold."""
    if isinstance(given, (int, np.integer)) and not 0 <= int(given) < 2**64:
        raise ArgumentError(f"{step}: seed {given} is outside 0 to 2**64 - 1")


def bounds(step: str, lo: Any, hi: Any) -> None:
    """Raise ArgumentError for constant bounds that leave nothing between them, or a NaN."""
    low, high = constant(lo), constant(hi)
    if low is not None and high is not None and not (low <= high).all():
        raise ArgumentError(f"{step}: lo {low} is not at most hi {high}")
