"""Copies on the CPU. kernels/reference/moving.py says what they compute."""

from __future__ import annotations

from numba import njit

from ...factory import WithParams, register
from ...forge import Native, jit_disabled
from ...indexing import whole
from ...moving.copy import Copy, Fill, TransposedCopy
from ..nest import Element, nest
from ..stores import streams
from .square import LANES


@register("copy", backend="cpu")
def build_copy(kernel: Copy) -> WithParams:
    rank = len(kernel.extents)
    return nest(Element(rank, [("x", whole(rank))], result="{x}"))


@register("fill", backend="cpu")
def build_fill(kernel: Fill) -> WithParams:
    return nest(Element(len(kernel.extents), [("x", ())], result="{x}"))


_TRANSPOSED = """\
from numba import njit
from {package}.{module} import {name} as square

@njit(nogil=True, error_model="numpy")
def tile({arguments}):
{loops}
"""


@register("transposed", backend="cpu")
def build_transposed(kernel: TransposedCopy) -> WithParams:
    names = "ijklmnopqrst"[: len(kernel.extents)]
    outer, (i, j) = names[:-2], names[-2:]
    arguments = ", ".join([*(f"{n}0, {n}1" for n in names), "x", "y", "past"])
    lines = [f"{'    ' * (d + 1)}for {n} in range({n}0, {n}1):" for d, n in enumerate(outer)]
    lead = "".join(f"{n}, " for n in outer)
    cut = f"{lead}{i}0:{i}1, {j}0:{j}1"
    lines.append(f"{'    ' * (len(outer) + 1)}square(x[{cut}], y[{cut}], past)")
    module, name = (
        ("copy", "square") if jit_disabled() or kernel.size not in LANES else ("square", f"square{kernel.size}")
    )
    text = _TRANSPOSED.format(
        package=__package__, module=module, name=name, arguments=arguments, loops="\n".join(lines)
    )
    return WithParams(Native(text), lambda x, y: (streams(y, (x, y)),))


@njit(nogil=True, error_model="numpy")
def square(x, y, past):
    """y[...] = x[...] for two matrices, element by element: for interpreters, and elements that no vector holds."""
    rows, columns = y.shape
    for i in range(rows):
        for j in range(columns):
            y[i, j] = x[i, j]
