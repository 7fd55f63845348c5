"""What the words of a laid out program point to: entries, their tables of functions, constants."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..kernels import forge
from ..primitives.memory import address_of

Array = np.ndarray[Any, Any]
LEAST = 2**16  # nothing lies below


@dataclass(frozen=True)
class Place:
    """What is at an address.

    kind   "entry", "function" (the value of word `at` of a table), "constant" or "table" (the address of byte `at`)
    """

    kind: str
    what: Any
    at: int = 0


class Addresses:
    """Places of this process that a program may know: every entry and table of the forge, and the plan's constants."""

    def __init__(self, constants: Sequence[Array]) -> None:
        self._entries, self._tables = forge.known()
        self._functions = {int(w): (table, n) for table in self._tables for n, w in enumerate(table.words.tolist())}
        self._constants = sorted((a for a in constants if a.nbytes), key=address_of)
        self._starts = [address_of(a) for a in self._constants]

    def place(self, value: int) -> Place | None:
        """What lies at this address; None for a number, or for what somebody else owns (`is_mapped`)."""
        if value < LEAST:
            return None
        if value in self._entries:
            return Place("entry", self._entries[value])
        if value in self._functions:
            return Place("function", *self._functions[value])
        n = bisect.bisect_right(self._starts, value) - 1
        if n >= 0 and value < self._starts[n] + self._constants[n].nbytes:
            return Place("constant", self._constants[n], value - self._starts[n])
        for table in self._tables:
            start = address_of(table.words)
            if start - forge.BEFORE <= value < start + table.words.nbytes:
                return Place("table", table, value - start)
        return None

    def is_mapped(self, value: int) -> bool:
        """Whether a word that is no place of ours lies in memory of this process."""
        return value >= LEAST and any(lo <= value < hi for lo, hi in self._mapped)

    @cached_property
    def _mapped(self) -> list[tuple[int, int]]:
        """The address ranges that this process uses; where the system does not tell, everything that looks like one."""
        try:
            with open("/proc/self/maps", encoding="ascii", errors="replace") as file:
                spans = [line.split()[0].split("-") for line in file]
            return [(int(lo, 16), int(hi, 16)) for lo, hi in spans]
        except OSError:
            return [(2**32, 2**47)]


def without_elements(block: Array, operands: Sequence[tuple[int, int]]) -> Array:
    """A row's block, in which an operand without elements lies nowhere."""
    words = block.copy()
    for at, ndim in operands:
        if 0 in words[at + 2 : at + 2 + ndim]:
            words[at : at + 2] = 0
    return words
