"""A program's tables in one piece: words, and where among them addresses of this process go.

The words hold the tables of kernels/dispatch.py, then the blocks, ranges and displacements that those point to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...kernels import forge
from ...primitives.memory import address_of
from ..addresses import Addresses, without_elements
from ..program import ZERO, Program, Row

Array = np.ndarray[Any, Any]
# What a word that is an address counts from: the words themselves, an entry, word `at` of a table (its value), a table, a
# constant.
WORDS, ENTRY, FUNCTION, TABLE, CONSTANT = range(5)
_KINDS = {"entry": ENTRY, "function": FUNCTION, "table": TABLE, "constant": CONSTANT}
LOWEST = 2**32  # a parameter below may be a number that only looks like an address
WORD = 8


class CannotKeep(Exception):
    """The program holds an address that means nothing in another process."""


@dataclass(frozen=True)
class Image:
    """The tables of a program.

    words   int64 (n,)
    marks   int64 (m, 4): a word's index, what it counts from, which of these, and bytes beyond its start (FUNCTION: words)
    shapes  (rows, words) of the tables of stages, rows and fixes, with which the words begin
    steps   the step of each row
    """

    words: Array
    marks: Array
    shapes: tuple[tuple[int, int], ...]
    steps: tuple[str, ...]

    def program(self, entries: Sequence[int], tables: Sequence[forge.Table], constants: Sequence[int]) -> Program:
        """The program in this process, where entries and constants have these addresses."""
        words = np.array(self.words)
        at = np.array([address_of(words), *entries, *(address_of(t.words) for t in tables), *constants], np.int64)
        begin = {WORDS: 0, ENTRY: 1, TABLE: 1 + len(entries), CONSTANT: 1 + len(entries) + len(tables)}
        for kind, first in begin.items():
            index, _, which, beyond = self.marks[self.marks[:, 1] == kind].T
            words[index] = at[first + which] + beyond
        for index, _, which, n in self.marks[self.marks[:, 1] == FUNCTION].tolist():
            words[index] = tables[which].words[n]
        parts, start = [], 0
        for count, width in self.shapes:
            parts.append(words[start : start + count * width].reshape(count, width))
            start += count * width
        stages, rows, fixes = parts
        return Program.of_tables(stages, rows, fixes, self.steps)


@dataclass
class Taking:
    """Takes a program apart; what its addresses stood for is in `entries`, `tables` and `constants` then."""

    addresses: Addresses
    entries: list[forge.Entry] = field(default_factory=list)
    tables: list[forge.Table] = field(default_factory=list)
    constants: list[Array] = field(default_factory=list)
    _parts: list[Array] = field(default_factory=list)
    _length: int = 0
    _marks: list[tuple[int, int, int, int]] = field(default_factory=list)
    _placed: dict[int, int] = field(default_factory=dict)

    def take(self, program: Program) -> Image:
        """The image of a program. Raises CannotKeep where it points to what is nobody's but this process's."""
        tables = [np.array(table) for table in program.tables]
        starts = [self._append(table) for table in tables]
        for n, row in enumerate(program.rows):
            at = starts[1] + n * tables[1].shape[1]
            self._mark(at, ENTRY, self._which(self.entries, row.keep), 0)
            self._mark(at + 1, WORDS, 0, WORD * self._block(row))
            self._mark(at + 2, WORDS, 0, WORD * self._plain(row.ranges))
        fixes = [fix for stage in program.stages for fix in stage.fixes]
        for n, fix in enumerate(fixes):
            self._mark(starts[2] + n * tables[2].shape[1] + 2, WORDS, 0, WORD * self._plain(fix.displacement))
        words = np.concatenate([part.ravel() for part in self._parts]) if self._length else np.zeros(0, np.int64)
        for index, *_ in self._marks:
            words[index] = 0
        marks = np.array(self._marks, np.int64).reshape(-1, 4)
        shapes = tuple((table.shape[0], table.shape[1]) for table in tables)
        return Image(words, marks, shapes, tuple(program.steps))

    def _block(self, row: Row) -> int:
        block = without_elements(row.block, row.operands)
        start = self._append(block)
        plain = set()
        for (at, ndim), given in zip(row.operands, row.given, strict=True):
            plain |= set(range(at, at + 2 + 2 * ndim))
            if block[at] == ZERO and block[at + 1]:
                self._operand(start + at + 1, int(block[at + 1]), given, row.step)
        for n in set(range(len(block))) - plain:
            value = int(block[n])
            if self.addresses.place(value) is not None or self.addresses.is_mapped(value):
                self._address(start + n, value, row.step)
        return start

    def _operand(self, index: int, value: int, given: Array | None, step: str) -> None:
        """A constant of the plan, or an array that the step made as it was laid out: its words may be addresses again."""
        made = self.addresses.place(value) is None and given is not None and address_of(given) == value
        if not made:
            self._address(index, value, step)
            return
        assert given is not None
        if given.dtype != np.int64:
            self._mark(index, CONSTANT, self._which(self.constants, given), 0)
            return
        known = id(given) in self._placed
        start = self._plain(given)
        self._mark(index, WORDS, 0, WORD * start)
        for n, word in enumerate([] if known else given.ravel().tolist()):
            if self.addresses.place(word) is not None or self.addresses.is_mapped(word):
                self._address(start + n, word, step)

    def _address(self, index: int, value: int, step: str) -> None:
        place = self.addresses.place(value)
        if place is None or value < LOWEST:
            raise CannotKeep(f"step {step!r} points to {value:#x}, which is nothing that can be kept")
        which: dict[int, list[Any]] = {
            ENTRY: self.entries,
            FUNCTION: self.tables,
            TABLE: self.tables,
            CONSTANT: self.constants,
        }
        kind = _KINDS[place.kind]
        self._mark(index, kind, self._which(which[kind], place.what), place.at)

    @staticmethod
    def _which(known: list[Any], one: Any) -> int:
        for n, other in enumerate(known):
            if other is one:
                return n
        known.append(one)
        return len(known) - 1

    def _mark(self, index: int, kind: int, which: int, beyond: int) -> None:
        self._marks.append((index, kind, which, beyond))

    def _plain(self, array: Array) -> int:
        """Where a table of numbers begins, each of which is kept once."""
        if not array.flags.c_contiguous:
            raise CannotKeep("a table of ranges is not contiguous")
        if id(array) not in self._placed:
            self._placed[id(array)] = self._append(array)
        return self._placed[id(array)]

    def _append(self, array: Array) -> int:
        self._parts.append(np.ascontiguousarray(array, np.int64))
        self._length += array.size
        return self._length - array.size
