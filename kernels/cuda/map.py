"""map on CUDA: the captured function, inlined into a kernel over the elements.

kernels/reference/map.py says what it computes.
"""

from __future__ import annotations

from ...primitives import dtypes
from ..capture import Captured
from ..factory import register
from ..map import Map
from .launch import Device
from .nest import Element, nest


def prelude(captured: Captured, name: str) -> str:
    """Text of a module part that defines the captured function as a device function."""
    helpers = ", ".join(("add", "div", "mul", "sub", *captured.helpers))
    return f"from {__package__}.vectormath import {helpers}\n\n{captured.emit(name, '@device', 'calls')}"


def map_element(kernel: Map, name: str = "user") -> Element:
    """The call of the captured function, which the prelude defines under `name`."""
    captured, slots = kernel.captured, kernel.slots
    kinds = {"f32": "{}", "bool": "({} != 0)"}
    widen = {s: kinds.get(dtype, "np.int32({})") for s, dtype in zip(slots, kernel.sources, strict=True)}
    arguments = ", ".join(f"{{{slots[n]}}}" for n in kernel.arguments)
    return Element(
        kernel.rank,
        list(zip(slots, kernel.indices, strict=True)),
        result=converted(f"{name}({arguments})", captured.returns, kernel.dtype),
        widen=widen,
        prelude=f"from {__package__}.vectormath import to_float, to_int\n{prelude(captured, name)}",
        name="map",
    )


def converted(expression: str, kind: str, dtype: str) -> str:
    """A function's result as an element of the output (kernels/reference/map.py: converted)."""
    if dtype == "f32":
        return {"f": expression, "i": f"np.float32({expression})", "b": f"np.float32(np.int32({expression}))"}[kind]
    if dtype == "bool":
        return {"f": f"({expression}) != np.float32(0)", "i": f"({expression}) != 0", "b": expression}[kind]
    whole = {"f": f"to_int({expression})", "i": expression, "b": f"np.int32({expression})"}[kind]
    if dtype == "s32":
        return whole
    codes = dtypes.get(dtype)
    return f"min(max(np.int64({whole}), {int(codes.min)}), {int(codes.max)})"


@register("map", backend="cuda")
def build(kernel: Map) -> Device:
    return nest(map_element(kernel))
