"""Whether a short program is worth several threads, found out by running it.

Starting threads costs 1 to 60 us, and more where the processors are busy with something else, so no figure of the work
alone decides. A short program is run a few times either way and goes on as it was faster; now and then it is tried
again. The results are the same bytes either way.
"""

from __future__ import annotations

TRIALS = 4  # timed runs each way
AGAIN = 2000  # runs after which the question is asked anew
SHORT = 20e6  # programs that cost less than this, about bytes moved, are in question; longer ones are not
GAIN = 0.95  # several threads must take less than this part of the time that one takes


class Pace:
    """The decision of one program. Runs may come from several threads; a lost sample does no harm."""

    def __init__(self) -> None:
        self._times: dict[bool, list[float]] = {False: [], True: []}
        self._decided: bool | None = None
        self._runs = 0

    @property
    def undecided(self) -> bool:
        return self._decided is None

    def parallel(self) -> bool:
        """Whether the next run is to use several threads."""
        if self._decided is not None:
            self._runs += 1
            if self._runs < AGAIN:
                return self._decided
            self.__init__()  # type: ignore[misc]
        return len(self._times[True]) < len(self._times[False])

    def took(self, parallel: bool, seconds: float) -> None:
        """Note a timed run. The first one each way is not counted: it meets cold caches, and threads that start."""
        self._times[parallel].append(seconds)
        one, several = self._times[False], self._times[True]
        if len(one) > TRIALS and len(several) > TRIALS:
            self._decided = min(several[1:]) < GAIN * min(one[1:])
