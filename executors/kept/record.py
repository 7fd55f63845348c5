"""One laid out plan as bytes: a header of plain JSON, then the sections that it names."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ...kernels.forge import Kept
from ...kernels.machine_code import MachineCode
from ...primitives.memory import address_of
from .image import Image

Array = np.ndarray[Any, Any]
PAGE = 4096
SLACK = 256  # bytes after a constant that code may read with its last vector


@dataclass(frozen=True)
class Port:
    """An input, argument or output: its name outside, its value's name, type, stored shape, kind and base in a run."""

    name: str
    value: str
    dtype: str
    shape: tuple[int, ...]
    kind: str
    base: int
    in_place: tuple[str, ...] = ()


@dataclass(frozen=True)
class Facts:
    """What a run context needs to know (binding.Binding, bound.Bound)."""

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    externals: tuple[str, ...]
    bases: int
    arena_bytes: int
    local_bytes: int
    align: int
    parallel: bool
    cost: float


@dataclass(frozen=True)
class Record:
    """A laid out plan.

    groups   machine code, in groups that are linked at once
    tables   of functions: (number of the entry that fills it, words)
    """

    facts: Facts
    image: Image
    groups: Sequence[Sequence[Kept]]
    tables: Sequence[tuple[int, int]]
    constants: Sequence[Array]

    def dumps(self) -> bytes:
        """As bytes, to lie at a multiple of PAGE in memory; `loads` reads them."""
        sections = _Sections()
        entries = [
            [
                {"key": e.key, "function": e.code.function, "needs": e.code.needs}
                | {"source": sections.add(e.source.encode()), "object": sections.add(e.code.object)}
                for e in group
            ]
            for group in self.groups
        ]
        head = {
            "facts": asdict(self.facts),
            "steps": self.image.steps,
            "tables": self.tables,
            "shapes": self.image.shapes,
            "words": sections.add(self.image.words.tobytes(), 64),
            "marks": sections.add(self.image.marks.tobytes(), 64),
            "entries": entries,
            "constants": [sections.add(bytes(_raw(a)) + bytes(SLACK), alignment(a), a.nbytes) for a in self.constants],
        }
        text = json.dumps(head, separators=(",", ":")).encode()
        start = -(-(8 + len(text)) // PAGE) * PAGE
        return struct.pack("<II", len(text), start) + text + bytes(start - 8 - len(text)) + b"".join(sections.parts)

    @staticmethod
    def loads(content: Any) -> Record:
        """The record in a buffer, whose constants and words stay in it. Raises ValueError or KeyError, TypeError for others."""
        whole = np.frombuffer(content, np.uint8)
        length, start = struct.unpack_from("<II", content)
        head = json.loads(bytes(whole[8 : 8 + length]))

        def section(where: Sequence[int]) -> Array:
            at, nbytes = where
            found = whole[start + at : start + at + nbytes]
            if found.size != nbytes:
                raise ValueError("a section is cut off")
            return found

        image = Image(
            section(head["words"]).view(np.int64),
            section(head["marks"]).view(np.int64).reshape(-1, 4),
            tuple((int(a), int(b)) for a, b in head["shapes"]),
            tuple(head["steps"]),
        )
        groups = [
            [
                Kept(
                    bytes(section(e["source"])).decode(),
                    e["key"],
                    MachineCode(bytes(section(e["object"])), e["function"], tuple(e["needs"])),
                )
                for e in group
            ]
            for group in head["entries"]
        ]
        constants = [section(where) for where in head["constants"]]
        return Record(_facts(head["facts"]), image, groups, [(a, b) for a, b in head["tables"]], constants)


class _Sections:
    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.length = 0

    def add(self, content: bytes, align: int = 1, nbytes: int | None = None) -> tuple[int, int]:
        """Where the content comes to lie, and how much of it counts."""
        pad = -self.length % align
        self.parts += [bytes(pad), content]
        start = self.length + pad
        self.length = start + len(content)
        return start, len(content) if nbytes is None else nbytes


def alignment(array: Array) -> int:
    """What an array is aligned to, from 64 bytes to a page."""
    at = address_of(array)
    return max(64, min(at & -at, PAGE))


def _raw(array: Array) -> Array:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _facts(found: Mapping[str, Any]) -> Facts:
    def port(p: Mapping[str, Any]) -> Port:
        return Port(**{**p, "shape": tuple(p["shape"]), "in_place": tuple(p["in_place"])})

    inputs, outputs = (tuple(map(port, found[what])) for what in ("inputs", "outputs"))
    return Facts(**{**found, "inputs": inputs, "outputs": outputs, "externals": tuple(found["externals"])})
