"""Dynamic quantization as pipeline steps: by row or group in one pass, by tensor in two.

kernels/reference/reduce/dynamic.py says what they compute.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...primitives import sizes
from ...primitives.errors import ArgumentError
from ...primitives.kernel import ArgSpec, Axis, IndexSpace
from ...primitives.storage import stored_as
from .. import checks
from ..indexing import AXES
from .rows import REAL, arranged, data_spec, place_spec, row_space, scratch_for

CODES = ("u8", "s8")
GROUP = "z"  # the axis that counts groups


@stored_as("dynamic_quantize")
@dataclass(frozen=True)
class DynamicQuantize:
    """y, scale, zero_point: codes of each row (the last axis), or of each group of it, with a scale of their own.

    source, dtype  of the data and the codes
    symmetric      zero point 0 and codes from -127 or 1
    group          elements that share a scale, the last group perhaps fewer; 0: the whole row
    rest           (internal) only the last, shorter group
    """

    source: str = "f32"
    dtype: str = "u8"
    rank: int = 2
    symmetric: bool = False
    group: int = 0
    rest: bool = False

    def __post_init__(self) -> None:
        checks.one_of("dynamic_quantize", "operand of type", self.source, REAL)
        checks.one_of("dynamic_quantize", "codes", self.dtype, CODES)
        if self.rank < 1 or self.group < 0:
            raise ArgumentError(f"dynamic_quantize: rank {self.rank} and group {self.group}; 1 and 0 at least work")

    @property
    def name(self) -> str:
        return f"dynamic_quantize_{self.source}{self.dtype}"

    @property
    def last(self) -> str:
        return AXES[self.rank - 1].upper()

    def signature(self) -> tuple[ArgSpec, ...]:
        axes = (self.rank - 1,)
        lead = tuple(AXES[d] for d in range(self.rank - 1))
        count = f"ceildiv({self.last}, {self.group})" if self.group else 1
        shape, follows = (*(a.upper() for a in lead), count), (*lead, None)
        return (
            data_spec("x", self.source, self.rank, axes),
            data_spec("y", self.dtype, self.rank, axes, "write"),
            ArgSpec("scale", "f32", "write", shape=shape, follows=follows),
            ArgSpec("zero_point", self.dtype, "write", shape=shape, follows=follows),
        )

    def index_space(self) -> IndexSpace:
        space = row_space(self.rank, (self.rank - 1,))
        if not self.group or self.rest:
            return space
        return IndexSpace((*space.axes, Axis(GROUP, sizes.floordiv(self.last, self.group), split=False)))

    def execute(self, ctx: Any) -> None:
        x, y, scale, zero_point = ctx.read("x"), ctx.write("y"), ctx.write("scale"), ctx.write("zero_point")
        if not self.group:
            ctx.sweep(self, x, y, scale[..., 0], zero_point[..., 0], scratch_for(ctx, 1, [x, y]))
            return
        n, g = x.shape[-1], self.group
        whole = n // g * g
        if whole:
            grouped = [v[..., :whole] for v in (x, y)]
            views = [v.reshape((*v.shape[:-1], n // g, g)) for v in grouped]
            count = n // g
            ctx.sweep(self, *views, scale[..., :count], zero_point[..., :count], scratch_for(ctx, 1, views))
        if whole < n:
            views = [v[..., whole:] for v in (x, y)]
            kernel = replace(self, rest=True)
            ctx.sweep(kernel, *views, scale[..., -1], zero_point[..., -1], scratch_for(ctx, 1, views))


@stored_as("extremes")
@dataclass(frozen=True)
class Extremes:
    """lo, hi: the least and the greatest element of each row.

    reduced  how many axes at the end a row is made of
    """

    source: str = "f32"
    rank: int = 2
    reduced: int = 1

    def __post_init__(self) -> None:
        checks.one_of("extremes", "operand of type", self.source, REAL)
        if not 1 <= self.reduced <= self.rank:
            raise ArgumentError(
                f"extremes of {self.reduced} axes of an array of rank {self.rank}; 1 to {max(self.rank, 1)} axes work"
            )

    @property
    def name(self) -> str:
        return f"extremes_{self.source}"

    @property
    def axes(self) -> tuple[int, ...]:
        return tuple(range(self.rank - self.reduced, self.rank))

    def signature(self) -> tuple[ArgSpec, ...]:
        return (
            data_spec("x", self.source, self.rank, self.axes),
            place_spec("lo", "f32", self.rank, self.axes, False),
            place_spec("hi", "f32", self.rank, self.axes, False),
        )

    def index_space(self) -> IndexSpace:
        return row_space(self.rank, self.axes)

    def execute(self, ctx: Any) -> None:
        x = arranged(ctx.read("x"), self.axes)
        ctx.sweep(self, x, ctx.write("lo"), ctx.write("hi"), scratch_for(ctx, self.reduced, [x]))


@stored_as("quantization_parameters")
@dataclass(frozen=True)
class Parameters:
    """scale, zero_point of the codes that cover lo .. hi."""

    dtype: str = "u8"
    symmetric: bool = False

    def __post_init__(self) -> None:
        checks.one_of("quantization_parameters", "codes", self.dtype, CODES)

    @property
    def name(self) -> str:
        return f"quantization_parameters_{self.dtype}"

    def signature(self) -> tuple[ArgSpec, ...]:
        return (
            ArgSpec("lo", "f32", shape=()),
            ArgSpec("hi", "f32", shape=()),
            ArgSpec("scale", "f32", "write", shape=()),
            ArgSpec("zero_point", self.dtype, "write", shape=()),
        )

    def index_space(self) -> IndexSpace:
        return IndexSpace(())

    def infer(self, shapes: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
        return {"scale": (), "zero_point": ()}

    def execute(self, ctx: Any) -> None:
        ctx.sweep(self, ctx.read("lo"), ctx.read("hi"), ctx.write("scale"), ctx.write("zero_point"))
