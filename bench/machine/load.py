"""What other programs take of the processors while something is timed: figures taken meanwhile are worth little."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from . import doctor

BUSY = 0.08  # share of all processors that others may use before a figure is suspect
LOOK = 0.5  # seconds


@dataclass(frozen=True)
class Moment:
    """Processor seconds used so far: by everybody, by this process, and that there were."""

    used: float
    own: float
    passed: float

    @classmethod
    def now(cls) -> Moment | None:
        """None where the system does not say."""
        lines = (doctor.read("/proc/stat") or "").splitlines()
        if not lines or not lines[0].startswith("cpu "):
            return None
        ticks = [int(word) for word in lines[0].split()[1:9]]  # user nice system idle iowait irq softirq steal
        hertz = os.sysconf("SC_CLK_TCK")
        return cls((sum(ticks) - ticks[3] - ticks[4]) / hertz, time.process_time(), sum(ticks) / hertz)

    def others_since(self) -> float | None:
        """The share of all processors that other programs used since."""
        now = Moment.now()
        if now is None or now.passed <= self.passed:
            return None
        used = (now.used - self.used) - (now.own - self.own)
        return max(0.0, used / (now.passed - self.passed))


def wait_for_quiet(patience: float) -> bool:
    """Wait until other programs leave the processors alone, at most so many seconds; whether they do."""
    end = time.monotonic() + patience
    while True:
        before = Moment.now()
        if before is None or patience <= 0:
            return True
        time.sleep(LOOK)
        if (before.others_since() or 0.0) <= BUSY:
            return True
        if time.monotonic() >= end:
            return False
