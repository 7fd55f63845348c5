"""Text of element-by-element kernels: how threads cover the elements, which is the same for every such step.

The step's axes are merged where every operand's strides allow, so that most steps have one or two left. Threads lie
along the innermost axis, four elements each where memory allows vectors, and over all others flattened.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...primitives.errors import LayoutError
from ..indexing import Index, whole
from .launch import At, Device, Launches, Status, address, ceildiv, element_strides, pointee
from .text import WIDE, Parameters, coordinates, made

VECTOR = 4  # elements of a thread
THREADS = 256
LARGEST_GRID_Y = 65535

_HEADER = """\
import numpy as np
from {package} import ptx
from {package}.scalar import *
from {package}.seam import cuda, device
{prelude}

def {name}({parameters}):
"""


@dataclass(frozen=True)
class Element:
    """What a step does to one element, as text.

    rank      of the output
    operands  (name, index) in the order of the sweep, without the output
    result    expression over the operands' names in braces, each of which stands for one element; `flat` is the
              position in C order of the whole output
    widen     operand name -> expression over `{}` that its element passes through as it is loaded
    doubt     (operand names, expression): where it holds for any element the step's status is 1
    tables    further operands, which follow those: arrays that the result indexes by itself
    prelude   text of a module part that the expressions need, beside the names of scalar.py
    name      of the kernel
    """

    rank: int
    operands: Sequence[tuple[str, Index]]
    result: str
    widen: Mapping[str, str] = field(default_factory=dict)
    doubt: Sequence[tuple[tuple[str, ...], str]] = ()
    tables: Sequence[str] = ()
    prelude: str = ""
    name: str = "element"


@dataclass(frozen=True)
class _Operand:
    """An operand over the merged axes: axis -> (stride in elements, block). What it does not follow is not there."""

    name: str
    dtype: str
    terms: Mapping[int, tuple[int, int]]


def nest(element: Element, out: str = "y") -> Device:
    """The implementation that stores an element's result at each place of `out`, the last operand."""
    names = [*dict(element.operands), *element.tables, out]
    indices = {**dict(element.operands), out: whole(element.rank)}

    def plan(*arrays: Any) -> Launches:
        shape = tuple(arrays[-1].shape)
        if 0 in shape:
            return Launches(())
        operands = [
            _Operand(name, pointee(a.dtype), _terms(name, a, indices[name], shape))
            for name, a in zip(names, arrays, strict=True)
            if name in indices
        ]
        sizes, operands = _merged(shape, operands)
        vector = _vector(sizes, operands, dict(zip(names, arrays, strict=True)))
        given = Parameters()
        for n, (name, array) in enumerate(zip(names, arrays, strict=True)):
            given.pointer(name, pointee(array.dtype), At(n), written=name == out)
            operand = next((o for o in operands if o.name == name), None)
            for axis, (stride, _) in sorted(operand.terms.items()) if operand else ():
                if not (axis == len(sizes) - 1 and stride == 1):
                    given.number(f"{name}_s{axis}", stride)
        for d, n in enumerate(sizes):
            given.number(f"n{d}", n)
        if element.doubt:
            given.pointer("status", "s32", Status(), written=True)
        rows = math.prod(sizes[:-1])
        kernel = made(_text(element, out, operands, len(sizes), vector, given.names, rows >= WIDE), element.name)
        threads, outer = ceildiv(sizes[-1], vector), rows
        wide = 32
        while wide < THREADS and wide < threads:
            wide *= 2
        tall = 1
        while tall * wide < THREADS and tall < outer:
            tall *= 2
        grid = (ceildiv(threads, wide), min(ceildiv(outer, tall), LARGEST_GRID_Y))
        if grid[0] >= 2**31:
            raise LayoutError(f"{element.name} over {shape}: {grid[0]} blocks along a row; CUDA has 2**31 - 1")
        return Launches((given.launch(kernel, grid, (wide, tall)),))

    return Device(plan)


def _terms(name: str, array: Any, index: Index, shape: tuple[int, ...]) -> dict[int, tuple[int, int]]:
    terms: dict[int, tuple[int, int]] = {}
    for stride, at in zip(element_strides(array), index, strict=True):
        if at is None or shape[at[0]] <= at[1] or stride == 0:
            continue
        axis, block = at
        if axis in terms:
            if block != 1 or terms[axis][1] != 1:
                raise LayoutError(f"operand {name!r} follows axis {axis} twice, in blocks")
            stride += terms[axis][0]
        terms[axis] = (stride, block)
    return terms


def _merged(shape: tuple[int, ...], operands: list[_Operand]) -> tuple[list[int], list[_Operand]]:
    """Fewer axes: those of size 1 go, and neighbours that every operand walks as one become one."""
    groups: list[list[int]] = []  # axes that become one, outermost first
    for d, n in enumerate(shape):
        if n == 1:
            continue
        if groups:
            last = groups[-1][-1]
            if all(
                o.terms.get(last, (0, 1))[1] == 1
                and o.terms.get(d, (0, 1))[1] == 1
                and o.terms.get(last, (0, 1))[0] == o.terms.get(d, (0, 1))[0] * n
                for o in operands
            ):
                groups[-1].append(d)
                continue
        groups.append([d])
    if not groups:
        groups = [[]]
    sizes = []
    for group in groups:
        size = 1
        for d in group:
            size *= shape[d]
        sizes.append(size)
    moved = [
        _Operand(
            o.name, o.dtype, {g: o.terms[group[-1]] for g, group in enumerate(groups) if group and group[-1] in o.terms}
        )
        for o in operands
    ]
    return sizes, moved


