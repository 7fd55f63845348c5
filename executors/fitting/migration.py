"""Scales that move from activations to weights: x / s and w * s have the same product, and other errors.

Sources: Xiao et al., "SmoothQuant", 2023 (the formula of `migrate`); Lin et al., "AWQ: activation-aware weight
quantization", 2024 (the search of `search_migration`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...primitives.errors import ArgumentError, ShapeMismatch
from ..schemes import Scheme
from ..schemes.running import Array, as_floats


def migrate(x_size: Any, w: Any, strength: float = 0.5) -> Array:
    """Scales s (K,) to divide activations by and to multiply the columns of w with, float32.

        s = x_size**strength / (largest of each column of |w|)**(1 - strength)

    x_size    (K,) largest magnitude of each channel of the activations
    strength  0 leaves activations as they are (scales of weights level out), 1 makes their channels equal

    A channel that is 0 in either gets 1.
    """
    size, weights = np.asarray(x_size, np.float64), as_floats(w, "migrate: w")
    if weights.ndim != 2 or size.shape != weights.shape[1:]:
        raise ShapeMismatch(f"migrate: x_size is {size.shape} and w {weights.shape}; (K,) and (N, K) are needed")
    columns = np.abs(weights).max(axis=0, initial=0.0).astype(np.float64)
    good = (size > 0) & (columns > 0)
    s = np.where(good, size, 1.0) ** strength / np.where(good, columns, 1.0) ** (1 - strength)
    return np.where(good, s, 1.0).astype(np.float32)


def search_migration(
    scheme: Scheme, w: Any, x: Any, *, steps: int = 20, activations: Scheme | None = None, executor: Any = None
) -> tuple[Array, float, float]:
    """The scales among s = mean|x|**a, a from 0 to 1, with the least squared error of the outputs.

    scheme       for w * s, weights (N, K)
    activations  a scheme for x / s too; left out: they stay as they are
    returns      (s, a, error as a share of the error with a = 0)
    """
    weights, acts = as_floats(w, "search_migration: w"), as_floats(x, "search_migration: x")
    if weights.ndim != 2 or not weights.size or acts.ndim < 1 or acts.shape[-1] != weights.shape[1] or not acts.size:
        raise ShapeMismatch(
            f"search_migration: w is {weights.shape} and x {acts.shape}; (N, K) and (.., K) with elements are needed"
        )
    acts = acts.reshape(-1, acts.shape[-1])
    wanted = acts.astype(np.float64) @ weights.T.astype(np.float64)
    size = np.abs(acts).mean(axis=0)
    size = np.where(size > 0, size, 1.0)
    best: tuple[float, float, Array] | None = None
    first = 0.0
    for a in np.linspace(0.0, 1.0, steps + 1):
        s = size**a
        s = (s / np.sqrt(s.max() * s.min())).astype(np.float32)
        kept = scheme.quantize(weights * s, executor=executor).dequantize().astype(np.float64)
        given = acts / s
        if activations is not None:
            given = activations.fake_quantize(given, executor=executor)
        error = float(np.square(given.astype(np.float64) @ kept.T - wanted).sum())
        first = error if a == 0.0 else first
        if best is None or error < best[0]:
            best = (error, float(a), s)
    if best is None:
        raise ArgumentError(f"search_migration: {steps} steps; 0 or more work")
    return best[2], best[1], best[0] / first if first else 1.0
