"""What becomes of a sum: stored as it is, or first taken through the element-wise steps fused behind its kernel.

A kernel with sums has at each of them `value`, its place (g0, .., m, n) and the lines that a Finish gives it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..indexing import Index, whole
from .launch import At, Status, element_strides, pointee
from .nest import Element
from .text import Parameters


@dataclass(frozen=True)
class Finish:
    """The steps behind a sum, in order.

    axes     names of the places, outermost first
    base     how many operands of the kernel come before those of the steps
    steps    (element, the operand that is the value so far); their other operands follow one another
    """

    axes: tuple[str, ...]
    base: int
    steps: Sequence[tuple[Element, str]] = ()

    @property
    def prelude(self) -> str:
        return "\n".join(element.prelude for element, _ in self.steps)

    def parameters(self, given: Parameters, operands: tuple[Any, ...]) -> list[str]:
        """Add what the steps read and the output; the lines from `value` to its store."""
        lines: list[str] = []
        position, current, doubtful = self.base, "value", False
        for number, (element, so_far) in enumerate(self.steps):
            names = {so_far: element.widen.get(so_far, "{}").format(current)}
            for name, index in element.operands:
                if name == so_far:
                    continue
                array, own = operands[position], f"s{number}_{name}"
                given.pointer(own, pointee(array.dtype), At(position))
                lines.append(f"{own}_ = {element.widen.get(name, '{}').format(self._at(given, own, array, index))}")
                names[name] = f"{own}_"
                position += 1
            for name in element.tables:
                names[name] = f"s{number}_{name}"
                given.pointer(names[name], pointee(operands[position].dtype), At(position))
                position += 1
            for _, expression in element.doubt:
                doubtful = True
                lines += [f"if {expression.format(**names)}:", "    ptx.atomic_or(status, 0, np.int32(1))"]
            current = f"value{number + 1}"  # a name of its own for each, because their types differ
            lines.append(f"{current} = {element.result.format(**names)}")
        out = operands[-1]
        given.pointer("out", pointee(out.dtype), At(len(operands) - 1), written=True)
        lines.append(f"{self._at(given, 'out', out, whole(len(self.axes)))} = {current}")
        if doubtful:
            given.pointer("status", "s32", Status(), written=True)
        return lines

    def _at(self, given: Parameters, name: str, array: Any, index: Index) -> str:
        terms = []
        for d, (stride, at) in enumerate(zip(element_strides(array), index, strict=True)):
            if at is not None and stride:
                given.number(f"{name}_s{d}", stride)
                axis = self.axes[at[0]]
                terms.append(f"{axis if at[1] == 1 else f'({axis} // {at[1]})'} * {name}_s{d}")
        return f"{name}[{' + '.join(terms) or '0'}]"
