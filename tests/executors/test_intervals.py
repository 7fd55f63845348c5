"""What earlier steps of a chain have to compute, from small examples by hand."""

from dataclasses import dataclass

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from tilework.executors import intervals
from tilework.primitives.kernel import Affine, ArgSpec, Axis, IndexSpace
from tilework.primitives.pipeline import Pipeline


@dataclass(frozen=True)
class Step:
    """y[n] of x at n, or of the part of x that `follows` says; all of x where that is None."""

    name: str
    follows: object = "n"
    multiple: int = 1
    split: bool = True

    def signature(self):
        return (
            ArgSpec("x", "f32", shape=("X", "C"), follows=(self.follows, None)),
            ArgSpec("y", "f32", "write", shape=("X", "C"), follows=("n", None)),
        )

    def index_space(self):
        return IndexSpace((Axis("n", "X", multiple=self.multiple, split=self.split),))

    def execute(self, ctx): ...


def chained(*kernels, rows=20):
    pipe = Pipeline("chain")
    value, values = pipe.input("x", "f32", (rows, 3)), []
    for kernel in kernels:
        value = pipe.add(kernel, x=value)
        values.append(value)
    pipe.output("y", value)
    shapes = {v.name: (rows, 3) for v in [pipe.values["x"], *values]}
    return [(step, "n") for step in pipe.steps], shapes, [v.name for v in values]


def test_tiles_cover_an_axis():
    assert_array_equal(intervals.tiles_of(10, 4), [[0, 4], [4, 8], [8, 10]])
    assert_array_equal(intervals.tiles_of(8, 4), [[0, 4], [4, 8]])
    assert intervals.is_partition(intervals.tiles_of(10, 4), 10)


@pytest.mark.parametrize(
    "cut", [[[1, 4], [4, 10]], [[0, 4], [4, 9]], [[0, 4], [5, 10]], [[0, 5], [4, 10]], [[0, 4], [4, 8], [7, 10]]]
)
def test_a_gap_or_an_overlap_is_no_partition(cut):
    assert not intervals.is_partition(np.array(cut), 10)


def test_an_axis_that_cannot_be_split_is_not_found():
    ((whole, _), (cut, _)), _, _ = chained(Step("whole", split=False), Step("cut"))
    assert intervals.axis_of(whole, "n") is None
    assert intervals.axis_of(cut, "n").name == "n"
    assert intervals.axis_of(cut, "m") is None


def test_an_equal_index_needs_the_same_rows_and_a_window_its_halo():
    links, shapes, names = chained(Step("first"), Step("wide", Affine("n", 1, 2, 1)), Step("last"))
    tiles = intervals.tiles_of(20, 8)
    held = dict.fromkeys(names[:-1], 0)
    found = intervals.propagate(links, tiles, shapes, held)
    assert_array_equal(found[2], tiles)
    assert_array_equal(found[1], tiles)
    assert_array_equal(found[0], [[0, 9], [6, 17], [14, 20]])
    (needed,) = intervals.needs(links[0][0], "n", links[1], tiles, shapes)
    assert_array_equal(needed, [[0, 9], [6, 17], [14, 20]])
    assert intervals.needs(links[1][0], "n", links[0], tiles, shapes) == []
    assert intervals.propagate(links, tiles, shapes, {}) is None  # rows that two tiles write may not exist in full


def test_what_follows_nothing_is_needed_whole():
    links, shapes, _ = chained(Step("first"), Step("all", None))
    (needed,) = intervals.needs(links[0][0], "n", links[1], intervals.tiles_of(20, 8), shapes)
    assert_array_equal(needed, [[0, 20]] * 3)


def test_rows_come_in_multiples():
    links, shapes, names = chained(Step("first", multiple=4), Step("wide", Affine("n", 1, 1, 1)))
    found = intervals.propagate(links, intervals.tiles_of(20, 6), shapes, {names[0]: 0})
    assert_array_equal(found[0], [[0, 8], [4, 16], [8, 20], [16, 20]])


def test_halos_add_up_from_the_back_to_the_front():
    wide = Affine("n", 1, 1, 1)
    links, shapes, names = chained(Step("first"), Step("second", wide), Step("third", wide), Step("last", wide))
    tiles = intervals.tiles_of(20, 10)
    found = intervals.propagate(links, tiles, shapes, dict.fromkeys(names[:-1], 0))
    assert [cut.tolist() for cut in found] == [
        [[0, 13], [7, 20]],
        [[0, 12], [8, 20]],
        [[0, 11], [9, 20]],
        [[0, 10], [10, 20]],
    ]


def test_tiles_of_the_last_step_are_multiples_too():
    links, shapes, _ = chained(Step("only", multiple=4))
    assert intervals.propagate(links, intervals.tiles_of(20, 6), shapes, {}) is None
    (found,) = intervals.propagate(links, intervals.tiles_of(20, 8), shapes, {})
    assert_array_equal(found, [[0, 8], [8, 16], [16, 20]])


def test_a_strided_window_reads_further_apart():
    pipe = Pipeline("strided")
    x = pipe.input("x", "f32", (21, 3))
    first = pipe.add(Step("first"), x=x)
    pipe.output("y", pipe.add(Strided(), x=first))
    shapes = {"x": (21, 3), first.name: (21, 3), pipe.steps[1].name + ".y": (10, 3)}
    links = [(step, "n") for step in pipe.steps]
    (needed,) = intervals.needs(links[0][0], "n", links[1], intervals.tiles_of(10, 4), shapes)
    assert_array_equal(needed, [[0, 8], [7, 16], [15, 20]])


@dataclass(frozen=True)
class Strided:
    """y[n] of x from 2n - 1 to 2n + 1."""

    name: str = "strided"

    def signature(self):
        return (
            ArgSpec("x", "f32", shape=("X", "C"), follows=(Affine("n", 2, 1, 1), None)),
            ArgSpec("y", "f32", "write", shape=("X//2", "C"), follows=("n", None)),
        )

    def index_space(self):
        return IndexSpace((Axis("n", "X//2"),))

    def execute(self, ctx): ...


def test_tiles_of_one_row_are_one_row():
    links, shapes, names = chained(Step("first"), Step("last"))
    tiles = intervals.tiles_of(20, 1)
    found = intervals.propagate(links, tiles, shapes, {names[0]: 0})
    assert_array_equal(found[0], tiles)
    links, shapes, names = chained(Step("first", multiple=2), Step("last"))
    found = intervals.propagate(links, tiles, shapes, {names[0]: 0})
    assert_array_equal(found[0][:4], [[0, 2], [0, 2], [2, 4], [2, 4]])


def test_a_step_that_no_later_one_reads_has_the_tiles_of_the_last_only_if_it_is_as_long():
    pipe = Pipeline("beside")
    x = pipe.input("x", "f32", (21, 3))
    first, beside = pipe.add(Step("first"), x=x), pipe.add(Step("beside"), x=x)
    pipe.output("y", pipe.add(Strided(), x=first))
    pipe.output("z", beside)
    shapes = {"x": (21, 3), first.name: (21, 3), beside.name: (21, 3), pipe.outputs["y"].name: (10, 3)}
    links = [(step, "n") for step in pipe.steps]
    held = {first.name: 0, beside.name: 0}
    assert intervals.propagate(links, intervals.tiles_of(10, 5), shapes, held) is None
    assert intervals.propagate([links[0], links[2]], intervals.tiles_of(10, 5), shapes, held) is not None
