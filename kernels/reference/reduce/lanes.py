"""The order of every float32 reduction: sixteen lanes and a tree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

LANES = 16
# fold: (what a lane begins with, what stands for an absent value, how two are joined)
FOLDS: dict[str, tuple[float, float, Callable[..., Any]]] = {
    "add": (0.0, -0.0, np.add),
    "mul": (1.0, 1.0, np.multiply),
    "max": (-np.inf, -np.inf, np.maximum),
    "min": (np.inf, np.inf, np.minimum),
}


def fold(x: ArrayLike, how: str = "add") -> NDArray[np.float32]:
    """Reduce the last axis of float32 data.

        lane[l] = start;  lane[i % 16] = lane[i % 16] + x[i] for i = 0, 1, ..    (or *, max, min)
        lane[l] = lane[l] + lane[l + 8] for l < 8, then + lane[l + 4], + lane[l + 2], + lane[l + 1];  out = lane[0]

    x     float32 (.., n)
    how   add (from 0), mul (from 1), max (from -inf) or min (from inf); NaN passes through each
    """
    x = np.asarray(x, np.float32)
    start, absent, join = FOLDS[how]
    n = x.shape[-1]
    steps = -(-n // LANES)
    padded = np.full((*x.shape[:-1], steps * LANES), absent, np.float32)
    padded[..., :n] = x
    rows = padded.reshape(*x.shape[:-1], steps, LANES)
    lanes = np.full((*x.shape[:-1], LANES), start, np.float32)
    with np.errstate(all="ignore"):
        for s in range(steps):
            lanes = join(lanes, rows[..., s, :])
        for step in (8, 4, 2, 1):
            lanes = join(lanes[..., :step], lanes[..., step : 2 * step])
    return lanes[..., 0]
