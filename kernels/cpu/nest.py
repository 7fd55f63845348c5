"""Text of element-by-element tile functions: the loop nest, which is the same for every such step.

An operand's index says, per dimension of the operand, (axis, block): that dimension is read at the axis' index divided
by block; None: the dimension has size 1 and is read at 0. So scales per tensor, channel, group or 2-D block, and
broadcast operands, need no views.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..forge import Native
from ..indexing import AXES, Index, whole

_HEADER = """\
import numpy as np
from numba import njit
from {package}.scalar import *
{prelude}

@njit(nogil=True, error_model="numpy")
def tile({arguments}):
"""


@dataclass(frozen=True)
class Element:
    """What a step does to one element, as text: what its own tile function is made of, and a GEMM's fused epilogue.

    rank      of the output
    operands  (name, index) in the order of the sweep, without the output
    result    expression over the operands' names in braces, each of which stands for one element; `flat` is the
              position in C order of the whole output
    widen     operand name -> expression over `{}` that its element passes through as it is loaded
    doubt     (operand names, expression): where it holds for any element the tile returns status 1
    tables    further operands, which follow those: arrays that the result indexes by itself
    prelude   text of a module part that the expressions need, beside the names of scalar.py
    """

    rank: int
    operands: Sequence[tuple[str, Index]]
    result: str
    widen: Mapping[str, str] = field(default_factory=dict)
    doubt: Sequence[tuple[tuple[str, ...], str]] = ()
    tables: Sequence[str] = ()
    prelude: str = ""


def nest(element: Element, out: str = "y") -> Native:
    """The tile function that stores an element's result at each place of its block of `out`, the last operand.

    The innermost loop runs over row views, because indexing x[i, j] there keeps LLVM from vectorising.
    """
    rank, result, doubt, widen = element.rank, element.result, element.doubt, element.widen
    operands = [*element.operands, (out, whole(rank))]
    index = dict(operands)
    axes = AXES[:rank]
    inner = rank - 1
    arguments = ", ".join([f"{a}0, {a}1" for a in axes] + [*dict(element.operands), *element.tables, out])
    lines = [] if not doubt else ["bad = False"]
    indent = 0

    def emit(text: str) -> None:
        lines.append("    " * indent + text)

    def load(name: str, where: str) -> str:
        return widen.get(name, "{}").format(where)

    def touches_inner(name: str) -> bool:
        return any(at is not None and at[0] == inner for at in index[name])

    def place(name: str, innermost: str) -> str:
        parts = []
        for at in index[name]:
            if at is None:
                parts.append("0")
                continue
            position = innermost if at[0] == inner else axes[at[0]]
            parts.append(position if at[1] == 1 else f"({position}) // {at[1]}")
        return f"{name}[{', '.join(parts) or '()'}]"

    for axis in axes[:-1]:
        emit(f"for {axis} in range({axis}0, {axis}1):")
        indent += 1
    rows = set()
    for name, at in operands:
        if rank and touches_inner(name) and at[-1] == (inner, 1) and (inner, 1) not in at[:-1]:
            rows.add(name)
            emit(f"{name}_row = {place(name, f'{axes[inner]}0:{axes[inner]}1')}")
        elif name != out and not touches_inner(name):
            emit(f"{name}_ = {load(name, place(name, ''))}")
    fixed = {name for name, _ in operands if name != out and not touches_inner(name)}
    for names, expression in doubt:
        if fixed.issuperset(names):
            emit(f"bad = bad or {_substituted(expression, names)}")
    if rank:
        emit(f"for {axes[inner]} in range({axes[inner]}1 - {axes[inner]}0):")
        indent += 1
    absolute = f"{axes[inner]}0 + {axes[inner]}" if rank else ""
    for name, _ in operands:
        if name != out and name not in fixed:
            where = f"{name}_row[{axes[inner]}]" if name in rows else place(name, absolute)
            emit(f"{name}_ = {load(name, where)}")
    for names, expression in doubt:
        if not fixed.issuperset(names):
            emit(f"bad = bad | {_substituted(expression, names)}")
    if "flat" in result:
        position = "0"
        for d, axis in enumerate(axes):
            position = (
                f"({position}) * {out}.shape[{d}] + {axis if d != inner else absolute}"
                if d
                else (axis if d != inner else absolute)
            )
        emit(f"flat = {position}")
    read = [name for name, _ in operands if name != out]
    target = f"{out}_row[{axes[inner]}]" if out in rows else place(out, absolute)
    emit(f"{target} = {_substituted(result, read, element.tables)}")
    if doubt:
        lines.append("return np.int32(1) if bad else np.int32(0)")
    header = _HEADER.format(package=__package__, prelude=element.prelude, arguments=arguments)
    return Native(header + "".join(f"    {line}\n" for line in lines))


def _substituted(expression: str, names: Sequence[str], tables: Sequence[str] = ()) -> str:
    return expression.format(**{name: f"{name}_" for name in names}, **{name: name for name in tables})
