"""Copies on the CPU. kernels/reference/moving.py says what they compute."""

from __future__ import annotations

from numba import njit

from ...factory import register
from ...forge import Native
from ...indexing import whole
from ...moving.copy import Copy, Fill, TransposedCopy
from ..nest import Element, nest

BLOCK = 16  # a square of elements of 4 bytes is 16 lines in and 16 lines out, which the first cache keeps


@register("copy", backend="cpu")
def build_copy(kernel: Copy) -> Native:
    rank = len(kernel.extents)
    return nest(Element(rank, [("x", whole(rank))], result="{x}"))


@register("fill", backend="cpu")
def build_fill(kernel: Fill) -> Native:
    return nest(Element(len(kernel.extents), [("x", ())], result="{x}"))


_TRANSPOSED = """\
from numba import njit
from {package}.copy import square

@njit(nogil=True, error_model="numpy")
def tile({arguments}):
{loops}
"""


@register("transposed", backend="cpu")
def build_transposed(kernel: TransposedCopy) -> Native:
    names = "ijklmnopqrst"[: len(kernel.extents)]
    outer, (i, j) = names[:-2], names[-2:]
    arguments = ", ".join([*(f"{n}0, {n}1" for n in names), "x", "y"])
    lines = [f"{'    ' * (d + 1)}for {n} in range({n}0, {n}1):" for d, n in enumerate(outer)]
    lead = "".join(f"{n}, " for n in outer)
    cut = f"{lead}{i}0:{i}1, {j}0:{j}1"
    lines.append(f"{'    ' * (len(outer) + 1)}square(x[{cut}], y[{cut}])")
    return Native(_TRANSPOSED.format(package=__package__, arguments=arguments, loops="\n".join(lines)))


@njit(nogil=True, error_model="numpy")
def square(x, y):
    """y[...] = x[...] for two matrices, one contiguous along rows and the other along columns, in squares."""
    rows, columns = y.shape
    for i0 in range(0, rows, BLOCK):
        i1 = min(i0 + BLOCK, rows)
        for j0 in range(0, columns, BLOCK):
            j1 = min(j0 + BLOCK, columns)
            for i in range(i0, i1):
                for j in range(j0, j1):
                    y[i, j] = x[i, j]
