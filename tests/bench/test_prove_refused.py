"""What is not meant to work is refused by name, and the table in docs/proof.md says with which names."""

import re

import numpy as np
import pytest

from tilework.bench.prove import refused
from tilework.bench.prove.draw import Cell, Family
from tilework.bench.prove.run import FAMILIES
from tilework.kernels import ops
from tilework.primitives.errors import ShapeMismatch, Unsupported
from tilework.primitives.pipeline import Pipeline

LEFT_OUT = [(family, cells) for family in FAMILIES if (cells := list(refused.others(family)))]


@pytest.fixture(scope="module")
def documented():
    page = refused.PACKAGE / "docs" / "proof.md"
    if not page.exists():
        pytest.skip("no pages beside this package")
    lines = page.read_text(encoding="utf-8").splitlines()
    start = lines.index(refused.HEADER[0])
    rows = [line.strip("| ").split(" | ") for line in lines[start + 2 : start + 2 + len(LEFT_OUT)]]
    return {
        (row[0], row[1]): set(re.findall(r"`(\w+)`", line)) for row, line in zip(rows, lines[start + 2 :], strict=False)
    }


def test_every_family_has_its_row_and_its_errors(documented):
    assert len(documented) == len(LEFT_OUT)
    for family, cells in LEFT_OUT:
        names = documented[refused.shown({c.step for c in family.cells}), str(len(cells))]
        for cell in cells[:: 37 if len(cells) < 2000 else 499]:
            found = refused.outcome(family, cell)
            assert found.faults == []
            assert found.built or found.errors, cell
            assert found.built or found.errors <= names, (cell, found.errors)


def test_an_error_without_a_name_is_a_fault():
    def divides(draw, cell):
        x = draw.input(cell.dtype, (4,))
        return ops.sigmoid(x) if cell.dtype == "f32" else ops.relu(x, [1, 0][x.shape[0] * 2])

    family = Family((Cell("step", "f32"),), divides)
    assert refused.asked(family, Cell("step", "f32"), 0) == ("built", "")
    assert refused.asked(family, Cell("step", "u8"), 0)[0] == "none"  # raised by what draws, not by the library


@pytest.mark.parametrize("slot", ["a_scale", "b_zero_point", "scale", "zero_point"])
def test_parameters_of_which_there_is_one_are_refused_where_there_are_many(slot):
    pipe = Pipeline()
    a, b = pipe.input("a", "u8", (2, 3)), pipe.input("b", "u8", (2, 3))
    given = {"a_scale": 0.5, "b_scale": 0.5, "scale": 0.5, "a_zero_point": 1, "b_zero_point": 1, "zero_point": 1}
    assert ops.add(a, b, **given | {slot: [1]}).shape == (2, 3)
    assert ops.add(a, b, **given | {slot: np.ones(1, np.float16)}).shape == (2, 3)
    with pytest.raises(ShapeMismatch, match=rf"add: {slot} has shape \(3,\); one works"):
        ops.add(a, b, **given | {slot: [1, 1, 1]})
    q = pipe.input("q", "f32", (1, 1, 2, 3))
    with pytest.raises(ShapeMismatch, match=r"attention: scale has shape \(2,\); one works"):
        ops.attention(q, q, q, scale=[1.0, 2.0])


def test_packed_values_of_one_hot_are_refused_by_name():
    pipe = Pipeline()
    indices, values = pipe.input("i", "s64", (3,)), pipe.input("v", "u4", (2,))
    with pytest.raises(Unsupported, match="one_hot: values are u4"):
        ops.one_hot(indices, 4, values)
