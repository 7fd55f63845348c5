"""How work is cut into tiles: evenly over threads, and into pieces short enough for Ctrl-C."""

import math

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
