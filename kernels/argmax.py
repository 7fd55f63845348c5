"""argmax and argmin as a pipeline step. kernels/reference/argmax.py says what it computes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..primitives.errors import ArgumentError, ShapeMismatch
from ..primitives.kernel import ArgSpec, Axis, IndexSpace
from ..primitives.storage import stored_as
from . import checks
from .indexing import AXES, check_rank

NUMBERS = ("f32", "f16", "bf16", "f64", "s32", "s64", "u8", "s8", "u16", "s16", "u32", "u64")


@stored_as("argmax")
@dataclass(frozen=True)
class Argmax:
    """y = the index of the first largest (or smallest) element along an axis; NaN is the largest (or smallest).

    source     type of the data
    dtype      of the index: s32 or s64
    rank       of the data
    axis       0 to rank - 1
    keepdims   keep the axis with size 1
    least      the smallest instead
    last       of several equal ones the last instead of the first
    """

    source: str = "f32"
    dtype: str = "s64"
    rank: int = 2
    axis: int = 1
    keepdims: bool = False
    least: bool = False
    last: bool = False

    def __post_init__(self) -> None:
        checks.one_of("argmax", "source", self.source, NUMBERS)
        checks.one_of("argmax", "dtype", self.dtype, ("s32", "s64"))
        check_rank(self.rank, "argmax")
        if not 0 <= self.axis < self.rank:
            raise ArgumentError(f"argmax of rank {self.rank} has no axis {self.axis}; 0 to {self.rank - 1}")

    @property
    def name(self) -> str:
        return f"argmax_{self.source}{self.dtype}"

    @property
    def outer(self) -> tuple[int, ...]:
        """The axes that remain."""
        return tuple(d for d in range(self.rank) if d != self.axis)

    def signature(self) -> tuple[ArgSpec, ...]:
        kept = [d for d in range(self.rank) if d != self.axis or self.keepdims]
        return (
            ArgSpec(
                "x",
                self.source,
                shape=tuple(AXES[d].upper() for d in range(self.rank)),
                follows=tuple(None if d == self.axis else AXES[d] for d in range(self.rank)),
            ),
            ArgSpec(
                "y",
                self.dtype,
                "write",
                shape=tuple(1 if d == self.axis else AXES[d].upper() for d in kept),
                follows=tuple(None if d == self.axis else AXES[d] for d in kept),
            ),
        )

    def index_space(self) -> IndexSpace:
        return IndexSpace(tuple(Axis(AXES[d], AXES[d].upper()) for d in self.outer))

    def infer(self, shapes: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
        self._check(shapes["x"])
        return {}

    def execute(self, ctx: Any) -> None:
        x = ctx.read("x")
        self._check(x.shape)
        ctx.sweep(self, x, ctx.write("y"))

    def _check(self, shape: tuple[Any, ...]) -> None:
        if shape[self.axis] == 0:
            raise ShapeMismatch(f"argmax along axis {self.axis} of shape {shape}: an empty axis has no largest element")
