"""What a kernel may do while it runs, and what the context refuses: a borrow checker's rules."""

import contextlib
import threading

import numpy as np
import pytest

from tilework.primitives.arena import BufferId
from tilework.primitives.context import ExecContext, _share
from tilework.primitives.errors import AliasError, ArgumentError, BufferAccessError, PipelineError, UnwrittenRead
from tilework.primitives.kernel import ArgSpec


class Step:
    name = "step"

    def __init__(self, *specs):
        self.specs = specs

    def signature(self):
        return self.specs


READ_WRITE = (ArgSpec("x", None), ArgSpec("y", None, "write"))


def context(**arrays):
    """A context in which every slot has memory; names that end in _ are not written yet."""
    ctx, slots = ExecContext(), {}
    for n, (name, array) in enumerate(arrays.items()):
        slots[name.rstrip("_")] = BufferId(n)
        ctx.bind(BufferId(n), array, written=not name.endswith("_"))
    return ctx, slots


def entered(ctx, slots, *specs, name="step"):
    return ctx.entered(name, Step(*specs), specs, slots)


def test_a_step_reads_a_read_only_view_and_writes_in_place():
    x, y = np.arange(4), np.zeros(4, np.int64)
    ctx, slots = context(x=x, y_=y)
    with entered(ctx, slots, *READ_WRITE):
        view = ctx.read("x")
        assert np.shares_memory(view, x)
        with pytest.raises(ValueError, match="read-only"):
            view[0] = 1
        ctx.write("y")[...] = view * 2
    np.testing.assert_array_equal(y, [0, 2, 4, 6])
    assert x.flags.writeable
    assert ctx.is_written(slots["y"])


def test_nothing_is_read_before_it_was_written():
    ctx, slots = context(x=np.zeros(2), y_=np.zeros(2), z_=np.zeros(2))
    first = (*READ_WRITE,)
    second = (ArgSpec("y", None), ArgSpec("z", None, "write"))
    with entered(ctx, slots, *second), pytest.raises(UnwrittenRead, match=r"'step' reads slot 'y' before"):
        ctx.read("y")
    with entered(ctx, slots, *first):
        ctx.read("x")  # and never asks for y
    with entered(ctx, slots, *second), pytest.raises(UnwrittenRead):
        ctx.read("y")
    with entered(ctx, slots, *first):
        ctx.write("y")
    with entered(ctx, slots, *second):
        ctx.read("y")


def test_what_a_failed_step_wrote_does_not_count():
    ctx, slots = context(x=np.zeros(2), y_=np.zeros(2))
    with contextlib.suppress(ZeroDivisionError), entered(ctx, slots, *READ_WRITE):
        ctx.write("y")[0] = 1 / 0
    assert not ctx.is_written(slots["y"])
    with entered(ctx, slots, *READ_WRITE):  # and the context is usable
        ctx.write("y")
    assert ctx.is_written(slots["y"])


def test_slots_are_used_as_they_were_declared():
    ctx, slots = context(x=np.zeros(2), y_=np.zeros(2))
    with entered(ctx, slots, *READ_WRITE):
        with pytest.raises(BufferAccessError, match="'step' writes slot 'x', which it declares as 'read'"):
            ctx.write("x")
        with pytest.raises(BufferAccessError, match="'step' reads slot 'y', which it declares as 'write'"):
            ctx.read("y")
        with pytest.raises(PipelineError, match="has no slot 'z'; it has x, y"):
            ctx.read("z")
    with pytest.raises(PipelineError, match="outside a step"):
        ctx.read("x")
    frozen = np.zeros(2)
    frozen.flags.writeable = False
    ctx, slots = context(x=np.zeros(2), y_=frozen)
    with entered(ctx, slots, *READ_WRITE), pytest.raises(BufferAccessError, match="read-only"):
        ctx.write("y")


def test_a_context_runs_one_step_at_a_time():
    ctx, slots = context(x=np.zeros(2), y_=np.zeros(2))
    with entered(ctx, slots, *READ_WRITE, name="first"):
        with pytest.raises(PipelineError, match="'second' was entered while 'first' is open"):
            with entered(ctx, slots, *READ_WRITE, name="second"):
                pass
        ctx.read("x")


