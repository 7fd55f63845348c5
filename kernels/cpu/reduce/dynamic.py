"""Dynamic quantization on the CPU: a row is read for its extremes and, while it is in cache, for its codes.

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
from .passes import BYTES
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


PIECE = 128  # elements that are divided where one of them is nearly a tie
# By the inverse a quotient is off by less than 2**-13 (kernels/cpu/quantize.py): only a tie as near tells them apart.
_FINISH = """\
inverse = np.float32(1) / scale_value
usual = scale_value > np.float32(2.0**-100) and scale_value < np.float32(2.0**100)
for p in range(0, n, {piece}):
    count = min({piece}, n - p)
    from_, to = src + {item} * p, y_at + p
    if not (usual and by_product(count, from_, to, inverse, zero) <= np.float32(0.5 - 2.0**-13)):
        finish(count, from_, to, scale_value, zero)
"""


@register("dynamic_quantize", backend="cpu", requires=compiled)
def build(kernel: DynamicQuantize) -> Native:
    low, high = code_range(kernel.dtype, kernel.symmetric)
    kept = kernel.rank - 1 + (kernel.group > 0 and not kernel.rest)
    source, symmetric = kernel.source, kernel.symmetric
    found = "hi = farthest(n, src)" if symmetric else "lo, hi = extremes(n, src)"
    folded = ("farthest", "magnitude", "farthest") if symmetric else ("extremes", "value_twice", "min max")
    return RowTile(
        kept,
        1,
        source,
        [
            found,
            *_parameters(kernel.dtype, symmetric, "hi" if symmetric else "lo", "hi"),
            "zero_point_value = np.int32(zero)",
            *_FINISH.format(piece=PIECE, item=BYTES[source]).splitlines(),
        ],
        _IMPORT
        + pass_text(folded[0], folded[1], source, folds=folded[2])
        + pass_text("by_product", f"codes_by_product({low}, {high})", source, kernel.dtype, "farthest", 2)
        + pass_text("finish", f"codes({low}, {high})", source, kernel.dtype, numbers=2),
        full=(("y", kernel.dtype),),
        places=("scale", "zero_point"),
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
