"""Samples: how many, when they stop, and what is ranked."""

import numpy as np
import pytest

from tilework.bench.tiles import caching, final, sampling, search
from tilework.bench.tiles.result import Point
from tilework.bench.tiles.space import Candidate
from tilework.primitives.errors import ArgumentError


class Timer:
    """Seconds of a call: one figure after another, the last one for ever."""

    def __init__(self, *figures):
        self.figures, self.asked = list(figures), []

    def time(self, call, n):
        self.asked.append(n)
        return n * (self.figures.pop(0) if len(self.figures) > 1 else self.figures[0])


def nothing():
    return None


def test_a_steady_call_takes_eight_samples_of_long_enough_loops():
    timer = Timer(1e-6)
    found = sampling.sample(nothing, timer)
    assert (found.samples, found.stopped, found.p5) == (8, "steady", pytest.approx(1e-6))
    assert timer.asked[-1] * 1e-6 >= sampling.INNER


def test_a_clearly_slower_call_is_given_up_after_three_samples():
    found = sampling.sample(nothing, Timer(1e-3), incumbent=0.7e-3)
    assert (found.samples, found.stopped) == (3, "slow")
    assert sampling.sample(nothing, Timer(1e-3), incumbent=0.8e-3).stopped == "steady"


def test_a_call_that_is_never_steady_ends_with_the_budget():
    noise = [1e-3 * (1 + 0.1 * n) for n in range(100)]
    found = sampling.sample(nothing, Timer(*noise), seconds=10.0)
    assert (found.samples, found.stopped) == (sampling.MOST_SAMPLES, "budget")
    assert sampling.sample(nothing, Timer(*noise), seconds=0.0).samples == 3


def test_one_lucky_sample_is_no_steady_time():
    found = sampling.sample(nothing, Timer(1e-3, 1e-3, 0.5e-3, *[1e-3] * 90), seconds=10.0)
    assert found.samples > 8
    assert found.p5 > 0.6e-3


def test_before_makes_a_sample_one_call():
    calls = []
    timer = Timer(1e-6)
    found = sampling.sample(nothing, timer, before=lambda: calls.append(1), seconds=10.0)
    assert set(timer.asked) == {1}
    assert len(calls) == found.samples


def test_caches_are_taken_away_but_for_what_is_kept():
    kept = np.arange(10)
    evict = caching.before("weights", [kept])
    evict()
    assert evict.memory[0] == 1
    assert caching.before("hot", []) is None
    with pytest.raises(ArgumentError, match="there is hot, weights, all"):
        caching.before("warm", [])


# Searches ------------------------------------------------------------------------------------------------------------


def candidates(groups=4, each=6):
    own = Candidate({}, {"g": 0})
    return [own, *(Candidate({"g": g, "x": x}, {"g": g}) for g in range(groups) for x in range(each))]


def run(name, seconds, given=None, predict=lambda c: None):
    """The candidates measured, with the least samples each time."""
    log = []

    def measure(c, least, best):
        log.append((c, least))
        return Point(c.tile, status="ok", p5_us=1e6 * seconds(c), samples=least)

    search.run(name, given or candidates(), measure, predict)
    return log


def cost(c):
    return 1e-3 * (1 + 0.2 * c.tile.get("g", 1) + 0.01 * c.tile.get("x", 9))


def test_full_measures_everything_group_by_group():
    log = run("full", cost)
    assert len(log) == len(candidates())
    groups = [c.group["g"] for c, _ in log]
    assert groups == sorted(groups)
    assert {least for _, least in log} == {sampling.LEAST}


def test_race_measures_the_best_to_the_end_and_not_everything():
    log = run("race", cost)
    steady = [c.tile for c, least in log if least == sampling.LEAST]
    assert {"g": 0, "x": 0} in steady
    assert log[0][0].default
    assert not any(c.tile.get("g") == 3 and c.tile.get("x") == 5 for c, _ in log)


def test_model_measures_its_first_choices_and_the_own():
    given = candidates(10, 20)
    log = run("model", cost, given, predict=cost)
    assert len(log) == max(search.KEPT, round(search.KEPT_SHARE * len(given)))
    assert log[0][0].default
    best = min(given[1:], key=cost)
    assert best in [c for c, _ in log]


def test_an_unknown_search_is_named():
    with pytest.raises(ArgumentError, match="there is full, race, model"):
        run("random", cost)


# The final -----------------------------------------------------------------------------------------------------------


def rounds_of(**seconds):
    """Nine rounds of a machine that slows down, each contender with a little noise of its own."""
    random = np.random.default_rng(0)
    drift = np.linspace(1, 2, 9)
    return {name: s * drift * (1 + 0.004 * random.standard_normal(9)) for name, s in seconds.items()}


def test_the_fastest_is_chosen_whatever_the_machine_does_meanwhile():
    assert final.choose(rounds_of(own=1.0, a=0.9, b=0.95), "own", ["own", "a", "b"]) == "a"


def test_the_own_choice_stays_where_nothing_beats_it_beyond_the_noise():
    assert final.choose(rounds_of(own=1.0, a=0.999, b=1.1), "own", ["own", "a", "b"]) == "own"
    assert final.choose(rounds_of(own=1.0, a=1.2), "own", ["own", "a"]) == "own"


def test_rounds_take_turns():
    order = []

    def contender(name):
        return lambda: order.append(name)

    class Clock:
        def time(self, call, n):
            for _ in range(n):
                call()
            return n * 1e-3

    found = final.rounds({name: contender(name) for name in "abc"}, Clock(), 4)
    assert {name: len(v) for name, v in found.items()} == {"a": 4, "b": 4, "c": 4}
    turns = [name for n, name in enumerate(order) if n == 0 or order[n - 1] != name]
    assert turns[-12:] == list("abcbcacababc")


def test_a_call_that_is_behind_need_not_be_steady():
    noise = [1e-3 * (1 + 0.02 * n) for n in range(100)]
    found = sampling.sample(nothing, Timer(*noise), best=0.9e-3)
    assert (found.samples, found.stopped) == (sampling.FEW, "behind")
    assert sampling.sample(nothing, Timer(*noise), best=0.99e-3).stopped == "budget"


def test_samples_of_a_calm_core_count_before_others():
    """Each of the first three samples has another program beside it, and is a tenth slower."""
    calm = iter([False, False, False, True] + [True] * 99)
    found = sampling.sample(nothing, Timer(1.1e-3, 1.1e-3, 1.1e-3, 1e-3), calm=lambda: next(calm))
    assert (found.calm, found.stopped, found.samples) == (True, "steady", sampling.LEAST)
    assert found.median == pytest.approx(1e-3)
    found = sampling.sample(nothing, Timer(1.1e-3), calm=lambda: False, seconds=0.0)
    assert found.calm is False
    assert found.p5 == pytest.approx(1.1e-3)
    assert sampling.sample(nothing, Timer(1e-3)).calm is None
