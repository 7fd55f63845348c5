"""Programs as native code reads them, and what a run's memory holds for the workers."""

import numpy as np
import pytest

import tilework as tw
from tilework.executors import crew, lowering, program
from tilework.kernels import dispatch


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
