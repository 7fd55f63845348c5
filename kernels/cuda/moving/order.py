"""Running sums, the largest k, one-hot rows, triangles and ranges on CUDA. kernels/reference/moving.py says what they are.

A thread computes an element, or where one follows from the one before it, a line.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...factory import register
from ...moving.order import CumSum, OneHot, Range, TopK, Trilu
from ..launch import At, Device, Launches, ceildiv, element_strides, pointee
from ..text import WIDE, Parameters, coordinates, indented, made

THREADS = 128
_INTEGERS = ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64")

_SOURCE = """\
import numpy as np
from {package} import ptx
from {package}.scalar import *
from {package}.seam import cuda


def {name}({parameters}):
    place = cuda.grid(1)
    if place < places:
{coordinates}{body}"""


def placed(
    name: str,
    arrays: Sequence[tuple[str, Any]],
    written: Sequence[str],
    shape: Sequence[int],
    body: Sequence[str],
    numbers: dict[str, int],
    skipped: dict[str, int],
) -> Launches:
    """One thread for every place of `shape`, whose coordinates are c0, c1, ..

    arrays   (name, operand): NAME_at is where an operand's element lies, NAME_sD its strides
    body     lines for a place
    numbers  further parameters
    skipped  {name of an operand: the axis of its own that no coordinate follows}
    """  # fmt: skip
    places = math.prod(shape)
    if places == 0:
        return Launches(())
    given = Parameters()
    for n, (array, operand) in enumerate(arrays):
        given.pointer(array, pointee(operand.dtype), At(n), written=array in written)
    given.number("places", places)
    for key, number in numbers.items():
        given.number(key, number)
    names = [f"c{d}" for d in range(len(shape))]
    for coordinate, size in zip(names, shape, strict=True):
        given.number(f"size_{coordinate}", size)
    lines = coordinates("place", [f"size_{c}" for c in names], names, places >= WIDE)
    for array, operand in arrays:
        strides = list(enumerate(element_strides(operand)))
        for d, stride in strides:
            given.number(f"{array}_s{d}", stride)
        followed = [d for d, _ in strides if d != skipped.get(array)]
        terms = [f"{c} * {array}_s{d}" for c, d in zip(names, followed, strict=False)]
        lines.append(f"{array}_at = {' + '.join(terms) or '0'}")
    text = _SOURCE.format(
        package=__package__.rpartition(".")[0],
        name=name,
        parameters=", ".join(given.names),
        coordinates=indented(lines, 2),
        body=indented(body, 2),
    )
    return Launches((given.launch(made(text, name), (ceildiv(places, THREADS),), (THREADS,)),))


@register("trilu", backend="cuda")
def build_trilu(kernel: Trilu) -> Device:
    keeps = f"c{kernel.rank - 1} - c{kernel.rank - 2} {'>=' if kernel.upper else '<='} diagonal"

    def plan(x: Any, y: Any) -> Launches:
        body = [f"if {keeps}:", "    y[y_at] = x[x_at]", "else:", "    y[y_at] = 0"]
        return placed("trilu", [("x", x), ("y", y)], ["y"], y.shape, body, {"diagonal": kernel.k}, {})

    return Device(plan)


def _of_real_index(kernel: OneHot) -> str | None:
    return None if kernel.index in _INTEGERS else f"one_hot of {kernel.index} indices has no CUDA kernel"


@register("one_hot", backend="cuda", requires=_of_real_index)
def build_one_hot(kernel: OneHot) -> Device:
    at = " + ".join(f"c{d if d < kernel.axis else d + 1} * indices_s{d}" for d in range(kernel.rank)) or "0"
    body = [
        f"index = np.int64(indices[{at}])",
        f"if index == c{kernel.axis} or index + depth == c{kernel.axis}:",
        "    y[y_at] = values[values_s0]",
        "else:",
        "    y[y_at] = values[0]",
    ]

    def plan(indices: Any, values: Any, y: Any) -> Launches:
        arrays = [("indices", indices), ("values", values), ("y", y)]
        return placed("one_hot", arrays, ["y"], y.shape, body, {"depth": kernel.depth}, {})

    return Device(plan)


def _type_is_absent(kernel: Range | CumSum | TopK) -> str | None:
    known = kernel.dtype in _INTEGERS or kernel.dtype == "f32"
    return None if known else f"{kernel.name} of {kernel.dtype} has no CUDA kernel"


def _zero(dtype: str) -> str:
    return {"f32": "np.float32(0)", "u64": "np.uint64(0)"}.get(dtype, "np.int64(0)")


def _sum(dtype: str, a: str, b: str) -> str:
    return f"ptx.add({a}, {b})" if dtype == "f32" else f"{a} + {b}"


@register("range", backend="cuda", requires=_type_is_absent)
def build_range(kernel: Range) -> Device:
    if kernel.dtype == "f32":
        value = "ptx.add(start[0], ptx.mul(ptx.to_float(np.int32(c0)), step[0]))"
    else:
        wide = "np.uint64" if kernel.dtype == "u64" else "np.int64"
        value = f"{wide}(start[0]) + {wide}(c0) * {wide}(step[0])"

    def plan(start: Any, step: Any, y: Any) -> Launches:
        arrays = [("start", start), ("step", step), ("y", y)]
        return placed("arange", arrays, ["y"], y.shape, [f"y[y_at] = {value}"], {}, {})

    return Device(plan)


@register("cumsum", backend="cuda", requires=_type_is_absent)
def build_cumsum(kernel: CumSum) -> Device:
    axis = kernel.axis
    along = "length - 1 - z" if kernel.reverse else "z"
    added = f"total = {_sum(kernel.dtype, 'total', f'x[x_at + at * x_s{axis}]')}"
    stored = f"y[y_at + at * y_s{axis}] = total"
    body = [
        f"total = {_zero(kernel.dtype)}",
        "for z in range(length):",
        f"    at = {along}",
        *(f"    {line}" for line in ([stored, added] if kernel.exclusive else [added, stored])),
    ]

    def plan(x: Any, y: Any) -> Launches:
        if 0 in x.shape:
            return Launches(())
        outer = [n for d, n in enumerate(x.shape) if d != axis]
        skipped = {"x": axis, "y": axis}
        return placed("cumsum", [("x", x), ("y", y)], ["y"], outer, body, {"length": x.shape[axis]}, skipped)

    return Device(plan)


@register("topk", backend="cuda", requires=_type_is_absent)
def build_topk(kernel: TopK) -> Device:
    """Each of k passes over a line finds the best that comes after the last one found: no memory, k * n comparisons."""
    axis = kernel.axis
    order = {"f32": "order_f32({})", "u64": "order_u64({})"}.get(kernel.dtype, "np.int64({})")
    key = order.format(f"x[x_at + z * x_s{axis}]")
    body = [
        "last = np.int64(9223372036854775807)",
        "last_z = np.int64(-1)",
        "for rank in range(count):",
        "    best = np.int64(0)",
        "    best_z = np.int64(-1)",
        "    for z in range(length):",
        f"        key = {key if kernel.largest else f'-1 - {key}'}",
        "        if (key < last or (key == last and z > last_z)) and (best_z < 0 or key > best):",
        "            best = key",
        "            best_z = np.int64(z)",
        "    last = best",
        "    last_z = best_z",
        f"    values[values_at + rank * values_s{axis}] = x[x_at + best_z * x_s{axis}]",
        f"    indices[indices_at + rank * indices_s{axis}] = best_z",
    ]

    def plan(x: Any, values: Any, indices: Any) -> Launches:
        if 0 in values.shape:
            return Launches(())
        arrays = [("x", x), ("values", values), ("indices", indices)]
        outer = [n for d, n in enumerate(x.shape) if d != axis]
        numbers = {"length": x.shape[axis], "count": values.shape[axis]}
        skipped = dict.fromkeys(("x", "values", "indices"), axis)
        return placed("topk", arrays, ["values", "indices"], outer, body, numbers, skipped)

    return Device(plan)
