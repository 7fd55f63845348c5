"""Whether a residual's sum of 8-bit codes can be multiplied by the inverse of its scale instead of being divided by it."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

TRIED = (0, 1, -1, 2, -2)  # units in the last place of the inverse


@lru_cache(maxsize=256)
def inverse(
    codes: tuple[int, int],
    residual: tuple[int, int],
    scales: tuple[float, float, float],
    between: tuple[int, int],
) -> float | None:
    """A float32 with which a product gives every code that the quotient gives, found by trying all pairs; or None.

    codes, residual  least and greatest of what is added, less zero points; at most 256 values each
    scales           of codes, residual and sum
    between          least and greatest of the result, less its zero point
    """
    scale = np.float32(scales[2])
    if not 2.0**-100 < scale < 2.0**100:
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        first, second = (
            np.arange(low, high + 1).astype(np.float32) * np.float32(s)
            for (low, high), s in zip((codes, residual), scales, strict=False)
        )
        total = first[:, None] + second
        if not np.isfinite(total).all():
            return None
        wanted = np.rint(np.clip(total / scale, *between))
        guess = np.float32(1) / scale
        for units in TRIED:
            found = (guess.view(np.int32) + np.int32(units)).view(np.float32)
            if np.array_equal(np.rint(np.clip(total * found, *between)), wanted):
                return float(found)
    return None
