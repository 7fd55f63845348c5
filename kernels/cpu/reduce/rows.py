"""Text of tile functions that work on rows: what is reduced lies along a row, and each place that is kept has one.

An operand arrives with the kept axes first and the reduced ones last. Where a row is a run of memory it is read in
place; else up to 16 neighbouring rows at a time are copied to scratch, so that whole cache lines are used, and what
they become is copied back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ....primitives import dtypes
from ...factory import WithParams
from ...forge import Native
from ...indexing import AXES
from ..elements import place, start_of
from ..stores import LEAST_ROW, MOST_ROW, streams
from .columns import COLUMNS, LEAST


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
    columns        lines over `total` that set the place, after the prelude's `fold_down` (columns.py) has folded a column;
                   then rows that lie side by side in memory are folded there
    together       the body is run once for `rows` neighbouring rows, at most 16, with `x_step` and `NAME_step` bytes from
                   one to the next; it stores places itself, at `NAME_at`. If the result may be streamed, `ahead` bytes
                   on are the next rows, 0 where they need not be asked for
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
    columns: Sequence[str] = ()
    together: bool = False

    def streamed(self) -> WithParams:
        """The tile of one result of rows, which may be streamed: whether it is comes after its operands."""
        ((name, _),) = self.full
        at = self._operands().index(name)
        return WithParams(self._native(past=True), lambda *given: (streams(given[at], given),))

    def native(self) -> Native:
        return self._native(past=False)

    def _operands(self) -> list[str]:
        full = [n for n, _ in self.full]
        return ["x", *(n for n, _ in self.along), *self.others, *self.numbers, *full, *self.places]

    def _native(self, past: bool) -> Native:
        axes = AXES[: self.kept]
        lines = _Lines()
        lines.add("n = elements_of_row(x)")
        lines.add("spare = start_of(scratch)")
        for name in self.numbers:
            lines.add(f"{name} = {name}[()]")
        for name, dtype in self.along:
            self._gather_along(lines, name, _item(dtype))
        rows = [("x", self.source), *self.full]
        lines.add(f"rest = spare + ({self.spare or 0} + 63) // 64 * 64")
        for name, dtype in rows:
            lines.add(f"{name}_size = (n * {_item(dtype)} + 127) // 64 * 64")
        lines.add(f"in_place = {' and '.join(f'rows_run({name})' for name, _ in rows)}")
        if past:
            nbytes = f"n * {_item(self.full[0][1])}"
            lines.add(f"streaming = past != 0 and in_place and {LEAST_ROW} <= {nbytes} <= {MOST_ROW}")
            lines.add("buffer = piece_buffer()")
        widest = " + ".join(f"{name}_size" for name, _ in rows)
        lines.add(f"width = {'together(n)' if self.together else '1'} if in_place else width_of({widest})")
        down = bool(self.columns) and self.kept > 0
        if down:
            last_kept = self.kept - 1
            item = _item(self.source)
            lines.add(f"down = not in_place and x.strides[{last_kept}] == {item} and x.shape[{last_kept}] >= {LEAST}")
            lines.begin("if down:")
            lines.add(f"width = {COLUMNS}")
            lines.end()
        for axis in axes[:-1]:
            lines.begin(f"for {axis} in range({axis}0, {axis}1):")
        last = axes[-1] if axes else ""
        if last:
            lines.begin(f"for {last}_ in range({last}0, {last}1, width):")
            lines.add(f"rows = min(width, {last}1 - {last}_)")
        else:
            lines.add("rows = 1")
        indices = "".join(f"{axis}_, " if axis == last else f"{axis}, " for axis in axes)
        if down:
            lines.begin("if down:")
            lines.add(f"totals = fold_down(x, place(x, ({indices})), rows)")
            lines.begin("for row in range(rows):")
            lines.add("total = get_f32(totals, row)")
            for line in self.columns:
                lines.add(line)
            for name in self.places:
                lines.add(f"{name}[{''.join(f'{axis}, ' for axis in axes[:-1])}{last}_ + row] = {name}_value")
            lines.end()
            lines.add("continue")
            lines.end()
        lines.add("at = rest")
        for name, _ in rows:
            lines.add(f"{name}_at = {name}_from = place({name}, ({indices}))")
            lines.add(f"{name}_step = {name}_far = {f'{name}.strides[{self.kept - 1}]' if last else '0'}")
        lines.begin("if not in_place:")
        for name, _ in rows:
            lines.add(f"{name}_at, {name}_step = at, {name}_size")
            lines.add(f"at += width * {name}_size")
        lines.add("gather_rows(x, x_at, x_step, x_from, x_far, rows)")
        lines.end()
        for name, _ in rows:
            lines.add(f"{name}_first = {name}_at")
        self._body(lines, indices, last, axes, past)
        if self.full:
            lines.begin("if not in_place:")
            for name, _ in self.full:
                lines.add(f"scatter_rows({name}, {name}_first, {name}_step, {name}_from, {name}_far, rows)")
            lines.end()
        lines.depth = 1
        if past:
            lines.begin("if streaming:")
            lines.add("streamed()")
        arguments = [*(f"{a}0, {a}1" for a in axes), *self._operands(), "scratch", *(["past"] if past else [])]
        return Native(
            _HEADER.format(package=__package__, prelude=self.prelude, arguments=", ".join(arguments), kept=self.kept)
            + lines.text(),
            joined=True,
        )

    def _body(self, lines: _Lines, indices: str, last: str, axes: str, past: bool) -> None:
        if self.together:
            for name in self.places:
                lines.add(f"{name}_at = place({name}, ({indices}))")
                lines.add(f"{name}_step = {f'{name}.strides[{self.kept - 1}]' if last else '0'}")
            name, dtype = self.full[0]
            nbytes = f"rows * n * {_item(dtype)}"
            if past:
                lines.add("ahead = rows * x_step if past and in_place else 0")
                lines.add(f"whole = streaming and {nbytes} <= {MOST_ROW} and {name}_step == n * {_item(dtype)}")
                lines.add(f"target, {name}_at = {name}_at, buffer if whole else {name}_at")
            for line in self.body:
                lines.add(line)
            if past:
                lines.begin("if whole:")
                lines.add(f"stream(target, buffer, {nbytes})")
                lines.end()
            return
        lines.begin("for row in range(rows):")
        if last:
            lines.add(f"{last} = {last}_ + row")
        lines.add("src = x_first + row * x_step")
        for name, _ in self.full:
            lines.add(f"{name}_at = {name}_first + row * {name}_step")
        if past:
            name, dtype = self.full[0]
            lines.add(f"target = {name}_at")
            lines.begin("if streaming:")
            lines.add(f"{name}_at = buffer")
            lines.end()
        for line in self.body:
            lines.add(line)
        if past:
            lines.begin("if streaming:")
            lines.add(f"stream(target, buffer, n * {_item(dtype)})")
            lines.end()
        for name in self.places:
            lines.add(f"{name}[{', '.join(axes) or '()'}] = {name}_value")
        lines.end()

    @staticmethod
    def _gather_along(lines: _Lines, name: str, item: int) -> None:
        """An operand along the row as a run of memory: where it lies, or copied to scratch once a tile."""
        lines.add(f"{name}_at = start_of({name})")
        lines.begin(f"if not is_run({name}):")
        lines.add(f"gather({name}, spare, 0, {name}_at, 0, 1)")
        lines.add(f"{name}_at = spare")
        lines.add(f"spare += (n * {item} + 127) // 64 * 64")
        lines.end()


_HEADER = """\
import numpy as np
from numba import njit
from {package}.bodies import *
from {package}.passes import one_pass
from {package}.moves import are_runs, elements_of, mover, together, width_of
from {package}.rows import place, start_of
from tilework.kernels.cpu.simd import get_f32
from tilework.kernels.cpu.stores import piece_buffer, stream, streamed
{prelude}

elements_of_row, rows_run, is_run = elements_of({kept}), are_runs({kept}), are_runs(0)
gather_rows, scatter_rows, gather = mover({kept}, False), mover({kept}, True), mover(0, False)

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


__all__ = ["RowTile", "place", "start_of"]
