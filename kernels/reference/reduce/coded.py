"""Reductions of codes to codes with a scale of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ....primitives import dtypes
from ...factory import Whole, register
from ...reduce.coded import ReduceCodes
from ..quantize import checked_scale, saturate
from .steps import rows_of


def reduce_codes(
    op: str,
    x: NDArray,
    x_scale: ArrayLike,
    x_zero_point: ArrayLike,
    scale: ArrayLike,
    zero_point: ArrayLike,
    dtype: str,
) -> NDArray:
    """Codes (.., n) reduced along the last axis, as codes of another quantization.

        t = sum(x) - n * x_zero_point, exactly; of max and min: the largest or smallest x - x_zero_point
        real = float32(t) * x_scale, of mean / float32(n);  out = clip(rint(real / scale) + zero_point)

    A mean of nothing is the zero point; a maximum of nothing the lowest code of x, a minimum the highest.
    """
    kind, codes = dtypes.get(x.dtype), dtypes.get(dtype)
    zero, n = np.asarray(x_zero_point, np.int64), x.shape[-1]
    x_scale, scale = checked_scale(x_scale), checked_scale(scale)
    if op in ("sum", "mean"):
        total = np.add.reduce(x, axis=-1, dtype=np.int64) - n * zero
    else:
        fold, start = (np.maximum, int(kind.min)) if op == "max" else (np.minimum, int(kind.max))
        total = fold.reduce(x.astype(np.int64), axis=-1, initial=start) - zero
    with np.errstate(all="ignore"):
        real = total.astype(np.float32) * x_scale
        if op == "mean":
            real = real / np.float32(n)
        found = np.rint(real / scale)
    return saturate(found, np.asarray(zero_point, np.int64), int(codes.min), int(codes.max), codes.numpy)


@register("reduce_codes", backend="reference")
def reduce_codes_step(kernel: ReduceCodes) -> Whole:
    def fn(x: Any, x_scale: Any, x_zero: Any, scale: Any, zero: Any, y: Any, scratch: Any) -> None:
        parameters = x_scale[()], x_zero[()], scale[()], zero[()]
        y[...] = reduce_codes(kernel.op, rows_of(x, kernel.reduced), *parameters, kernel.dtype)

    return Whole(fn)
