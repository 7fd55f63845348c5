"""Finish entries: what takes int32 tiles, still in L1, to the output where a tile cannot store by itself.

A tile stores raw, scaled or requantized values on its own (epilogue.py). Everything else passes through here, one row
of a tile at a time: fixed-point requantization, 16- and 32-bit codes, a residual, a table, outputs whose inner stride
is not one, K in several passes, and ends of rows where the instruction set has no masked store.

    float     code = clamp(round(float32(acc) * multiplier[n]) + zero_point)           ties to even
    fixed     code = clamp(((acc * multiplier[n] + 2**(t - 1)) >> t) + zero_point)     int64, t = 31 - shift[n]
    residual  code = clamp(round(((code - zc) * sc + (residual - zr) * sr) / s) + z)    float32, every step rounded
    table     code = table[code & 255]
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .. import isa, lookup
from ..lookup import look_up_16
from ..simd import F32, I8, I16, I32, I64, Emitter, address_of, copy_bytes, function, get_u8, put_u8, vector
from .epilogue import CONSTANTS, CONSTANTS_SIZE, divider, host_arch

_ELEMENT = {"u8": I8, "s8": I8, "u16": I16, "s16": I16, "s32": I32, "f32": F32}
_ROW = 64  # where in the work area rows begin that cannot be written or read in place
_ROW_BYTES = 960


@dataclass(frozen=True)
class Finish:
    """
    out       element type of the output: u8, s8, u16, s16, s32 or f32
    scale     "none": the accumulators as they are. "float", "fixed"
    residual  element type of the residual, "" if there is none
    table     whether codes of 8 bits are replaced by table entries
    divides   whether a residual's sum is divided by its scale, or multiplied by an inverse that gives the same codes
    quotient  whether scaled sums are divided by a scale before they are codes (quotient.py)
    """

    level: str
    out: str = "s32"
    scale: str = "none"
    residual: str = ""
    table: bool = False
    divides: bool = True
    quotient: bool = False

    @property
    def item(self) -> int:
        return item_size(self.out)


def item_size(dtype: str) -> int:
    return {"u8": 1, "s8": 1, "u16": 2, "s16": 2}.get(dtype, 4)


class _Row(Emitter):
    """One row: `vectors` vectors of accumulators to `target`."""

    NAMES = ("acc", "target", "residual", "columns", "plane", "constants", "vectors")

    def __init__(self, finish: Finish, made: Any):
        super().__init__(ir.IRBuilder(made.append_basic_block("entry")))
        self.finish, self.function = finish, made
        level = isa.LEVELS[finish.level]
        self.lanes, self.arch = level.lanes, level.arch or host_arch()
        self.ints, self.floats = vector(I32, self.lanes), vector(F32, self.lanes)
        self.arg = dict(zip(self.NAMES, made.args, strict=True))

    def constant_vector(self, name: str) -> Any:
        kind = F32 if name.endswith("_f32") else I32
        return self.splat(self.load(self.offset(self.arg["constants"], CONSTANTS[name]), kind, 4), self.lanes)

    def build(self) -> None:
        b, before = self.b, self.b.block
        names = [n for n in CONSTANTS if n not in ("flip", "a_zero_point")]
        self.value = {name: self.constant_vector(name) for name in names}
        level = self.finish.level
        self.divided = divider(self, level, self.arg["constants"], self.lanes) if self.finish.quotient else lambda x: x
        body, end = self.function.append_basic_block("vector"), self.function.append_basic_block("done")
        b.branch(body)
        b.position_at_end(body)
        j = b.phi(I64)
        j.add_incoming(self.i64(0), before)
        first = b.mul(j, self.i64(self.lanes))
        column = b.add(self.arg["columns"], b.shl(first, self.i64(2)))
        acc = self.load(b.add(self.arg["acc"], b.shl(first, self.i64(2))), self.ints, 4)
        if self.finish.residual:
            made = self.added(self.apart(acc, column), first)
        else:
            made = self.scaled(acc, column)
        element = _ELEMENT[self.finish.out]
        if element in (I8, I16):
            made = b.trunc(made, vector(element, self.lanes))
        self.store(made, b.add(self.arg["target"], b.mul(first, self.i64(self.finish.item))), 1)
        following = b.add(j, self.i64(1))
        j.add_incoming(following, b.block)
        b.cbranch(b.icmp_unsigned("<", following, self.arg["vectors"]), body, end)
        b.position_at_end(end)
        b.ret_void()

    def plane(self, column: Any, index: int, kind: Any) -> Any:
        return self.load(self.b.add(column, self.b.mul(self.arg["plane"], self.i64(index))), kind, 4)

    def scaled(self, acc: Any, column: Any) -> Any:
        b, finish = self.b, self.finish
        if finish.scale == "none":
            return b.sitofp(acc, self.floats) if finish.out == "f32" else acc
        if finish.scale == "fixed":
            return self.fixed(acc, self.plane(column, 1, self.ints), self.plane(column, 4, self.ints))
        x = b.fmul(b.sitofp(acc, self.floats), self.plane(column, 1, self.floats))
        if finish.out == "f32":
            return x
        x = self.divided(x)
        if finish.out != "s32":
            return self.codes(x, "")
        # The zero point is 0 here. What is beyond int32 comes back as INT_MIN on x86, which is right below only.
        rounded = self.round_to_int(x, self.arch)
        beyond = b.fcmp_ordered(">=", x, self.constant(self.floats, 2.0**31))
        rounded = b.select(beyond, self.constant(self.ints, 2**31 - 1), rounded)
        return self.smin(self.smax(rounded, self.value["lo"]), self.value["hi"])

    def apart(self, acc: Any, column: Any) -> Any:
        """Codes less their zero point, as the float32 that they are exactly."""
        if self.finish.scale == "float":
            x = self.divided(self.b.fmul(self.b.sitofp(acc, self.floats), self.plane(column, 1, self.floats)))
            return self.call(f"llvm.rint.v{self.lanes}f32", self.floats, self.clamped(x, ""))
        return self.b.sitofp(self.b.sub(self.scaled(acc, column), self.value["zero_point"]), self.floats)

    def clamped(self, x: Any, prefix: str) -> Any:
        return self.fmax(self.fmin(x, self.value[f"{prefix}top_f32"]), self.value[f"{prefix}bottom_f32"])

    def codes(self, x: Any, prefix: str) -> Any:
        """Round, clamp, and move by the zero point: float32 to codes as i32."""
        rounded = self.round_to_int(self.clamped(x, prefix), self.arch)
        return self.b.add(rounded, self.value[f"{prefix}zero_point"])

    def fixed(self, acc: Any, multiplier: Any, right: Any) -> Any:
        b, half = self.b, max(2, self.lanes // 2)
        wide = vector(I64, half)
        parts = []
        for start in range(0, self.lanes, half):
            order = range(start, start + half)
            a, m, t, zero, lo, hi = (
                b.sext(self.shuffle(x, order), wide)
                for x in (acc, multiplier, right, self.value["zero_point"], self.value["lo"], self.value["hi"])
            )
            one = self.constant(wide, 1)
            total = b.add(b.mul(a, m), b.shl(one, b.sub(t, one)))
            code = b.add(b.ashr(total, t), zero)
            code = self.smin(self.smax(code, lo), hi)
            parts.append(b.trunc(code, vector(I32, half)))
        return self.concat(parts)

    def added(self, apart: Any, first: Any) -> Any:
        b, kind = self.b, self.finish.residual
        element = _ELEMENT[kind]
        address = b.add(self.arg["residual"], b.mul(first, self.i64(item_size(kind))))
        residual = self.load(address, vector(element, self.lanes), 1)
        if element != I32:
            residual = (b.zext if kind.startswith("u") else b.sext)(residual, self.ints)
        value = self.value
        x = b.fmul(apart, value["code_scale_f32"])
        y = b.fmul(b.sitofp(b.sub(residual, value["residual_zero_point"]), self.floats), value["residual_scale_f32"])
        if not self.finish.divides:
            return self.codes(b.fmul(b.fadd(x, y), value["sum_inverse_f32"]), "sum_")
        real = b.fdiv(b.fadd(x, y), value["sum_scale_f32"])
        real = b.select(b.fcmp_ordered("ord", real, real), real, self.constant(self.floats, 0.0))
        return self.codes(real, "sum_")


def _row(finish: Finish) -> Any:
    """An intrinsic that finishes one row (arguments: _Row.NAMES)."""

    def emit(module: Any) -> Any:
        name = f"finish_{finish.level}_{finish.out}_{finish.scale}_{finish.residual}_{finish.divides}_{finish.quotient}"
        made = module.globals.get(name)
        if made is None:
            made = function(module, name, len(_Row.NAMES), isa.restriction(isa.LEVELS[finish.level]))
            _Row(finish, made).build()
        return made

    @intrinsic
    def row(
        typingctx: Any, acc: Any, target: Any, residual: Any, columns: Any, plane: Any, constants: Any, n: Any
    ) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            builder.call(emit(builder.module), args)
            return context.get_dummy_value()

        return types.void(*[types.int64] * len(_Row.NAMES)), codegen

    return row


def finish_entry(finish: Finish) -> Callable[..., Any]:
    """The finish entry (gemm.gemm_entry says what its ranges are)."""
    row = _row(finish)
    lanes, item = isa.LEVELS[finish.level].lanes, finish.item
    has_residual, has_table = bool(finish.residual), finish.table
    residual_item = item_size(finish.residual)
    permutes = has_table and lanes == 16 and lookup.permutes(isa.LEVELS[finish.level])

    def entry(bases, block, ranges):
        acc, pitch, n0, width = ranges[0], ranges[1], ranges[4], ranges[5] - ranges[4]
        constants = bases[block[16]] + block[17]
        columns = constants + CONSTANTS_SIZE + 4 * n0
        out = bases[block[10]] + block[11] + n0 * block[15]
        residual = bases[block[24]] + block[25] + n0 * block[29]
        table = bases[block[30]] + block[31]
        whole = width % lanes == 0
        in_place = whole and block[15] == item
        beside = address_of(ranges) + _ROW
        residual_in_place = whole and block[29] == residual_item
        vectors = (width + lanes - 1) // lanes
        for m in range(ranges[2], ranges[3]):
            c = out + m * block[14]
            target = c if in_place else beside
            second = residual + m * block[28]
            if has_residual and not residual_in_place:
                for n in range(width):
                    copy_bytes(beside + _ROW_BYTES + n * residual_item, second + n * block[29], residual_item)
                second = beside + _ROW_BYTES
            row(acc, target, second, columns, block[50], constants, vectors)
            if permutes and block[33] == 1:
                look_up_16(16 * vectors, target, target, table)
            elif has_table:
                for n in range(width):
                    put_u8(target, n, get_u8(table, get_u8(target, n) * block[33]))
            if not in_place:
                if block[15] == item:
                    copy_bytes(c, target, width * item)
                else:
                    for n in range(width):
                        copy_bytes(c + n * block[15], target + n * item, item)
            acc += pitch
        return np.int32(0)

    return entry