BLOCK = np.arange(64, dtype=np.float32)
OVERLAPS = {
    "the same memory": (BLOCK[:8], BLOCK[:8], True),
    "shifted by one": (BLOCK[:8], BLOCK[1:9], True),
    "interleaved": (BLOCK[0:16:2], BLOCK[1:16:2], False),
    "apart": (BLOCK[:8], BLOCK[8:16], False),
    "reversed": (BLOCK[:8], BLOCK[7::-1], True),
    "another type": (BLOCK[:2], BLOCK[:2].view(np.uint8), True),
}


@pytest.mark.parametrize(("x", "y", "overlap"), OVERLAPS.values(), ids=OVERLAPS)
@pytest.mark.parametrize("order", ["xy", "yx"])
def test_a_buffer_has_one_writer_or_many_readers(x, y, overlap, order):
    ctx, slots = context(x=x, y_=y)
    with entered(ctx, slots, *READ_WRITE):
        first, second = (ctx.read, ctx.write) if order == "xy" else (ctx.write, ctx.read)
        first(order[0])
        if not overlap:
            second(order[1])
            return
        with pytest.raises(AliasError, match=r"'x' \(read\) and 'y' \(written\) in the same memory"):
            second(order[1])


@pytest.mark.parametrize("y", [BLOCK[:8], BLOCK[1:9], BLOCK[:8].view(np.int32)[:4]], ids=["same", "shifted", "shorter"])
def test_only_the_very_same_elements_are_taken_over_in_place(y):
    ctx, slots = context(x=BLOCK[:8], y_=y)
    specs = (ArgSpec("x", None), ArgSpec("y", None, "write", in_place=("x",)))
    with entered(ctx, slots, *specs):
        ctx.read("x")
        if y is BLOCK[:8] or (y.shape == (8,) and y.__array_interface__ == BLOCK[:8].__array_interface__):
            ctx.write("y")
        else:
            with pytest.raises(AliasError):
                ctx.write("y")


def test_two_readers_share_and_two_writers_do_not():
    ctx, slots = context(a=BLOCK[:8], b=BLOCK[:8], y_=BLOCK[8:16], z_=BLOCK[15:20])
    specs = (ArgSpec("a", None), ArgSpec("b", None), ArgSpec("y", None, "write"), ArgSpec("z", None, "write"))
    with entered(ctx, slots, *specs):
        ctx.read("a")
        ctx.read("b")
        ctx.write("y")
        with pytest.raises(AliasError):
            ctx.write("z")


def test_an_update_slot_stays_a_writer_after_it_is_read_again():
    state = np.zeros(4)
    ctx, slots = context(s=state, x=state)
    with entered(ctx, slots, ArgSpec("s", None, "update"), ArgSpec("x", None)):
        ctx.write("s")
        ctx.read("s")
        with pytest.raises(AliasError):
            ctx.read("x")


def test_overlap_that_is_hard_to_decide_is_refused_by_an_error_of_the_library():
    block = np.zeros(200_000, np.uint8)
    as_strided = np.lib.stride_tricks.as_strided
    x = as_strided(block, (7, 11, 13, 17), (3 * 5 * 7 * 11, 2 * 3 * 5 * 7, 2 * 3 * 5 * 11, 2 * 3 * 7 * 11))
    y = as_strided(block[1:], (7, 11, 13, 17), (3 * 5 * 7 * 13, 2 * 3 * 5 * 13, 2 * 3 * 7 * 13, 2 * 5 * 7 * 13))
    ctx, slots = context(x=x, y_=y)
    with entered(ctx, slots, *READ_WRITE):
        ctx.read("x")
        with contextlib.suppress(AliasError):  # but no TooHardError of NumPy's
            ctx.write("y")


