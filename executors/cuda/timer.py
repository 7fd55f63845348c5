"""How long a graph takes on a GPU: by the GPU's own clock, between two events in the stream that runs it.

The host's clock would count the launch, and stop before the work is done.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class EventTimer:
    """time(call, n): seconds that n calls take on the GPU. driver: whose stream the calls go to."""

    name = "events"

    def __init__(self, driver: Any) -> None:
        self.driver = driver
        driver.enter()
        self.begin, self.end = (driver.call(driver.api.cuEventCreate(0), "make an event") for _ in range(2))

    def time(self, call: Callable[[], Any], n: int, stream: Any = None) -> float:
        """Seconds between an event before the first call and one after the last, once both have happened.

        stream   to which the calls go, where it is not the driver's
        """
        driver, api = self.driver, self.driver.api
        on = driver.stream if stream is None else stream
        driver.enter()
        driver.call(api.cuEventRecord(self.begin, on), "record an event")
        for _ in range(n):
            call()
        driver.call(api.cuEventRecord(self.end, on), "record an event")
        driver.call(api.cuEventSynchronize(self.end), "wait for an event")
        return float(driver.call(api.cuEventElapsedTime(self.begin, self.end), "read an event")) * 1e-3
