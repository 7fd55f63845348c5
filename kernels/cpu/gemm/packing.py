"""How B is laid out for the micro-kernels, and what is known about its columns before any A is seen.

Packed B is a row of panels, each `nr` columns wide but the last, which is as many vectors as the rest of N needs. A
panel is [step][column][4 bytes]: the `group` consecutive values of K that one instruction multiplies. What lies
outside B is zero. B's bytes are signed here; u8 is stored with its top bit inverted, and its zero point moves by 128.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..epilogues.epilogue import CONSTANTS, CONSTANTS_SIZE
from .dot import DOTS

Array = np.ndarray[Any, Any]
ALIGN = 64
SLACK = 4096  # bytes after packed B that may be prefetched


@dataclass(frozen=True)
class PanelLayout:
    """Where the panels of a (K, N) operand lie.

    lanes    32-bit elements in a vector
    vectors  vectors in a full panel
    group    consecutive values of K in 4 bytes: 4, 2 where they have 2 bytes or are widened to int16, 1 for float32
    """

    K: int
    N: int
    lanes: int
    vectors: int
    group: int

    @property
    def nr(self) -> int:
        """Columns of a full panel."""
        return self.lanes * self.vectors

    @property
    def steps(self) -> int:
        """Groups along K; at least one, so that K = 0 is a sum of zeros and not a special case."""
        return max(1, -(-self.K // self.group))

    @property
    def full(self) -> int:
        """How many full panels there are."""
        return self.N // self.nr

    @property
    def rest(self) -> int:
        """Columns that are left for the last panel; 0 if there is none."""
        return self.N % self.nr

    @property
    def rest_vectors(self) -> int:
        return -(-self.rest // self.lanes)

    @property
    def columns(self) -> int:
        """Columns that are stored, padding included."""
        return self.full * self.nr + self.rest_vectors * self.lanes

    @property
    def nbytes(self) -> int:
        return 4 * self.steps * self.columns + SLACK


def aligned(nbytes: int) -> Array:
    """Zeroed bytes that begin on a cache line."""
    raw = np.zeros(nbytes + ALIGN, np.uint8)
    start = -raw.ctypes.data % ALIGN
    return raw[start : start + nbytes]


def pack(b: Array, layout: PanelLayout) -> Array:
    """Pack a constant (K, N) operand, any strides: u8 or s8, s16 or bf16 in pairs, or what becomes float32."""
    if layout.group == 1:
        b = b.astype(np.float32, copy=False)
    elif b.dtype.itemsize == 2:
        b = b.view(np.int16)
    if b.dtype == np.uint8 and layout.group == 4:
        b = (b ^ np.uint8(0x80)).view(np.int8)
    element = {1: np.float32, 2: np.int16, 4: np.int8}[layout.group]
    packed = aligned(layout.nbytes)
    values = packed[: 4 * layout.steps * layout.columns].view(element)
    group, steps, whole = layout.group, layout.steps, layout.K // layout.group
    for first in range(0, layout.N, layout.nr):
        width = layout.nr if first + layout.nr <= layout.N else layout.rest_vectors * layout.lanes
        start = first * steps * group
        panel = values[start : start + width * steps * group].reshape(steps, width, group)
        piece = b[:, first : first + width]
        have = piece.shape[1]
        if whole:
            panel[:whole, :have] = piece[: whole * group].reshape(whole, group, have).transpose(0, 2, 1)
        for p in range(whole * group, layout.K):
            panel[whole, :have, p - whole * group] = piece[p]
    return packed


def column_sums(b: Array, group: int = 4) -> Array:
    """int32 (N,): the sum of each column as it is stored, modulo 2**32."""
    total = b.sum(axis=0, dtype=np.int64)
    if b.dtype == np.uint8 and group == 4:
        total = total - 128 * b.shape[0]
    return total.astype(np.int32)


def pairs_fit(b: Array) -> bool:
    """Whether vpmaddubsw is exact for every u8 A: 255 times the sum of two consecutive s8 of K never leaves int16."""
    if b.dtype != np.int8:
        return False
    for lo in range(0, b.shape[1], 256):
        piece = b[: b.shape[0] // 2 * 2, lo : lo + 256].astype(np.int16)
        pair = piece.reshape(-1, 2, piece.shape[1])
        high = np.maximum(pair, 0).sum(axis=1).max(initial=0)
        low = np.minimum(pair, 0).sum(axis=1).min(initial=0)
        if 255 * int(high) > 32767 or 255 * int(low) < -32768:
            return False
    return True


def shift_of_a(dtype: str, dot: str) -> int:
    """What storing A's type for this instruction adds to its values, and so to its zero point."""
    wanted = DOTS[dot].element
    return {("s8", "u8"): 128, ("u8", "s8"): -128}.get((dtype, wanted), 0)


