"""requantize on the CPU, one element at a time.

kernels/reference/requantize.py says what it computes.
"""

from __future__ import annotations

from ...primitives import dtypes
from ..factory import WithParams, register
from ..indexing import whole
from ..requantize import Requantize
from .nest import Element, nest


def requantize_element(kernel: Requantize) -> Element:
    if kernel.fixed:
        result = "shift_rounded({acc}, {multiplier}, {shift}, {zero_point}, {lo}, {hi})"
        doubt: tuple[tuple[str, ...], str] = (("multiplier", "shift"), "bad_fixed({multiplier}, {shift})")
    else:
        saturate = "saturate_wide" if dtypes.get(kernel.dtype).bits > 16 else "saturate_narrow"
        result = f"{saturate}(rint32(np.float32({{acc}}) * {{multiplier}}), {{zero_point}}, {{lo}}, {{hi}})"
        doubt = (("multiplier",), "bad_multiplier({multiplier})")
    return Element(
        kernel.rank,
        [
            ("acc", whole(kernel.rank)),
            ("multiplier", kernel.multiplier),
            *([("shift", kernel.multiplier)] if kernel.fixed else []),
            ("zero_point", kernel.zero_point),
            ("lo", ()),
            ("hi", ()),
        ],
        result=result,
        doubt=[doubt],
    )


@register("requantize", backend="cpu")
def build(kernel: Requantize) -> WithParams:
    return nest(requantize_element(kernel))
