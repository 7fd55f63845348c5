"""Weights of a depthwise convolution as the tables that its kernels read, a table for each unit of each block.

A table is starts and multipliers of a block's channels (copied from the columns), then the weights less their zero
points, as s8. A difference has 9 bits where there are zero points, so it is a sum of as many parts as it needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ....primitives.kernel import ArgSpec, Axis, IndexSpace
from ...conv import Conv
from ...factory import register
from ...forge import Native
from ..conv.weights import NO_ZERO_POINT
from ..gemm import packing
from ..gemm.steps import MOST_COLUMNS
from .kernel import Block, order

Array = np.ndarray[Any, Any]


def parts(low: int, high: int) -> int:
    """How many s8 a weight between low and high is the sum of, at most."""
    return max(1, -(-high // 127) if high > 0 else 1, -(low // 128) if low < 0 else 1)


def part(value: Any, n: int) -> Any:
    """Part n of weights; int64 or a number."""
    for _ in range(n):
        value = value - np.clip(value, -128, 127)
    return np.clip(value, -128, 127)


@lru_cache(maxsize=256)
def _places(which: tuple[Block, ...], channels: int) -> tuple[Array, Array, Array, tuple[tuple[int, int], ...], int]:
    """Where what the tables hold comes from and goes.

    Returns, for each byte that is a weight: where it lies, and (part * channels + channel) * taps + tap; for each word
    that is copied from columns: (where it lies, plane, channel) in words; where the two tables of each block begin; and
    bytes of all.
    """
    targets, sources, words, places, at = [], [], [], [], 0
    for block in which:
        pair = []
        for unit in (block.unit, block.one):
            taps = unit.taps[0] * unit.taps[1]
            for j, vector in enumerate(order(unit.channels)):
                lanes = np.array([min(block.channel + c, channels - 1) for c in vector])
                first = at // 4 + j * len(lanes) + np.arange(len(lanes))
                for plane in range(2):
                    words.append(np.stack([first + plane * unit.channels, np.full_like(lanes, plane), lanes]))
                for r, rows in enumerate(unit.rows):
                    for g, group in enumerate(unit.groups):
                        for k, y in enumerate(group):
                            if y not in rows:
                                continue
                            for x in range(unit.taps[1]):
                                tap = rows.index(y) * unit.taps[1] + x
                                for p in range(unit.parts):
                                    start = at + unit.place(r, x, g, p) + 4 * j * len(lanes) + k
                                    targets.append(start + 4 * np.arange(len(lanes)))
                                    sources.append((p * channels + lanes) * taps + tap)
            pair.append(at)
            at += unit.table_bytes
        places.append((pair[0], pair[1]))
    kind = np.int32
    return (
        np.concatenate(targets).astype(kind), np.concatenate(sources).astype(kind),
        np.concatenate(words, axis=1).T.astype(kind), tuple(places), max(64, at),
    )  # fmt: skip


def places(which: tuple[Block, ...], channels: int) -> tuple[tuple[int, int], ...]:
    """Where the two tables of each block begin."""
    return _places(which, channels)[3]


def weight_tables(which: tuple[Block, ...], weights: Array) -> Array:
    """The tables, without starts and multipliers. weights: int64 (C, taps above each other, taps along W)."""
    targets, sources, _, _, nbytes = _places(which, len(weights))
    most = max(unit.parts for block in which for unit in (block.unit, block.one))
    pieces = np.stack([part(weights, p) for p in range(most)]).astype(np.int8)
    tables = packing.aligned(nbytes)
    tables[targets] = pieces.reshape(-1)[sources].view(np.uint8)
    return tables


def fill(which: tuple[Block, ...], channels: int, tables: Array, planes: Array) -> None:
    """Write starts and multipliers into the tables. planes: the first two of the columns, as words (2, at least C)."""
    words = _places(which, channels)[2]
    tables[: len(tables) // 4 * 4].view(np.int32)[words[:, 0]] = planes.view(np.int32)[words[:, 1], words[:, 2]]


@dataclass(frozen=True)
class DepthwiseWeights:
    """`weight_tables`, and the sums of the weights, for weights or zero points that are known only at run time."""

    conv: Conv
    blocks: tuple[Block, ...]
    channels: int

    name = "depthwise_weights"

    def signature(self) -> tuple[ArgSpec, ...]:
        given = {spec.slot: spec for spec in self.conv.signature()}
        taken = [given[slot] for slot in ("w", "b_zero_point") if slot in given]
        return (
            *(ArgSpec(spec.slot, spec.dtype, shape=spec.shape) for spec in taken),
            ArgSpec("tables", "u8", "write", align=64),
            ArgSpec("sums", "s32", "write", align=64),
        )

    def infer(self, shapes: Mapping[str, Any], operands: Mapping[str, Any]) -> dict[str, Any]:
        nbytes = _places(self.blocks, self.channels)[4]
        return {"tables": (nbytes,), "sums": (1, self.channels + MOST_COLUMNS)}

    def index_space(self) -> IndexSpace:
        return IndexSpace((Axis("c", self.channels, split=False),))

    def execute(self, ctx: Any) -> None:
        targets, sources, *_ = _places(self.blocks, self.channels)
        zero = ctx.read("b_zero_point") if self.conv.b_zero_point else NO_ZERO_POINT[self.conv.w_dtype]
        w, zero = self.conv.canonical_weights(ctx.read("w")), np.broadcast_to(zero, (self.channels,))
        ctx.sweep(self, w, zero, targets, sources, ctx.write("tables"), ctx.write("sums")[0])


_WEIGHTS = """\
import numpy as np
from numba import njit