def shift_of_b(dtype: str, dot: str) -> int:
    """The same for B."""
    return -128 if dtype == "u8" and DOTS[dot].group == 4 else 0


@dataclass(frozen=True)
class Columns:
    """What a tile knows about its columns: constants of the epilogue, then planes of N 4-byte values.

    Plane 0 is where accumulators start (int32), plane 1 the multipliers (float32, or int32 in fixed point), planes 2
    and 3 the factors of the correction terms, plane 4 the right shifts of fixed point.
    """

    data: Array
    plane: int
    terms: int


PLANES = 5
FLIP = 0x80808080 - (1 << 32)  # as int32


def plane_bytes(layout: PanelLayout) -> int:
    return -(-4 * layout.columns // ALIGN) * ALIGN


def columns_bytes(layout: PanelLayout) -> int:
    return CONSTANTS_SIZE + PLANES * plane_bytes(layout)


def fold(
    layout: PanelLayout,
    sums: Array,
    *,
    a_zero_point: int | None = 0,
    b_zero_point: Any = 0,
    a_shift: int = 0,
    b_shift: int = 0,
    bias: Array | None = None,
    multiplier: Any = None,
    shift: Any = None,
    constants: dict[str, float] | None = None,
) -> Columns:
    """Fold zero points and bias into the planes.

        sum (a - za)(b - zb) = sum a b - za * colsum[n] - zb[n] * rowsum[m] + K * za * zb[n]

    with a, b as stored, so za and zb are moved by a_shift and b_shift. What depends on n alone goes into plane 0; the
    rest are terms (factor of the row) x (plane 2 or 3), which the tile adds.

    sums          int32 (N,) from column_sums
    a_zero_point  one for all rows; None if every row has its own, given at run time
    b_zero_point  one, or (N,)
    multiplier    float32 scalar or (N,); int32 with `shift`, the right shift 1..62, scalar or (N,)
    constants     values by name (epilogue.CONSTANTS)
    """
    plane, n = plane_bytes(layout), layout.N
    data = aligned(columns_bytes(layout))

    def at(index: int, dtype: Any) -> Array:
        start = CONSTANTS_SIZE + index * plane
        return data[start : start + 4 * n].view(dtype)  # type: ignore[no-any-return]

    zb = np.broadcast_to(np.asarray(b_zero_point, np.int64) + b_shift, (n,))
    start = np.zeros(n, np.int64) if bias is None else np.asarray(bias, np.int64)
    asymmetric = bool(zb.any())
    za = 0 if a_zero_point is None else int(a_zero_point) + a_shift
    per_row = a_zero_point is None
    at(0, np.uint32)[:] = (start - za * sums.astype(np.int64)) & 0xFFFFFFFF
    terms = ([sums] if per_row else []) + ([zb.astype(np.int32)] if asymmetric else [])
    for index, factor in enumerate(terms):
        at(2 + index, np.int32)[:] = factor
    if multiplier is not None:
        at(1, np.float32 if shift is None else np.int32)[:] = multiplier
    if shift is not None:
        at(4, np.int32)[:] = shift
    for name, value in {"a_zero_point": za, "flip": FLIP, **(constants or {})}.items():
        kind = np.float32 if name.endswith("_f32") else np.int32
        data[CONSTANTS[name] : CONSTANTS[name] + 4].view(kind)[0] = value
    return Columns(data, plane, (2 if asymmetric else 0) + (1 if per_row else 0))
