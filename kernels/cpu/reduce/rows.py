"""Text of tile functions that work on rows: what is reduced lies along a row, and each place that is kept has one.

An operand arrives with the kept axes first and the reduced ones last. Where a row is a run of memory it is read in
place; else up to 16 neighbouring rows at a time are copied to scratch, so that whole cache lines are used, and what
they become is copied back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ....primitives import dtypes
from ...forge import Native
from ...indexing import AXES
from ...reduce.rows import WIDTH
from ..elements import start_of
from ..scalar import scalar


def _mover(size):
    @intrinsic
    def move(typingctx, target, source):
        def codegen(context, builder, signature, args):
            kind = ir.IntType(8 * size).as_pointer()
            loaded = builder.load(builder.inttoptr(args[1], kind))
            loaded.align = 1
            builder.store(loaded, builder.inttoptr(args[0], kind)).align = 1
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), codegen

    return move


move1, move2, move4, move8 = (_mover(size) for size in (1, 2, 4, 8))


@scalar
def width_of(row_bytes):
    """How many rows are copied at once: kernels/reduce/rows.py counts their scratch the same way."""
    return min(16, max(1, WIDTH // max(row_bytes, 1)))


@dataclass(frozen=True)
class RowTile:
    """
    kept, reduced  how many axes of each sort
    source         element type of x
    along          (name, type) of operands with one element for each place of a row
    others         names of operands that the body reads as arrays, after those along a row
    numbers        names of float32 operands of one element
    full           (name, type) of outputs that are rows themselves
    places         names of outputs with one element for each row
    body           lines over `src` and n, `NAME_at` of what lies along a row, and numbers; they set what places take.
                   `spare` is the address of scratch that kernels/reduce/rows.py was asked for
    spare          bytes of it, as an expression
    prelude        module text that the body needs
    """

    kept: int
    reduced: int
    source: str
    body: Sequence[str]
    prelude: str
    along: Sequence[tuple[str, str]] = ()
    numbers: Sequence[str] = ()
    full: Sequence[tuple[str, str]] = ()
    places: Sequence[str] = ()
    others: Sequence[str] = ()
    spare: str = ""

    def native(self) -> Native:
        axes = AXES[: self.kept]
        operands = [
            "x",
            *(n for n, _ in self.along),
            *self.others,
            *self.numbers,
            *(n for n, _ in self.full),
            *self.places,
        ]
        lines = _Lines()
        lines.add(f"n = {' * '.join(f'x.shape[{self.kept + d}]' for d in range(self.reduced)) or '1'}")
        lines.add("spare = start_of(scratch)")
        for name in self.numbers:
            lines.add(f"{name} = {name}[()]")
        for name, dtype in self.along:
            self._gather_along(lines, name, _item(dtype))
        rows = [("x", self.source), *self.full]
        lines.add(f"rest = spare + ({self.spare or 0} + 63) // 64 * 64")
        for name, dtype in rows:
            lines.add(f"{name}_base = start_of({name})")
            lines.add(f"{name}_size = (n * {_item(dtype)} + 127) // 64 * 64")
        lines.add(f"in_place = {' and '.join(self._is_run(name, _item(dtype), self.kept) for name, dtype in rows)}")
        widest = " + ".join(f"{name}_size" for name, _ in rows)
        lines.add(f"width = 1 if in_place else width_of({widest})")
        for axis in axes[:-1]:
            lines.begin(f"for {axis} in range({axis}0, {axis}1):")
        last = axes[-1] if axes else ""
        if last:
            lines.begin(f"for {last}_ in range({last}0, {last}1, width):")
            lines.add(f"rows = min(width, {last}1 - {last}_)")
        else:
            lines.add("rows = 1")
        for name, _ in rows:
            lines.add(f"{name}_from = {self._address(name, last)}")
        lines.add("at = rest")
        for name, _ in rows:
            lines.add(f"{name}_spare = at")
            lines.add(f"at += width * {name}_size")
        lines.begin("if not in_place:")
        self._copy(lines, "x", self.source, last, out=False)
        lines.end()
        lines.begin("for row in range(rows):")
        if last:
            lines.add(f"{last} = {last}_ + row")
        lines.add("src = x_from if in_place else x_spare + row * x_size")
        for name, _ in self.full:
            lines.add(f"{name}_at = {name}_from if in_place else {name}_spare + row * {name}_size")
        for line in self.body:
            lines.add(line)
        for name in self.places:
            lines.add(f"{name}[{', '.join(axes) or '()'}] = {name}_value")
        lines.end()
        if self.full:
            lines.begin("if not in_place:")
            for name, dtype in self.full:
                self._copy(lines, name, dtype, last, out=True)
        arguments = ", ".join([*(f"{a}0, {a}1" for a in axes), *operands, "scratch"])
        return Native(_HEADER.format(package=__package__, prelude=self.prelude, arguments=arguments) + lines.text())

    def _is_run(self, name: str, item: int, first: int) -> str:
        """Whether the dimensions from `first` on are one run of memory."""
        tests, step = [], f"{item}"
        for d in reversed(range(first, first + self.reduced)):
            tests.append(f"({name}.shape[{d}] <= 1 or {name}.strides[{d}] == {step})")
            step += f" * {name}.shape[{d}]"
        return " and ".join(tests) or "True"

    def _address(self, name: str, last: str) -> str:
        terms = [
            f"{axis}{'_' if axis == last else ''} * {name}.strides[{d}]" for d, axis in enumerate(AXES[: self.kept])
        ]
        return " + ".join([f"{name}_base", *terms])

    def _copy(self, lines: _Lines, name: str, dtype: str, last: str, out: bool) -> None:
        """Rows to scratch, or back; neighbouring rows innermost."""
        item, step = _item(dtype), f"{name}.strides[{self.kept - 1}]" if last else "0"
        lines.add("p = 0")
        place = [f"{name}_from"]
        for d in range(self.reduced):
            lines.begin(f"for r{d} in range({name}.shape[{self.kept + d}]):")
            place.append(f"r{d} * {name}.strides[{self.kept + d}]")
        lines.add(f"near, far = {name}_spare + p * {item}, {' + '.join(place)}")
        lines.begin("for c in range(rows):")
        near, far = f"near + c * {name}_size", f"far + c * {step}"
        lines.add(f"move{item}({far}, {near})" if out else f"move{item}({near}, {far})")
        lines.end()
        lines.add("p += 1")
        for _ in range(self.reduced):
            lines.end()

    def _gather_along(self, lines: _Lines, name: str, item: int) -> None:
        """An operand along the row as a run of memory: where it lies, or copied to scratch once a tile."""
        lines.add(f"{name}_at = start_of({name})")
        lines.begin(f"if not ({self._is_run(name, item, 0)}):")
        lines.add("p = 0")
        place = [f"start_of({name})"]
        for d in range(self.reduced):
            lines.begin(f"for r{d} in range({name}.shape[{d}]):")
            place.append(f"r{d} * {name}.strides[{d}]")
        lines.add(f"move{item}(spare + p * {item}, {' + '.join(place)})")
        lines.add("p += 1")
        for _ in range(self.reduced):
            lines.end()
        lines.add(f"{name}_at = spare")
        lines.add(f"spare += (n * {item} + 127) // 64 * 64")
        lines.end()


_HEADER = """\
import numpy as np
from numba import njit
from {package}.bodies import *
from {package}.passes import one_pass
from {package}.rows import move1, move2, move4, move8, start_of, width_of
{prelude}

@njit(nogil=True, error_model="numpy")
def tile({arguments}):
"""


class _Lines:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 1

    def add(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def begin(self, text: str) -> None:
        self.add(text)
        self.depth += 1

    def end(self) -> None:
        self.depth -= 1

    def text(self) -> str:
        return "".join(f"{line}\n" for line in self.lines)


def _item(dtype: str) -> int:
    return int(dtypes.get(dtype).numpy.itemsize)


__all__ = ["RowTile", "move1", "move2", "move4", "move8", "start_of", "width_of"]
