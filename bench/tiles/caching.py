"""Which caches hold a call's operands when it is timed: all of them, all but the weights, or none."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ...kernels.cpu import caches
from ...primitives.errors import ArgumentError

MODES = {
    "hot": "as the last call left them",
    "weights": "weights from memory, inputs and outputs hot: a layer in a network",
    "all": "everything from memory: a call after a long pause",
}


class Evict:
    """Takes the caches away from what was in them; then brings back what is to stay.

    keep   arrays that are read afterwards
    """

    def __init__(self, keep: Iterable[Any] = ()) -> None:
        self.memory = np.zeros(2 * caches.sizes()["l3"] // 8 + 1, np.int64)
        self.keep = [np.asarray(x) for x in keep]

    def __call__(self) -> None:
        np.add(self.memory, 1, out=self.memory)  # written, so that no cache may keep a line that it shares
        for array in self.keep:
            array.copy()


def before(mode: str, keep: Iterable[Any]) -> Callable[[], None] | None:
    """What runs before each timed call; None where nothing does. Raises ArgumentError for an unknown mode."""
    if mode not in MODES:
        raise ArgumentError(f"there is no cache mode {mode!r}; there is {', '.join(MODES)}")
    return None if mode == "hot" else Evict(keep if mode == "weights" else ())
