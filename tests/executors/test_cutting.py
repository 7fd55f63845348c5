"""How work is cut into tiles: evenly over threads, and into pieces short enough for Ctrl-C."""

import math

import numpy as np
import pytest

from tilework.executors import cutting
from tilework.executors.recording import Operand
from tilework.primitives.kernel import ArgSpec, Axis, IndexSpace


class Rows:
    """A kernel that costs what it is told, along one axis that can be cut and one that cannot."""

    name = "rows"

    def __init__(self, cost, multiple=8):
        self.price, self.multiple = cost, multiple

    def signature(self):
        return (
            ArgSpec("x", "f32", shape=("M", "N"), follows=("m", "n")),
            ArgSpec("y", "f32", "write", shape=("M", "N"), follows=("m", "n")),
        )

    def index_space(self):
        return IndexSpace((Axis("m", "M", multiple=self.multiple), Axis("n", "N", split=False)))

    def cost(self, extents, *operands):
        return self.price

    def execute(self, ctx): ...


def cut(cost, rows, threads, multiple=8):
    operand = Operand.make(0, 0, "f4", (rows, 4))
    return cutting.cut(Rows(cost, multiple), (rows, 4), [operand, operand], threads)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_long_step_is_cut_until_no_tile_is_long(threads):
    found = cut(cutting.LONG * 10, 8000, threads)
    tiles = math.prod(found.counts)
    assert found.counts[1] == 1
    assert 10 <= tiles < 10 + threads
    assert tiles % threads == 0
    covered = found.ranges[:, :2]
    assert covered[0, 0] == 0
    assert covered[-1, 1] == 8000
    assert (covered[1:, 0] == covered[:-1, 1]).all()


def test_what_cannot_be_cut_stays_whole_and_short_work_is_one_tile():
    assert cut(cutting.LONG * 10, 8, 1).counts == (1, 1)
    assert cut(cutting.LONG * 10, 20, 1).counts == (3, 1)
    assert cut(cutting.LONG, 8000, 1).counts == (1, 1)
    assert cut(cutting.LONG, 8000, 2).counts == (2, 1)


class Blocks(Rows):
    """The same along two axes that can be cut."""

    def index_space(self):
        return IndexSpace((Axis("m", "M"), Axis("n", "N", multiple=self.multiple)))


def test_a_long_step_of_few_rows_is_cut_along_the_next_axis_too():
    operand = Operand.make(0, 0, "f4", (3, 800))
    found = cutting.cut(Blocks(cutting.LONG * 10), (3, 800), [operand, operand], 1)
    assert found.counts == (3, 4)
    rows = sorted({tuple(r) for r in found.ranges[:, :2].tolist()})
    assert rows == [(0, 1), (1, 2), (2, 3)]
    assert all(n % 8 == 0 for n in found.ranges[:, 2].tolist())


def test_work_that_is_small_is_one_tile_and_threads_share_the_rest():
    assert cut(cutting.SMALL - 1, 8000, 3).counts == (1, 1)
    assert cut(cutting.SMALL, 8000, 3).counts == (3, 1)
    assert cut(cutting.SMALL, 8000, 1).counts == (1, 1)
    assert cut(cutting.SMALL, 8, 3).counts == (1, 1)  # one multiple
    assert cut(cutting.SMALL, 0, 3).ranges.shape == (0, 4)
    lengths = cut(cutting.SMALL, 100, 3).ranges[:, :2]
    assert lengths.tolist() == [[0, 32], [32, 64], [64, 100]]


def test_reading_less_twice_decides_which_axis_is_cut():
    class Product(Blocks):
        def signature(self):
            return (
                ArgSpec("a", "f32", shape=("M", "K"), follows=("m", None)),
                ArgSpec("b", "f32", shape=("K", "N"), follows=(None, "n")),
                ArgSpec("y", "f32", "write", shape=("M", "N"), follows=("m", "n")),
            )

    def counts(m, n):
        operands = [Operand.make(0, 0, "f4", shape) for shape in ((m, 64), (64, n), (m, n))]
        return cutting.cut(Product(10 * cutting.SMALL, 8), (m, n), operands, 2).counts

    assert counts(4096, 64) == (2, 1)  # b is small: both threads read all of it
    assert counts(64, 4096) == (1, 2)


@pytest.mark.parametrize(("columns", "multiple"), [(72, 64), (96, 64), (24, 8), (64, 32)])
def test_a_small_last_piece_is_no_half_and_equal_pieces_are_long_runs(columns, multiple):
    class Grid(Blocks):
        def index_space(self):
            return IndexSpace((Axis("m", "M"), Axis("n", "N", multiple=multiple)))

    operand = Operand.make(0, 0, "f4", (32, columns))
    found = cutting.cut(Grid(1e6), (32, columns), [operand, operand], 2)
    assert found.counts == (2, 1)
    alone = Operand.make(0, 0, "f4", (1, columns))
    assert math.prod(cutting.cut(Grid(1e6), (1, columns), [alone, alone], 2).counts) == 2


def test_an_axis_whose_places_follow_each_other_makes_a_stage_of_each_where_others_are_cut():
    axes = (Axis("t", "T", split=False, in_turn=True), Axis("n", "N"))
    whole = cutting.Cut(np.array([[0, 3, 0, 8]]), (1, 1), 1.0)
    assert cutting.in_turn(axes, (3, 8), whole).tolist() == [[[0, 3, 0, 8]]]
    halves = cutting.Cut(np.array([[0, 3, 0, 4], [0, 3, 4, 8]]), (1, 2), 1.0)
    found = cutting.in_turn(axes, (3, 8), halves)
    assert found.tolist() == [[[t, t + 1, 0, 4], [t, t + 1, 4, 8]] for t in range(3)]
    assert cutting.in_turn((axes[1],), (8,), cutting.Cut(np.array([[0, 4], [4, 8]]), (2,), 1.0)).shape == (1, 2, 2)
