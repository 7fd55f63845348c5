"""Quantizing x for the integer kernels of linear: a step of its own, which runs once for all columns.

kernels/reference/linear.py: quantize_rows says what it computes. A row of the result holds, block after block along K,
what tiles.GroupTile reads: scale and correction, in wide blocks the scaled sum and minus the sum, then the values as
bytes, or as int16 in the order codes.PAIRS where instructions multiply pairs of int16.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ....primitives.kernel import ArgSpec, Axis, IndexSpace
from ...factory import WithParams, register
from ...forge import Native
from .. import isa
from ..gemm.wide_rows import get_bf16, get_f16
from ..simd import F32, I8, I16, I32, copy_bytes, function, get_f32, put_f32, vector, zero_bytes
from .codes import PAIRS, Codes
from .loops import Loops
from .tiles import x_header

LINE = 64
WIDEN = 16  # float32 that are handled at once at every level: a block is filled up to them
TINY = int(np.float32(2.0**-100).view(np.int32))  # kernels/reference/linear.py
LARGEST_FINITE = 0x7F7FFFFF
STEP = float(np.float32(1.0) / np.float32(127.0))


@dataclass(frozen=True)
class RowLayout:
    """Bytes of a row of quantized x.

    depth   values of a block; units of `unit` values fill it up
    wide    whether blocks hold their sums too
    """

    K: int
    depth: int
    unit: int
    item: int
    wide: bool

    @property
    def blocks(self) -> int:
        return max(1, -(-self.K // self.depth))

    @property
    def block(self) -> int:
        """Bytes of a block."""
        return x_header(self.wide) + -(-self.depth // self.unit) * self.unit * self.item

    @property
    def pitch(self) -> int:
        """Bytes of a row. Values are written 16 at a time, past the end too; powers of two would share sets of L1."""
        pitch = -(-(self.blocks * self.block + WIDEN * self.item) // LINE) * LINE
        return pitch + LINE * (pitch % 1024 == 0)

    @property
    def padded(self) -> int:
        """float32 of a block as they are quantized: units to the end, where codes of 0 may stand for other numbers."""
        step = max(WIDEN, self.unit)
        return -(-self.depth // step) * step


@dataclass(frozen=True)
class QuantizeRows:
    """x (.., M, K) as rows of quantized blocks.

    above     what the correction multiplies the sum of a block by: it is -above * sum
    per_row   whether a row has one scale
    """

    layout: RowLayout
    codes: Codes
    x_dtype: str
    above: int
    per_row: bool = False
    batch: int = 0

    name = "linear_rows"

    def signature(self) -> tuple[ArgSpec, ...]:
        lead = tuple(f"B{d}" for d in range(self.batch))
        free = (None,) * self.batch
        return (
            ArgSpec("x", self.x_dtype, shape=(*lead, "M", self.layout.K), follows=(*free, "m", None)),
            ArgSpec(
                "rows",
                "u8",
                "write",
                shape=(*lead, "M", self.layout.pitch),
                align=LINE,
                follows=(*free, "m", None),
            ),
        )

    def index_space(self) -> IndexSpace:
        return IndexSpace((Axis("m", "M"),))

    def execute(self, ctx: Any) -> None:
        x, rows = ctx.read("x"), ctx.write("rows")
        scratch = ctx.scratch(4 * self.layout.padded * self.layout.blocks + LINE)
        for at in np.ndindex(x.shape[:-2]):
            ctx.sweep(self, x[at], rows[at], scratch)

    def cost(self, extents: Mapping[str, int], x: Any, *_: Any) -> float:
        return float(extents["m"] * self.layout.K * 2)


@register("linear_rows", backend="cpu")
def build(kernel: QuantizeRows) -> WithParams:
    layout = kernel.layout
    words = [layout.depth, layout.blocks, layout.block, layout.padded, kernel.above]
    given = f"{kernel.codes.level!r}, {kernel.x_dtype!r}, {layout.wide}, {kernel.per_row}"
    text = f"from {__name__} import rows_entry\n\nentry = rows_entry({given})\n"
    return WithParams(Native(text, raw=True), lambda *_: words)


# Native code ---------------------------------------------------------------------------------------------------------


_ARGUMENTS = (
    "source",  # float32 of the row, each block filled up with zeros
    "target",
    "blocks",
    "block",  # bytes of a block of the target
    "vectors",  # of a block of the source
    "above",
)


class _Row(Loops):
    """Quantizes one row. per_row: one scale, from all of its blocks."""

    def __init__(self, level: str, wide: bool, per_row: bool, made: Any):
        super().__init__(made, _ARGUMENTS)
        self.level, self.codes = isa.LEVELS[level], Codes(level, 8)
        self.wide, self.per_row = wide, per_row
        self.lanes = self.level.lanes
        self.arch = self.level.arch or isa.host_arch()
        self.ints, self.floats = vector(I32, self.lanes), vector(F32, self.lanes)

    def build(self) -> None:
        arg, b = self.arg, self.b
        size = b.mul(arg["vectors"], self.i64(4 * self.lanes))
        shared = self.scales(self.amax(arg["source"], b.mul(arg["vectors"], arg["blocks"]))) if self.per_row else None

        def block(now: list[Any]) -> list[Any]:
            source, target = now
            scales = shared or self.scales(self.amax(source, arg["vectors"]))
            self.write(source, target, *scales)
            return [b.add(source, size), b.add(target, arg["block"])]

        self.repeat(arg["blocks"], [arg["source"], arg["target"]], block)
        b.ret_void()

    def amax(self, source: Any, vectors: Any) -> Any:
        """The bits of the largest magnitude: as integers, NaN is above infinity is above every number."""
        magnitude = self.constant(self.ints, 0x7FFFFFFF)

        def more(now: list[Any]) -> list[Any]:
            at, top = now
            bits = self.b.and_(self.load(at, self.ints, 4), magnitude)
            return [self.offset(at, 4 * self.lanes), self.smax(top, bits)]

        _, top = self.repeat(vectors, [source, self.constant(self.ints, 0)], more)
        return self.call(f"llvm.vector.reduce.smax.v{self.lanes}i32", I32, top)

    def scales(self, bits: Any) -> tuple[Any, Any, Any]:
        """Scale, its inverse, and all ones where values are not 0."""
        b = self.b
        finite = b.icmp_signed("<=", bits, ir.Constant(I32, LARGEST_FINITE))
        used = b.and_(finite, b.icmp_signed(">=", bits, ir.Constant(I32, TINY)))
        amax = b.select(used, b.bitcast(bits, F32), ir.Constant(F32, 1.0))
        inverse = b.fdiv(ir.Constant(F32, 127.0), amax)
        scale = b.select(used, b.fmul(amax, ir.Constant(F32, STEP)), ir.Constant(F32, 0.0))
        scale = b.select(finite, scale, ir.Constant(F32, float("nan")))
        return scale, inverse, b.sext(used, I32)

    def write(self, source: Any, target: Any, scale: Any, inverse: Any, used: Any) -> None:
        b, lanes = self.b, self.lanes
        inverses, mask = self.splat(inverse, lanes), self.splat(used, lanes)
        start = self.offset(target, x_header(self.wide))

        def values(now: list[Any]) -> list[Any]:
            source, target, total = now
            q = self.round_to_int(b.fmul(self.load(source, self.floats, 4), inverses), self.arch)
            q = b.and_(q, mask)
            if self.codes.bytewise:
                narrow = b.trunc(q, vector(I8, lanes))
            else:
                order = [4 * (k // 4) + PAIRS[k % 4] for k in range(lanes)]
                narrow = b.trunc(self.shuffle(q, order), vector(I16, lanes))
            self.store(narrow, target, 1)
            step = lanes * self.codes.item
            return [self.offset(source, 4 * lanes), self.offset(target, step), b.add(total, q)]

        zero = self.constant(self.ints, 0)
        total = self.repeat(self.arg["vectors"], [source, start, zero], values)[2]
        total = self.call(f"llvm.vector.reduce.add.v{lanes}i32", I32, total)
        self.store(scale, target, 4)
        correction = b.neg(b.mul(total, b.trunc(self.arg["above"], I32)))
        self.store(correction, self.offset(target, 4), 4)
        if self.wide:
            self.store(b.fmul(b.sitofp(total, F32), scale), self.offset(target, 8), 4)
            self.store(b.neg(total), self.offset(target, 12), 4)


def _row(level: str, wide: bool, per_row: bool) -> Any:
    """An intrinsic over _ARGUMENTS that quantizes one row."""

    @intrinsic
    def row(typingctx: Any, source: Any, target: Any, blocks: Any, block: Any, vectors: Any, above: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            made = function(builder.module, "quantize_row", len(_ARGUMENTS), isa.restriction(isa.LEVELS[level]))
            _Row(level, wide, per_row, made).build()
            builder.call(made, args)
            return context.get_dummy_value()

        return types.void(*[types.int64] * len(_ARGUMENTS)), codegen

    return row


def rows_entry(level: str, x_dtype: str, wide: bool, per_row: bool) -> Callable[..., Any]:
    """The entry: words of x, rows and scratch, then _WORDS."""
    row = _row(level, wide, per_row)
    lanes, item = isa.LEVELS[level].lanes, 4 if x_dtype == "f32" else 2
    get = {"f32": get_f32, "bf16": get_bf16, "f16": get_f16}[x_dtype]
    in_place = x_dtype == "f32"

    def entry(bases, block, ranges):
        x, depth_all, pitch, step = bases[block[0]] + block[1], block[3], block[4], block[5]
        rows, scratch = bases[block[6]] + block[7], bases[block[12]] + block[13]
        depth, blocks, size, padded, above = block[16], block[17], block[18], block[19], block[20]
        whole = in_place and step == item and padded == depth and blocks * depth == depth_all
        for m in range(ranges[0], ranges[1]):
            source = x + m * pitch
            if not whole:
                for g in range(blocks):
                    first, target = g * depth, scratch + 4 * padded * g
                    n = max(min(depth, depth_all - first), 0)
                    if in_place and step == item:
                        copy_bytes(target, source + first * item, n * item)
                    else:
                        for p in range(n):
                            put_f32(target, p, get(source + (first + p) * step, 0))
                    zero_bytes(target + 4 * n, 4 * (padded - n))
                source = scratch
            row(source, rows + m * block[10], blocks, size, padded // lanes, above)
        return np.int32(0)

    return entry
