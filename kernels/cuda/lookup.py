"""lookup on CUDA, one element at a time.

kernels/reference/lookup.py says what it computes.
"""

from __future__ import annotations

from ..factory import register
from ..indexing import whole
from ..lookup import Lookup
from .launch import Device
from .nest import Element, nest


def lookup_element(kernel: Lookup) -> Element:
    return Element(
        kernel.rank, [("x", whole(kernel.rank))], result="{table}[{x} & 255]", tables=("table",), name="lookup"
    )


@register("lookup", backend="cuda")
def build(kernel: Lookup) -> Device:
    return nest(lookup_element(kernel))
