"""Text of element-by-element tile functions: the loop nest, which is the same for every such step.

An operand's index says, per dimension of the operand, (axis, block): that dimension is read at the axis' index divided
by block; None: the dimension has size 1 and is read at 0. So scales per tensor, channel, group or 2-D block, and
broadcast operands, need no views.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..factory import WithParams
from ..forge import Native
from ..indexing import AXES, Index, whole
from .stores import LEAST_ROW, LINE, PIECE, streams

_HEADER = """\
import numpy as np
from numba import njit
from {package}.elements import compiled_here, place, read, read_at, start_of, write, write_at
from {package}.scalar import *
from {package}.stores import piece_buffer, stream, streamed
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
    groups    (count, function of the prelude): takes whole groups of so many elements that follow each other, as
              function(length, address of the output, address of the first operand, *other operands, *tables), where the
              other operands are the same all along the innermost axis
    run       function of the prelude that takes any run of elements instead, as function(length, address of the output,
              bytes from one to the next, both of the first operand, *other operands), where the other operands are so
    """

    rank: int
    operands: Sequence[tuple[str, Index]]
    result: str
    widen: Mapping[str, str] = field(default_factory=dict)
    doubt: Sequence[tuple[tuple[str, ...], str]] = ()
    tables: Sequence[str] = ()
    prelude: str = ""
    groups: tuple[int, str] | None = None
    run: str = ""


@dataclass(frozen=True)
class Wide:
    """How elements that lie next to each other are taken many at a time (lanes.py).

    types   operand name -> type, with that of the output
    count   elements side by side
    """

    types: Mapping[str, str]
    count: int


def nest(element: Element, out: str = "y", wide: Wide | None = None) -> WithParams:
    """The tile function that stores an element's result at each place of its block of `out`, the last operand.

    wide   for a long result: more elements side by side than LLVM would take
    """
    return WithParams(_Nest(element, out, wide).native(), lambda *operands: (streams(operands[-1], operands),))


class _Nest:
    """Writes the loops. The innermost one is there twice.

    Elements are read and written by address (elements.py). Where every operand that follows it does so at unit stride,
    LLVM vectorises it; and where trailing axes of all operands are one run of memory, it covers them together. Then it
    goes piece by piece if the result is streamed (stores.py): each is computed in a buffer first.
    """

    def __init__(self, element: Element, out: str, wide: Wide | None = None) -> None:
        self.element, self.out, self.wide = element, out, wide
        self.axes = AXES[: element.rank]
        self.inner = element.rank - 1
        self.operands = [*element.operands, (out, whole(element.rank))]
        self.index = dict(self.operands)
        self.names = [name for name, _ in element.operands]
        self.fixed = {name for name in self.names if not self._touches(name, self.inner)}
        self.rows = [name for name, at in self.operands if element.rank and self._is_row(at)]
        self.lines: list[str] = []
        self.indent = 0

    def native(self) -> Native:
        element, axes = self.element, self.axes
        self.emit("bad = False") if element.doubt else None
        if element.rank == 0:
            self._load([], "")
            self._body("", "")
        else:
            merged = self._merged_axes()
            self._prepare(merged)
            self.emit(f"streaming = past != 0 and unit and length * {self.out}.itemsize >= {LEAST_ROW}")
            self.emit("piece = piece_buffer() if streaming else 0")
            for d, axis in enumerate(axes[:-1]):
                end = f"{axis}1"
                if d in merged:  # the innermost loop may cover it
                    end = f"({axis}0 + 1 if run <= {d} else {axis}1)"
                self.begin(f"for {axis} in range({axis}0, {end}):")
            self._load(self.fixed, "")
            for name in self.rows:
                self.emit(f"{name}_at = {self._address(name)}")
            if element.run and self._same_along():
                self._runs()
            else:
                self._loops()
            self.lines += ["if streaming:", "    streamed()"]
        if element.doubt:
            self.lines.append("return np.int32(1) if bad else np.int32(0)")
        arguments = ", ".join([f"{a}0, {a}1" for a in axes] + [*self.names, *element.tables, self.out, "past"])
        prelude = element.prelude + self._vector()
        header = _HEADER.format(package=__package__, prelude=prelude, arguments=arguments)
        return Native(header + "".join(f"    {line}\n" for line in self.lines))

    def _runs(self) -> None:
        first, *others = self.names
        steps = {name: f"{name}.strides[{len(self.index[name]) - 1}]" for name in (self.out, first)}
        self._begin_pieces(steps)
        ends = [f"to, {steps[self.out]}", f"{first}_from, {steps[first]}"]
        self.emit(f"{self.element.run}({', '.join(['count', *ends, *(f'{name}_' for name in others)])})")
        self._end_pieces()

    def _begin_pieces(self, steps: Mapping[str, str]) -> None:
        """The head of a loop over pieces of a row: `count` elements after `done`, written at `to`; one where none is streamed.

        steps   bytes from one element to the next, of the result and of operands along the row
        """
        out = self.out
        self.emit("done = 0")
        self.begin("while done < length:")
        self.emit(f"count, to = length - done, {out}_at + done * {steps[out]}")
        for name in self.rows:
            if name in steps and name != out:
                self.emit(f"{name}_from = {name}_at + done * {steps[name]}")
        self.begin("if streaming:")
        self.emit(f"count, to = min(count, ({PIECE} - to % {LINE}) // {out}.itemsize), piece")
        self.end()

    def _end_pieces(self) -> None:
        out = self.out
        self.begin("if streaming:")
        self.emit(f"stream({out}_at + done * {out}.itemsize, to, count * {out}.itemsize)")
        self.end()
        self.emit("done += count")
        self.end()

    def _loops(self) -> None:
        self.begin("if unit:")
        self._begin_pieces({name: f"{name}.itemsize" for name in self.rows})
        whole_groups = self._whole_groups()
        if whole_groups:
            self.emit(whole_groups)
        self._inner_loop(f"{self._grouped('count')}, count" if whole_groups else "count", by_address=True)
        self._end_pieces()
        self.end()
        self.begin("else:")
        for name in self.rows:
            self.emit(f"{name}_step = {name}.strides[{len(self.index[name]) - 1}]")
        self._inner_loop(f"{self.axes[-1]}1 - {self.axes[-1]}0", by_address=False)
        self.end()

    def emit(self, text: str) -> None:
        self.lines.append("    " * self.indent + text)

    def begin(self, text: str) -> None:
        self.emit(text)
        self.indent += 1

    def end(self) -> None:
        self.indent -= 1

    def _touches(self, name: str, axis: int) -> bool:
        return any(at is not None and at[0] == axis for at in self.index[name])

    def _is_row(self, at: Index) -> bool:
        return bool(at) and at[-1] == (self.inner, 1) and all(a is None or a[0] != self.inner for a in at[:-1])

    def _merged_axes(self) -> tuple[int, ...]:
        """Axes before the innermost that may be covered with it: every operand has all of them one to one, or none."""
        if any(self._touches(name, self.inner) and name not in self.rows for name in self.names):
            return ()
        first = self.inner
        while first > 0:
            d = first - 1
            for name, at in self.operands:
                has = self._touches(name, d)
                wanted = ((d, 1), (d + 1, 1))
                if has != self._touches(name, self.inner) or (has and not self._adjacent(at, wanted)):
                    return tuple(range(first, self.inner))
            first = d
        return tuple(range(first, self.inner))

    @staticmethod
    def _adjacent(at: Index, wanted: tuple[tuple[int, int], tuple[int, int]]) -> bool:
        places = [n for n, a in enumerate(at) if a == wanted[0]]
        return len(places) == 1 and places[0] + 1 < len(at) and at[places[0] + 1] == wanted[1]

    def _prepare(self, merged: tuple[int, ...]) -> None:
        """Whether the fast loop serves, and how long it is."""
        last, out = self.axes[-1], self.out
        units = [f"{name}.strides[{len(self.index[name]) - 1}] == {name}.itemsize" for name in self.rows]
        alone = f"{last}1 - {last}0 == 1"
        if self.element.groups is not None:
            units += [f"{name}.strides[0] == {name}.itemsize" for name in self.element.tables]
        self.emit(f"unit = compiled_here() and (({' and '.join(units)}) or {alone})")
        self.emit(f"length = {last}1 - {last}0")
        if not merged:
            return
        self.emit(f"run = {self.inner}")  # the axis that a run of memory begins along
        self.begin(f"if unit and {last}1 - {last}0 > 1:")
        for d in reversed(merged):
            self.begin(f"if {' and '.join(self._continues(d + 1))}:")
            self.emit(f"run = {d}")
            lengths = [
                f"({self.axes[d]}1 - {self.axes[d]}0)",
                *(f"{out}.shape[{n}]" for n in range(d + 1, self.inner + 1)),
            ]
            self.emit(f"length = {' * '.join(lengths)}")
        for _ in range(len(merged) + 1):
            self.end()

    def _continues(self, axis: int) -> list[str]:
        """Conditions under which an axis is covered whole, and in one run of memory for each index of the one before."""
        name = self.axes[axis]
        tests = [f"{name}0 == 0", f"{name}1 == {self.out}.shape[{axis}]"]
        for row in self.rows:
            n = self.index[row].index((axis, 1))
            tests.append(f"{row}.strides[{n - 1}] == {row}.strides[{n}] * {row}.shape[{n}]")
        return tests

    def _place(self, name: str, innermost: str) -> str:
        parts = []
        for at in self.index[name]:
            if at is None:
                parts.append("0")
                continue
            position = innermost if at[0] == self.inner else self.axes[at[0]]
            parts.append(position if at[1] == 1 else f"({position}) // {at[1]}")
        return f"{name}[{', '.join(parts) or '()'}]"

    def _address(self, name: str) -> str:
        """Of the first element of the row."""
        indices = []
        for at in self.index[name]:
            axis = "0" if at is None else f"{self.axes[at[0]]}0" if at[0] == self.inner else self.axes[at[0]]
            indices.append(axis if at is None or at[1] == 1 else f"{axis} // {at[1]}")
        return f"place({name}, ({''.join(f'{i}, ' for i in indices)}))"

    def _load(self, names: Any, innermost: str) -> None:
        for name in self.names:
            if self.element.rank == 0 or name in names:
                self.emit(f"{name}_ = {self.element.widen.get(name, '{}').format(self._place(name, innermost))}")
        for slots, expression in self.element.doubt:
            if self.element.rank and self.fixed.issuperset(slots):
                self.emit(f"bad = bad or {_substituted(expression, slots)}")

    def _inner_loop(self, count: str, by_address: bool) -> None:
        last = self.axes[-1]
        absolute = f"{last}0 + done + {last}" if by_address else f"{last}0 + {last}"
        self.begin(f"for {last} in range({count}):")
        for name in self.names:
            if name in self.fixed:
                continue
            where = self._place(name, absolute)
            if name in self.rows:
                where = (
                    f"read({name}, {name}_from, {last})"
                    if by_address
                    else f"read_at({name}, {name}_at, {last} * {name}_step)"
                )
            self.emit(f"{name}_ = {self.element.widen.get(name, '{}').format(where)}")
        self._body(absolute, "address" if by_address else "row")
        self.end()

    def _order(self) -> list[str]:
        """The operands as `vector` takes them, one that is read by address first; none where it does not serve."""
        element = self.element
        far = [name for name in self.names if name in self.rows and name not in self.fixed]
        if self.wide is None or not far or element.doubt or element.tables or "flat" in element.result:
            return []
        if len(far) + len(self.fixed) != len(self.names):
            return []
        return [far[0], *(name for name in self.names if name != far[0])]

    def _has_groups(self) -> bool:
        """Whether the element's own function for groups serves."""
        return self.element.groups is not None and self._same_along()

    def _same_along(self) -> bool:
        """Whether the first operand is a row, and the others do not change along it."""
        first, others = self.names[:1], self.names[1:]
        return set(first) <= set(self.rows) and self.fixed.issuperset(others)

    def _grouped(self, length: str) -> str:
        count = self.element.groups[0] if self.element.groups else self.wide.count if self.wide else 1
        return f"{length} // {count} * {count}"

    def _whole_groups(self) -> str:
        """The line that takes as many whole groups of a row as there are."""
        if self.element.groups is not None and self._has_groups():
            given = ["to", f"{self.names[0]}_from", *(f"{name}_" for name in self.names[1:])]
            tables = [f"start_of({name})" for name in self.element.tables]
            return f"{self.element.groups[1]}({', '.join(['count', *given, *tables])})"
        given = [self._place(name, "") if name in self.fixed else f"{name}_from" for name in self._order()]
        return f"vector(count, {', '.join(['to', *given])})" if self._order() else ""

    def _vector(self) -> str:
        """Text that defines `vector`: many elements at once, from the addresses of the first ones."""
        order, wide = self._order(), self.wide
        if not order or wide is None:
            return ""
        values = {name: self.element.widen.get(name, "{}").format(f"{name}_") for name in order}
        operands = tuple((wide.types[name], "one" if name in self.fixed else "full") for name in order[1:])
        types = f"{operands!r}, {wide.types[self.out]!r}, {wide.types[order[0]]!r}"
        return (
            f"\nfrom {__package__}.lanes import lanes\n\n\n"
            f'@njit(forceinline=True, error_model="numpy")\n'
            f"def one_of_many({', '.join(f'{name}_' for name in order)}):\n"
            f"    return {self.element.result.format(**values)}\n\n\n"
            f"vector = lanes(one_of_many, {wide.count}, {types}, grouped=True)\n"
        )

    def _body(self, absolute: str, how: str) -> None:
        element, out = self.element, self.out
        for slots, expression in element.doubt:
            if element.rank == 0 or not self.fixed.issuperset(slots):
                self.emit(f"bad = bad | {_substituted(expression, slots)}")
        if "flat" in element.result:
            position = "0"
            for d, axis in enumerate(self.axes):
                here = absolute if d == self.inner else axis
                position = f"({position}) * {out}.shape[{d}] + {here}" if d else here
            self.emit(f"flat = {position}")
        result = _substituted(element.result, self.names, element.tables)
        if how == "address":
            self.emit(f"write({out}, to, {self.axes[-1]}, {result})")
        elif how:
            self.emit(f"write_at({out}, {out}_at, {self.axes[-1]} * {out}_step, {result})")
        else:
            self.emit(f"{out}[()] = {result}")


def _substituted(expression: str, names: Sequence[str], tables: Sequence[str] = ()) -> str:
    return expression.format(**{name: f"{name}_" for name in names}, **{name: name for name in tables})
