"""A pipeline over batches: in order, read ahead, cut to size, and with what goes wrong named."""

import threading

import numpy as np
import pytest

import tilework as tw
from tilework.executors.streaming import LEAST, MOST, rows_of
from tilework.primitives.errors import ArgumentError, ShapeMismatch


def summing():
    pipe = tw.Pipeline("summing")
    x = pipe.input("x", "s32", ("N",))
    codes = pipe.input("codes", "s32", ("N",))
    for name, value in tw.ops.group_by(codes, 3, {"sum": ("sum", x), "rows": "count"}).items():
        pipe.output(name, value)
    return pipe


def batches(sizes):
    start = 0
    for n in sizes:
        yield {
            "x": np.arange(start, start + n, dtype=np.int32),
            "codes": np.arange(start, start + n, dtype=np.int32) % 3,
        }
        start += n


def test_a_stream_sums_all_batches_whatever_their_sizes():
    pipe, n = summing(), 1000
    right = [sum(range(g, n, 3)) for g in range(3)]
    for sizes, rows in (([n], None), ([1, 0, 999], 7), ([500, 500], 100)):
        stream = tw.Stream(tw.TilingExecutor(threads=2), pipe, rows=rows)
        assert stream.last(batches(sizes))["sum"].tolist() == right
        assert (stream.done, stream.batches) == (n, len(sizes))
        stream.state.clear()
        assert stream.last(batches([3]))["rows"].tolist() == [1, 1, 1]
        assert stream.last(batches([3]))["rows"].tolist() == [2, 2, 2]  # it goes on where it was


def test_nothing_at_all_is_a_result_too():
    found = tw.Stream(tw.TilingExecutor(threads=1), summing()).last([])
    assert found["rows"].tolist() == [0, 0, 0]


def test_outputs_come_in_order_and_fixed_inputs_once():
    pipe = tw.Pipeline()
    x, s = pipe.input("x", "f32", ("N", 2)), pipe.argument("s", "f32")
    pipe.output("y", tw.ops.mul(x, s))
    stream = tw.Stream(tw.TilingExecutor(threads=1), pipe, rows=2, fixed={"s": 3.0})
    given = np.arange(20, dtype=np.float32).reshape(10, 2)
    found = [out["y"] for out in stream.run([{"x": given[:5]}, {"x": given[5:]}])]
    assert [len(y) for y in found] == [2, 2, 1, 2, 2, 1]
    np.testing.assert_array_equal(np.concatenate(found), given * 3)


def test_reading_is_ahead_and_stops_when_nobody_wants_more():
    read, closed = [], threading.Event()

    def source():
        try:
            for n in range(1000):
                read.append(n)
                yield next(batches([4]))
        finally:
            closed.set()

    stream = tw.Stream(tw.TilingExecutor(threads=1), summing(), ahead=2)
    running = stream.run(source())
    next(running)
    running.close()
    assert len(read) <= 5
    assert not any(t.name == "tilework reader" for t in threading.enumerate())


def test_what_a_source_raises_comes_after_the_batches_before_it():
    def source():
        yield next(batches([4]))
        raise OSError("the disk is gone")

    stream = tw.Stream(tw.TilingExecutor(threads=1), summing())
    with pytest.raises(OSError, match="the disk is gone"):
        stream.last(source())
    assert stream.done == 4


def test_what_cannot_be_streamed_is_named():
    executor = tw.TilingExecutor(threads=1)
    fixed = tw.Pipeline()
    fixed.output("y", tw.ops.relu(fixed.input("x", "f32", (3, 4))))
    with pytest.raises(ArgumentError, match="batches have a run-time size first"):
        tw.Stream(executor, fixed)
    two = tw.Pipeline()
    two.output("y", tw.ops.relu(two.input("x", "f32", ("N",))))
    two.output("z", tw.ops.relu(two.input("a", "f32", ("M",))))
    with pytest.raises(ArgumentError, match="rows are called M, N; one name is needed"):
        tw.Stream(executor, two)
    with pytest.raises(ArgumentError, match="rows=0; a positive integer"):
        tw.Stream(executor, summing(), rows=0)
    with pytest.raises(ShapeMismatch, match="different numbers of rows: x 3, codes 4"):
        tw.Stream(executor, summing()).last([{"x": np.zeros(3, np.int32), "codes": np.zeros(4, np.int32)}])


def test_rows_fit_the_caches():
    assert rows_of(summing(), "N", 1) == 2**19  # 4 + 4 bytes of columns, and what follows from them
    wide = tw.Pipeline()
    wide.output("y", tw.ops.relu(wide.input("x", "f32", ("N", 4096))))
    assert rows_of(wide, "N", 1) == LEAST
    narrow = tw.Pipeline()
    narrow.output("y", tw.ops.relu(narrow.input("x", "u8", ("N",))))
    assert rows_of(narrow, "N", 64) == MOST
