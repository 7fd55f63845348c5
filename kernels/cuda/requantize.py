"""requantize on CUDA, one element at a time.

kernels/reference/requantize.py says what it computes.
"""

from __future__ import annotations

from ...primitives import dtypes
from ..factory import register
from ..indexing import whole
from ..requantize import Requantize
from .launch import Device
from .nest import Element, nest


def requantize_element(kernel: Requantize) -> Element:
    if kernel.fixed:
        result = "shift_rounded({acc}, {multiplier}, {shift}, {zero_point}, {lo}, {hi})"
        doubt: tuple[tuple[str, ...], str] = (("multiplier", "shift"), "bad_fixed({multiplier}, {shift})")
    else:
        saturate = "saturate_wide" if dtypes.get(kernel.dtype).bits > 16 else "saturate_narrow"
        result = f"{saturate}(ptx.rint(ptx.mul(np.float32({{acc}}), {{multiplier}})), {{zero_point}}, {{lo}}, {{hi}})"
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
        name="requantize",
    )


@register("requantize", backend="cuda")
def build(kernel: Requantize) -> Device:
    return nest(requantize_element(kernel))
