"""Paired timing with kernels whose time is known: they move a clock of their own."""

import numpy as np
import pytest

from tilework.bench import timing


class Clock:
    """A clock that only its kernels move, so that every figure is exact."""

    def __init__(self):
        self.now = 0.0
        self.log = []

    def __call__(self):
        return self.now

    def kernel(self, seconds, first=None, name=""):
        """A call that takes `seconds`; the first one takes `first`."""
        times = iter([] if first is None else [first])

        def call():
            self.now += next(times, seconds)
            self.log.append(name)

        return call


@pytest.fixture
def clock():
    return Clock()


def test_the_first_slow_call_does_not_count(clock):
    times = timing.paired({"lazy": clock.kernel(20e-6, first=0.7)}, rounds=5, clock=clock)
    assert times.median("lazy") == pytest.approx(20e-6)
    assert times.rounds["lazy"].max() == pytest.approx(20e-6)


@pytest.mark.parametrize("seconds", [2e-7, 3e-5, 0.02])
def test_twice_the_work_takes_twice_the_time(clock, seconds):
    contenders = {"once": clock.kernel(seconds), "twice": clock.kernel(2 * seconds)}
    times = timing.paired(contenders, rounds=4, clock=clock)
    assert times.median("once") == pytest.approx(seconds)
    assert times.median("twice") == pytest.approx(2 * seconds)
    ratio = times.ratio("once", "twice")
    assert (ratio.low, ratio.median, ratio.high) == pytest.approx((2, 2, 2))
    assert times.fastest(["twice", "once"]) == "once"


def test_a_machine_that_slows_down_does_not_move_the_ratio(clock):
    def slowing(seconds):
        def call():
            clock.now += seconds * (1 + 100 * clock.now)

        return call

    times = timing.paired({"a": slowing(1e-5), "b": slowing(1.5e-5)}, rounds=24, clock=clock)
    assert times.rounds["a"][-1] > 5 * times.rounds["a"][0]
    assert times.ratio("a", "b").median == pytest.approx(1.5, rel=0.5)


def test_an_interruption_does_not_count(clock):
    calls = 0

    def interrupted():
        nonlocal calls
        calls += 1
        clock.now += 1e-5 + (0.05 if calls % 311 == 0 else 0)

    times = timing.paired({"k": interrupted}, rounds=9, clock=clock)
    assert times.median("k") == pytest.approx(1e-5)


def test_contenders_take_turns_in_blocks(clock):
    timing.paired({n: clock.kernel(1e-4, name=n) for n in "abc"}, rounds=3, clock=clock)
    turns = [n for n, before in zip(clock.log, ["", *clock.log], strict=False) if n != before]
    assert "".join(turns) == "abc" + "abc" + "bca" + "cab"  # calibrated, then a round from each of them
    blocks = len(clock.log) / len(turns)
    assert blocks > 10  # calls of one contender follow each other


def test_a_block_has_at_least_one_call(clock):
    assert timing.calls_in(clock.kernel(3.0), 0.004, clock) == 1
    assert timing.calls_in(clock.kernel(1e-6), 0.004, clock) == pytest.approx(4000)


def test_the_range_of_a_ratio_leaves_out_the_extremes():
    ratio = timing.Ratio.of(np.array([1.0] * 9 + [2.0] * 90 + [50.0]))
    assert (ratio.median, ratio.high) == (2.0, 2.0)
    assert 1.0 <= ratio.low <= 2.0
    assert str(timing.Ratio(1.234, 1.0, 1.5)) == "1.23 (1.00-1.50)"


def test_rotated_calls_take_turns():
    seen = []
    call = timing.rotate([lambda n=n: seen.append(n) for n in range(3)])
    for _ in range(7):
        call()
    assert seen == [0, 1, 2, 0, 1, 2, 0]


class Machine:
    """A `time` module in which a pool of threads spins until a certain moment."""

    def __init__(self, spins_until):
        self.now = self.used = 0.0
        self.spins_until = spins_until

    def perf_counter(self):
        return self.now

    def process_time(self):
        return self.used

    def sleep(self, seconds):
        self.used += min(seconds, max(0.0, self.spins_until - self.now))
        self.now += seconds


@pytest.mark.parametrize(("spins", "least", "most"), [(0.0, 0.0, 0.01), (0.03, 0.03, 0.04), (9.0, 0.1, 0.11)])
def test_a_pause_lasts_until_spinning_threads_stop(monkeypatch, spins, least, most):
    monkeypatch.setattr(timing, "time", Machine(spins))
    assert least <= timing.settle(limit=0.1) <= most
