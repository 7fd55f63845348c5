"""argmax and argmin: where the largest, or smallest, element is."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from .arithmetic import to_f32


def argmax(
    x: ArrayLike,
    axis: int = -1,
    *,
    keepdims: bool = False,
    dtype: DTypeLike = np.int64,
    least: bool = False,
    last: bool = False,
) -> NDArray:
    """Index of the largest element along an axis.

        out[..] = the smallest i with x[.., i, ..] == max over j of x[.., j, ..]

    x         a float or integer, any shape with at least one element along the axis
    axis      counted from the end where negative
    keepdims  keep the axis with size 1
    dtype     int32 or int64
    least     the smallest element instead; then NaN counts as smaller than everything
    last      the last of equal elements instead of the first

    Of equal elements the first wins; -0.0 equals +0.0. NaN counts as larger than everything, so the first NaN wins.
    Source: numpy.argmax.
    Raises ValueError if the axis is empty.
    """
    x = np.asarray(x)
    if x.dtype.kind not in "fiub" or x.dtype == np.float16:
        x = to_f32(x)
    if x.shape[axis] == 0:
        raise ValueError(f"argmax along axis {axis} of shape {x.shape}: an empty axis has no largest element")
    find = np.argmin if least else np.argmax
    if last:
        return (x.shape[axis] - 1 - find(np.flip(x, axis), axis=axis, keepdims=keepdims)).astype(dtype)
    return find(x, axis=axis, keepdims=keepdims).astype(dtype)
