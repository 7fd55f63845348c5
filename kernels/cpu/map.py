"""map on the CPU: the captured function, two vectors at a time.

kernels/reference/map.py says what it computes.
"""

from __future__ import annotations

from ...primitives import dtypes
from ..factory import Whole, WithParams, register
from ..forge import jit_disabled
from ..map import Map
from ..reference.steps import map_step
from . import isa
from .nest import Element, Wide, nest


def map_element(kernel: Map, name: str = "user") -> Element:
    """The call of the captured function, which the prelude defines under `name`."""
    captured, slots = kernel.captured, kernel.slots
    widen = {s: "np.int32({})" for s, dtype in zip(slots, kernel.sources, strict=True) if dtype not in ("f32", "bool")}
    arguments = ", ".join(f"{{{slots[n]}}}" for n in kernel.arguments)
    return Element(
        kernel.rank,
        list(zip(slots, kernel.indices, strict=True)),
        result=converted(f"{name}({arguments})", captured.returns, kernel.dtype),
        widen=widen,
        prelude=f"from {__package__}.vectormath import to_int\n{captured.prelude}\n\n{captured.emit(name)}",
    )


def converted(expression: str, kind: str, dtype: str) -> str:
    """A function's result as an element of the output (kernels/reference/map.py: converted)."""
    if dtype == "f32":
        return {"f": expression, "i": f"np.float32({expression})", "b": f"np.float32(np.int32({expression}))"}[kind]
    if dtype == "bool":
        return {"f": f"({expression}) != np.float32(0)", "i": f"({expression}) != np.int32(0)", "b": expression}[kind]
    whole = {"f": f"to_int({expression})", "i": expression, "b": f"np.int32({expression})"}[kind]
    if dtype == "s32":
        return whole
    codes = dtypes.get(dtype)
    if kind == "f":
        return f"saturate_narrow({expression}, 0, {int(codes.min)}, {int(codes.max)})"
    return f"min(max({whole}, np.int32({int(codes.min)})), np.int32({int(codes.max)}))"


def compiled() -> str | None:
    """A requirement: native code may be made."""
    return "NUMBA_DISABLE_JIT asks for plain Python" if jit_disabled() else None


@register("map", backend="cpu", variant="captured", requires=compiled)
def build(kernel: Map) -> WithParams:
    types = dict(zip(kernel.slots, kernel.sources, strict=True)) | {"y": kernel.dtype}
    return nest(map_element(kernel), wide=Wide(types, 2 * isa.select().lanes))


@register("map", backend="cpu", variant="interpreted", priority=-100)
def build_interpreted(kernel: Map) -> Whole:
    """The captured function under plain Python, one element after another."""
    return map_step(kernel)
