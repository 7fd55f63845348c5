"""The tiles of a sweep: words, what is left out and why."""

import pytest

from tilework import TilingExecutor
from tilework.bench.tiles import makers, problem, space
from tilework.bench.tiles.space import Space
from tilework.primitives.errors import ArgumentError


@pytest.mark.parametrize(
    ("word", "values"),
    [
        ("mr=4,6,8", (4, 6, 8)),
        ("kc=128:1024:2x", (128, 256, 512, 1024)),
        ("kc=100:1000:3x", (100, 300, 900)),
        ("mc=32:128:32", (32, 64, 96, 128)),
        ("mc=5:7", (5, 6, 7)),
        ("mc=8,16:32:2x,8", (8, 16, 32)),
        ("stage=0,64", (0, 64)),
    ],
)
def test_words_stand_for_values(word, values):
    assert space.parse([word]) == {word.partition("=")[0]: values}


@pytest.mark.parametrize(
    "word", ["mr", "mr=", "=4", "mr=x", "mr=8:4", "mr=4:8:0", "mr=4:8:1x", "mr=0:8:2", "mr=1:99999999"]
)
def test_other_words_say_what_is_needed(word):
    with pytest.raises(ArgumentError, match=r"tile values"):
        space.parse([word])


def step_of(kernel="gemm_u8s8s32", shape="64x96x160"):
    made = problem.make(kernel, shape)
    plan = TilingExecutor(1, tuned=False).compile(made.pipe, made.shapes)
    return plan.tiles.tunable[made.step]


def test_the_own_choice_comes_first_and_no_tile_twice():
    made = Space.make(step_of(), "avx2", {"mr": (2, 4), "nr": (8, 16), "mc": (64, 65, 1000)})
    assert made.candidates[0].default
    runs = [tuple(sorted(c.work.tile.items())) for c in made.candidates]
    assert len(set(runs)) == len(runs)
    same = [why for _, why in made.pruned if "comes to the same as" in why]
    assert len(same) + len(made.candidates) == 1 + 2 * 2 * 3 - len([w for _, w in made.pruned if "same" not in w])
    assert same


def test_what_cannot_be_is_left_out_with_a_reason():
    made = Space.make(step_of(), "avx2", {"mr": (4, 16), "nr": (16, 7)})
    reasons = {tuple(t.values()): why for t, why in made.pruned}
    assert "registers" in reasons[16, 16]
    assert "nr=7" in reasons[4, 7]


def test_tiles_of_one_specialisation_are_one_group():
    made = Space.make(step_of(), "avx2", {"mr": (2, 4), "nr": (16,), "mc": (8, 16, 32)})
    groups = {tuple(sorted(c.group.items())) for c in made.candidates if not c.default}
    assert len(groups) == 2


def test_without_values_every_parameter_is_tried_at_its_own():
    made = Space.make(step_of(), None)
    assert {"mr", "nr", "mc", "kc"} <= set(made.values)
    assert all(v == tuple(sorted(v)) for v in made.values.values())


@pytest.mark.parametrize("tiles", [{"speed": (1,)}, {"mr": (0,)}, {"mr": ()}])
def test_a_parameter_that_is_not_there_is_named(tiles):
    with pytest.raises(ArgumentError, match=r"no tile parameter 'speed'; it has mr, nr|positive integers"):
        Space.make(step_of(), None, tiles)


def test_too_many_tiles_are_refused():
    with pytest.raises(ArgumentError, match="more than 20000"):
        Space.make(step_of(), None, {"mc": tuple(range(1, 300)), "kc": tuple(range(1, 300))})


@pytest.mark.parametrize("shape", ["1x64x64", "8x8x8", "300x1000x1000", "64x20000x64"])
def test_the_model_knows_every_tile_that_runs(shape):
    """What the model says a tile comes to is what the plan says."""
    made = problem.make("gemm_u8s8s32", shape)
    step = step_of(shape=shape)
    for tile in ({}, {"mr": 4, "nr": 16}, {"mc": 5, "kc": 64}):
        plan = TilingExecutor(1, tuned=False, tile={made.step: tile} if tile else None).compile(made.pipe, made.shapes)
        runs = step.variant.work(step.facts(tile, None)).tile
        shown = f"mr x nr {runs['mr']} x {runs['nr']}, mc {runs['mc']}"
        assert shown in plan.explain()


def test_makers_know_the_kernels_they_name():
    assert makers.gemm("gemm_u8s8s32", "8x8x8").operations == 1024
    for kernel, text in (("gemm_u8f32", "there is no|a is u8"), ("pool_max", "no problem for kernel")):
        with pytest.raises((ArgumentError, TypeError), match=text):
            problem.make(kernel, "8x8x8")
    with pytest.raises(ArgumentError, match="MxKxN is needed"):
        problem.make("gemm_u8s8s32", "8x8")
