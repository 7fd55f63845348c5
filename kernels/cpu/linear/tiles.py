"""The integer micro-kernel of linear: rows of quantized x by a panel of packed weights, block after block along K.

A block's products are summed in int32, from the correction that the row brings with it; then float32 sums, which stay
in registers, take them in:

    sum = fma(f32(S), scale[n] * x_scale, sum);   with offsets then  sum = fma(offset[n], x_sum, sum)

The panel is either packed as in layout.py, and unpacked in registers for a few rows, or as Unpack left it for many.
A row of x is a row of blocks too: scale and correction, where offsets or shifts need them the scaled sum and minus the
sum, then the values. Shifts of a packed panel are added to codes, or, with very few rows, their products with the
row's sum to the sums.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from .. import isa
from ..gemm.dot import DOTS
from ..simd import F32, I8, I32, function, vector
from .codes import Codes, Unpacking, dot, shifts_at
from .loops import ARGUMENTS, Loops
from .numbers import BYTES, FACTOR, expanded, halves


def x_header(wide: bool) -> int:
    """Bytes before the values of a block of x. wide: the sums are there too."""
    return 16 if wide else 8


@dataclass(frozen=True)
class GroupTile:
    """
    rows      of x
    vectors   of the panel
    packed    whether the panel is as packed
    zeros     whether the bytes of shifts are zero points, which multiply the correction
    offset    whether blocks have offsets
    short     whether the sum of a block of x fits int16
    form      of the panel's parameters (numbers.py); shared: blocks that have their factors in common
    """

    codes: Codes
    rows: int
    vectors: int
    packed: bool = False
    zeros: bool = False
    offset: bool = False
    short: bool = False
    form: str = "f32"
    shared: int = 0

    @property
    def level(self) -> str:
        return self.codes.level

    @property
    def name(self) -> str:
        switches = {"p": self.packed, "z": self.zeros, "o": self.offset, "s": self.short}
        flags = "".join(letter for letter, on in switches.items() if on)
        return f"group_{self.codes.name}_{self.rows}x{self.vectors}{flags}_{self.form}{self.shared}"

    @property
    def chains(self) -> int:
        """Integer accumulators for each sum, so that a small tile still fills the pipeline."""
        return 2 if self.rows * self.vectors <= 4 else 1

    @property
    def high(self) -> bool:
        """Whether the upper codes of bytes are multiplied where they are, as 16 times themselves, in the second chain."""
        return self.packed and self.chains == 2 and self.codes.bits == 4 and self.codes.form != "table"

    @property
    def corrected(self) -> bool:
        """Whether shifts are a correction of the sums: with more rows, adding them to the codes is less work."""
        return self.packed and self.codes.form == "shifts" and self.chains == 2

    @property
    def wide(self) -> bool:
        return self.offset or self.codes.form == "shifts"


class _Records(Loops):
    """Goes along the records of a panel, whose parameters are in a form and may have factors."""

    lanes: int
    vectors: int
    parameters_of: int  # numbers of a block
    form: str
    shared: int

    def records(self, count: Any, b: Any, state: list[Any], body: Any) -> list[Any]:
        """body(address of a record, factors, state) for each one; returns the last state."""
        pitch = self.arg["pitch"]

        def record(factors: Any) -> Any:
            def turn(now: list[Any]) -> list[Any]:
                return [self.b.add(now[0], pitch), *body(now[0], factors, now[1:])]

            return turn

        if not self.shared:
            return self.repeat(count, [b, *state], record(None))[1:]

        def group(now: list[Any]) -> list[Any]:
            b, left, *state = now
            factors = [
                [
                    halves(self, self.offset(b, FACTOR * self.lanes * (self.vectors * p + j)), self.lanes)
                    for j in range(self.vectors)
                ]
                for p in range(self.parameters_of)
            ]
            first = self.offset(b, FACTOR * self.lanes * self.vectors * self.parameters_of)
            whole = self.i64(self.shared)
            some = self.b.select(self.b.icmp_unsigned("<", left, whole), left, whole)
            after = self.repeat(some, [first, *state], record(factors))
            return [after[0], self.b.sub(left, some), *after[1:]]

        groups = self.b.udiv(self.b.add(count, self.i64(self.shared - 1)), self.i64(self.shared))
        return self.repeat(groups, [b, count, *state], group)[2:]

    def parameters(self, record: Any, factors: Any) -> list[list[Any]]:
        """Scales and offsets of a block."""
        n, size = self.vectors, BYTES[self.form] * self.lanes
        return [
            [
                expanded(
                    self,
                    self.form,
                    self.offset(record, size * (n * p + j)),
                    self.lanes,
                    factors[p][j] if factors else None,
                )
                for j in range(n)
            ]
            for p in range(self.parameters_of)
        ]


class _Tile(_Records):
    def __init__(self, tile: GroupTile, made: Any):
        super().__init__(made, ARGUMENTS)
        self.tile, self.codes, self.level = tile, tile.codes, isa.LEVELS[tile.level]
        self.lanes, self.width = self.level.lanes, 4 * self.level.lanes
        self.ints, self.floats = vector(I32, self.lanes), vector(F32, self.lanes)
        self.size = tile.rows * tile.vectors
        self.nr = self.lanes * tile.vectors
        codes = replace(tile.codes, form="plain") if tile.corrected else tile.codes
        self.unpacking = Unpacking(self, codes, self.arg["epilogue"]) if tile.packed else None
        self.vectors, self.parameters_of = tile.vectors, 2 if tile.offset else 1
        self.form, self.shared = tile.form, tile.shared
        self.parameter_bytes = BYTES[tile.form] * self.nr * self.parameters_of
        shift = 8 if tile.zeros else tile.codes.shift if tile.packed and tile.codes.form == "shifts" else 0
        self.header = self.parameter_bytes + shift * self.nr // 8

    def build(self) -> None:
        arg, n = self.arg, self.tile.vectors
        rows = [arg["c"]]
        for _ in range(self.tile.rows - 1):
            rows.append(self.b.add(rows[-1], arg["ldc"]))
        sums = [self.load(self.offset(row, self.width * j), self.floats, 4) for row in rows for j in range(n)]

        def block(record: Any, factors: Any, now: list[Any]) -> list[Any]:
            a, *sums = now
            return [self.b.add(a, arg["stride"]), *self.block(a, record, factors, sums)]

        sums = self.records(arg["segments"], arg["b"], [arg["a"], *sums], block)[1:]
        for k, x in enumerate(sums):
            self.store(x, self.offset(rows[k // n], self.width * (k % n)), 4)
        self.b.ret_void()

    def x_rows(self, a: Any) -> list[Any]:
        rows = [a]
        for _ in range(self.tile.rows - 1):
            rows.append(self.b.add(rows[-1], self.arg["lda"]))
        return rows

    def block(self, a: Any, b: Any, factors: Any, sums: list[Any]) -> list[Any]:
        tile = self.tile
        rows = self.x_rows(a)
        # a packed panel is read in the order in which it lies, which is what the hardware's prefetch follows
        parameters = self.parameters(b, factors) if tile.packed else None
        shifts = self.offset(b, self.parameter_bytes)
        if self.unpacking is not None:
            self.unpacking.begin(shifts)
        accs = self.first(rows, shifts)
        accs += [self.constant(self.ints, 0)] * (self.size * (tile.chains - 1))
        start = self.offset(a, x_header(tile.wide)), self.offset(b, self.header)

        def unit(now: list[Any]) -> list[Any]:
            a, b, *accs = now
            return self.unit(a, b, accs)

        accs = self.repeat(self.arg["steps"], [*start, *accs], unit)[2:]
        for extra in range(1, tile.chains):
            part = accs[extra * self.size : (extra + 1) * self.size]
            if tile.high:
                part = [self.b.ashr(x, self.constant(self.ints, 4)) for x in part]
            accs[: self.size] = [self.b.add(x, y) for x, y in zip(accs[: self.size], part, strict=True)]
        return self.take_in(rows, parameters or self.parameters(b, factors), accs[: self.size], sums)

    def first(self, rows: list[Any], shifts: Any) -> list[Any]:
        """Where the integer sums start: the correction of the row."""
        n, accs = self.tile.vectors, []
        bytes_: list[Any] = []
        if self.tile.zeros or self.tile.corrected:
            bytes_ = shifts_at(self, shifts, self.lanes, 8 if self.tile.zeros else self.codes.shift)
        for row in rows:
            correction = self.splat(self.load(self.offset(row, 4), I32, 4), self.lanes)
            if self.tile.zeros:
                accs += [self.product(zero, correction) for zero in bytes_]
            elif self.tile.corrected:
                total = self.splat(self.load(self.offset(row, 12), I32, 4), self.lanes)
                made = [self.product(byte, total) for byte in bytes_]
                accs += made if self.codes.shift == 4 else [self.b.sub(correction, x) for x in made]
            else:
                accs += [correction] * n
        return accs

    def product(self, byte: Any, total: Any) -> Any:
        """byte * total; the upper halves of bytes are 0, so a product of pairs of int16 is that of the lower."""
        if not self.tile.short:
            return self.b.mul(byte, total)
        name = "vpmaddwd" if self.level.dot == "vpdpbusd" else self.level.dot
        pairs = DOTS[name] if DOTS[name].group == 2 else DOTS["plain"]
        return pairs.emit(self, self.constant(self.ints, 0), byte, total)

    def unit(self, a: Any, b: Any, accs: list[Any]) -> list[Any]:
        """The products of one unit."""
        tile, codes, n = self.tile, self.codes, self.tile.vectors
        rows = self.x_rows(a)
        words = codes.words if tile.packed else 0
        raw = [
            [self.load(self.offset(b, self.width * (n * w + j)), self.ints, 4) for w in range(words)] for j in range(n)
        ]
        step = 4 * codes.item
        for place in range(codes.places):
            if self.unpacking is not None:
                w = [self.unpacking.parts(self.bytes_of(raw[j], place, j)) for j in range(n)]
            else:
                at = place * n * codes.parts
                w = [
                    [
                        self.load(self.offset(b, self.width * (at + j * codes.parts + p)), self.ints, 4)
                        for p in range(codes.parts)
                    ]
                    for j in range(n)
                ]
            start = (place % tile.chains) * self.size
            for p in range(codes.parts):
                for i, row in enumerate(rows):
                    x = self.splat(self.load(self.offset(row, place * step + 4 * p), I32, 1), self.lanes)
                    for j in range(n):
                        k = start + i * n + j
                        accs[k] = dot(self, codes, accs[k], w[j][p], x)
        read = self.width * n * (words or codes.places * codes.parts)
        return [self.offset(a, step * codes.places), self.offset(b, read), *accs]

    def bytes_of(self, raw: list[Any], place: int, j: int) -> Any:
        assert self.unpacking is not None
        if self.tile.high and place:
            return self.b.and_(raw[0], self.constant(self.ints, -0x0F0F0F10))  # 0xF0F0F0F0
        return self.unpacking.bytes_of(raw, place, j)

    def take_in(self, rows: list[Any], parameters: list[list[Any]], accs: list[Any], sums: list[Any]) -> list[Any]:
        """Add a block's integer sums to the float32 sums."""
        n, made = self.tile.vectors, list(sums)
        scales, offsets = parameters[0], parameters[1] if self.tile.offset else []
        fma = DOTS["fma"].emit
        for i, row in enumerate(rows):
            scale = self.splat(self.load(row, F32, 4), self.lanes)
            total = self.splat(self.load(self.offset(row, 8), F32, 4), self.lanes) if offsets else None
            for j in range(n):
                k = i * n + j
                value = self.b.sitofp(accs[k], self.floats)
                made[k] = fma(self, made[k], value, self.b.fmul(scales[j], scale))
                if offsets:
                    made[k] = fma(self, made[k], offsets[j], total)
        return made


