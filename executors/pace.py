"""Whether a short program is worth several threads, found out by running it.

Starting threads costs 1 to 60 us, and more where they have to be woken or the processors are busy with something else,
so no figure of the work alone decides. A short program is run a few times on one thread, then on several for some
milliseconds, in which they wake, and for a number of runs at least, and goes on as it was faster. It is tried again after
a while, and after a longer one where the answer was the same; where it was no, the processors may have been busy, so no
later than a quarter of a second after. The results are the same bytes either way.
"""

from __future__ import annotations

from collections import deque
from statistics import median

TRIALS = 5  # runs whose median counts, each way
PATIENCE_S = 0.004  # of runs on several threads before the answer is no,
PATIENCE = 20  # and at least the time of so many on one: those of a longer program are few in some milliseconds
AGAIN, LATEST = 100, 2000  # runs after which the question is asked anew: the first time, and at most
LATEST_S = 0.25  # after a no, the time of the runs after which it is asked anew, at most
SHORT = 20e6  # programs that cost less than this, about bytes moved, are in question; longer ones are not
GAIN = 0.95  # several threads must take less than this part of the time that one takes


class Pace:
    """The decision of one program. Runs may come from several threads; a lost sample does no harm."""

    def __init__(self) -> None:
        self._decided: bool | None = None
        self._before: bool | None = None  # what was decided the last time
        self._until = AGAIN
        self._times: dict[bool, deque[float]] = {False: deque(maxlen=TRIALS), True: deque(maxlen=TRIALS)}
        self._ask()

    def _ask(self) -> None:
        self._decided = None
        self._runs = 0
        self._tried_s = 0.0
        for times in self._times.values():  # the same ones: runs allocate nothing that stays
            times.clear()
        self._alone = self._together = 0  # runs so far, each way

    @property
    def undecided(self) -> bool:
        return self._decided is None

    def parallel(self) -> bool:
        """Whether the next run is to use several threads."""
        if self._decided is not None:
            self._runs += 1
            if self._runs < self._until:
                return self._decided
            self._ask()
        return self._alone > TRIALS

    def took(self, parallel: bool, seconds: float) -> None:
        """Note a timed run. The first one on one thread is not counted: it may meet cold caches."""
        self._times[parallel].append(seconds)
        if not parallel:
            self._alone += 1
            return
        self._together += 1
        self._tried_s += seconds
        one, several = list(self._times[False]), list(self._times[True])
        if len(one) < TRIALS or len(several) < TRIALS:
            return
        if median(several) < GAIN * median(one):
            self._decide(True)
        elif self._tried_s > max(PATIENCE_S, PATIENCE * median(one)):
            self._decide(False)

    def _decide(self, parallel: bool) -> None:
        again = min(2 * self._until, LATEST) if parallel == self._before else AGAIN
        if not parallel:
            again = min(again, max(AGAIN, int(LATEST_S / median(self._times[False]))))
        self._until = max(again, 4 * self._together)
        self._before = self._decided = parallel
