"""Programs as native code reads them, and what a run's memory holds for the workers."""

import numpy as np
import pytest

import tilework as tw
from tilework.executors import crew, lowering, program
from tilework.kernels import dispatch
from tilework.primitives.memory import array_at


def prepared(threads, steps=3):
    pipe = tw.Pipeline("p")
    value = pipe.input("x", "f32", (64, 40))
    for _ in range(steps):
        value = tw.ops.neg(value)
    pipe.output("y", value)
    return tw.TilingExecutor(threads, fuse=False, chain=False).compile(pipe)


def test_a_program_has_room_for_the_progress_of_every_stage():
    binding = prepared(1).prepare({"x": (64, 40)})
    (made,) = binding.parts
    assert len(made.stages) == len(made) == 3
    assert made.progress_words == dispatch.HEAD + 3 * dispatch.PROGRESS
    assert program.Program(()).progress_words == dispatch.HEAD
    assert binding.progress_words >= made.progress_words


@pytest.mark.skipif(not crew.possible(), reason="no POSIX threads")
def test_the_memory_of_several_workers_hires_them():
    memory = program.RunMemory(3, 9, 100, 50, 4)
    assert len(crew.the_crew().threads) >= 2
    assert memory.team[0] == 3
    assert memory.bases.shape == (3, 16)
    assert len({int(row[program.LOCAL]) for row in memory.bases}) == 3
    assert (memory.bases[:, program.ARENA] == memory.bases[0, program.ARENA]).all()
    assert memory.bases[1, program.LOCAL] - memory.bases[0, program.LOCAL] >= 50
    assert memory.progress.size >= dispatch.HEAD
    assert not program.RunMemory(1, 9, 100, 50, 4).team.any()


@pytest.mark.parametrize(("given", "own"), [(None, True), ("own", True), ("numba", False)])
def test_the_environment_says_whose_threads_run(monkeypatch, given, own):
    monkeypatch.delenv("TILEWORK_THREADING", raising=False)
    if given is not None:
        monkeypatch.setenv("TILEWORK_THREADING", given)
    assert program.own_threads.__wrapped__() is (own and crew.possible())
    monkeypatch.setenv("TILEWORK_THREADING", "others")
    with pytest.raises(tw.errors.ArgumentError, match="'own' or 'numba'"):
        program.own_threads.__wrapped__()


@pytest.mark.parametrize("count", [0, 1, 5, 64, 65, 1000])
def test_constants_begin_on_a_cache_line_and_have_bytes_behind_them(count):
    given = np.arange(count, dtype=np.int16)[::-1]
    kept = [lowering.aligned(given) for _ in range(8)]
    for copy in kept:
        assert copy.ctypes.data % 64 == 0
        assert (copy == given).all()
        assert not copy.flags.writeable
        assert copy.base.size >= 2 * count + 64
        behind = array_at(copy.ctypes.data + copy.nbytes, (64,), (1,), np.dtype(np.uint8), True, copy)
        assert not behind.any()


def test_a_run_ends_with_nought_and_a_trace_has_every_call():
    plan = prepared(1)
    binding = plan.prepare({"x": (64, 40)})
    (made,) = binding.parts
    x, y = np.ones((64, 40), np.float32), np.zeros((64, 40), np.float32)
    memory = program.RunMemory(1, binding.bases, binding.arena_bytes, binding.local_bytes, binding.progress_words)
    for name, array in zip(binding.externals, (x, y), strict=True):
        memory.bases[:, binding.placed[name].base] = array.ctypes.data
    assert memory.run(made, False) == 0
    assert (y == -1).all()
    events = memory.trace(made)
    assert len(events) == sum(stage.tiles for stage in made.stages)
    assert set(events[:, 1].tolist()) <= set(range(len(made)))


def test_the_part_of_an_axis_is_its_two_columns():
    from tilework.executors import verify

    pipe = tw.Pipeline("p")
    pipe.output("y", tw.ops.gemm(pipe.input("x", "u8", (4, 8)), np.ones((8, 6), np.int8)))
    ranges = np.arange(12).reshape(2, 6)
    names = [axis.name for axis in tw.primitives.kernel.index_space(pipe.steps[0].kernel).axes]
    for n, name in enumerate(names):
        assert verify._part(ranges, pipe.steps[0], name).tolist() == ranges[:, 2 * n : 2 * n + 2].tolist()


def test_a_plan_hands_its_export_out(monkeypatch):
    import tilework.executors.export as module

    monkeypatch.setattr(module, "export", lambda plan, folder, shapes, **more: (plan, folder, shapes, more))
    plan = prepared(1)
    assert plan.export("f", None, name="n", link=False) == (
        plan,
        "f",
        None,
        {"name": "n", "levels": None, "link": False},
    )