@dataclass(frozen=True)
class Unpack:
    """Takes a panel's records to what a GroupTile reads for many rows. a is the target, lda its bytes of a record."""

    codes: Codes
    vectors: int
    zeros: bool = False
    offset: bool = False
    form: str = "f32"
    shared: int = 0

    @property
    def level(self) -> str:
        return self.codes.level

    @property
    def name(self) -> str:
        flags = f"{'z' if self.zeros else ''}{'o' if self.offset else ''}"
        return f"unpack_{self.codes.name}_{self.vectors}{flags}_{self.form}{self.shared}"


class _Unpack(_Records):
    def __init__(self, unpack: Unpack, made: Any):
        super().__init__(made, ARGUMENTS)
        self.unpack, self.codes = unpack, unpack.codes
        self.lanes, self.width = unpack.codes.lanes, 4 * unpack.codes.lanes
        self.vectors, self.parameters_of = unpack.vectors, 2 if unpack.offset else 1
        self.form, self.shared = unpack.form, unpack.shared
        self.ints = vector(I32, unpack.codes.lanes)
        self.unpacking = Unpacking(self, unpack.codes, self.arg["epilogue"])

    def build(self) -> None:
        n, lanes = self.vectors, self.lanes
        head = BYTES[self.form] * lanes * n * self.parameters_of

        def block(source: Any, factors: Any, now: list[Any]) -> list[Any]:
            target = now[0]
            ahead, behind = 0, head
            for x in chain.from_iterable(self.parameters(source, factors)):
                self.store(x, self.offset(target, ahead), 4)
                ahead += self.width
            if self.unpack.zeros or self.codes.form == "shifts":
                self.unpacking.begin(self.offset(source, behind))
                behind += n * lanes * (8 if self.unpack.zeros else self.codes.shift) // 8
            if self.unpack.zeros:
                for j in range(n):
                    narrow = self.load(self.offset(source, head + lanes * j), vector(I8, lanes), 1)
                    self.store(narrow, self.offset(target, ahead + lanes * j), 1)
                ahead += n * lanes
            self.repeat(self.arg["steps"], [self.offset(target, ahead), self.offset(source, behind)], self.unit)
            return [self.b.add(target, self.arg["lda"])]

        self.records(self.arg["segments"], self.arg["b"], [self.arg["a"]], block)
        self.b.ret_void()

    def unit(self, now: list[Any]) -> list[Any]:
        target, source = now
        n, words, at = self.vectors, self.codes.words, 0
        raw = [
            [self.load(self.offset(source, self.width * (n * w + j)), self.ints, 4) for w in range(words)]
            for j in range(n)
        ]
        for place in range(self.codes.places):
            for j in range(n):
                for x in self.unpacking.parts(self.unpacking.bytes_of(raw[j], place, j)):
                    self.store(x, self.offset(target, at), 4)
                    at += self.width
        return [self.offset(target, at), self.offset(source, self.width * n * words)]


def emit(module: Any, what: GroupTile | Unpack, attributes: tuple[str, ...] = ()) -> Any:
    """The tile, or the unpacker, as an internal function of the module, made once."""
    made = module.globals.get(what.name)
    if made is None:
        made = function(module, what.name, len(ARGUMENTS), attributes)
        (_Tile(what, made) if isinstance(what, GroupTile) else _Unpack(what, made)).build()
    return made


__all__ = ["Codes", "GroupTile", "Unpack", "emit", "x_header"]
