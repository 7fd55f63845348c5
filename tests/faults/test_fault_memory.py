"""Kinds of faults that runtimes had: memory used again too early, arrays that overlap, threads beyond a limit."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import tilework as tw

EXECUTORS = [
    tw.SingleThreadExecutor(backend="reference"),
    tw.SingleThreadExecutor(),
    tw.TilingExecutor(threads=2),
    tw.TilingExecutor(threads=2, fuse=False, chain=False),
]


@pytest.mark.parametrize("executor", EXECUTORS, ids=repr)
@pytest.mark.parametrize("n", [1, 8, 4097])
def test_a_value_lives_until_its_last_reader(executor, n):
    """x is read again after two others were made and dropped; one output is read by nobody."""
    pipe = tw.Pipeline("lives")
    x = pipe.input("x", "s32", (n,))
    y = tw.ops.add(x, 1)
    tw.ops.mul(x, 100)  # read by nobody
    w = tw.ops.add(tw.ops.mul(y, 2), x)
    pipe.output("w", w)
    given = np.arange(n, dtype=np.int32)
    kept = given.copy()
    plan = executor.compile(pipe)
    for _ in range(2):  # the second run finds the arena as the first left it
        assert plan.run({"x": given})["w"].tolist() == (3 * kept + 2).tolist()
    assert given.tolist() == kept.tolist()


@pytest.mark.parametrize("executor", EXECUTORS, ids=repr)
@pytest.mark.parametrize("shift", [1, 3])
def test_overlapping_views_are_refused_or_right(executor, shift):
    pipe = tw.Pipeline("twice")
    pipe.output("y", tw.ops.mul(pipe.input("x", "s32", ("N",)), 2))
    both = np.arange(40, dtype=np.int32)
    right = (both[:-shift] * 2).tolist()
    try:
        executor.run(pipe, {"x": both[:-shift]}, out={"y": both[shift:]})
    except tw.errors.AliasError:
        assert both.tolist() == list(range(40)), "an error leaves the arrays as they were"
    else:
        assert both[shift:].tolist() == right


def test_one_thread_is_one_thread_in_any_thread():
    """A limit set in one thread has been unknown in others; and many executors at once took every processor."""
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 256, (300, 300), np.uint8), rng.integers(-128, 128, (300, 300), np.int8)
    pipe = tw.Pipeline("product")
    pipe.output("y", tw.ops.gemm(pipe.input("x", "u8", ("M", 300)), b))
    plan = tw.TilingExecutor(threads=1).compile(pipe)
    right = plan.run({"x": a})["y"].tobytes()
    before = threading.active_count()
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: plan.run({"x": a})["y"].tobytes(), range(40)))
        assert threading.active_count() <= before + 4
    assert found == [right] * 40


def test_scratch_of_a_tile_belongs_to_it():
    """As many tiles as threads, one more, and many more: what one tile leaves in its scratch is not seen by another."""
    rng = np.random.default_rng(1)
    w = rng.integers(-128, 128, (70, 33), np.int8)
    pipe = tw.Pipeline("tiles")
    pipe.output("y", tw.ops.gemm(pipe.input("x", "u8", ("M", 70)), w, a_zero_point=9))
    for rows in (4, 12, 16, 96):
        x = rng.integers(0, 256, (rows, 70), np.uint8)
        right = (x.astype(np.int64) - 9) @ w.astype(np.int64)
        for threads in (1, 3):
            executor = tw.TilingExecutor(threads=threads, tile={"gemm_u8s8s32": {"m": 4}})
            assert executor.run(pipe, {"x": x})["y"].tolist() == right.tolist()
