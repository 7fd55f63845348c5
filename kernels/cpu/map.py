"""map on the CPU: the variant that calls the user's function in Python, for what is not compiled.

kernels/reference/map.py says what it computes, and this runs just that; `explain()` shows the variant's name.
"""

from __future__ import annotations

from ..factory import Whole, register
from ..map import Map
from ..reference.steps import map_step


@register("map", backend="cpu", variant="interpreted", priority=-100)
def build(kernel: Map) -> Whole:
    return map_step(kernel)
