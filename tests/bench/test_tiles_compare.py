"""Two results held together: planted slow-downs are found, noise is not, and what makes a comparison worthless is said."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from tilework.bench import cli
from tilework.bench.tiles.compare import BETTER, SAME, UNSURE, WORSE, compare
from tilework.bench.tiles.result import Point, Result, Sweep
from tilework.primitives.errors import ArgumentError

MACHINE = {"model": "m", "isa": "avx2", "usable_cores": 2, "compiler": "c"}


def result(factor=1.0, noise=0.01, seed=0, points=40, label="8x8x8", **more):
    random = np.random.default_rng(seed)
    times = np.linspace(100, 180, points) * factor * (1 + noise * random.standard_normal(points))
    made = [
        Point({"mr": n}, status="ok", p5_us=float(t), median_us=float(t), samples=8, spread=0.01)
        for n, t in enumerate(times)
    ]
    sweep = Sweep("k", "k", label, {"M": 8}, ["u8"], 1, "cpu", "full", "hot", "source", 0.0, 0.0, made, peak_gops=400.0)
    return Result({**MACHINE, **more}, [sweep])


def verdict(old, new, **more):
    (change,) = compare(old, new, **more).changes
    return change.verdict


def test_a_planted_slow_down_of_5_percent_is_found_and_noise_is_not():
    found = [verdict(result(seed=2 * n), result(1.05, seed=2 * n + 1)) for n in range(50)]
    assert found == [WORSE] * 50
    found = [verdict(result(seed=2 * n), result(seed=2 * n + 1)) for n in range(50)]
    assert found == [SAME] * 50
    assert verdict(result(), result(0.9, seed=1)) == BETTER


def test_the_limit_is_what_counts():
    old, new = result(), result(1.05, seed=1)
    assert verdict(old, new, limit=0.10) == SAME
    assert verdict(old, new, limit=0.01) == WORSE


def test_one_slow_point_is_no_slower_sweep_but_is_shown():
    new = result(seed=1)
    new.sweeps[0].points[7].p5_us *= 2
    (change,) = compare(result(), new).changes
    assert change.verdict == SAME
    assert change.slowest[0][0] == "mr 7"


def test_too_much_noise_is_said_and_fails_nothing():
    found = compare(result(noise=0.3, points=5), result(1.02, noise=0.3, seed=1, points=5))
    assert found.changes[0].verdict in (UNSURE, SAME)
    assert not found.failed


def test_a_machine_that_moved_by_itself_is_no_slower_code():
    old, new = result(), result(1.05, seed=1)
    for n, p in enumerate(new.sweeps[0].points):
        p.yard_us = 100.0 * (1 + 0.2 * (n % 2))
    for p in old.sweeps[0].points:
        p.yard_us = 110.0
    (change,) = compare(old, new).changes
    assert change.verdict in (SAME, UNSURE)
    for r in (old, new):
        for p in r.sweeps[0].points:
            p.yard_us = 100.0
    assert verdict(old, new) == WORSE


def test_another_machine_is_said():
    found = compare(result(), result(seed=1, isa="avx512"))
    assert any("isa was avx2 and is avx512: not the same machine" in text for text in found.remarks)


def test_what_only_one_of_them_has_is_named():
    new = result(seed=1)
    new.sweeps += result(label="9x9x9").sweeps
    assert compare(result(), new).missing == ["only the new result has k 9x9x9 on 1 thread of cpu"]
    with pytest.raises(ArgumentError, match="no sweep in common: the old one has k 8x8x8"):
        compare(result(), result(label="9x9x9"))


def test_the_command_fails_over_the_limit(tmp_path):
    for name, made in (("old", result()), ("new", result(1.05, seed=1)), ("same", result(seed=2))):
        made.to_json(tmp_path / name)
    old, new, same = (str(tmp_path / name) for name in ("old", "new", "same"))

    def run(*words):
        return CliRunner().invoke(cli.app, ["bench", "compare", *words])

    assert run(old, same).exit_code == 0
    slower = run(old, new)
    assert slower.exit_code == 1
    assert "slower" in slower.output
    assert run(old, new, "--fail-over", "10%").exit_code == 0
    facts = json.loads(run(old, new, "--json").stdout)
    assert (facts["schema"], facts["version"], facts["failed"]) == ("tilework.comparison", 1, True)
    with pytest.raises(ArgumentError, match="a share is needed"):
        CliRunner().invoke(cli.app, ["bench", "compare", old, new, "--fail-over", "much"], catch_exceptions=False)


def test_points_timed_beside_another_program_are_left_out():
    """All points of the new result but five met another program, and seem 10 % slower."""
    old, new = result(noise=0.002), result(noise=0.002, seed=1)
    for n, p in enumerate(new.sweeps[0].points):
        p.calm = n < 5
        p.p5_us *= 1.0 if p.calm else 1.1
    (change,) = compare(old, new).changes
    assert (change.verdict, change.points) == (SAME, 5)
    for p in new.sweeps[0].points:
        p.calm = False
    (change,) = compare(old, new).changes
    assert change.verdict == UNSURE
    assert "shared the core" in change.why


def test_a_machine_that_was_never_calm_in_one_of_them_is_no_slower_code():
    old, new = result(), result(1.1, seed=1)
    old.sweeps[0].calm_us, new.sweeps[0].calm_us = 4.0, 5.0
    assert verdict(old, new) == UNSURE
    new.sweeps[0].calm_us = 4.1
    assert verdict(old, new) == WORSE
