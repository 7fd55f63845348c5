"""Programs that the planner would never make: each kind of mistake is found before anything runs."""

from dataclasses import replace

import numpy as np
import pytest

import tilework as tw
from tilework.executors import cutting
from tilework.executors.program import FIRST_EXTERNAL
from tilework.executors.verify import verify
from tilework.primitives.errors import PipelineError

ROWS, WIDTH = 1024, 512  # intermediates above what a chain is worth


@pytest.fixture(scope="module")
def chained():
    pipe = tw.Pipeline("chained")
    x = pipe.input("x", "u8", (ROWS, 32))
    rng = np.random.default_rng(0)
    for inner, width in ((32, WIDTH), (WIDTH, 32)):
        acc = tw.ops.gemm(x, rng.integers(-9, 9, (inner, width)).astype(np.int8), a_zero_point=np.uint8(3))
        x = tw.ops.requantize(acc, multiplier=np.float32(0.01), zero_point=3, dtype="u8")
    pipe.output("y", x)
    return made(pipe, 2, chain=True, tile=None, shape=(ROWS, 32))


def made(pipe, threads, shape, **more):
    options = {name: value for name, value in more.items() if value is not None}
    return tw.TilingExecutor(threads, **options).compile(pipe).prepare({"x": shape})


def check(binding, laid=None, placed=None, chains=None, to_the_end=()):
    verify(
        binding.laid if laid is None else laid,
        binding.placed if placed is None else placed,
        binding.shapes,
        binding.chains if chains is None else chains,
        to_the_end,
    )


@pytest.fixture(scope="module")
def single():
    pipe = tw.Pipeline("single")
    x = pipe.input("x", "f32", (64, 40))
    pipe.output("y", tw.ops.abs(tw.ops.neg(x)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cutting, "SMALL", 0)
        return made(pipe, 2, (64, 40), fuse=False, chain=False)


def test_tiles_that_meet_are_right_and_tiles_that_overlap_are_not(single):
    check(single)
    item = next(i for i in single.laid if i.cuts and len(i.cuts[0].ranges) > 1)
    cut = item.cuts[0]
    axis = int(np.flatnonzero(np.array(cut.counts) > 1)[0])
    ranges = cut.ranges.copy()
    ranges[0, 2 * axis + 1] += 1  # one row more than the next tile leaves
    wrong = [replace(i, cuts=[replace(cut, ranges=ranges)]) if i is item else i for i in single.laid]
    with pytest.raises(PipelineError, match="tiles overlap along"):
        check(single, laid=wrong)


def test_a_cut_that_what_is_written_does_not_follow_is_found_out():
    pipe = tw.Pipeline("reduced")
    pipe.output("y", tw.ops.reduce("sum", pipe.input("x", "s32", (64, 40)), (1,)))
    binding = made(pipe, 1, (64, 40))
    check(binding)
    (item,) = binding.laid
    for n, axis in enumerate(item.cuts[0].counts):
        counts = tuple(2 if d == n else c for d, c in enumerate(item.cuts[0].counts))
        wrong = replace(item, cuts=[replace(item.cuts[0], counts=counts)])
        follows = n == 0
        if follows:
            check(binding, laid=[wrong])
        else:
            with pytest.raises(PipelineError, match=r"is cut along .*, which its slot"):
                check(binding, laid=[wrong])
        assert axis >= 1


def test_a_stage_of_several_steps_is_a_chain(chained):
    assert len(chained.chains) == 1
    check(chained)
    with pytest.raises(PipelineError, match="begins a stage of steps that are no chain"):
        check(chained, chains=())
    (chain,) = chained.chains
    with pytest.raises(PipelineError, match="begins a stage of steps that are no chain"):
        check(chained, chains=[replace(chain, steps=chain.steps[:1])])


def test_each_tile_of_a_chain_has_what_it_reads(chained):
    stage = chained.laid[0].stages[0]
    (chain,) = chained.chains
    links = list(zip(stage.rows, chain.axes, strict=True))

    def moved(which, low, high):
        """The rows of one link that begin and end elsewhere, along all of its axes that are cut."""
        row, _ = links[which]
        ranges = row.ranges.copy()
        cut = [d for d in range(ranges.shape[1] // 2) if len(np.unique(ranges[:, 2 * d])) > 1]
        for d in cut:
            ranges[:, 2 * d] += low
            ranges[:, 2 * d + 1] += high
        rows = tuple(replace(r, ranges=ranges) if n == which else r for n, r in enumerate(stage.rows))
        return [replace(chained.laid[0], stages=[replace(stage, rows=rows)]), *chained.laid[1:]]

    for low, high in ((1, 0), (0, -1)):
        with pytest.raises(PipelineError, match="reads more of what"):
            check(chained, laid=moved(0, low, high))
        with pytest.raises(PipelineError, match=r"write parts of .* twice"):
            check(chained, laid=moved(1, low, high))
    check(chained, laid=moved(0, -1, 1))  # more than is read does no harm


def test_a_tile_of_each_thread_does_not_lie_where_all_write(chained):
    (chain,) = chained.chains
    (held,) = chain.held
    for base in (1, 2):
        with pytest.raises(PipelineError, match="is a tile of each thread, but it lies where all of them write"):
            check(chained, placed=dict(chained.placed) | {held: replace(chained.placed[held], base=base)})


def test_what_is_read_after_the_last_stage_is_alive_until_then():
    pipe = tw.Pipeline("late")
    x = pipe.input("x", "f32", (64, 40))
    first = tw.ops.neg(x)
    pipe.output("y", tw.ops.abs(tw.ops.abs(tw.ops.neg(tw.ops.abs(first)))))
    binding = made(pipe, 1, (64, 40), fuse=False, chain=False)
    check(binding)
    values = [v for item in binding.laid for v in item.step.outputs.values() if v.name in binding.placed]
    arena = [v for v in values if binding.placed[v.name].base == binding.placed[values[0].name].base]
    same = [v for v in arena[1:] if binding.placed[v.name].offset == binding.placed[arena[0].name].offset]
    assert same  # memory of the first is used again
    with pytest.raises(PipelineError, match="are alive together and overlap in the arena"):
        check(binding, to_the_end=[arena[0]])


def test_tiles_of_each_thread_have_bases_of_their_own_behind_those_of_the_arrays(chained):
    (chain,) = chained.chains
    (held,) = chain.held
    assert chained.placed[held].base == FIRST_EXTERNAL + len(chained.externals)
    assert chained.placed[held].offset == 0
    assert chained.bases == FIRST_EXTERNAL + len(chained.externals) + 1
    (fix,) = chained.laid[0].stages[0].fixes
    assert fix.base == chained.placed[held].base
    assert len(fix.displacement) == len(chain.cuts[0])
