"""Data read at places that are data themselves."""

from __future__ import annotations

from ...primitives import sizes
from ...primitives.errors import DTypeMismatch, ShapeMismatch
from ...primitives.pipeline import Value
from ..moving.sampling import MOST_SPATIAL, GridSample
from .given import Operand, dtype_of, only, pipeline_of, value_of


def grid_sample(
    x: Operand, grid: Operand, mode: str = "linear", padding: str = "zeros", align_corners: bool = False
) -> Value:
    """x at the places that a grid says (ONNX GridSample): y (N, C, ..) has the grid's sizes behind N and C.

    x              f32 (N, C, ..) with 1 to 3 axes behind the channels
    grid           f32 (N, .., axes): for each element of the result a place in x, the last axis of x first; -1 and 1
                   are the ends of an axis, NaN counts as -1
    mode           nearest (ties to even), linear or cubic (coefficient -0.75)
    padding        zeros, border or reflection
    align_corners  whether the ends of an axis are the middles of its outermost elements, or their outer edges
    """
    pipe = pipeline_of("grid_sample", x, grid)
    x, grid = value_of(pipe, x, "grid_sample", "x"), value_of(pipe, grid, "grid_sample", "grid")
    for slot, value in (("x", x), ("grid", grid)):
        if dtype_of(value) != "f32":
            raise DTypeMismatch(f"grid_sample: {slot} is {dtype_of(value)}; f32 works (cast it)")
    spatial = x.ndim - 2
    if not 1 <= spatial <= MOST_SPATIAL or grid.ndim != x.ndim or grid.shape[-1] != spatial:
        raise ShapeMismatch(
            f"grid_sample: x is {sizes.show(x.shape)} and grid {sizes.show(grid.shape)}; (N, C, ..) with 1 to "
            f"{MOST_SPATIAL} axes behind the channels and (N, .., as many as these axes) work"
        )
    return only(pipe.add(GridSample(spatial, mode, padding, bool(align_corners)), x=x, grid=grid))