def test_arguments_come_as_python_values():
    def scale(v):
        return v

    given = {"f": np.float32(0.5), "n": np.int32(7), "shape": np.array([2, 3]), "array": np.arange(3.0), "b": np.True_}
    ctx, slots = context(**{k: np.asarray(v) for k, v in given.items()}, function=scale)
    specs = [ArgSpec(name, None) for name in given]
    with entered(ctx, slots, *specs, ArgSpec("function", "function"), ArgSpec("none", "f32", optional=True)):
        assert ctx.arg("f") == 0.5
        assert type(ctx.arg("f", float)) is float
        assert ctx.arg("n", int) == 7
        assert type(ctx.arg("n", int)) is int
        assert ctx.arg("b", bool) is True
        assert ctx.arg("shape", tuple) == (2, 3)
        np.testing.assert_array_equal(ctx.arg("array", np.ndarray), [0.0, 1.0, 2.0])
        assert ctx.arg("function", callable) is scale
        assert ctx.arg("none") is None
        assert ctx.read("none") is None


@pytest.mark.parametrize(
    ("given", "type", "says"),
    [
        (np.arange(3.0), float, r"has shape \(3,\); one float is asked for"),
        (np.asarray(0.5), int, "is 0.5; an int is asked for"),
        (np.asarray(np.nan), int, "is nan; an int is asked for"),
        (np.asarray(np.inf), int, "is inf; an int is asked for"),
        (np.asarray([0.5]), tuple, "a shape is a 1-D array of ints"),
        (np.asarray(3), tuple, "a shape is a 1-D array of ints"),
        (np.asarray(3), callable, "a function is asked for"),
        (abs, float, "is a function; float is asked for"),
    ],
)
def test_an_argument_of_the_wrong_kind_is_refused(given, type, says):
    ctx, slots = context(a=given)
    with entered(ctx, slots, ArgSpec("a", None)), pytest.raises(ArgumentError, match=says):
        ctx.arg("a", type)


def test_scratch_is_aligned_and_every_call_gives_other_memory():
    ctx, slots = context(x=np.zeros(1), y_=np.zeros(1))
    with entered(ctx, slots, *READ_WRITE):
        taken = [ctx.scratch(n) for n in (100, 0, 1, 5000, 64, 100_000)]
        for n, block in enumerate(taken):
            assert block.dtype == np.uint8
            assert block.ctypes.data % 64 == 0 or block.size == 0
            block[:] = n
        for n, block in enumerate(taken):
            assert (block == n).all()
        with pytest.raises(ArgumentError, match="scratch of -1 bytes"):
            ctx.scratch(-1)
    first = {}
    for n in range(3):
        with entered(ctx, slots, *READ_WRITE):
            first[n] = ctx.scratch(1000).ctypes.data
    assert len(set(first.values())) == 1  # what one step took, the next one uses again


def test_every_thread_has_scratch_of_its_own():
    ctx, slots = context(x=np.zeros(1), y_=np.zeros(1))
    taken, barrier = [], threading.Barrier(4)
    with entered(ctx, slots, *READ_WRITE):

        def take(n):
            block = ctx.scratch(256)
            block[:] = n
            barrier.wait()
            taken.append((n, block))

        threads = [threading.Thread(target=take, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for n, block in taken:
        assert (block == n).all()


def test_sweep_goes_to_the_executor_and_says_where_there_is_none():
    swept = []
    ctx = ExecContext(lambda kernel, operands: swept.append((kernel.name, operands)))
    with pytest.raises(PipelineError, match="sweeps outside a step"):
        ctx.sweep(Step())
    with ctx.entered("s", Step(), (), {}):
        ctx.sweep(Step(), 1, 2)
    assert swept == [("step", (1, 2))]
    bare = ExecContext()
    with bare.entered("s", Step(), (), {}), pytest.raises(PipelineError, match="has no executor"):
        bare.sweep(Step())


def test_memory_that_may_overlap_counts_as_if_it_did():
    """Whether two views share an element is a hard question in general; this pair is NumPy's example of it."""
    bytes_ = np.zeros(192_163_377, np.int8)  # never touched
    view = np.lib.stride_tricks.as_strided
    a = view(bytes_, (1049, 1049, 1049), (36674, 61119, 85569))
    b = view(bytes_[64_023_025:], (1049, 1049, 1), (12223, 12224, 1))
    with pytest.raises(np.exceptions.TooHardError):
        np.shares_memory(a, b, max_work=100_000)
    assert _share(a, b)
    assert not _share(np.zeros(3), np.zeros(3))
    assert _share(bytes_[:2], bytes_[1:])
