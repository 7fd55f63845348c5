"""The last round of a sweep: the fastest tiles, the own choice and the peers, in interleaved blocks.

Which tile is the fastest is decided here, by ratios of times in the same round. Where the own choice is not beaten beyond
the noise it stays: a tile that wins by luck would be another one tomorrow.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..timing import Ratio

ROUNDS = 9
BLOCK = 0.004  # seconds of a block
WARM = 0.004  # seconds of calls before anything counts
WORTH = 0.005  # a gain that is smaller is not worth another tile
REPEATS = 3  # a block's figure is the fastest of so many parts of it

Array = np.ndarray[Any, Any]


def rounds(
    calls: Mapping[str, Any], timer: Any, count: int = ROUNDS, settle: Any = None, block: float = BLOCK
) -> dict[str, Array]:
    """{name: seconds a call, one figure for each round}. In every round each has one block, in a turning order.

    settle   called before each block, where the threads of the last one may still be spinning
    """
    names = list(calls)
    figures: dict[str, list[float]] = {name: [] for name in calls}
    many = {}
    for name, call in calls.items():
        if settle is not None:
            settle()
        end = time.perf_counter() + WARM
        while time.perf_counter() < end:  # a plan finds out by itself how many threads pay
            timer.time(call, 1)
        once = timer.time(call, 2) / 2
        many[name] = max(1, round(block / REPEATS / max(once, 1e-9)))
    for turn in range(count):
        shift = turn % len(names)
        for name in names[shift:] + names[:shift]:
            if settle is not None:
                settle()
            if many[name] > 1:  # of a long call, the first repetition brings its own data into the caches
                timer.time(calls[name], many[name] // 2)
            figures[name].append(min(timer.time(calls[name], many[name]) / many[name] for _ in range(REPEATS)))
    return {name: np.array(found) for name, found in figures.items()}


def choose(times: Mapping[str, Array], own: str, tiles: list[str]) -> str:
    """The name of the tile to take: the fastest by the median of ratios to the own choice, if it beats that for sure."""
    if own not in times:
        return min(tiles, key=lambda name: float(np.median(times[name])))
    fastest = min(tiles, key=lambda name: float(np.median(times[name] / times[own])))
    if fastest == own:
        return own
    gain = ratio(times, own, fastest)
    return own if tied(gain) or gain.median < 1 + WORTH else fastest


def ratio(times: Mapping[str, Array], name: str, other: str) -> Ratio:
    """The time of `name` / that of `other` in the same round."""
    return Ratio.of(times[name] / times[other])


def tied(found: Ratio) -> bool:
    """Whether the range of a ratio holds 1."""
    return found.low <= 1.0 <= found.high