@njit(nogil=True, error_model="numpy")
def tile(c0, c1, w, zero, targets, sources, tables, sums):
    channels, _, depth, height, width, _ = w.shape
    taps = depth * height * width
    for c in range(c0, c1):
        total = 0
        for z in range(depth):
            for y in range(height):
                for x in range(width):
                    total += np.int64(w[c, 0, z, y, x, 0]) - np.int64(zero[c])
        sums[c] = total
    tables[:] = 0
    for n in range(targets.shape[0]):
        at = sources[n]
        tap, c, piece = at % taps, at // taps % channels, at // taps // channels
        value = np.int64(w[c, 0, tap // (height * width), tap // width % height, tap % width, 0]) - np.int64(zero[c])
        for _ in range(piece):
            value -= min(max(value, -128), 127)
        tables[targets[n]] = min(max(value, -128), 127) & 255
"""


@register("depthwise_weights", backend="cpu")
def build_weights(kernel: DepthwiseWeights) -> Native:
    return Native(_WEIGHTS)


@dataclass(frozen=True)
class FillTables:
    """`fill` for columns that are known only at run time. plane: bytes of one of theirs."""

    blocks: tuple[Block, ...]
    channels: int
    plane: int

    name = "depthwise_fill"

    def signature(self) -> tuple[ArgSpec, ...]:
        return (
            ArgSpec("weights", "u8", align=64),
            ArgSpec("columns", "u8", align=64),
            ArgSpec("tables", "u8", "write", align=64),
        )

    def infer(self, shapes: Mapping[str, Any], operands: Mapping[str, Any]) -> dict[str, Any]:
        return {"tables": shapes["weights"]}

    def index_space(self) -> IndexSpace:
        return IndexSpace((Axis("c", self.channels, split=False),))

    def execute(self, ctx: Any) -> None:
        columns = ctx.read("columns").reshape(-1)
        first = packing.CONSTANTS_SIZE
        planes = columns[first : first + 2 * self.plane].view(np.int32).reshape(2, self.plane // 4)
        words = _places(self.blocks, self.channels)[2]
        weights, tables = (x[: x.shape[0] // 4 * 4].view(np.int32) for x in (ctx.read("weights"), ctx.write("tables")))
        ctx.sweep(self, weights, planes, words, tables)


_FILL = """\
from numba import njit


@njit(nogil=True, error_model="numpy")
def tile(c0, c1, weights, planes, words, tables):
    tables[:] = weights
    for n in range(words.shape[0]):
        tables[words[n, 0]] = planes[words[n, 1], words[n, 2]]
"""


@register("depthwise_fill", backend="cpu")
def build_fill(kernel: FillTables) -> Native:
    return Native(_FILL)
