"""The picture of a pipeline: where its boxes are, and what its curves join."""

import re
from dataclasses import dataclass

import numpy as np

from tilework.primitives.kernel import ArgSpec
from tilework.primitives.pipeline import Pipeline
from tilework.primitives.svg import GAP_X, GAP_Y, HEIGHT, MARGIN, WIDTH, svg


@dataclass(frozen=True)
class Join:
    name: str = "join"

    def signature(self):
        return (
            ArgSpec("a", "f32", shape=("N",)),
            ArgSpec("b", "f32", shape=("N",)),
            ArgSpec("y", "f32", "write", shape=("N",)),
        )

    def execute(self, ctx): ...


def boxes(text):
    """{title: (x, y)}, and the subtitles."""
    found = re.findall(
        r'<rect x="(\d+)" y="(\d+)".*?font-weight="bold">(.*?)</text>.*?fill="#475569">(.*?)</text>', text
    )
    return {name: (int(x), int(y)) for x, y, name, _ in found}, {name: below for _, _, name, below in found}


def test_boxes_stand_in_rows_by_their_depth_and_curves_join_them():
    pipe = Pipeline("a <picture>")
    x, z = pipe.input("x", "f32", (4,)), pipe.input("z", "f32", (4,))
    first = pipe.add(Join("first"), a=x, b=np.ones(4, np.float32))
    second = pipe.add(Join("second"), a=first, b=z)
    pipe.output("y", second)
    text = svg(pipe)
    down, right = HEIGHT + GAP_Y, WIDTH + GAP_X
    middle = MARGIN + right // 2  # of two columns
    at, below = boxes(text)
    assert at == {
        "x": (MARGIN, MARGIN),
        "z": (MARGIN + right, MARGIN),
        "first": (middle, MARGIN + down),
        "second": (middle, MARGIN + 2 * down),
        "y": (middle, MARGIN + 3 * down),
    }
    assert below["first"] == "f32 (4,); 1 constants"
    assert below["second"] == "f32 (4,)"
    assert f'width="{2 * right - GAP_X + 2 * MARGIN}" height="{4 * down - GAP_Y + 2 * MARGIN}"' in text
    assert "<title>a &lt;picture&gt;</title>" in text
    half = WIDTH // 2
    joined = {}
    for x0, y0, mid, x1, same, x2, y1 in re.findall(r'd="M(\d+),(\d+) C\1,(\d+) (\d+),(\d+) (\d+),(\d+)"', text):
        assert mid == same == f"{(int(y0) + int(y1)) / 2:.0f}"
        assert x1 == x2
        joined.setdefault((int(x0) - half, int(y0) - HEIGHT), []).append((int(x2) - half, int(y1)))
    assert joined == {
        at["x"]: [at["first"]],
        at["first"]: [at["second"]],
        at["z"]: [at["second"]],
        at["second"]: [at["y"]],
    }


def test_long_names_are_cut():
    pipe = Pipeline()
    pipe.output("y", pipe.input("a" * 30, "f32", (1,)))
    pipe.output("z", pipe.input("b" * 31, "f32", (1,)))
    at, _ = boxes(svg(pipe))
    assert set(at) == {"a" * 30, "b" * 29 + "\N{HORIZONTAL ELLIPSIS}", "y", "z"}
    assert svg(Pipeline("empty")).startswith("<svg")
