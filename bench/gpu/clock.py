"""Times on a GPU, with its second-level cache warm or emptied before every call, within a budget of seconds."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ...executors.cuda.context import Block
from ...executors.cuda.timer import EventTimer

ROUNDS = 15  # where a call does not say how many


class Budget:
    """Seconds for a part of a benchmark; what comes after them is left out by name."""

    def __init__(self, seconds: float) -> None:
        self.end = time.perf_counter() + seconds
        self.left_out: list[str] = []

    def has_time_for(self, name: str) -> bool:
        if time.perf_counter() < self.end:
            return True
        self.left_out.append(name)
        return False


class Clock:
    """flush_bytes: written before a call that is to find nothing in the second-level cache."""

    def __init__(self, driver: Any, flush_bytes: int = 1 << 28) -> None:
        self.driver = driver
        self.timer = EventTimer(driver)
        with driver.entered():
            self._flushed = Block(driver.context, flush_bytes, "the flush of the cache")

    def flush(self, stream: Any) -> None:
        called = self.driver.api.cuMemsetD8Async(self._flushed.address, 0, self._flushed.nbytes, stream)
        self.driver.call(called, "empty the cache")

    def hot_s(self, call: Callable[[], Any], stream: Any = None, rounds: int = 0) -> float:
        """Seconds of a call right after others of its kind: the median of rounds of several."""
        on = self.driver.stream if stream is None else stream
        once = max(self.timer.time(call, 1, on), 1e-6)
        calls = max(1, min(50, int(2e-3 / once)))
        return float(np.median([self.timer.time(call, calls, on) / calls for _ in range(rounds or ROUNDS)]))

    def cold_s(self, call: Callable[[], Any], stream: Any = None, rounds: int = 0) -> float:
        """Seconds of a call that finds nothing in the cache."""
        on = self.driver.stream if stream is None else stream
        times = []
        for _ in range(rounds or ROUNDS):
            self.flush(on)
            times.append(self.timer.time(call, 1, on))
        return float(np.median(times))
