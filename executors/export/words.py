"""The tables of a bound plan as LLVM text, with names where a running process has addresses."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...kernels import forge
from ...primitives.errors import Unsupported
from ...primitives.memory import address_of
from ..addresses import Addresses, without_elements
from ..program import LOCAL, Program, Row

Array = np.ndarray[Any, Any]
SLACK = 256  # bytes after a constant that code may read with its last vector


@dataclass
class Words:
    """Collects entries, tables, constants and words, each under a name that others may point to."""

    prefix: str
    constants: list[Array]
    entries: dict[str, forge.Entry] = field(default_factory=dict)
    globals: list[str] = field(default_factory=list)
    tables: dict[str, forge.Table] = field(default_factory=dict)
    patches: list[tuple[str, int, str, int]] = field(default_factory=list)
    _data: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._addresses = Addresses(self.constants)

    def program(self, program: Program) -> str:
        """Define the program's tables; returns the name of its header (kernels/dispatch.py has the layout)."""
        stages, rows, fixes = program.tables
        row_words: list[list[str]] = []
        for row, values in zip(program.rows, rows.tolist(), strict=True):
            block = self._block(row)
            row_words.append([_ref(self._entry(row.keep)), _ref(block), _ref(self._plain(row.ranges)), str(values[3])])
        fix_words = []
        for values, fix in zip(fixes.tolist(), (f for s in program.stages for f in s.fixes), strict=True):
            fix_words.append([str(values[0]), str(values[1]), _ref(self._plain(fix.displacement))])
        names = [
            self._define("stages", [str(x) for x in stages.ravel().tolist()]),
            self._define("rows", [w for words in row_words for w in words]),
            self._define("fixes", [w for words in fix_words for w in words]),
        ]
        return self._define("program", [str(len(stages)), *map(_ref, names), str(LOCAL)])

    def _block(self, row: Row) -> str:
        name = f"{self.prefix}_block{len(self.globals)}"
        values = without_elements(row.block, row.operands).tolist()
        words = [self._word(row.step, name, n, int(value)) for n, value in enumerate(values)]
        return self._define("", words, name)

    def _word(self, step: str, block: str, n: int, value: int) -> str:
        """A word as it is, or as a reference where it is the address of something."""
        place = self._addresses.place(value)
        if place is None:
            if self._addresses.is_mapped(value):
                raise Unsupported(
                    f"step {step!r} is given the address of something that belongs to this process (word {n} of its "
                    f"block); such a step cannot be exported"
                )
            return str(value)
        if place.kind == "entry":
            return _ref(self._entry(place.what))
        if place.kind == "function":
            self.patches.append((block, n, self._table(place.what), place.at))
            return "0"
        return _ref(self._constant(place.what) if place.kind == "constant" else self._table(place.what), place.at)

    def _entry(self, made: forge.Entry) -> str:
        for name, other in self.entries.items():
            if other.address == made.address:
                return name
        name = f"{self.prefix}_code{len(self.entries)}"
        self.entries[name] = made
        return name

    def _table(self, table: forge.Table) -> str:
        for name, other in self.tables.items():
            if other is table:
                return name
        self._entry(table.entry)
        name = self._define("", ["0"] * len(table.words), f"{self.prefix}_table{len(self.tables)}")
        self.tables[name] = table
        return name

    def _constant(self, array: Array) -> str:
        at = address_of(array)
        if at not in self._data:
            name = self._data[at] = f"{self.prefix}_data{len(self._data)}"
            raw = np.ascontiguousarray(array).view(np.uint8).reshape(-1)
            text = "".join(_BYTES[b] for b in raw.tolist()) + "\\00" * SLACK
            self.globals.append(f'@{name} = internal constant [{raw.size + SLACK} x i8] c"{text}", align 64')
        return self._data[at]

    def _plain(self, array: Array) -> str:
        return self._define("words", [str(x) for x in array.ravel().tolist()])

    def _define(self, what: str, words: Iterable[str], name: str = "") -> str:
        """A global of 64-bit words; it may be written, because addresses are filled in when it is loaded."""
        words = list(words) or ["0"]
        name = name or f"{self.prefix}_{what}{len(self.globals)}"
        inner = ", ".join(f"i64 {w}" for w in words)
        self.globals.append(f"@{name} = internal global [{len(words)} x i64] [{inner}], align 64")
        return name

    def layout(self, header: str, facts: Iterable[int]) -> str:
        """Define what the loader reads, under the level's name: facts, then what is to be filled in. Returns the name.

        Words: number of facts, the facts, program; number of tables, (entry, table) each; number of patches,
        (address to set, address of the value) each.
        """
        given = list(facts)
        words = [str(len(given)), *map(str, given), _ref(header), str(len(self.tables))]
        for name, table in self.tables.items():
            words += [_ref(self._entry(table.entry)), _ref(name)]
        words.append(str(len(self.patches)))
        for block, n, table_name, at in self.patches:
            words += [_ref(block, 8 * n), _ref(table_name, 8 * at)]
        inner = ", ".join(f"i64 {w}" for w in words)
        self.globals.append(f"@{self.prefix} = global [{len(words)} x i64] [{inner}], align 64")
        return self.prefix


def _ref(name: str, offset: int = 0) -> str:
    where = f"ptrtoint (ptr @{name} to i64)"
    return where if not offset else f"add (i64 {where}, i64 {offset})"


_BYTES = [chr(b) if 32 <= b < 127 and chr(b) not in '"\\' else f"\\{b:02x}" for b in range(256)]
