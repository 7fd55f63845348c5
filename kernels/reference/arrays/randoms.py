"""Random numbers. A seed gives the same ones in every run and on every machine."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays import array_function

Array = np.ndarray[Any, Any]


@array_function(lambda x, **_: [x])
def normal_like(x: Array, seed: float, mean: float, scale: float, dtype: str) -> Array:
    """Normal numbers in the shape of x."""
    return np.asarray(_generator(seed).randn(*x.shape) * scale + mean).astype(dtype)


@array_function(lambda x, **_: [x])
def uniform_like(x: Array, seed: float, low: float, high: float, dtype: str) -> Array:
    """Numbers between low and high in the shape of x."""
    return np.asarray(_generator(seed).uniform(low, high, x.shape)).astype(dtype)


@array_function(lambda x, samples, **_: [(x[0], samples)])
def draw_classes(x: Array, samples: int, seed: float, dtype: str) -> Array:
    """Classes drawn by their unnormalized logarithms of probability (ONNX Multinomial)."""
    odds = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    edges = np.cumsum(odds, axis=1) / odds.sum(axis=1, keepdims=True)
    drawn = _generator(seed).random_sample((x.shape[0], samples))
    return (drawn[:, :, None] > edges[:, None, :]).sum(axis=-1).astype(dtype)


@array_function(lambda x, **_: [x, x])
def drop(x: Array, seed: float, ratio: float) -> tuple[Array, Array]:
    """x with a share of its elements zero and the others scaled by 1 / (1 - ratio), and which were kept."""
    kept: Array = np.asarray(_generator(seed).random_sample(x.shape)) >= ratio
    return (x * kept * (1 / (1 - ratio) if ratio < 1 else 0)).astype(x.dtype), kept


def _generator(seed: float) -> np.random.RandomState:
    """The generator that onnx's own reference draws from; the bits of a seed that is no whole number seed it too."""
    whole = float(seed).is_integer() and 0 <= seed < 1 << 32
    return np.random.RandomState(int(seed) if whole else int(np.float32(seed).view(np.uint32)))
