"""Aggregates over a window that moves along the rows. kernels/reference/tables.py says what they compute."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...primitives.errors import ArgumentError
from ...primitives.kernel import Affine, ArgSpec, Axis, IndexSpace
from ...primitives.storage import stored_as
from .. import checks

ROLLED = ("f32", "f64", "s32", "s64")


@stored_as("rolling")
@dataclass(frozen=True)
class Rolling:
    """y[n] = x[n] op x[n + 1] op .. x[n + width - 1], from the first to the last: as many as there are whole windows."""

    how: str = "sum"
    dtype: str = "f32"
    width: int = 1

    def __post_init__(self) -> None:
        checks.one_of("rolling", "aggregate", self.how, ("sum", "min", "max"))
        checks.one_of("rolling", "dtype", self.dtype, ROLLED)
        if self.width < 1:
            raise ArgumentError(f"rolling: a window of {self.width} rows; 1 or more work")

    @property
    def name(self) -> str:
        return "rolling"

    def signature(self) -> tuple[ArgSpec, ...]:
        more = self.width - 1
        reads = Affine("n", 1, 0, more)
        return (
            ArgSpec("x", self.dtype, shape=(f"N + {more}",), follows=(reads,)),
            ArgSpec("y", self.dtype, "write", shape=("N",), follows=("n",)),
        )

    def index_space(self) -> IndexSpace:
        return IndexSpace((Axis("n", "N"),))

    def execute(self, ctx: Any) -> None:
        ctx.sweep(self, ctx.read("x"), ctx.write("y"))
