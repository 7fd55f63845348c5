"""Steps that reduce along axes."""

from __future__ import annotations

from ...primitives import dtypes, sizes
from ...primitives.dtypes import DTypeLike
from ...primitives.errors import (
    ArgumentError,
)
from ...primitives.pipeline import Value
from .. import argmax as argmax_step
from .given import Operand, dtype_of, only, pipeline_of, value_of


def argmax(x: Operand, axis: int = -1, keepdims: bool = False, dtype: DTypeLike = "s64") -> Value:
    """Index of the first largest element along an axis; NaN is the largest.

    x        f32 or integer, with an element along the axis at least
    axis     from the end where negative
    dtype    s64 or s32
    """
    pipe = pipeline_of("argmax", x)
    x = value_of(pipe, x, "argmax", "x")
    rank = len(x.shape)
    if not -rank <= axis < rank:
        raise ArgumentError(
            f"argmax: axis {axis} is out of range for shape {sizes.show(x.shape)}; {-rank} to {rank - 1}"
        )
    kernel = argmax_step.Argmax(dtype_of(x), dtypes.get(dtype).name, rank, axis % rank, bool(keepdims))
    return only(pipe.add(kernel, x=x))
