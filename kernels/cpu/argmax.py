"""argmax on the CPU: one pass along the axis for each place that remains.

kernels/reference/argmax.py says what it computes.
"""

from __future__ import annotations

from ..argmax import Argmax
from ..factory import register
from ..forge import Native
from ..indexing import AXES


@register("argmax", backend="cpu")
def build(kernel: Argmax) -> Native:
    outer = [AXES[d] for d in kernel.outer]
    along = ["z" if d == kernel.axis else AXES[d] for d in range(kernel.rank)]
    place = ["0" if d == kernel.axis else AXES[d] for d in range(kernel.rank) if d != kernel.axis or kernel.keepdims]
    known = "True" if kernel.last else "best == best"
    lines = [f"{'    ' * d}for {x} in range({x}0, {x}1):" for d, x in enumerate(outer)]
    lines += [
        "    " * len(outer) + line
        for line in (
            f"best = x[{', '.join('0' if x == 'z' else x for x in along)}]",
            "found = 0",
            f"for z in range(1, x.shape[{kernel.axis}]):",
            f"    value = x[{', '.join(along)}]",
            # a NaN wins over every number
            f"    if value {'<' if kernel.least else '>'}{'=' if kernel.last else ''} best or (value != value and {known}):",
            "        best = value",
            "        found = z",
            f"y[{', '.join(place) or '()'}] = found",
        )
    ]
    arguments = ", ".join([*(f"{x}0, {x}1" for x in outer), "x", "y"])
    return Native(
        'from numba import njit\n\n\n@njit(nogil=True, error_model="numpy")\n'
        f"def tile({arguments}):\n" + "".join(f"    {line}\n" for line in lines)
    )
