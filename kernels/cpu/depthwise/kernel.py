"""The depthwise kernel: some output positions of a block of channels, held in registers, as LLVM IR.

vpdpbusd adds four products to a 32-bit lane. Here the four are taps above each other: four rows of the image, loaded as
vectors of channels, are interleaved so that each lane holds one channel's four values. Rows of output that need the same
rows share the interleaving, and so do outputs side by side that need the same column. The interleaving leaves channels
in another order within 128-bit lanes; narrowing to bytes undoes it, and the tables of weights and columns follow it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ... import forge
from .. import isa
from ..epilogues.epilogue import CONSTANTS, divider
from ..simd import F32, I8, I16, I32, I64, VOID, Emitter, function, vector

# Arguments of a kernel, all int64. Addresses unless said otherwise.
ARGUMENTS = (
    "rows",  # int64 addresses of the rows of the image
    "first",  # bytes from there to the first channel of the first column of the first unit
    "units",  # how many units along W; at least 1
    "step",  # bytes from the columns of one unit to those of the next
    "column",  # bytes from one column to the next
    "table",  # of this block of channels: starts, multipliers, weights
    "out",  # first output of the first row
    "out_row",  # bytes from one row of output to the next
    "out_pixel",  # bytes from one output of a unit to the next
    "out_step",  # bytes from one unit's outputs to the next one's
    "epilogue",  # constants (epilogue.CONSTANTS)
    "valid",  # channels that are stored, where the kernel is masked
)
GROUP = 4


@dataclass(frozen=True)
class Unit:
    """
    taps      taps above each other (of all planes), and side by side
    apart     positions from one tap to the next along W
    rows      per output row of the unit, which rows of the image its taps above each other read
    wide      outputs side by side
    stride    columns from one output to the next
    channels  16, 32 or 64
    store     "u8" or "s8", requantized; or "s32"
    masked    only `valid` channels are stored
    parts     how many s8 a weight is the sum of
    quotient  whether scaled sums are divided by a scale before they are codes (quotient.py)
    """

    level: str
    taps: tuple[int, int]
    apart: int
    rows: tuple[tuple[int, ...], ...]
    wide: int
    stride: int
    channels: int
    store: str
    masked: bool = False
    parts: int = 1
    quotient: bool = False

    @property
    def name(self) -> str:
        rows = "_".join("".join(f"{y}." for y in row) for row in self.rows)
        size = f"{self.taps[1]}a{self.apart}w{self.wide}s{self.stride}c{self.channels}"
        return f"depthwise_{self.level}_{size}_{rows}_{self.store}{'m' * self.masked}_{self.parts}{'q' * self.quotient}"

    @property
    def image_rows(self) -> int:
        """Rows of the image that a unit reads."""
        return max(max(row) for row in self.rows) + 1

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """The rows of the image that are interleaved together."""
        used = sorted({y for row in self.rows for y in row})
        return tuple(tuple(used[i : i + GROUP]) for i in range(0, len(used), GROUP))

    @property
    def columns(self) -> tuple[int, ...]:
        """The columns of the image that a unit reads."""
        return tuple(sorted({w * self.stride + x * self.apart for w in range(self.wide) for x in range(self.taps[1])}))

    def place(self, row: int, x: int, group: int, part: int) -> int:
        """Where in the table a part of the weights of an output row, a tap along W and a group of rows begins."""
        number = ((row * self.taps[1] + x) * len(self.groups) + group) * self.parts + part
        return (8 + 4 * number) * self.channels

    @property
    def table_bytes(self) -> int:
        return self.place(len(self.rows), 0, 0, 0)


@dataclass(frozen=True)
class Block:
    """A block of channels: where it begins, and its kernels for a whole unit and for a single output."""

    channel: int
    unit: Unit
    one: Unit


def order(channels: int) -> list[list[int]]:
    """Per vector of 32-bit lanes, the channel in each lane."""
    return [[16 * lane + 4 * j + e for lane in range(channels // 16) for e in range(4)] for j in range(4)]


class _Builder(Emitter):
    def __init__(self, unit: Unit, made: Any):
        super().__init__(ir.IRBuilder(made.append_basic_block("entry")))
        self.unit, self.function = unit, made
        self.lanes = unit.channels // 4
        self.bytes_, self.ints = vector(I8, unit.channels), vector(I32, self.lanes)
        self.floats = vector(F32, self.lanes)
        self.arg = dict(zip(ARGUMENTS, made.args, strict=True))

    def build(self) -> None:
        b, unit, arg, made = self.b, self.unit, self.arg, self.function
        rows = [self.load(self.offset(arg["rows"], 8 * y), I64, 8) for y in range(unit.image_rows)]
        columns = {x: b.mul(arg["column"], self.i64(x)) for x in unit.columns}
        before, body, end = b.block, made.append_basic_block("unit"), made.append_basic_block("done")
        b.branch(body)
        b.position_at_end(body)
        left, at, out = (b.phi(I64) for _ in range(3))
        for phi, start in ((left, arg["units"]), (at, arg["first"]), (out, arg["out"])):
            phi.add_incoming(start, before)
        starts = [self.table(4 * self.lanes * j, self.ints) for j in range(4)]
        accs = {(r, w): list(starts) for r in range(len(unit.rows)) for w in range(unit.wide)}
        for x in unit.columns:
            place = b.add(at, columns[x])
            for g, group in enumerate(unit.groups):
                values = self.interleaved([self.load(b.add(rows[y], place), self.bytes_, 1) for y in group])
                for r, w in accs:
                    tap = x - w * unit.stride
                    if tap % unit.apart or not 0 <= tap // unit.apart < unit.taps[1]:
                        continue
                    if not set(group) & set(unit.rows[r]):
                        continue
                    name = f"llvm.x86.avx512.vpdpbusd.{32 * self.lanes}"
                    for part in range(unit.parts):
                        first = unit.place(r, tap // unit.apart, g, part)
                        for j in range(4):
                            weights = self.table(first + unit.channels * j, self.ints)
                            accs[r, w][j] = self.call(name, self.ints, accs[r, w][j], values[j], weights)
        for (r, w), acc in accs.items():
            target = b.add(out, b.add(b.mul(arg["out_row"], self.i64(r)), b.mul(arg["out_pixel"], self.i64(w))))
            self.finish(acc, target)
        following = b.sub(left, self.i64(1))
        left.add_incoming(following, b.block)
        at.add_incoming(b.add(at, arg["step"]), b.block)
        out.add_incoming(b.add(out, arg["out_step"]), b.block)
        b.cbranch(b.icmp_unsigned("!=", following, self.i64(0)), body, end)
        b.position_at_end(end)
        b.ret_void()

    def table(self, place: int, kind: Any) -> Any:
        return self.load(self.offset(self.arg["table"], place), kind, 16)

    def unpack(self, x: Any, y: Any, size: int, high: bool) -> Any:
        """Interleave elements of `size` bytes of the low, or high, half of each 128-bit lane."""
        kind = vector(ir.IntType(8 * size), self.unit.channels // size)
        x, y = (v if v.type == kind else self.b.bitcast(v, kind) for v in (x, y))
        half = 8 // size
        picked = []
        for lane in range(0, kind.count, 2 * half):
            for i in range(half):
                n = lane + (half if high else 0) + i
                picked += [n, n + kind.count]
        return self.shuffle(x, picked, y)

    def interleaved(self, rows: list[Any]) -> list[Any]:
        """Up to four vectors of channels to four vectors of lanes, each with one channel's four values."""
        zero = self.constant(self.bytes_, 0)
        a, c, d, e = [*rows, *[zero] * (GROUP - len(rows))]
        made = []
        for high in (False, True):
            first, second = self.unpack(a, c, 1, high), self.unpack(d, e, 1, high)
            for again in (False, True):
                made.append(self.b.bitcast(self.unpack(first, second, 2, again), self.ints))
        return made

    def finish(self, acc: list[Any], target: Any) -> None:
        b, unit = self.b, self.unit
        if unit.store == "s32":
            for q in range(self.lanes // 4):  # channels 16q to 16q + 15 are lane q of the four vectors
                parts = [self.shuffle(v, range(4 * q, 4 * q + 4)) for v in acc]
                self.store(self.concat(parts), self.offset(target, 64 * q), 4)
            return
        top = self.splat(self.load(self.offset(self.arg["epilogue"], CONSTANTS["top_f32"]), F32, 4), self.lanes)
        codes = []
        divided = divider(self, unit.level, self.arg["epilogue"], self.lanes) if unit.quotient else lambda x: x
        for j, x in enumerate(acc):
            y = b.fmul(b.sitofp(x, self.floats), self.table(4 * unit.channels + 4 * self.lanes * j, self.floats))
            codes.append(self.round_to_int(self.fmin(divided(y), top), "x86_64"))
        zero, lo = (self.load(self.offset(self.arg["epilogue"], CONSTANTS[n]), I32, 4) for n in ("zero_point", "lo"))
        words = vector(I16, 2 * self.lanes)
        pack = {16: "avx512.packssdw.512", 8: "avx2.packssdw", 4: "sse2.packssdw.128"}[self.lanes]
        halves = [self.call(f"llvm.x86.{pack}", words, codes[k], codes[k + 1]) for k in (0, 2)]
        zeros = self.splat(b.trunc(zero, I16), 2 * self.lanes)
        halves = [self.call(f"llvm.sadd.sat.v{2 * self.lanes}i16", words, x, zeros) for x in halves]
        narrow = "packuswb" if unit.store == "u8" else "packsswb"
        pack = {16: f"avx512.{narrow}.512", 8: f"avx2.{narrow}", 4: f"sse2.{narrow}.128"}[self.lanes]
        made = self.call(f"llvm.x86.{pack}", self.bytes_, *halves)
        lows = self.splat(b.trunc(lo, I8), unit.channels)
        compare = b.icmp_unsigned if unit.store == "u8" else b.icmp_signed
        made = b.select(compare(">", made, lows), made, lows)
        if unit.masked:
            kind = vector(I8, unit.channels)
            numbers = ir.Constant(kind, list(range(unit.channels)))
            mask = b.icmp_unsigned("<", numbers, self.splat(b.trunc(self.arg["valid"], I8), unit.channels))
            self.masked_store(made, target, 1, mask)
        else:
            self.store(made, target, 1)


def emit(module: Any, unit: Unit, attributes: tuple[str, ...] = ()) -> Any:
    """The kernel as an internal function of the module, made once."""
    made = module.globals.get(unit.name)
    if made is None:
        made = function(module, unit.name, len(ARGUMENTS), attributes)
        _Builder(unit, made).build()
    return made


def table(units: tuple[Unit, ...]) -> Any:
    """An intrinsic `(index) -> address` of units[index], which `call` takes. The kernels become part of the module."""
    name = "table_" + "_".join(unit.name for unit in units)

    @intrinsic
    def address(typingctx: Any, index: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            module = builder.module
            functions = [emit(module, unit, isa.restriction(isa.LEVELS[unit.level])) for unit in units]
            kind = ir.ArrayType(functions[0].type, len(functions))
            entries = module.globals.get(name)
            if entries is None:
                entries = ir.GlobalVariable(module, kind, name)
                entries.linkage, entries.global_constant = "internal", True
                entries.initializer = ir.Constant(kind, functions)
            entry = builder.load(builder.gep(entries, [ir.Constant(I64, 0), args[0]], inbounds=True))
            return builder.ptrtoint(entry, I64)

        return types.int64(types.int64), codegen

    return address


@cache
def addresses(units: tuple[Unit, ...]) -> tuple[tuple[int, ...], Any]:
    """The address of each kernel, and what keeps them alive."""
    text = [
        "from tilework.kernels.cpu.depthwise.kernel import Unit, table",
        "from tilework.kernels.cpu.simd import put_s64",
        "",
        "units = table((",
        *(f"    {unit!r}," for unit in units),
        "))",
        "",
        "",
        "def entry(bases, block, ranges):",
        f"    for n in range({len(units)}):",
        "        put_s64(bases[0], n, units(n))",
        "    return 0",
        "",
    ]
    made = forge.table("\n".join(text), len(units))
    return tuple(map(int, made.words)), made


def _caller() -> Any:
    names = ", ".join(ARGUMENTS)
    scope: dict[str, Any] = {}

    def signature_and_code(*given: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kind = ir.FunctionType(VOID, [I64] * len(ARGUMENTS))
            builder.call(builder.inttoptr(args[0], kind.as_pointer()), args[1:])
            return context.get_dummy_value()

        return types.void(*[types.int64] * (1 + len(ARGUMENTS))), codegen

    exec(
        f"def call(typingctx, kernel, {names}):\n    return make(kernel, {names})", {"make": signature_and_code}, scope
    )
    return intrinsic(scope["call"])


call = _caller()
