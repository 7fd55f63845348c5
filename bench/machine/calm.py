"""Whether this core is our own right now: what is timed beside another program's thread on it is slower by a tenth or more.

On rented machines a core often is one of two hardware threads, and who has the other one is not to be seen, nor does the
load say it. But reading and writing the first cache is then slower by a third or more, at once and always; arithmetic on
registers, which a yardstick might use, is hardly.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from functools import lru_cache, partial

import numpy as np

WORDS = 2048  # float32 in each of three arrays: 24 KB together, in the first cache
CALLS = 10
REPEATS = 3
FIRST = 200  # probes that say what the core can do
NAP = 0.002  # seconds between two looks
LIMIT = 1.1  # times the fastest probe of the process


class Calm:
    """A probe of about 12 us. best: microseconds of the fastest so far, which stands for a core of our own."""

    def __init__(self) -> None:
        a, b, c = (np.ones(WORDS, np.float32) for _ in range(3))
        self._call = partial(np.add, b, c, a)
        self.best = min(self._probe() for _ in range(FIRST))

    def __call__(self) -> bool:
        """Whether the core is our own right now."""
        now = self._probe()
        self.best = min(self.best, now)
        return now <= LIMIT * self.best

    def wait(self, seconds: float) -> bool:
        """Sleep until the core is our own, at most so long; whether it is."""
        end = time.perf_counter() + seconds
        while not self():
            if time.perf_counter() >= end:
                return False
            time.sleep(NAP)
        return True

    def _probe(self) -> float:
        took = []
        for _ in range(REPEATS):
            start = time.perf_counter()
            deque(itertools.starmap(self._call, itertools.repeat((), CALLS)), maxlen=0)
            took.append(time.perf_counter() - start)
        return 1e6 * min(took)


@lru_cache(maxsize=1)
def probe() -> Calm:
    """The process's only one: what it has seen at its best stays known."""
    return Calm()
