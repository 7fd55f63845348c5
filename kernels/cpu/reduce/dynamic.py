"""Dynamic quantization on the CPU: rows are read for their extremes and, while they are in cache, for their codes.

kernels/reference/reduce/dynamic.py says what the steps compute.
"""

from __future__ import annotations

import numpy as np

from ...factory import Whole, register
from ...forge import Native
from ...reduce import DynamicQuantize, Extremes, Parameters
from ...reference.reduce import dynamic as meaning
from ...reference.reduce.dynamic import code_range
from ..map import compiled
from ..scalar import rint32, scalar
from .rows import RowTile
from .steps import pass_text

_ZERO, _ONE, _INFINITY = np.float32(0), np.float32(1), np.float32(np.inf)


@scalar
def usable(scale):
    return scale if _ZERO < scale < _INFINITY else _ONE


@scalar
def symmetric_scale(lo, hi, high):
    return usable(max(abs(lo), abs(hi)) / np.float32(high))


@scalar
def affine_scale(lo, hi, low, high):
    steps = np.float32(high - low)
    top, bottom = hi if hi > _ZERO else _ZERO, lo if lo < _ZERO else _ZERO
    scale = (top - bottom) / steps
    if scale == _INFINITY:
        scale = top / steps - bottom / steps
    return usable(scale)


@scalar
def affine_zero(lo, scale, low, high):
    bottom = lo if lo < _ZERO else _ZERO
    at = rint32(np.float32(low) - bottom / scale)
    return min(max(at, np.float32(low)), np.float32(high))


def _parameters(dtype: str, symmetric: bool, lo: str, hi: str) -> list[str]:
    low, high = code_range(dtype, symmetric)
    if symmetric:
        middle = 128 if dtype == "u8" else 0
        return [f"scale_value = symmetric_scale({lo}, {hi}, {high - middle})", f"zero = np.float32({middle})"]
    return [
        f"scale_value = affine_scale({lo}, {hi}, {low}, {high})",
        f"zero = affine_zero({lo}, scale_value, {low}, {high})",
    ]


_IMPORT = f"from {__name__} import affine_scale, affine_zero, symmetric_scale\n"


@register("dynamic_quantize", backend="cpu", requires=compiled)
def build(kernel: DynamicQuantize) -> Native:
    kept = kernel.rank - 1 + (kernel.group > 0 and not kernel.rest)
    return RowTile(
        kept,
        1,
        kernel.source,
        [
            "quantize_rows(rows, n, x_at, x_step, y_at, y_step, scale_at, scale_step, zero_point_at, zero_point_step)",
        ],
        f"from {__package__}.quantizer import quantizer\n\n"
        f"quantize_rows = quantizer({kernel.source!r}, {kernel.dtype!r}, {kernel.symmetric})\n",
        full=(("y", kernel.dtype),),
        places=("scale", "zero_point"),
        together=True,
    ).native()


@register("extremes", backend="cpu", requires=compiled)
def build_extremes(kernel: Extremes) -> Native:
    prelude = pass_text("extremes", "value_twice", kernel.source, "", "min max")
    return RowTile(
        kernel.rank - 1, 1, kernel.source, ["lo_value, hi_value = extremes(n, src)"], prelude, places=("lo", "hi")
    ).native()


@register("quantization_parameters", backend="cpu", requires=compiled)
def build_parameters(kernel: Parameters) -> Native:
    lines = [
        *_parameters(kernel.dtype, kernel.symmetric, "lo[()]", "hi[()]"),
        "scale[()] = scale_value",
        "zero_point[()] = np.int32(zero)",
    ]
    body = "".join(f"    {line}\n" for line in lines)
    return Native(
        f"import numpy as np\nfrom numba import njit\n{_IMPORT}\n\n"
        f'@njit(nogil=True, error_model="numpy")\ndef tile(lo, hi, scale, zero_point):\n{body}'
    )


@register("dynamic_quantize", backend="cpu", variant="interpreted", priority=-100)
def interpreted(kernel: DynamicQuantize) -> Whole:
    """Whole arrays under plain Python."""
    return meaning.dynamic_quantize_step(kernel)


@register("extremes", backend="cpu", variant="interpreted", priority=-100)
def interpreted_extremes(kernel: Extremes) -> Whole:
    """Whole arrays under plain Python."""
    return meaning.extremes_step(kernel)


@register("quantization_parameters", backend="cpu", variant="interpreted", priority=-100)
def interpreted_parameters(kernel: Parameters) -> Whole:
    """Whole arrays under plain Python."""
    return meaning.parameters_step(kernel)
