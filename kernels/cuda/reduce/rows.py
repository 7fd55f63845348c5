"""Text of kernels that work on rows: what is reduced lies along a row, and each place that is kept has one.

An operand arrives with the kept axes first and the reduced ones last, at any strides. Half a warp works on one row: its
sixteen threads are the sixteen lanes of the definition. Threads without a row go along, over no elements, because all
lanes of a warp take part in exchanges.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..launch import At, Device, Launches, ceildiv, element_strides, pointee
from ..text import WIDE, Parameters, coordinates, indented, made

ROWS = 8  # of a block

_SOURCE = """\
import numpy as np
from {package} import ptx
from {package}.reduce.lanes import below, joined_add, joined_max, joined_min, joined_mul
from {package}.scalar import *
from {package}.seam import cuda, device
{prelude}

def {name}({parameters}):
    lane = cuda.threadIdx.x & 15
    first = cuda.threadIdx.x & 16
    row = cuda.blockIdx.x * 8 + (cuda.threadIdx.x >> 4)
    n = length
    if row >= rows:
        n = 0
        row = 0
{places}{body}
"""

START = {"add": "np.float32(0)", "mul": "np.float32(1)", "max": "np.float32(-np.inf)", "min": "np.float32(np.inf)"}
JOIN = {
    "add": "ptx.add({}, {})", "mul": "ptx.mul({}, {})", "max": "maximum({}, {})", "min": "minimum({}, {})",
}  # fmt: skip
WIDEN = {"f32": "{}", "f16": "f16_to_f32({})", "bf16": "bf16_to_f32({})"}
NARROW = {"f32": "{}", "f16": "f16_bits({})", "bf16": "bf16_bits({})"}


@dataclass(frozen=True)
class RowKernel:
    """
    name     of the kernel
    reduced  how many of the last axes of x are reduced
    along    names of operands with one element for each place of a row
    numbers  names of operands of one element
    full     names of outputs that are rows themselves
    places   names of outputs with one element for each row
    body     lines; `NAME[NAME_row + NAME_at]` is an element of a row at p after `fold` or `each` said how
    prelude  module text that the body needs
    """

    name: str
    reduced: int
    body: Sequence[str]
    prelude: str = ""
    along: Sequence[str] = ()
    numbers: Sequence[str] = ()
    full: Sequence[str] = ()
    places: Sequence[str] = ()

    def device(self) -> Device:
        names = ["x", *self.along, *self.numbers, *self.full, *self.places]

        def plan(*operands: Any) -> Launches:
            x = operands[0]
            kept = x.ndim - self.reduced
            rows = _product(x.shape[:kept])
            if rows == 0:
                return Launches(())
            given = Parameters()
            lines: list[str] = []
            inner: dict[str, str] = {}
            for position, (name, array) in enumerate(zip(names, operands, strict=False)):
                given.pointer(
                    name, pointee(array.dtype), At(position), written=name in self.full or name in self.places
                )
                strides = element_strides(array)
                outer = () if name in (*self.along, *self.numbers) else strides[:kept]
                lines.append(f"{name}_row = " + self._outer(given, name, outer, x.shape[: len(outer)]))
                if name not in (*self.numbers, *self.places):
                    inner[name] = self._inner(given, name, strides[len(outer) :], x.shape[kept:])
            given.number("rows", rows)
            given.number("length", _product(x.shape[kept:]))
            for d, size in enumerate(x.shape[:kept]):
                given.number(f"k{d}", size)
            for d, size in enumerate(x.shape[kept:]):
                given.number(f"r{d}", size)
            where = coordinates("row", [f"k{d}" for d in range(kept)], [f"c{d}" for d in range(kept)], rows >= WIDE)
            text = _SOURCE.format(
                package=__package__.rpartition(".")[0],
                prelude=self.prelude,
                name=self.name,
                parameters=", ".join(given.names),
                places=indented([*where, *lines], 1),
                body=indented(self._placed(inner), 1).rstrip("\n"),
            )
            return Launches((given.launch(made(text, self.name), (ceildiv(rows, ROWS),), (16 * ROWS,)),))

        return Device(plan)

    @staticmethod
    def _outer(given: Parameters, name: str, strides: Sequence[int], sizes: Sequence[int]) -> str:
        terms = []
        for d, (stride, size) in enumerate(zip(strides, sizes, strict=True)):
            if stride and size > 1:
                given.number(f"{name}_k{d}", stride)
                terms.append(f"c{d} * {name}_k{d}")
        return " + ".join(terms) or "0"

    @staticmethod
    def _inner(given: Parameters, name: str, strides: Sequence[int], sizes: Sequence[int]) -> str:
        """The place of element p of a row, as an expression; one stride where the axes lie together."""
        axes = [d for d, size in enumerate(sizes) if size > 1]
        if not sizes:
            return "0"
        if all(strides[a] == strides[b] * sizes[b] for a, b in itertools.pairwise(axes)):
            given.number(f"{name}_step", strides[axes[-1]] if axes else 0)
            return f"p * {name}_step"
        terms, rest = [], "p"
        for d in reversed(range(len(sizes))):
            given.number(f"{name}_r{d}", strides[d])
            terms.append(f"({rest} % r{d}) * {name}_r{d}" if d else f"{rest} * {name}_r{d}")
            rest = f"({rest} // r{d})"
        return " + ".join(terms)

    def _placed(self, inner: dict[str, str]) -> list[str]:
        lines = []
        for line in self.body:
            for name, place in inner.items():
                line = line.replace(f"<{name}>", f"{name}[{name}_row + {place}]")
            for name in (*self.numbers, *self.places):
                line = line.replace(f"<{name}>", f"{name}[{name}_row]")
            lines.append(line)
        return lines


def fold(total: str, how: str, value: str) -> list[str]:
    """Lines that fold `value`, over element p, along the row into `total`."""
    return [
        f"{total} = {START[how]}",
        "for p in range(lane, n, 16):",
        f"    {total} = {JOIN[how].format(total, value)}",
        f"{total} = joined_{how}({total}, first)",
    ]


def each(*lines: str) -> list[str]:
    """Lines for every element p of the row."""
    return ["for p in range(lane, n, 16):", *(f"    {line}" for line in lines)]


def once(*lines: str) -> list[str]:
    """Lines for the row, where there is one."""
    return [
        "if lane == 0 and cuda.blockIdx.x * 8 + (cuda.threadIdx.x >> 4) < rows:",
        *(f"    {line}" for line in lines),
    ]


def _product(sizes: Sequence[int]) -> int:
    n = 1
    for size in sizes:
        n *= int(size)
    return n
