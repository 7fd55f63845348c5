"""lookup on the CPU, one element at a time.

kernels/reference/lookup.py says what it computes.
"""

from __future__ import annotations

from ..factory import register
from ..forge import Native
from ..indexing import whole
from ..lookup import Lookup
from .nest import Element, nest


@register("lookup", backend="cpu")
def build(kernel: Lookup) -> Native:
    return nest(Element(kernel.rank, [("x", whole(kernel.rank))], result="{table}[np.uint8({x})]", tables=("table",)))
