"""States that runs own are appended to where they are; of others, a run leaves the old arrays alone."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import tilework as tw
from tilework.executors.states import appended
from tilework.kernels import ops
from tilework.primitives.errors import ArgumentError, KernelFailed

ROWS = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)


def cached(fails=None):
    pipe = tw.Pipeline("cached")
    at = pipe.argument("at", "s64")
    after = ops.cache_append(pipe.state("kept", "f32", (1, 2, "C", 4)), pipe.input("new", "f32", (1, 2, "T", 4)), at)
    total = ops.add(pipe.state("total", "f32", ("C",)), pipe.input("one", "f32", ("C",)))
    pipe.update(pipe.values["total"], total)
    if fails is not None:
        after = pipe.add(fails, x=after)
    pipe.output("y", ops.add(after, np.float32(1)))
    return pipe


def run(plan, state, at, rows=2):
    return plan.run({"new": ROWS[:, :, :rows], "at": at, "one": np.ones(6, np.float32)}, state=state)["y"]


def test_rows_are_appended_in_place_only_to_states_that_runs_own():
    plan = tw.TilingExecutor(threads=2).compile(cached())
    owned, plain = tw.OwnedState(), {}
    for at in (0, 2):
        before = owned.get("kept"), plain.get("kept"), owned.get("total")
        assert_array_equal(run(plan, owned, at), run(plan, plain, at))
    assert owned["kept"] is before[0]
    assert plain["kept"] is not before[1]
    assert owned["total"] is not before[2]
    assert_array_equal(before[2], np.ones(6))
    assert_array_equal(owned["kept"], plain["kept"])
    assert_array_equal(before[1][:, :, 2:], 0)
    other = tw.SingleThreadExecutor("reference").compile(cached())
    kept = tw.OwnedState()
    run(other, kept, 0), run(other, kept, 2)
    assert_array_equal(kept["kept"], owned["kept"])


class Fails:
    """Copies, unless the last number is above a hundred."""

    name = "fails"

    def signature(self):
        shape = (1, 2, "C", 4)
        return tw.ArgSpec("x", "f32", shape=shape), tw.ArgSpec("y", "f32", "write", shape=shape)

    def execute(self, ctx):
        x = ctx.read("x")
        if x[0, 0, 1, 0] == 4:
            raise RuntimeError("as asked")
        ctx.write("y")[...] = x


def test_a_run_that_fails_leaves_owned_states_as_they_were():
    plan = tw.TilingExecutor(threads=1).compile(cached(Fails()))
    owned = tw.OwnedState(kept=np.full((1, 2, 6, 4), 9, np.float32), total=np.zeros(6, np.float32))
    with pytest.raises(KernelFailed, match="as asked"):
        run(plan, owned, 0)
    with pytest.raises(ArgumentError, match="end behind the cache"):
        run(plan, owned, 5)
    assert_array_equal(owned["kept"], 9)
    assert_array_equal(owned["total"], 0)
    run(plan, owned, 3)
    assert_array_equal(owned["kept"][:, :, 3:5], ROWS[:, :, :2])


@pytest.mark.parametrize(
    "spoil", [lambda a: a[:, :, ::-1], lambda a: np.frombuffer(a.tobytes(), a.dtype).reshape(a.shape)]
)
def test_arrays_that_cannot_be_written_are_copied(spoil):
    plan = tw.TilingExecutor(threads=1).compile(cached())
    given = spoil(np.full((1, 2, 6, 4), 7, np.float32))
    owned = tw.OwnedState(kept=given)
    run(plan, owned, 0)
    assert owned["kept"] is not given
    assert_array_equal(given, 7)
    assert_array_equal(owned["kept"][:, :, :2], ROWS[:, :, :2])


def test_only_a_state_that_a_step_appends_to_grows_in_place():
    assert set(appended(cached())) == {"kept"}
    assert appended(cached())["kept"].axis == 2
