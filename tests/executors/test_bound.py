"""Plans at given sizes: what is bound once runs on what its arrays hold then, on one thread or on several."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from tilework.executors import TilingExecutor, cutting
from tilework.kernels import ops
from tilework.primitives.errors import ArgumentError
from tilework.primitives.pipeline import Pipeline


def test_a_bound_call_copies_outputs_that_are_views_of_something_else():
    pipe = Pipeline("views")
    x = pipe.input("x", "f32", (4, 6))
    y = ops.neg(x)
    pipe.output("y", y)
    pipe.output("flat", ops.reshape(y, (24,)))
    pipe.output("same", x)
    for threads in (1, 2):
        plan = TilingExecutor(threads).compile(pipe)
        given = np.arange(24, dtype=np.float32).reshape(4, 6)
        call = plan.bind({"x": given})
        for _ in range(2):
            found = call()
            assert_array_equal(found["y"], -given)
            assert_array_equal(found["flat"], -given.ravel())
            assert_array_equal(found["same"], given)
            given += 1


@pytest.fixture
def shared(monkeypatch):
    """A plan whose steps are cut for two threads although they are small, so that it is open whether threads pay."""
    monkeypatch.setattr(cutting, "SMALL", 0)
    pipe = Pipeline("shared")
    pipe.output("y", ops.abs(ops.neg(pipe.input("x", "f32", ("M", 40)))))
    return TilingExecutor(2, fuse=False, chain=False).compile(pipe)


def test_every_call_returns_its_results_while_it_is_open_whether_threads_pay(shared):
    given, out = np.zeros((64, 40), np.float32), {"y": np.empty((64, 40), np.float32)}
    call, bound = shared.bind({"x": given}, out), shared.bound({"x": given}, None)
    assert bound.binding.parallel
    assert bound.pace is not None
    for n in range(60):
        given[:] = -n
        found = call()
        assert found["y"] is out["y"]
        assert (found["y"] == n).all()
        assert (shared.run({"x": given})["y"] == n).all()


def test_a_plan_of_one_program_takes_the_short_way_and_others_do_not(shared):
    x = np.zeros((64, 40), np.float32)
    assert shared.bound({"x": x}, None).fast
    assert not shared.bound({"x": x[:, ::-1]}, None).fast
    pipe = Pipeline("copied")
    given = pipe.input("x", "f32", ("M", 40))
    pipe.output("y", ops.neg(given))
    pipe.output("same", given)
    assert not TilingExecutor(1).compile(pipe).bound({"x": x}, None).fast


def test_a_run_that_was_bound_for_one_thread_has_no_team(shared):
    x = np.ones((64, 40), np.float32)
    two = shared.bound({"x": x}, None).take()
    assert two.workers == 2
    assert two.team[0] == 2
    one = TilingExecutor(1).compile(shared.pipe).bound({"x": x}, None).take()
    assert one.workers == 1
    assert not one.team.any()


def test_outputs_with_strides_of_their_own_are_bound_apart():
    pipe = Pipeline("strides")
    pipe.output("y", ops.neg(pipe.input("x", "f32", (4, 6))))
    plan = TilingExecutor(1).compile(pipe)
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    views = [np.zeros((4, 12), np.float32)[:, ::2], np.zeros((6, 4), np.float32).T, np.zeros((4, 6), np.float32)]
    for _ in range(2):
        for view in (*views, *reversed(views)):
            view[:] = 0
            plan.run({"x": x}, out={"y": view})
            assert_array_equal(view, -x)


def test_shapes_that_are_prepared_are_shapes(shared):
    assert shared.prepare({"x": (0, 40)}).shapes["x"] == (0, 40)
    with pytest.raises(ArgumentError, match="sizes are 0 or more"):
        shared.prepare({"x": (-1, 40)})
    with pytest.raises(ArgumentError, match="shapes= lacks 'x', whose size is not fixed"):
        shared.prepare({})


def test_a_bound_call_of_a_plan_with_states_keeps_them_going():
    pipe = Pipeline("counts")
    total = pipe.state("total", "f32", (3,))
    added = ops.add(total, pipe.input("x", "f32", (3,)))
    pipe.update(total, added)
    pipe.output("y", added)
    x = np.ones(3, np.float32)
    call = TilingExecutor(1).compile(pipe).bind({"x": x})
    assert [call()["y"][0] for _ in range(3)] == [1, 2, 3]
