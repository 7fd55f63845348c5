"""When a short program takes several threads: after runs on one and on several, by what they took."""

from tilework.executors.pace import AGAIN, LATEST, LATEST_S, PATIENCE, PATIENCE_S, TRIALS, Pace


def settle(pace, one, several):
    """Run until decided; `several` gives the seconds of the n-th run on several threads. Returns the ways taken."""
    ways = []
    while pace.undecided:
        parallel = pace.parallel()
        pace.took(parallel, several(sum(ways)) if parallel else one)
        ways.append(parallel)
    return ways


def runs_until_asked(pace):
    decided = pace.parallel()
    n = 1
    while not pace.undecided:
        assert pace.parallel() in (decided, False)
        n += 1
    return n


def test_threads_that_pay_are_taken_after_a_few_runs():
    pace = Pace()
    assert settle(pace, 100e-6, lambda n: 55e-6) == [False] * (TRIALS + 1) + [True] * TRIALS
    assert pace.parallel()


def test_threads_that_wake_late_are_waited_for():
    pace = Pace()
    ways = settle(pace, 100e-6, lambda n: 105e-6 if n < 20 else 55e-6)
    assert pace.parallel()
    assert 20 < sum(ways) < 20 + TRIALS


def test_threads_that_do_not_pay_are_left_after_some_milliseconds():
    pace = Pace()
    ways = settle(pace, 100e-6, lambda n: 99e-6)
    assert not pace.parallel()
    assert sum(ways) == int(PATIENCE_S / 99e-6) + 1


def test_a_single_fast_run_decides_nothing():
    pace = Pace()
    settle(pace, 100e-6, lambda n: 40e-6 if n == 3 else 110e-6)
    assert not pace.parallel()


def test_the_question_is_asked_again_and_less_often_while_the_answer_stays():
    pace = Pace()
    gaps = []
    for _ in range(8):
        settle(pace, 1e-3, lambda n: 0.5e-3)
        gaps.append(runs_until_asked(pace))
    assert gaps[0] == AGAIN
    assert gaps[1] == 2 * AGAIN
    assert gaps[-1] == LATEST
    settle(pace, 1e-3, lambda n: 2e-3)
    assert runs_until_asked(pace) == AGAIN


def test_threads_that_wake_late_are_waited_for_in_longer_programs_too():
    pace = Pace()
    settle(pace, 500e-6, lambda n: 600e-6 if n < 8 else 280e-6)
    assert pace.parallel()
    pace = Pace()
    assert sum(settle(pace, 500e-6, lambda n: 600e-6)) == int(PATIENCE * 500 / 600) + 1
    assert not pace.parallel()


def test_a_no_is_questioned_again_within_a_fraction_of_a_second():
    pace = Pace()
    for _ in range(8):
        settle(pace, 1e-3, lambda n: 2e-3)
        last = runs_until_asked(pace)
    assert last == int(LATEST_S / 1e-3) < LATEST
