"""The comparison of captured functions with plain Python: on arrays as one element at a time, and it sees a wrong bit."""

import numpy as np
import pytest

from tilework.bench.checks import captured as check_captured
from tilework.bench.checks import captured_cases
from tilework.bench.checks.on_arrays import evaluate
from tilework.bench.costs import compile_cost
from tilework.kernels.capture import capture
from tilework.primitives.errors import Unsupported

CASES = captured_cases.cases()


def early(x, n):
    total = 0.0
    for i in range(n & 7):
        if x > 2.0 and i == 3:
            break
        if i == 1:
            continue
        total += x * i
        if total > 50.0:
            return -total
    while total > 1.0:
        total = total * 0.5
    return total if x == x else 0.0


def both(x, k):
    window = np.zeros(4, np.float32)
    for i in range(4):
        window[(i + k) & 3] = x + i
    total = 0.0
    for w in window:
        total = total * 0.5 + w
    low, high = min(total, x), max(total, x)
    return high - low, int(low) + k


def same_at_every_element(captured, given):
    found = evaluate(captured, given)
    several = found if isinstance(found, tuple) else (found,)
    wanted = [captured.interpreted(*row) for row in zip(*given, strict=True)]
    for n, array in enumerate(several):
        column = np.array([w[n] if isinstance(found, tuple) else w for w in wanted], array.dtype)
        assert not check_captured.apart(column, array).any()


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.name}-{case.kinds}")
def test_arrays_give_the_bits_of_plain_python(case):
    same_at_every_element(case.captured, case.inputs(np.random.default_rng(1), 60))


@pytest.mark.parametrize("fn", [early, both], ids=lambda fn: fn.__name__)
def test_elements_go_their_own_ways(fn):
    captured = capture(fn, "fi")
    rng = np.random.default_rng(0)
    x = np.append(rng.normal(0, 6, 300).astype(np.float32), np.float32([np.nan, np.inf, -0.0]))
    same_at_every_element(captured, [x, rng.integers(-9, 9, x.size).astype(np.int32)])


def test_functions_of_arrays_are_refused():
    captured = capture(lambda x: x[0] + x[1], ["f[]"])
    with pytest.raises(Unsupported, match="takes arrays"):
        evaluate(captured, [np.zeros((3, 2), np.float32)])


def test_compiled_results_are_compared_and_a_wrong_one_is_counted(monkeypatch, capsys):
    monkeypatch.setattr(check_captured, "TAILS", 3)
    index = next(n for n, case in enumerate(CASES) if case.name == "leaky")
    runner = check_captured.Runner()
    level = check_captured.Level("here", runner)
    tally = check_captured.Tally()
    check_captured.check(index, CASES[index], [level], 100, 0.5, 0, tally)
    assert tally.results == tally.elements > 100
    assert tally.different == tally.scalar_different == 0
    assert tally.scalar > 0

    def wrong(*job):
        y = runner.run(*job).copy()
        y.reshape(-1).view(np.int32)[-1] ^= 1
        return y

    monkeypatch.setattr(level, "run", wrong)
    tally = check_captured.Tally()
    check_captured.check(index, CASES[index], [level], 1, 0.0, 0, tally)
    assert tally.different == 3
    assert "leaky(" in capsys.readouterr().out


def test_epilogues_to_compile_differ_and_can_be_captured(tmp_path):
    path = tmp_path / "epilogues.py"
    compile_cost.write_epilogues(path, 40)
    made = {capture(fn, "f").digest for fn in compile_cost.load_epilogues(path, 40)}
    assert len(made) == 40
