"""From packed codes to the bytes that integer instructions multiply, in registers: shared by the tiles and the unpacker.

What is multiplied is never negative: w + above, where w is the weight's integer and `above` one number for the whole
matrix. A sum of x * (w + above) is corrected by above * sum of x, which the rows of x bring with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .. import isa
from ..gemm.dot import DOTS
from ..simd import I8, I32, Emitter, vector
from . import layout

NIBBLE = 15  # the largest zero point of 4 bits
PAIRS = (0, 2, 1, 3)  # the order in which x holds each 4 values of K where instructions multiply pairs of int16


@dataclass(frozen=True)
class Codes:
    """
    level   instruction set level
    bits    of a stored code, as in layout.py
    form    plain   the codes themselves
            shifts  plus a byte for each column and block
            table   bytes of a table of 16, in every 16 bytes at the table's address
    shift   bits of a shift in memory: 8, or 4, which are a zero point below 16; the shift is then 15 less it
    """

    level: str
    bits: int
    form: str = "plain"
    shift: int = 8

    @property
    def name(self) -> str:
        return f"{self.level}_{self.bits}{self.form}{self.shift if self.form == 'shifts' else ''}"

    @property
    def places(self) -> int:
        """Values of K in a byte of each column, over the words of a unit."""
        return layout.unit(self.bits) // 4

    @property
    def words(self) -> int:
        """Vectors that a unit of one vector of columns takes."""
        return layout.words(self.bits)

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


def shifts_at(e: Emitter, address: Any, lanes: int, bits: int = 8) -> list[Any]:
    """What a block has in place of shifts, as layout.py packs it, for each vector of a panel as int32."""
    kind = vector(I32, lanes)

    def bytes_(j: int) -> Any:
        return e.b.zext(e.load(e.offset(address, lanes * j), vector(I8, lanes), 1), kind)

    if bits == 8:
        return [bytes_(j) for j in range(layout.VECTORS)]
    both = bytes_(0)
    return [e.b.and_(both, e.constant(kind, NIBBLE)), e.b.lshr(both, e.constant(kind, 4))]


def nibbles_at(e: Emitter, address: Any, lanes: int) -> Any:
    """The zero points of a block, both vectors' in each of the four bytes of int32."""
    found = e.load(address, vector(I8, lanes), 1)
    return e.b.bitcast(e.shuffle(found, [n // 4 for n in range(4 * lanes)]), vector(I32, lanes))


class Unpacking:
    """Emits the vectors of one unit. Shifts and the table are loaded by `begin` and on construction."""

    def __init__(self, e: Emitter, codes: Codes, table: Any):
        self.e, self.codes = e, codes
        self.kind = vector(I32, codes.lanes)
        self.table = e.load(table, vector(I8, 4 * codes.lanes), 1) if codes.form == "table" else None
        self.shift: list[Any] = []

    def begin(self, shifts: Any) -> None:
        """Load the shifts of a block, from the address of its first column's."""
        if self.codes.form != "shifts":
            return
        e = self.e
        ones = e.constant(self.kind, 0x01010101)
        if self.codes.shift == 4:
            both, mask = nibbles_at(e, shifts, self.codes.lanes), e.constant(self.kind, NIBBLE * 0x01010101)
            halves = both, e.b.lshr(both, e.constant(self.kind, 4))
            self.shift = [e.b.xor(e.b.and_(x, mask), mask) for x in halves]
            return
        self.shift = [e.b.mul(shift, ones) for shift in shifts_at(e, shifts, self.codes.lanes)]

    def bytes_of(self, raw: Sequence[Any], place: int, j: int) -> Any:
        """The bytes at one place of vector j of a unit, whose words are `raw`, as 32-bit lanes."""
        e = self.e
        x = self._code(raw, place)
        if self.codes.form == "table":
            return e.b.bitcast(self._looked_up(e.b.bitcast(x, self.table.type)), self.kind)
        if self.codes.form == "shifts":
            bytes_ = vector(I8, 4 * self.codes.lanes)
            return e.b.bitcast(e.b.add(e.b.bitcast(x, bytes_), e.b.bitcast(self.shift[j], bytes_)), self.kind)
        return x

    def _code(self, raw: Sequence[Any], place: int) -> Any:
        bits = self.codes.bits
        if bits == 8:
            return raw[0]
        low = layout.SPLIT.get(bits, bits)
        word, inside = divmod(place, 8 // low)
        x = self._field(raw[word], low * inside, low, 0)
        if low == bits:
            return x
        return self.e.b.or_(x, self._field(raw[-1], (bits - low) * place, bits - low, low))

    def _field(self, x: Any, at: int, bits: int, to: int) -> Any:
        """Bits at..at + bits of every byte, moved to bit `to` on."""
        e = self.e
        if at > to:
            x = e.b.lshr(x, e.constant(self.kind, at - to))
        elif at < to:
            x = e.b.shl(x, e.constant(self.kind, to - at))
        return e.b.and_(x, e.constant(self.kind, (((1 << bits) - 1) << to) * 0x01010101))

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
