"""How a format's codes and parameters are packed for the real paths, and what decodes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ....primitives.errors import Unsupported
from ...linear import CodeFormat
from ...reference.linear import spread, unpack_bytes
from .. import isa
from ..gemm import packing
from . import layout
from .decode import SHUFFLED, Decode
from .numbers import Numbers

Array = np.ndarray[Any, Any]
FARTHEST = 2**23  # up to here code - zero_point is exact in float32


@dataclass(frozen=True)
class Stored:
    """Packed weights, what decodes them, and the table that it reads. numbers: whether no weight is NaN."""

    decode: Decode
    layout: layout.Layout
    packed: Array
    table: Array
    numbers: bool


def store(level: isa.Level, fmt: CodeFormat, K: int, codes: Array, *parameters: Array) -> Stored:
    """Pack constant weights. parameters: the slots of the format, then the table."""
    q = unpack_bytes(codes, fmt, K)
    N, depth, lowest = len(q), fmt.depth(K), 0
    if fmt.signed and fmt.kind != "table":
        q, lowest = q ^ np.uint8(1 << (fmt.bits - 1)), fmt.lowest  # counted from the least code
    blocks = [spread(p, fmt, N, K) for p in parameters[: len(fmt.parameters)]]
    bits = layout.stored_bits(fmt.bits, depth)
    then = {"affine": "scale", "offset": "plus", "table": "scale", "decode": ""}[fmt.kind]
    if fmt.position:  # of the first weight of a block
        blocks.append(np.add.outer(np.arange(N) * K, np.arange(0, max(K, 1), depth)).astype(np.int32))
    if fmt.zero_point:
        zero = blocks[1].astype(np.int64) - lowest
        if zero.size and np.abs(zero).max() > FARTHEST:
            raise Unsupported(f"linear: zero points beyond +-{FARTHEST} are not exact in float32")
        if zero.size and zero.min() == zero.max():
            blocks, lowest = blocks[:1], -int(zero.flat[0])
        else:
            blocks[1], then, lowest = zero.astype(np.float32), "minus", 0
    made = layout.Layout(N, K, level.lanes, bits, depth, len(blocks))
    packed = layout.pack(made, q, Numbers("f32", tuple(map(_words, blocks))))
    shuffles = level.lanes == SHUFFLED and bits <= 4
    if fmt.kind == "table":
        values, form = np.asarray(parameters[-1], np.float32), "shuffle" if shuffles else "table"
    else:
        values = np.arange(1 << fmt.bits, dtype=np.float32) + np.float32(lowest)
        form = "code" if fmt.kind == "decode" else "shuffle" if shuffles else "number"
    table = packing.aligned(4 * max(SHUFFLED, len(values)))
    table.view(np.float32)[: len(values)] = values
    decode = Decode(level.name, bits, form, then, 0 if form in ("shuffle", "table") else lowest)
    return Stored(decode, made, packed, table, fmt.kind != "decode" and _bounded(values, then, blocks))


def _words(parameter: Array) -> Array:
    """A parameter as float32, or what has the bits of int32."""
    if parameter.dtype.kind == "i":
        return np.ascontiguousarray(parameter, np.int32).view(np.float32)
    return parameter.astype(np.float32, copy=False)


def _bounded(values: Array, then: str, blocks: list[Array]) -> bool:
    """Whether every weight is surely a number, and no product on the way to it infinite."""
    largest = [float(np.abs(x.astype(np.float64)).max(initial=0)) for x in (values, *blocks)]
    value = largest[0] + (largest[2] if then == "minus" else 0)
    return bool(value * largest[1] + (largest[2] if then == "plus" else 0) < 1e38)  # false where one is NaN
