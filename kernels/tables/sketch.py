"""Quantiles of all the values that ever came, by groups. kernels/reference/tables.py says what the steps compute.

A value is counted in the bucket of its first bits: sign, exponent, and as many of the fraction as there is room for. So
counts are exact, add up in any order, and a quantile is off by less than a bucket is wide.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ...primitives.errors import ArgumentError
from ...primitives.kernel import ArgSpec, Axis, IndexSpace
from ...primitives.storage import stored_as
from ..moving.copy import bits
from .group import _OUTSIDE


@stored_as("sketch")
@dataclass(frozen=True)
class Sketch:
    """counts[codes[i], bucket of x[i]] += 1 for every row that counts; NaN is not counted.

    bits   of a bucket's number: 9 are sign and exponent, the others fraction
    """

    statuses: ClassVar[Mapping[int, Any]] = _OUTSIDE

    bits: int = 13
    where: bool = False
    valid: bool = False
    code: str = "s32"

    def __post_init__(self) -> None:
        if not 9 <= self.bits <= 24:
            raise ArgumentError(f"sketch: buckets of {self.bits} bits; 9 to 24 work")

    @property
    def name(self) -> str:
        return "sketch"

    def signature(self) -> tuple[ArgSpec, ...]:
        return (
            ArgSpec("x", "f32", shape=("N",)),
            ArgSpec("codes", self.code, shape=("N",)),
            *([ArgSpec("where", "bool", shape=("N",))] if self.where else []),
            *([ArgSpec("valid", "s64", shape=())] if self.valid else []),
            ArgSpec("counts", "s64", "update", shape=("G", 2**self.bits), strides="contiguous"),
        )

    def index_space(self) -> IndexSpace:
        return IndexSpace((Axis("n", 1, split=False),))

    def execute(self, ctx: Any) -> None:
        more = [ctx.read(s.slot) for s in self.signature() if s.slot not in ("x", "counts")]
        ctx.sweep(self, bits(ctx.read("x")), *more, ctx.write("counts"))


@stored_as("sketch_quantile")
@dataclass(frozen=True)
class SketchQuantile:
    """y[g, j] = the middle of the bucket that holds the quantile q[j] of group g; NaN for a group without values."""

    bits: int = 13

    @property
    def name(self) -> str:
        return "sketch_quantile"

    def signature(self) -> tuple[ArgSpec, ...]:
        return (
            ArgSpec("counts", "s64", shape=("G", 2**self.bits), follows=("g", None)),
            ArgSpec("q", "f64", shape=("Q",)),
            ArgSpec("y", "f32", "write", shape=("G", "Q"), follows=("g", None)),
        )

    def index_space(self) -> IndexSpace:
        return IndexSpace((Axis("g", "G"),))

    def execute(self, ctx: Any) -> None:
        ctx.sweep(self, ctx.read("counts"), ctx.read("q"), bits(ctx.write("y")))
