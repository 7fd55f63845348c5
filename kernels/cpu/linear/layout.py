"""How packed weights lie in memory for the kernels of linear, and how they get there.

Weights are a row of panels of `nr` columns (rows of w); a panel is a row of records, one for each block along K:

    parameters   nr float32 each: scales first, then offsets or whatever else the format has
    shifts       nr bytes, where blocks have them: zero points, counted so that code + shift is never negative
    codes        [unit][vector][column][4 bytes]

A unit is as many consecutive values of K as one vector holds for each of its columns: byte j of a column has the codes
of k = j, j + 4, j + 8, .. of the unit, the first in the lowest bits, so that shifts and a mask give what an integer
instruction multiplies. Codes count from 0 here. What lies outside w is zero. A record is as long as its parts, and a
stream without gaps: shifts apart from it, or codes that begin on cache lines, were slower from memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import isa
from ..packing import ALIGN, SLACK, aligned

Array = np.ndarray[Any, Any]
STORED = (8, 4, 2, 1)
VECTORS = 2  # of a panel


@dataclass(frozen=True)
class Layout:
    """
    lanes    32-bit elements in a vector
    bits     of a stored code: 1, 2, 4 or 8
    depth    columns of w that share parameters
    parameters  how many float32 a block has for each column
    shifts   whether blocks have a byte for each column: a shift, or a zero point
    """

    N: int
    K: int
    lanes: int
    bits: int
    depth: int
    parameters: int = 1
    shifts: bool = False

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
        return 32 // self.bits

    @property
    def units(self) -> int:
        """Of a block, the last one filled up."""
        return -(-self.depth // self.unit)

    @property
    def header(self) -> int:
        """Bytes before the codes of a record."""
        return (4 * self.parameters + self.shifts) * self.nr

    @property
    def record(self) -> int:
        return self.header + self.units * 4 * self.nr

    @property
    def panel(self) -> int:
        """Bytes of a panel, in whole cache lines."""
        return -(-self.blocks * self.record // ALIGN) * ALIGN

    @property
    def nbytes(self) -> int:
        return self.panels * self.panel + SLACK


def stored_bits(bits: int, depth: int) -> int:
    """The width that takes the least memory in blocks of this depth, among those that hold the codes."""
    fitting = [b for b in STORED if b >= bits]
    return min(fitting, key=lambda b: -(-depth * b // 32))


def columns_of(level: isa.Level) -> int:
    return level.lanes * VECTORS


def pack(layout: Layout, codes: Array, parameters: Sequence[Array], shifts: Array | None = None) -> Array:
    """The packed weights.

    codes       uint8 (N, K), below 2**bits
    parameters  float32 (N, blocks) each
    shifts      uint8 (N, blocks)
    """
    packed = aligned(layout.nbytes)
    nr, lanes, blocks, units, unit = layout.nr, layout.lanes, layout.blocks, layout.units, layout.unit
    for panel in range(layout.panels):
        at = packed[panel * layout.panel : (panel + 1) * layout.panel]
        columns = slice(panel * nr, min((panel + 1) * nr, layout.N))
        have = columns.stop - columns.start
        records = at[: blocks * layout.record].reshape(blocks, layout.record)
        head = records[:, : 4 * nr * layout.parameters].view(np.float32)
        for n, parameter in enumerate(parameters):
            head[:, n * nr : n * nr + have] = parameter[columns].T
        if shifts is not None:
            records[:, layout.header - nr : layout.header][:, :have] = shifts[columns].T
        padded = np.zeros((nr, blocks, units * unit), np.uint8)
        whole = layout.K // layout.depth
        padded[:have, :whole, : layout.depth] = codes[columns, : whole * layout.depth].reshape(have, whole, -1)
        if whole < blocks:
            last = codes[columns, whole * layout.depth :]
            padded[:have, whole, : last.shape[1]] = last
        # column, block, unit, place in the byte, byte -> block, unit, vector, column of the vector, byte
        spread = padded.reshape(VECTORS, lanes, blocks, units, 8 // layout.bits, 4)
        body = np.zeros((VECTORS, lanes, blocks, units, 4), np.uint8)
        for place in range(8 // layout.bits):
            body |= spread[..., place, :] << np.uint8(layout.bits * place)
        records[:, layout.header :] = body.transpose(2, 3, 0, 1, 4).reshape(blocks, -1)
    return packed
