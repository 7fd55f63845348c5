"""Which integers a format's codes become for the integer path, and what corrects their sums."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ....primitives.errors import Unsupported
from ...linear import CodeFormat
from ...reference.linear import levels, spread, unpack_bytes
from .. import isa
from . import layout, numbers
from .codes import NIBBLE, Codes, shuffles_bytes

Array = np.ndarray[Any, Any]
TABLE_BYTES = 64


@dataclass(frozen=True)
class Stored:
    """Weights as the kernels read them (codes.py): w = stored integer - above.

    zeros   whether the bytes of shifts are zero points; above is then 1, the factor of their product
    """

    codes: Codes
    layout: layout.Layout
    packed: Array
    above: int
    zeros: bool
    table: Array


def store(level: isa.Level, fmt: CodeFormat, K: int, codes: Array, *parameters: Array) -> Stored:
    """Pack constant weights. parameters: the slots of the format, then the table."""
    q = unpack_bytes(codes, fmt, K)
    N, depth = len(q), fmt.depth(K)
    if fmt.signed:
        q = q ^ np.uint8(1 << (fmt.bits - 1))  # counted from the least code
    count = len(fmt.parameters)
    blocks = [spread(p, fmt, N, K) for p in parameters[:count]]
    kept, shifts, shift = [blocks[0]], None, 8
    bits, form, above, zeros = layout.stored_bits(fmt.bits, depth, split=True), "plain", -fmt.lowest, False
    table = np.zeros(TABLE_BYTES, np.uint8)
    if fmt.kind == "offset":
        kept.append(blocks[1])
    elif fmt.zero_point:
        form, above, zeros, shifts, shift = _zero_points(fmt, blocks[1].astype(np.int64) - fmt.lowest)
    elif fmt.kind == "table":
        whole, factor, _ = levels(parameters[count])
        if fmt.signed:
            whole = np.roll(whole, len(whole) // 2)
        above = max(0, -int(whole.min()))
        kept[0] = kept[0] * factor
        entries = (whole + above).astype(np.uint8)
        if fmt.bits <= 4 and bits <= 4 and shuffles_bytes(level):
            form = "table"
            table = np.tile(np.resize(entries, 16), TABLE_BYTES // 16)
        else:
            q, bits = entries[q], 8
    small = numbers.kept(kept)
    made = layout.Layout(
        N, K, level.lanes, bits, depth, len(kept), 0 if shifts is None else shift, small.form, small.shared
    )
    packed = layout.pack(made, q, small, shifts)
    return Stored(Codes(level.name, bits, form, shift), made, packed, above, zeros, table)


def _zero_points(fmt: CodeFormat, zero: Array) -> tuple[str, int, bool, Array | None, int]:
    """Form, above, zeros, shifts and their bits for zero points that are counted from the least code."""
    low, high = (int(zero.min()), int(zero.max())) if zero.size else (0, 0)
    if low == high:
        return "plain", low, False, None, 8
    if low >= 0 and high <= NIBBLE and fmt.bits < 8:
        return "shifts", NIBBLE, False, zero.astype(np.uint8), 4
    if (1 << fmt.bits) - 1 + high - low <= 255:
        return "shifts", high, False, (high - zero).astype(np.uint8), 8
    if low >= 0 and high <= 255:
        return "plain", 1, True, zero.astype(np.uint8), 8
    raise Unsupported(
        f"linear: zero points from {low + fmt.lowest} to {high + fmt.lowest} with codes of {fmt.bits} bits; with "
        f"compute='int8' they may be {256 - (1 << fmt.bits)} apart, or lie between {fmt.lowest} and {fmt.lowest + 255}; "
        f"compute='f32' takes any"
    )
