"""From packed codes to the bytes that integer instructions multiply, in registers: shared by the tiles and the unpacker.

What is multiplied is never negative: w + above, where w is the weight's integer and `above` one number for the whole
matrix. A sum of x * (w + above) is corrected by above * sum of x, which the rows of x bring with them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .. import isa
from ..dot import DOTS
from ..simd import I8, I32, Emitter, vector

PAIRS = (0, 2, 1, 3)  # the order in which x holds each 4 values of K where instructions multiply pairs of int16


@dataclass(frozen=True)
class Codes:
    """
    level   instruction set level
    bits    of a stored code
    form    plain   the codes themselves
            shifts  plus a byte for each column and block
            table   bytes of a table of 16, in every 16 bytes at the table's address
    """

    level: str
    bits: int
    form: str = "plain"

    @property
    def name(self) -> str:
        return f"{self.level}_{self.bits}{self.form}"

    @property
    def places(self) -> int:
        """Codes in a byte."""
        return 8 // self.bits

    @property
    def lanes(self) -> int:
        return isa.LEVELS[self.level].lanes

    @property
    def bytewise(self) -> bool:
        """Whether an instruction multiplies unsigned by signed bytes."""
        return isa.LEVELS[self.level].dot in ("vpdpbusd", "usdot")

    @property
    def item(self) -> int:
        """Bytes of a value of x, and of a weight when it is multiplied."""
        return 1 if self.bytewise else 2

    @property
    def parts(self) -> int:
        """Vectors that one place of a vector of codes becomes."""
        return 1 if self.bytewise else 2

    @property
    def dot(self) -> Any:
        name = isa.LEVELS[self.level].dot
        return DOTS[name] if self.bytewise or DOTS[name].group == 2 else DOTS["plain"]


def shuffles_bytes(level: isa.Level) -> bool:
    """Whether the level looks bytes up in registers."""
    return level.arch == "x86_64" and level.vector_bytes >= 32


class Unpacking:
    """Emits the vectors of one unit. Shifts and the table are loaded by `begin` and on construction."""

    def __init__(self, e: Emitter, codes: Codes, table: Any):
        self.e, self.codes = e, codes
        self.kind = vector(I32, codes.lanes)
        self.table = e.load(table, vector(I8, 4 * codes.lanes), 1) if codes.form == "table" else None
        self.shift: list[Any] = []

    def begin(self, shifts: Any, vectors: int) -> None:
        """Load the shifts of a block, from the address of its first column's."""
        if self.codes.form != "shifts":
            return
        e, lanes = self.e, self.codes.lanes
        ones = e.constant(self.kind, 0x01010101)
        narrow = vector(I8, lanes)
        self.shift = [
            e.b.mul(e.b.zext(e.load(e.offset(shifts, lanes * j), narrow, 1), self.kind), ones) for j in range(vectors)
        ]

    def bytes_of(self, raw: Any, place: int, j: int) -> Any:
        """The bytes at one place of vector j of a unit, as 32-bit lanes."""
        e, bits = self.e, self.codes.bits
        x = raw
        if bits < 8:
            if place:
                x = e.b.lshr(x, e.constant(self.kind, bits * place))
            x = e.b.and_(x, e.constant(self.kind, ((1 << bits) - 1) * 0x01010101))
        if self.codes.form == "table":
            return e.b.bitcast(self._looked_up(e.b.bitcast(x, self.table.type)), self.kind)
        if self.codes.form == "shifts":
            bytes_ = vector(I8, 4 * self.codes.lanes)
            return e.b.bitcast(e.b.add(e.b.bitcast(x, bytes_), e.b.bitcast(self.shift[j], bytes_)), self.kind)
        return x

    def parts(self, x: Any) -> list[Any]:
        """Bytes as the operands of the instruction: themselves, or as int16 in the order PAIRS."""
        if self.codes.bytewise:
            return [x]
        e = self.e
        even = e.constant(self.kind, 0x00FF00FF)
        return [e.b.and_(x, even), e.b.and_(e.b.lshr(x, e.constant(self.kind, 8)), even)]

    def _looked_up(self, indices: Any) -> Any:
        name = {64: "llvm.x86.avx512.pshuf.b.512", 32: "llvm.x86.avx2.pshuf.b"}[indices.type.count]
        return self.e.call(name, indices.type, self.table, indices)


def dot(e: Emitter, codes: Codes, acc: Any, w: Any, x: Any) -> Any:
    """acc + products of unsigned weights and signed x; both as 32-bit lanes."""
    return codes.dot.emit(e, acc, w, x)
