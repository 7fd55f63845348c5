"""How long one call takes: samples until they are steady, ranked by their 5th percentile.

Noise only ever adds time, so the fastest samples say most; the very fastest may be a lucky one. The minimum of cold calls
moves by a fifth from run to run, the 5th percentile by far less.
"""

from __future__ import annotations

import collections
import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

Call = Callable[[], Any]

INNER = 200e-6  # seconds of calls in a sample at least: a clock's own cost and resolution vanish in it
LEAST = 8  # samples before a time counts as steady
STEADY = 0.02  # how far apart the fastest quarter of the samples may be
FIRST = 3  # samples after which a slow tile is given up
SLOW = 1.3  # times the best so far
BEHIND = 1.08  # times the best so far: a tile that is that slow need not become steady
FEW = 4  # samples of such a one
MOST_SECONDS = 0.5  # for one tile
ENOUGH_SECONDS = 0.03  # for one tile that has LEAST samples
MOST_SAMPLES = 60


class WallClock:
    """Seconds of calls by the process's clock."""

    name = "clock"

    def time(self, call: Call, n: int) -> float:
        """Seconds that n calls take together.

        The loop is one of C: CPython fits a loop of its own to the first kind of callable that it meets, so that what is
        timed first would seem 0.2 us faster than what comes later.
        """
        calls = itertools.starmap(call, itertools.repeat((), n))
        start = time.perf_counter()
        _consume(calls)
        return time.perf_counter() - start


_consume: Callable[[Iterator[Any]], None] = collections.deque(
    maxlen=0
).extend  # runs an iterator to its end and keeps nothing


@dataclass(frozen=True)
class Sample:
    """Seconds a call.

    spread   of the fastest quarter: how far its slowest is above its fastest
    calm     whether the figures are of samples during which the core was our own; None: nobody looked
    stopped  why there are no more samples: "steady", "budget" (it never became steady), "behind" (clearly not the best, so
             that nobody asks how steady it is) or "slow" (given up)
    """

    p5: float
    median: float
    samples: int
    spread: float
    stopped: str
    calm: bool | None = None

    @classmethod
    def of(cls, seconds: list[float], stopped: str, calm: bool | None = None) -> Sample:
        p5, median = float(np.percentile(seconds, 5)), float(np.median(seconds))
        return cls(p5, median, len(seconds), best_quarter(seconds), stopped, calm)


def best_quarter(seconds: list[float]) -> float:
    """How far the slowest of the fastest quarter (two at least) is above the fastest."""
    ordered = sorted(seconds)
    quarter = ordered[: max(2, -(-len(ordered) // 4))]
    return quarter[-1] / quarter[0] - 1 if quarter[0] > 0 else 0.0


def sample(
    call: Call,
    timer: Any = None,
    *,
    incumbent: float = float("inf"),
    best: float = float("inf"),
    least: int = LEAST,
    seconds: float = MOST_SECONDS,
    before: Call | None = None,
    inner: float = INNER,
    calm: Callable[[], bool] | None = None,
) -> Sample:
    """Time a call that was made once already: the first one may compile or allocate.

    timer      has time(call, n): seconds that n calls take
    incumbent  seconds of the best so far: a call that is clearly slower is given up after FIRST samples
    best       seconds of the best so far: a call that is clearly slower has FEW samples, and keeps its rank
    least      samples before a steady time is believed
    seconds    for all samples together
    before     runs before each sample, untimed, and makes a sample one call: it takes the caches away
    calm       says whether the core is our own right now; samples between two that say so count before all others
    """
    timer = timer or WallClock()
    n, once = 1, 0.0
    if before is None:
        once = timer.time(call, 1)
        while once * n < inner and n < 1 << 20:
            n = max(n + 1, min(4 * n, round(inner / max(once, 1e-9)) + 1))
            once = timer.time(call, n) / n
    found = [once] if once and n == 1 else []
    good = list(found) if calm is None else []  # of found: those during which the core was our own
    start, own = time.perf_counter(), calm is None or calm()
    while True:
        if before is not None:
            before()
        found.append(timer.time(call, n) / n)
        was, own = own, calm is None or calm()
        if was and own:
            good.append(found[-1])
        stopped = ""
        passed = time.perf_counter() - start
        if len(found) == FIRST and min(found) > SLOW * incumbent:
            stopped = "slow"
        elif len(good) >= least and best_quarter(good) < STEADY:
            stopped = "steady"
        elif len(good) >= FEW and min(good) > BEHIND * best:
            stopped = "behind"
        elif len(found) >= MOST_SAMPLES or (len(found) >= FIRST and passed >= seconds):
            stopped = "budget"
        elif len(found) >= least and passed >= ENOUGH_SECONDS:
            stopped = "budget"
        if stopped:
            enough = len(good) >= FIRST
            return Sample.of(good if enough else found, stopped, None if calm is None else enough)
