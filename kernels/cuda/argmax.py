"""argmax on CUDA: one thread along the axis for each place that remains.

kernels/reference/argmax.py says what it computes.
"""

from __future__ import annotations

from typing import Any

from ..argmax import Argmax
from ..factory import register
from .launch import At, Device, Launches, ceildiv, element_strides, pointee
from .text import WIDE, Parameters, coordinates, indented, made

THREADS = 128

_SOURCE = """\
import numpy as np
from {package} import ptx
from {package}.scalar import bf16_to_f32, f16_to_f32
from {package}.seam import cuda


def argmax({parameters}):
    place = cuda.grid(1)
    if place < places:
{coordinates}        at = {x_place}
        best = {first}
        found = 0
        for z in range(1, length):
            value = {element}
            if value {order} best or (value != value and {known}):  # a NaN wins over every number
                best = value
                found = z
        y[{y_place}] = found
"""


WIDEN = {"f16": "f16_to_f32({})", "bf16": "bf16_to_f32({})"}


def _is_double(kernel: Argmax) -> str | None:
    return "argmax of f64 has no CUDA kernel" if kernel.source == "f64" else None


@register("argmax", backend="cuda", requires=_is_double)
def build(kernel: Argmax) -> Device:
    element = WIDEN.get(kernel.source, "{}").format

    def plan(x: Any, y: Any) -> Launches:
        outer = list(kernel.outer)
        sizes = [x.shape[d] for d in outer]
        places = 1
        for n in sizes:
            places *= n
        if places == 0:
            return Launches(())
        x_strides = element_strides(x)
        y_strides = list(element_strides(y))
        if kernel.keepdims:
            del y_strides[kernel.axis]
        given = Parameters()
        given.pointer("x", pointee(x.dtype), At(0))
        given.pointer("y", pointee(y.dtype), At(1), written=True)
        given.number("places", places)
        given.number("length", x.shape[kernel.axis])
        given.number("along", x_strides[kernel.axis])
        names = [f"i{n}" for n in range(len(outer))]
        for n, d in enumerate(outer):
            given.number(f"n{n}", sizes[n])
            given.number(f"x_s{n}", x_strides[d])
            given.number(f"y_s{n}", y_strides[n])
        text = _SOURCE.format(
            package=__package__,
            first=element("x[at]"),
            element=element("x[at + z * along]"),
            order=("<" if kernel.least else ">") + ("=" if kernel.last else ""),
            known="True" if kernel.last else "best == best",
            parameters=", ".join(given.names),
            coordinates=indented(coordinates("place", [f"n{n}" for n in range(len(outer))], names, places >= WIDE), 2),
            x_place=" + ".join(f"{i} * x_s{n}" for n, i in enumerate(names)) or "0",
            y_place=" + ".join(f"{i} * y_s{n}" for n, i in enumerate(names)) or "0",
        )
        return Launches((given.launch(made(text, "argmax"), (ceildiv(places, THREADS),), (THREADS,)),))

    return Device(plan)