def _vector(sizes: list[int], operands: list[_Operand], arrays: Mapping[str, Any]) -> int:
    """How many elements a thread takes: several where every operand along the innermost axis can be read as vectors."""
    inner = len(sizes) - 1
    if sizes[inner] % VECTOR:
        return 1
    for o in operands:
        item = arrays[o.name].dtype.itemsize
        stride, block = o.terms.get(inner, (0, 1))
        if stride == 0:
            continue
        if stride != 1 or block != 1 or item > 4 or address(arrays[o.name]) % (VECTOR * item):
            return 1
        if any(s % VECTOR for axis, (s, b) in o.terms.items() if axis != inner):
            return 1
    return VECTOR


def _text(
    element: Element, out: str, operands: list[_Operand], rank: int, vector: int, parameters: list[str], wide: bool
) -> str:
    inner = rank - 1
    lines: list[str] = []
    by_name = {o.name: o for o in operands}

    def emit(depth: int, text: str) -> None:
        lines.append("    " * depth + text)

    def place(o: _Operand, position: str) -> str:
        parts = []
        for axis, (stride, block) in sorted(o.terms.items()):
            at = position if axis == inner else f"i{axis}"
            if block > 1:
                at = f"({at} // {block})"
            parts.append(at if axis == inner and stride == 1 else f"{at} * {o.name}_s{axis}")
        return " + ".join(parts) or "0"

    emit(1, "column = (cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x)" + (f" * {vector}" if vector > 1 else ""))
    depth = 1
    if rank > 1:
        outer = " * ".join(f"n{d}" for d in range(inner))
        emit(1, f"rows = {outer}")
        emit(1, "first = cuda.blockIdx.y * cuda.blockDim.y + cuda.threadIdx.y")
        emit(1, "for row in range(first, rows, cuda.gridDim.y * cuda.blockDim.y):")
        depth = 2
        for line in coordinates("row", [f"n{d}" for d in range(inner)], [f"i{d}" for d in range(inner)], wide):
            emit(depth, line)
    emit(depth, f"if column < n{inner}:")
    depth += 1
    for name, _ in element.operands:
        o = by_name[name]
        if inner in o.terms and vector > 1:
            for n, text in enumerate(_loads(emit, depth, o, place(o, "column"))):
                emit(depth, f"{name}_{n} = {element.widen.get(name, '{}').format(text)}")
        else:
            emit(depth, f"{name}_0 = {element.widen.get(name, '{}').format(_element(o, place(o, 'column')))}")
    fixed = {name for name, _ in element.operands if inner not in by_name[name].terms}

    def put(text: str, n: int) -> str:
        names = {name: f"{name}_{0 if name in fixed else n}" for name, _ in element.operands}
        return text.format(**names, **{t: t for t in element.tables})

    for n in range(vector):
        for names, expression in element.doubt:
            if n == 0 or not fixed.issuperset(names):
                emit(depth, f"if {put(expression, n)}:")
                emit(depth + 1, "ptx.atomic_or(status, 0, np.int32(1))")
    for n in range(vector):
        if "flat" in element.result:
            emit(depth, f"flat = {'row * n' + str(inner) + ' + ' if rank > 1 else ''}column + {n}")
        emit(depth, f"{out}_{n} = {put(element.result, n)}")
    where = place(by_name[out], "column")
    emit(depth, _store(by_name[out], where, vector))
    header = _HEADER.format(
        package=__package__, prelude=element.prelude, name=element.name, parameters=", ".join(parameters)
    )
    return header + "\n".join(lines) + "\n"


def _element(o: _Operand, where: str) -> str:
    return f"{o.name}[{where}]"


def _loads(emit: Callable[[int, str], None], depth: int, o: _Operand, where: str) -> list[str]:
    """Emit the vector load of four elements; the expression of each."""
    words = f"{o.name}_words"
    if o.dtype in ("u8", "s8"):
        emit(depth, f"{words} = ptx.load_x1({o.name}, {where})")
        return [f"byte_{o.dtype}({words}, {n})" for n in range(VECTOR)]
    if o.dtype in ("u16", "s16"):
        emit(depth, f"{words} = ptx.load_x2({o.name}, {where})")
        return [f"half_{o.dtype}({words}[{n // 2}], {n % 2})" for n in range(VECTOR)]
    emit(depth, f"{words} = ptx.load_x4({o.name}, {where})")
    if o.dtype == "f32":
        return [f"ptx.from_bits({words}[{n}])" for n in range(VECTOR)]
    return [f"{words}[{n}]" if o.dtype == "s32" else f"({words}[{n}] & 4294967295)" for n in range(VECTOR)]


def _store(o: _Operand, where: str, vector: int) -> str:
    values = [f"{o.name}_{n}" for n in range(vector)]
    if vector == 1:
        return f"{o.name}[{where}] = {values[0]}"
    if o.dtype == "f32":
        return f"ptx.store_x4({o.name}, {where}, {', '.join(f'ptx.bits({v})' for v in values)})"
    if o.dtype in ("s32", "u32"):
        return f"ptx.store_x4({o.name}, {where}, {', '.join(f'np.int32({v})' for v in values)})"
    if o.dtype in ("u8", "s8"):
        return f"ptx.store_x1({o.name}, {where}, pack_bytes({', '.join(values)}))"
    a, b = (f"pack_halves({values[n]}, {values[n + 1]})" for n in (0, 2))
    return f"ptx.store_x2({o.name}, {where}, {a}, {b})"
