"""How packed weights lie in memory for the kernels of linear, and how they get there.

Weights are a row of panels of `nr` columns (rows of w); a panel is a row of records, one for each block along K:

    parameters   nr numbers each, in the form of numbers.py: scales first, then offsets or whatever else the format has
    shifts       nr bytes, where blocks have them: zero points, counted so that code + shift is never negative; or half
                 as many, of zero points below 16 themselves: those of the second vector are the upper halves
    codes        [unit][word][vector][column][4 bytes]

Where the form has factors, nr float16 for each parameter come before every `shared` records.

A unit is as many consecutive values of K as whole words hold for each column: byte j of a word has the codes of
k = j, j + 4, j + 8, .. of the unit, the first in the lowest bits, so that shifts and a mask give what an integer
instruction multiplies. Codes of 3, 5 and 6 bits are words of their low 2 or 4 bits and then one of the bits above.
Codes count from 0 here. What lies outside w is zero. A record is as long as its parts, and a stream without gaps:
shifts apart from it, or codes that begin on cache lines, were slower from memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import isa
from ..gemm.packing import ALIGN, SLACK, aligned
from .numbers import BYTES, FACTOR, Numbers

Array = np.ndarray[Any, Any]
STORED = (8, 4, 2, 1)
SPLIT = {6: 4, 5: 4, 3: 2}  # bits of a code: how many of them lie in words of low bits
VECTORS = 2  # of a panel


@dataclass(frozen=True)
class Layout:
    """
    lanes    32-bit elements in a vector
    bits     of a stored code: one of STORED or SPLIT
    depth    columns of w that share parameters
    parameters  how many numbers a block has for each column
    shifts   bits that blocks have for each column: 8 for a shift, 4 or 8 for a zero point, or 0
    form     of the parameters (numbers.BYTES)
    shared   blocks that share factors, where the form has them
    """

    N: int
    K: int
    lanes: int
    bits: int
    depth: int
    parameters: int = 1
    shifts: int = 0
    form: str = "f32"
    shared: int = 0

    @property
    def nr(self) -> int:
        """Columns of a panel."""
        return self.lanes * VECTORS

    @property
    def panels(self) -> int:
        return -(-self.N // self.nr)

    @property
    def blocks(self) -> int:
        """Blocks along K; at least one, so that K = 0 is a sum of zeros and not a special case."""
        return max(1, -(-self.K // self.depth))

    @property
    def unit(self) -> int:
        """Values of K in a unit."""
        return unit(self.bits)

    @property
    def words(self) -> int:
        """32-bit words of a unit for each column."""
        return words(self.bits)

    @property
    def units(self) -> int:
        """Of a block, the last one filled up."""
        return -(-self.depth // self.unit)

    @property
    def header(self) -> int:
        """Bytes before the codes of a record."""
        return BYTES[self.form] * self.parameters * self.nr + self.shift_bytes

    @property
    def shift_bytes(self) -> int:
        """Of a block."""
        return self.shifts * self.nr // 8

    @property
    def record(self) -> int:
        return self.header + self.units * self.words * 4 * self.nr

    @property
    def factors(self) -> int:
        """Bytes of the factors before `shared` records."""
        return FACTOR * self.parameters * self.nr if self.shared else 0

    @property
    def groups(self) -> int:
        """Of records that share factors."""
        return -(-self.blocks // self.shared) if self.shared else 1

    @property
    def stream(self) -> int:
        """Bytes of a panel's records and factors."""
        return self.groups * self.factors + self.blocks * self.record

    @property
    def panel(self) -> int:
        """Bytes of a panel, in whole cache lines."""
        return -(-self.stream // ALIGN) * ALIGN

    @property
    def nbytes(self) -> int:
        return self.panels * self.panel + SLACK


def unit(bits: int) -> int:
    """Values of K in a unit of codes."""
    return 32 // (bits - SPLIT.get(bits, 0))


def words(bits: int) -> int:
    """32-bit words of a unit."""
    return unit(bits) * bits // 32


def stored_bits(bits: int, depth: int, split: bool = False) -> int:
    """The width that takes the least memory in blocks of this depth, among those that hold the codes.

    split  whether codes may lie in two parts
    """
    fitting = [b for b in (*STORED, *(SPLIT if split else ())) if b >= bits]
    return min(fitting, key=lambda b: -(-depth // unit(b)) * words(b))


def columns_of(level: isa.Level) -> int:
    return level.lanes * VECTORS


def pack(layout: Layout, codes: Array, parameters: Numbers, shifts: Array | None = None) -> Array:
    """The packed weights.

    codes       uint8 (N, K), below 2**bits
    parameters  of (N, blocks) each
    shifts      uint8 (N, blocks)
    """
    packed = aligned(layout.nbytes)
    nr, blocks, record, header = layout.nr, layout.blocks, layout.record, layout.header
    for panel in range(layout.panels):
        at = packed[panel * layout.panel : (panel + 1) * layout.panel]
        columns = slice(panel * nr, min((panel + 1) * nr, layout.N))
        have = columns.stop - columns.start
        records = np.zeros((layout.groups * (layout.shared or blocks), record), np.uint8)
        head = records[:, : header - layout.shift_bytes].view(parameters.values[0].dtype)
        for n, values in enumerate(parameters.values):
            head[:blocks, n * nr : n * nr + have] = values[columns].T
        if shifts is not None:
            records[:blocks, header - layout.shift_bytes : header] = _shifts(layout, shifts[columns].T)
        padded = np.zeros((nr, blocks, layout.units * layout.unit), np.uint8)
        whole = layout.K // layout.depth
        padded[:have, :whole, : layout.depth] = codes[columns, : whole * layout.depth].reshape(have, whole, -1)
        if whole < blocks:
            last = codes[columns, whole * layout.depth :]
            padded[:have, whole, : last.shape[1]] = last
        records[:blocks, header:] = _words(layout, padded)
        factors = np.zeros((layout.groups, layout.factors // FACTOR), np.float16)
        for n, factor in enumerate(parameters.factors):
            factors[:, n * nr : n * nr + have] = factor[columns].T
        stream = np.concatenate([factors.view(np.uint8), records.reshape(layout.groups, -1)], axis=1).reshape(-1)
        at[: layout.stream] = stream[: layout.stream]
    return packed


def _shifts(layout: Layout, shifts: Array) -> Array:
    """Shifts (blocks, up to nr) as the bytes of records."""
    whole = np.pad(shifts, ((0, 0), (0, layout.nr - shifts.shape[1])))
    return whole if layout.shifts == 8 else whole[:, : layout.lanes] | whole[:, layout.lanes :] << np.uint8(4)


def _words(layout: Layout, codes: Array) -> Array:
    """Codes (nr, blocks, units of a block) as the words of records: uint8 (blocks, bytes)."""
    lanes, blocks, units = layout.lanes, layout.blocks, layout.units
    low = SPLIT.get(layout.bits, layout.bits)
    # column, block, unit, place in the unit, byte
    spread = codes.reshape(VECTORS, lanes, blocks, units, layout.unit // 4, 4)
    body = np.zeros((layout.words, VECTORS, lanes, blocks, units, 4), np.uint8)
    per_byte = 8 // low
    for place in range(layout.unit // 4):
        code = spread[..., place, :]
        body[place // per_byte] |= (code & np.uint8((1 << low) - 1)) << np.uint8(low * (place % per_byte))
        if low < layout.bits:
            body[-1] |= (code >> np.uint8(low)) << np.uint8((layout.bits - low) * place)
    return body.transpose(3, 4, 0, 1, 2, 5).reshape(blocks, -1)
