"""Resampling along one axis: nearest, linear and cubic, with every coordinate rule of ONNX's Resize.

Several axes are resized one after another; weights do not mix axes, so the order changes roundings only.
Source of the rules: the text of ONNX Resize, operator set 19.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...primitives.errors import ArgumentError
from ...primitives.kernel import ArgSpec, Axis, IndexSpace
from ...primitives.storage import stored_as
from .. import checks
from ..indexing import AXES, check_rank
from .copy import bits
from .relative import Extent, letters

MODES = ("nearest", "linear", "cubic")
COORDINATES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_crop_and_resize",
    "tf_half_pixel_for_nn",
)
ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


@stored_as("resize")
@dataclass(frozen=True)
class Resize:
    """x resampled along one axis.

    size          elements of the axis afterwards, an int or an expression of the sizes of x
    scale         elements afterwards for one before; 0: size / the axis' size
    mode          nearest linear cubic; integers and bool only nearest
    coordinates   where in x an element of the result lies: COORDINATES
    rounding      of nearest: ROUNDINGS
    cubic_a       the cubic kernel's coefficient
    exclude       weights of elements outside x are 0 and the others made to add up to 1 (else the edge is repeated)
    antialias     with linear and cubic, when shrinking: the kernel is stretched by 1 / scale
    start, end    of the region, in parts of the axis, for tf_crop_and_resize
    outside       what tf_crop_and_resize gives outside x
    """

    dtype: str = "f32"
    rank: int = 4
    axis: int = 2
    size: Extent = "2*I2"
    scale: float = 0.0
    mode: str = "nearest"
    coordinates: str = "half_pixel"
    rounding: str = "round_prefer_floor"
    cubic_a: float = -0.75
    exclude: bool = False
    antialias: bool = False
    start: float = 0.0
    end: float = 1.0
    outside: float = 0.0

    def __post_init__(self) -> None:
        checks.one_of("resize", "mode", self.mode, MODES)
        checks.one_of("resize", "coordinates", self.coordinates, COORDINATES)
        checks.one_of("resize", "rounding", self.rounding, ROUNDINGS)
        check_rank(self.rank, "resize")
        if not 0 <= self.scale < 2.0**31:
            raise ArgumentError(f"resize: scale {self.scale}; a positive number is needed")
        if (self.mode != "nearest" or self.coordinates == "tf_crop_and_resize") and self.dtype != "f32":
            raise ArgumentError(f"resize: {self.mode} of {self.dtype}; f32 works, and every type with nearest")

    @property
    def name(self) -> str:
        return "resize"

    def _sizes(self) -> tuple[Extent, ...]:
        return tuple(self.size if d == self.axis else s for d, s in enumerate(letters(self.rank)))

    def signature(self) -> tuple[ArgSpec, ...]:
        return (
            ArgSpec(
                "x",
                self.dtype,
                shape=letters(self.rank),
                follows=tuple(None if d == self.axis else AXES[d] for d in range(self.rank)),
            ),
            ArgSpec("y", self.dtype, "write", shape=self._sizes(), follows=tuple(AXES[: self.rank])),
        )

    def index_space(self) -> IndexSpace:
        return IndexSpace(tuple(Axis(AXES[d], n) for d, n in enumerate(self._sizes())))

    def execute(self, ctx: Any) -> None:
        x, y = ctx.read("x"), ctx.write("y")
        if y.shape[self.axis] and not x.shape[self.axis]:
            raise ArgumentError(f"resize: axis {self.axis} has no element to take")
        if self.mode == "nearest" and self.coordinates != "tf_crop_and_resize":
            x, y = bits(x), bits(y)
        ctx.sweep(self, x, y)
