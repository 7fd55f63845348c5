"""The helping threads: they run programs, nobody waits for one that has not begun, and they stop when told."""

import sys

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import tilework as tw
from tilework.executors import crew, cutting, program
from tilework.kernels import crew as boxes

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no POSIX threads")


@pytest.fixture
def plan(monkeypatch):
    """A plan whose every step is cut for three threads, and its input."""
    monkeypatch.setattr(cutting, "SMALL", 0)
    pipe = tw.Pipeline("p")
    h = pipe.input("x", "u8", ("M", 64))
    for n in range(5):
        w = np.random.default_rng(n).integers(-128, 128, (64, 64), dtype=np.int8)
        h = tw.ops.requantize(
            tw.ops.gemm(h, w, a_zero_point=128), multiplier=np.float32(0.01), zero_point=128, dtype="u8"
        )
    pipe.output("y", h)
    return tw.TilingExecutor(3).compile(pipe)


def memory_of(plan, x):
    bound = plan.bound({"x": x}, None)
    assert bound.binding.parallel
    return bound, bound.take()


def test_a_program_runs_with_all_some_or_none_of_the_workers(plan):
    x = np.random.default_rng(9).integers(0, 256, (97, 64), dtype=np.uint8)
    expected = tw.SingleThreadExecutor("reference").run(plan.pipe, {"x": x})["y"]
    bound, memory = memory_of(plan, x)
    helpers = crew.the_crew()
    assert len(helpers.threads) >= 2
    for held in (0, 1, len(helpers.threads)):
        for box in helpers.boxes[:held]:
            box[boxes.STATE] = 64 + boxes.TAKEN  # as if it worked for another run, which never ends
        for _ in range(50):
            y = np.zeros_like(expected)
            bound._point(memory, {"x": x, bound.plan._outputs["y"].name: y})
            assert memory.run(bound.program, True) == 0
            assert_array_equal(y, expected, strict=True)
        helpers.boxes[:held, boxes.STATE] = 0
    assert (helpers.boxes[: len(helpers.threads), boxes.STATE] == 0).all()


def test_workers_stop_when_told_and_others_take_their_place(plan):
    x = np.random.default_rng(9).integers(0, 256, (97, 64), dtype=np.uint8)
    expected = plan.run({"x": x})["y"]
    helpers = crew.the_crew()
    threads = list(helpers.threads)
    assert threads
    helpers.dismiss()
    assert not any(thread.is_alive() for thread in threads)
    assert_array_equal(plan.run({"x": x})["y"], expected, strict=True)
    helpers.hire(2)
    _, memory = memory_of(plan, x)
    assert len(helpers.threads) == 2
    assert_array_equal(plan.run({"x": x})["y"], expected, strict=True)
    assert memory.team[boxes.COUNT] != 0


def test_where_threads_come_from_is_one_of_two(monkeypatch):
    program.own_threads.cache_clear()
    monkeypatch.setenv("TILEWORK_THREADING", "threads")
    with pytest.raises(tw.errors.ArgumentError, match="TILEWORK_THREADING='threads'; 'own' or 'numba'"):
        program.own_threads()
    monkeypatch.undo()
    assert program.own_threads()
