"""Dynamic quantization on the CPU: rows are read for their extremes and, while they are in cache, for their codes.

kernels/reference/reduce/dynamic.py says what the steps compute.
"""

from __future__ import annotations

from ...factory import Whole, WithParams, register
from ...forge import Native
from ...reduce import DynamicQuantize, Extremes, Parameters
from ...reference.reduce import dynamic as meaning
from .. import isa as levels
from ..map import compiled
from .rows import RowTile
from .steps import pass_text


@register("dynamic_quantize", backend="cpu", requires=compiled)
def build(kernel: DynamicQuantize, isa: str | None = None) -> WithParams:
    kept = kernel.rank - 1 + (kernel.group > 0 and not kernel.rest)
    return RowTile(
        kept,
        1,
        kernel.source,
        [
            "quantize_rows(",
            "    rows, n, x_at, x_step, y_at, y_step, scale_at, scale_step, zero_point_at, zero_point_step, ahead",
            ")",
        ],
        f"from {__package__}.quantizer import quantizer\n\n"
        f"quantize_rows = quantizer({kernel.source!r}, {kernel.dtype!r}, {kernel.symmetric}, {levels.select(isa).name!r})\n",
        full=(("y", kernel.dtype),),
        places=("scale", "zero_point"),
        together=True,
    ).streamed()


@register("extremes", backend="cpu", requires=compiled)
def build_extremes(kernel: Extremes) -> Native:
    prelude = pass_text("extremes", "value_twice_and_magnitude", kernel.source, "", "bottom top farthest")
    return RowTile(
        kernel.rank - kernel.reduced,
        kernel.reduced,
        kernel.source,
        [
            "lo_value, hi_value, farthest = extremes(n, src)",
            "if farthest != farthest:",
            "    lo_value = hi_value = farthest",
        ],
        prelude,
        places=("lo", "hi"),
    ).native()


@register("quantization_parameters", backend="cpu", requires=compiled)
def build_parameters(kernel: Parameters) -> Native:
    return Native(
        f"import numpy as np\nfrom numba import njit\nfrom {__package__}.quantizer import parameters\n\n"
        f"found = parameters({kernel.dtype!r}, {kernel.symmetric})\n\n\n"
        '@njit(nogil=True, error_model="numpy")\ndef tile(lo, hi, scale, zero_point):\n'
        "    step, zero = found(lo[()], hi[()])\n"
        "    scale[()] = step\n    zero_point[()] = np.int32(zero)\n"
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
