"""grid_sample as a pipeline step: x read at places that a grid says. kernels/reference/sampling.py has the meaning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...primitives.errors import ArgumentError
from ...primitives.kernel import ArgSpec, Axis, IndexSpace
from ...primitives.storage import stored_as
from .. import checks
from ..indexing import AXES

MODES = {"nearest": 1, "linear": 2, "cubic": 4}  # elements along an axis that a place is made of
PADDINGS = ("zeros", "border", "reflection")
CHUNK = 64  # places of a row that are worked out before all channels are read at them
MOST_SPATIAL = 3


@stored_as("grid_sample")
@dataclass(frozen=True)
class GridSample:
    """y[n, c, ..] = x[n, c, place], the place being grid[n, .., :], the last axis of x first, from -1 to 1.

    spatial   axes of x behind (N, C)
    mode      nearest, linear or cubic between the elements around
    padding   what lies outside x: zeros, its border, or x reflected
    align     whether -1 and 1 are the middles of the first and the last element, or their outer edges
    """

    spatial: int = 2
    mode: str = "linear"
    padding: str = "zeros"
    align: bool = False

    def __post_init__(self) -> None:
        checks.one_of("grid_sample", "mode", self.mode, tuple(MODES))
        checks.one_of("grid_sample", "padding", self.padding, PADDINGS)
        if not 1 <= self.spatial <= MOST_SPATIAL:
            raise ArgumentError(f"grid_sample: {self.spatial} spatial axes; 1 to {MOST_SPATIAL} work")

    @property
    def name(self) -> str:
        return "grid_sample"

    @property
    def taps(self) -> int:
        return MODES[self.mode]

    def signature(self) -> tuple[ArgSpec, ...]:
        axes = AXES[: self.spatial + 2]
        out = tuple(a.upper() for a in axes[2:])
        inside = tuple(f"X{d}" for d in range(self.spatial))
        return (
            ArgSpec("x", "f32", shape=("I", "J", *inside), follows=("i", "j", *(None,) * self.spatial)),
            ArgSpec("grid", "f32", shape=("I", *out, self.spatial), follows=("i", *axes[2:], None)),
            ArgSpec("y", "f32", "write", shape=("I", "J", *out), follows=tuple(axes)),
        )

    def index_space(self) -> IndexSpace:
        return IndexSpace(tuple(Axis(a, a.upper()) for a in AXES[: self.spatial + 2]))

    def execute(self, ctx: Any) -> None:
        x, y = ctx.read("x"), ctx.write("y")
        if y.size and not x.size:
            raise ArgumentError(f"grid_sample: x has shape {x.shape}, without an element to take")
        words = self.taps**self.spatial + self.taps * self.spatial
        ctx.sweep(self, x, ctx.read("grid"), y, ctx.scratch(8 * CHUNK * words).view(np.int64))
