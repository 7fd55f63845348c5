"""argmax on the CPU: one pass along the axis for each place that remains.

kernels/reference/argmax.py says what it computes.
"""

from __future__ import annotations

from ..argmax import Argmax
from ..factory import register
from ..forge import Native
from ..indexing import AXES

WIDEN = {"f16": "f16_to_f32({})", "bf16": "bf16_to_f32({})"}  # exact, so it keeps the order


@register("argmax", backend="cpu")
def build(kernel: Argmax) -> Native:
    outer = [AXES[d] for d in kernel.outer]
    along = ["z" if d == kernel.axis else AXES[d] for d in range(kernel.rank)]
    place = ["0" if d == kernel.axis else AXES[d] for d in range(kernel.rank) if d != kernel.axis or kernel.keepdims]
    element = WIDEN.get(kernel.source, "{}").format
    known = "True" if kernel.last else "best == best"
    lines = [f"{'    ' * d}for {x} in range({x}0, {x}1):" for d, x in enumerate(outer)]
    lines += [
        "    " * len(outer) + line
        for line in (
            f"best = {element('x[' + ', '.join('0' if x == 'z' else x for x in along) + ']')}",
            "found = 0",
            f"for z in range(1, x.shape[{kernel.axis}]):",
            f"    value = {element('x[' + ', '.join(along) + ']')}",
            # a NaN wins over every number
            f"    if value {'<' if kernel.least else '>'}{'=' if kernel.last else ''} best or (value != value and {known}):",
            "        best = value",
            "        found = z",
            f"y[{', '.join(place) or '()'}] = found",
        )
    ]
    arguments = ", ".join([*(f"{x}0, {x}1" for x in outer), "x", "y"])
    wider = f"from {__package__}.scalar import bf16_to_f32, f16_to_f32\n" if kernel.source in WIDEN else ""
    return Native(
        f"from numba import njit\n{wider}\n\n"
        '@njit(nogil=True, error_model="numpy")\n'
        f"def tile({arguments}):\n" + "".join(f"    {line}\n" for line in lines)
    )
