"""Paired timing: contenders take turns in short blocks, and what counts is their ratio within a round.

A machine's speed wanders over seconds, so two figures taken apart say little. In every round each contender has one
block of its own, in an order that turns from round to round; the ratio of two contenders is the median over rounds.
Calls of different contenders are never mixed: each would find the caches that the other left.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Call = Callable[[], Any]

ROUNDS = 25
BLOCK = 0.004  # seconds that a block is timed for, at least one call a repetition
REPEATS = 3  # a block's figure is the fastest of so many repetitions: what interrupts it only ever adds
WARM = 0.001  # seconds of calls before a block is timed
PAUSE_LIMIT = 0.1


@dataclass(frozen=True)
class Ratio:
    """Of times in the same round: the median over rounds, and the 10th and 90th percentiles as its range."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, ratios: Array) -> Ratio:
        low, median, high = (float(x) for x in np.percentile(ratios, (10, 50, 90)))
        return cls(median, low, high)

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f}-{self.high:.2f})"


@dataclass(frozen=True)
class Times:
    """Seconds a call: {contender: one figure for each round}."""

    rounds: Mapping[str, Array]

    def median(self, name: str) -> float:
        return float(np.median(self.rounds[name]))

    def p5(self, name: str) -> float:
        return float(np.percentile(self.rounds[name], 5))

    def ratio(self, name: str, other: str) -> Ratio:
        """How many times as fast `name` is as `other`."""
        return Ratio.of(self.rounds[other] / self.rounds[name])

    def fastest(self, names: Any) -> str:
        """The contender with the smallest median."""
        return min(names, key=self.median)


def calls_in(call: Call, seconds: float, clock: Callable[[], float] = time.perf_counter) -> int:
    """How many calls fill so many seconds, at least one. The first calls, which may compile or allocate, don't count."""
    call()
    call()
    n = 1
    while True:
        took = _time(call, n, clock)
        if took >= seconds / 4 or took >= 0.001:
            return max(1, round(n * seconds / max(took, 1e-9)))
        n *= 4


def paired(
    contenders: Mapping[str, Call],
    rounds: int = ROUNDS,
    block: float = BLOCK,
    pause: bool = False,
    clock: Callable[[], float] = time.perf_counter,
) -> Times:
    """Time the contenders in interleaved blocks.

    pause   before each block, wait until the process is idle: the threads of a contender's pool go on spinning for a
            while after its call, and would take a processor from the next one's
    """
    names = list(contenders)
    counts = {name: calls_in(contenders[name], block / REPEATS, clock) for name in names}
    figures: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(rounds):
        shift = turn % len(names)
        for name in names[shift:] + names[:shift]:
            if pause:
                settle()
            figures[name].append(_block(contenders[name], counts[name], clock))
    return Times({name: np.array(x) for name, x in figures.items()})


def settle(limit: float = PAUSE_LIMIT) -> float:
    """Sleep until this process uses no processor any more, at most `limit` seconds; returns how long it took."""
    start = time.perf_counter()
    idle = 0
    while idle < 2 and time.perf_counter() - start < limit:
        busy, since = time.process_time(), time.perf_counter()
        time.sleep(0.002)
        used = (time.process_time() - busy) / (time.perf_counter() - since)
        idle = idle + 1 if used < 0.2 else 0
    return time.perf_counter() - start


def rotate(calls: list[Call]) -> Call:
    """One call that makes each of several in turn: with weights beyond the last cache, none is ever found there."""
    at, last = 0, len(calls)

    def turn() -> None:
        nonlocal at
        calls[at]()
        at = at + 1 if at + 1 < last else 0

    return turn


def _block(call: Call, n: int, clock: Callable[[], float]) -> float:
    end = clock() + WARM
    call()
    while clock() < end:
        call()
    return min(_time(call, n, clock) for _ in range(REPEATS)) / n


def _time(call: Call, n: int, clock: Callable[[], float]) -> float:
    start = clock()
    for _ in range(n):
        call()
    return clock() - start
