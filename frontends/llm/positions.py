"""Rotary positions: the angles by which elements of a head turn, and how they are scaled for longer texts.

Source: Su et al., "RoFormer", 2021; Peng et al., "YaRN", 2023, with the blend of llama.cpp's ggml_rope_yarn.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Yarn:
    """
    original   tokens of the context before it was made longer
    fast, slow turns within it from which a pair keeps its frequency, and up to which it is scaled; a blend between
    strength   how much of it there is: 1, or 0 for none
    magnitude  factor of cos and sin beside 1 + 0.1 ln(how much longer)
    """

    original: int
    fast: float = 32.0
    slow: float = 1.0
    strength: float = 1.0
    magnitude: float = 1.0


def turns(
    places: int, rotated: int, base: float, scale: float, factors: Array | float = 1.0, yarn: Yarn | None = None
) -> tuple[Array, Array]:
    """cos and sin of the angles of `places` positions, f32 (places, rotated / 2), from float64.

        angle[p, i] = p * scale * base**(-2 i / rotated) / factors[i]

    With yarn pairs that turn often keep their frequency, and cos and sin are multiplied by magnitude *
    (1 + 0.1 ln(1 / scale)):

        angle[p, i] = p * (scale + (1 - scale) * kept[i]) * base**(-2 i / rotated) / factors[i]
        kept[i] = strength * (1 - clip((i - low) / max(high - low, 0.001), 0, 1))

    where low and high are the pairs, rounded outwards, that turn `fast` and `slow` times in the original context.
    """
    pair = np.arange(rotated // 2)
    frequency = base ** (-2.0 * pair / rotated) / factors
    magnitude = 1.0
    if yarn is None:
        frequency = frequency * scale
    else:
        low = max(0, math.floor(_pair(rotated, base, yarn.original, yarn.fast)))
        high = min(rotated - 1, math.ceil(_pair(rotated, base, yarn.original, yarn.slow)))
        kept = yarn.strength * (1 - np.clip((pair - low) / max(high - low, 0.001), 0, 1))
        frequency = frequency * (scale * (1 - kept) + kept)
        magnitude = yarn.magnitude * (1 + 0.1 * math.log(1 / scale) if yarn.strength else 1.0)
    angle = np.arange(places)[:, None] * frequency
    return (np.cos(angle) * magnitude).astype(np.float32), (np.sin(angle) * magnitude).astype(np.float32)


def _pair(rotated: int, base: float, context: int, times: float) -> float:
    """The pair that turns so many times in a context."""
    return rotated * math.log(context / (times * 2 * math.pi)) / (2 * math.log(base))


def window_mask(positions: Array, places: int, window: int) -> Array:
    """What is added to scores so that a query sees the last `window` positions up to its own: f32 (T, places)."""
    hidden = np.arange(places) <= positions[:, None] - window
    return np.where(hidden, np.float32(-np.inf), np.float32(0))
