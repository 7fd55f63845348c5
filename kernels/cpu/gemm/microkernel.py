"""The micro-kernel generator: one output tile of a GEMM, held in registers, as LLVM IR.

A tile is `rows` rows of A by `vectors` vectors of columns of packed B. Each step along K broadcasts 4 bytes of each row
and multiplies them with 4 bytes of each column. What differs between types, instruction sets, epilogues and uses
(GEMM, convolution) is a field of `Tile`; nothing is written twice.

Columns come as planes of 4-byte values, `plane` bytes apart: what the accumulators start from (bias and zero-point
corrections), the multipliers, and the factors of the correction terms that depend on the row as well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .. import isa
from ..epilogues.epilogue import CONSTANTS, emit_store
from ..epilogues.real_epilogue import After, store_real
from ..simd import F32, I32, I64, Emitter, function, vector
from .dot import DOTS

# Arguments of a tile, all int64. Addresses unless said otherwise.
ARGUMENTS = (
    "a",  # first row of A; with addressing "table", what the table's offsets count from
    "lda",  # bytes between rows; with addressing "table", the address of int32 offsets, one a row
    "steps",  # whole steps along K, in each segment; at least 1
    "tail",  # bytes of K beyond the last whole step, 0 to 3; with `side`, from one position of A to the next
    "b",  # packed panel, aligned to a vector
    "pitch",  # bytes of packed B per step
    "c",  # output tile
    "ldc",  # bytes between its rows
    "columns",  # plane 0 at the tile's first column
    "plane",  # bytes between planes
    "rows",  # pairs of int32, one pair a row: factors of the correction terms
    "epilogue",  # constants of the epilogue (epilogue.CONSTANTS)
    "valid",  # how many columns are stored, where the tile is masked
    "segments",  # how often `steps` repeats
    "starts",  # address of int32 offsets, one a segment: where in A each begins
    "own",  # not 0: ask for the output's cache lines before the sum, so that the stores find them
)


@dataclass(frozen=True)
class Tile:
    """
    rows, vectors  size: rows of A by vectors of columns
    store          what leaves the registers: "s32" as accumulated, "u8" and "s8" requantized, "f32" scaled
    masked         only `valid` columns of the last vector are stored
    flip_a         A's bytes have their top bit inverted as they are read (s8 becomes u8, or the reverse)
    terms          how many products (factor of the row) x (factor of the column) are added to the sum
    resume         start from the int32 values in c instead of plane 0: a later block of K
    addressing     "stride": rows of A lie lda apart. "table": each row has an offset
    ahead          bytes between reading packed B and asking for it; 0 never asks
    segmented      K is `segments` pieces of A, which begin at offsets of their own; there is no tail
    in_place       whether rows of 2-byte elements may end within a step
    after          what follows float32 sums; None stores them. They begin at +0 and plane 0 is the bias
    own            (channels, outputs) of a group, where each column reads the channels of its own group (float32,
                   segmented): a step is one channel of a segment. None where all columns read the same
    side           (taps, positions from one row's first tap to the next row's, positions from tap to tap): rows are
                   next to each other, and each position that several of them read is loaded once (own, one channel)
    """

    level: str
    dot: str
    rows: int
    vectors: int
    store: str = "s32"
    masked: bool = False
    flip_a: bool = False
    terms: int = 0
    resume: bool = False
    addressing: str = "stride"
    ahead: int = 0
    segmented: bool = False
    in_place: bool = False
    after: After | None = None
    own: tuple[int, int] | None = None
    side: tuple[int, int, int] | None = None

    @property
    def name(self) -> str:
        switches = {"m": self.masked, "f": self.flip_a, "r": self.resume, "s": self.segmented, "i": self.in_place}
        flags = "".join(letter for letter, on in switches.items() if on)
        size = f"{self.dot}_{self.level}_{self.rows}x{self.vectors}"
        flags += f"_{self.after.name}" if self.after is not None else ""
        flags += "_own{}_{}".format(*self.own) if self.own is not None else ""
        flags += "_side{}_{}_{}".format(*self.side) if self.side is not None else ""
        return f"tile_{size}_{self.store}_{self.terms}{self.addressing[0]}{self.ahead}{flags}"

    @property
    def unroll(self) -> int:
        """Steps per loop, each with accumulators of its own, so that a small tile still fills the pipeline."""
        if DOTS[self.dot].by_lane or DOTS[self.dot].real:
            return 1
        n, limit = 1, (16 if isa.LEVELS[self.level].registers >= 32 else 8)
        while self.rows * self.vectors * n * 2 <= limit and n < 8:
            n *= 2
        return n


class _Builder(Emitter):
    """The body of one tile. Loop state is (remaining, address in A, address in B, accumulators)."""

    def __init__(self, tile: Tile, made: Any):
        super().__init__(ir.IRBuilder(made.append_basic_block("entry")))
        self.tile, self.function = tile, made
        self.level, self.dot = isa.LEVELS[tile.level], DOTS[tile.dot]
        self.lanes = self.level.lanes
        self.kind = vector(F32 if self.dot.real else I32, self.lanes)
        self.arg = dict(zip(ARGUMENTS, made.args, strict=True))
        self.size = tile.rows * tile.vectors
        self.offsets: list[Any] = []
        if tile.flip_a:  # loaded: LLVM 22 never ends rewriting an xor of a broadcast with a constant
            self.flip = self.splat(self.load(self.offset(self.arg["epilogue"], CONSTANTS["flip"]), I32, 4), self.lanes)

    def build(self) -> None:
        arg, tile = self.arg, self.tile
        start = arg["a"]
        if tile.addressing == "table":
            offsets = 1 if tile.side else tile.rows
            entries = [self.load(self.offset(arg["lda"], 4 * i), I32, 4) for i in range(offsets)]
            self.offsets = [self.b.add(arg["a"], self.b.sext(x, I64)) for x in entries]
            start = self.i64(0)
        if tile.store in ("s32", "f32") and not tile.resume:
            with self.b.if_then(self.b.icmp_unsigned("!=", arg["own"], self.i64(0))):
                self.own_output()
        zero = self.constant(self.kind, 0.0 if self.dot.real else 0)
        accs = self.first() + [zero] * (self.size * (tile.unroll - 1))
        if tile.segmented:
            accs = self.loop_over_segments(start, accs)
        else:
            ka, pb, accs = self.segment(start, arg["b"], accs)
            accs = self.tail(ka, pb, accs)
        sums = accs[: self.size]
        for u in range(1, tile.unroll):
            sums = [self.b.add(x, y) for x, y in zip(sums, accs[u * self.size : (u + 1) * self.size], strict=True)]
        if self.dot.real:
            store_real(self, tile, sums, arg)
        else:
            emit_store(self, tile, self.corrected(sums), arg)
        self.b.ret_void()

    def first(self) -> list[Any]:
        width = 4 * self.lanes
        if self.tile.resume:
            return [
                self.load(self.offset(row, width * j), self.kind, 4)
                for row in self.row_addresses(self.arg["c"], self.arg["ldc"])
                for j in range(self.tile.vectors)
            ]
        if self.dot.real:
            return [self.constant(self.kind, 0.0)] * self.size
        columns = [
            self.load(self.offset(self.arg["columns"], width * j), self.kind, 4) for j in range(self.tile.vectors)
        ]
        return columns * self.tile.rows

    def own_output(self) -> None:
        """Ask for the output's cache lines. Worth 2 to 4 % where they are not in L2, and costs 1 % where they are."""
        for row in self.row_addresses(self.arg["c"], self.arg["ldc"]):
            for line in range(0, 4 * self.lanes * self.tile.vectors, 64):
                self.prefetch(self.offset(row, line), write=True)

    def row_addresses(self, first: Any, step: Any) -> list[Any]:
        addresses = [first]
        for _ in range(self.tile.rows - 1):
            addresses.append(self.b.add(addresses[-1], step))
        return addresses

    def a_rows(self, ka: Any) -> list[Any]:
        if self.offsets:
            return [self.b.add(row, ka) for row in self.offsets]
        return self.row_addresses(ka, self.arg["lda"])

    def flipped(self, value: Any) -> Any:
        if not self.tile.flip_a:
            return value
        return self.b.xor(value, self.flip if value.type.count == self.lanes else self.shuffle(self.flip, range(4)))

    def b_vectors(self, pb: Any) -> list[Any]:
        width = 4 * self.lanes
        if self.tile.ahead:
            for line in range(0, width * self.tile.vectors, 64):
                self.prefetch(self.offset(pb, self.tile.ahead + line))
        return [self.load(self.offset(pb, width * j), self.kind, width) for j in range(self.tile.vectors)]

    def multiply(self, accs: list[Any], a: list[Any], b: list[Any]) -> list[Any]:
        n = self.tile.vectors
        return [self.dot.emit(self, accs[i * n + j], a[i], b[j]) for i in range(len(a)) for j in range(n)]

    def step(self, ka: Any, pb: Any, accs: list[Any]) -> list[Any]:
        b = self.b_vectors(pb)
        a = [self.flipped(self.splat(self.load(row, self.kind.element, 1), self.lanes)) for row in self.a_rows(ka)]
        return self.multiply(accs, a, b)

    def four_steps(self, ka: Any, pb: Any, accs: list[Any]) -> list[Any]:
        """16 bytes of each row at once; every step broadcasts one lane of them.

        One vector of B at a time: 24 accumulators, 6 rows and one vector fit 32 registers.
        """
        four, n = vector(I32, 4), self.tile.vectors
        rows = [self.flipped(self.load(row, four, 1)) for row in self.a_rows(ka)]
        for u in range(4):
            a = [self.shuffle(row, [u] * self.lanes) for row in rows]
            for j in range(n):
                b = self.load(self.offset(pb, 4 * self.lanes * j), self.kind, 4 * self.lanes)
                for i in range(self.tile.rows):
                    accs[i * n + j] = self.dot.emit(self, accs[i * n + j], a[i], b)
            pb = self.b.add(pb, self.arg["pitch"])
        return accs

    def segment(self, ka: Any, pb: Any, accs: list[Any]) -> tuple[Any, Any, list[Any]]:
        steps, unroll = self.arg["steps"], 4 if self.dot.by_lane else self.tile.unroll
        if unroll == 1:
            return self.loop(steps, 1, ka, pb, accs)
        ka, pb, accs = self.guarded(self.b.udiv(steps, self.i64(unroll)), unroll, ka, pb, accs)
        return self.guarded(self.b.urem(steps, self.i64(unroll)), 1, ka, pb, accs)

    def loop(self, count: Any, unroll: int, ka: Any, pb: Any, accs: list[Any]) -> tuple[Any, Any, list[Any]]:
        """`count` times (at least once) `unroll` steps."""
        before = self.b.block
        body, end = self.function.append_basic_block("steps"), self.function.append_basic_block("summed")
        self.b.branch(body)
        self.b.position_at_end(body)
        state = [count, ka, pb, *accs]
        phis = [self.b.phi(x.type) for x in state]
        for phi, x in zip(phis, state, strict=True):
            phi.add_incoming(x, before)
        left, ka, pb, now = phis[0], phis[1], phis[2], list(phis[3:])
        if unroll == 4 and self.dot.by_lane:
            now = self.four_steps(ka, pb, now)
        else:
            at = pb
            for u in range(unroll):
                own = slice(u * self.size, (u + 1) * self.size)
                now[own] = self.step(self.offset(ka, 4 * u), at, now[own])
                at = self.b.add(at, self.arg["pitch"]) if u + 1 < unroll else at
        left = self.b.sub(left, self.i64(1))
        pitch = self.b.mul(self.arg["pitch"], self.i64(unroll)) if unroll > 1 else self.arg["pitch"]
        after = [left, self.offset(ka, 4 * unroll), self.b.add(pb, pitch), *now]
        for phi, x in zip(phis, after, strict=True):
            phi.add_incoming(x, self.b.block)
        self.b.cbranch(self.b.icmp_unsigned("!=", left, self.i64(0)), body, end)
        self.b.position_at_end(end)
        return after[1], after[2], now

    def when(self, condition: Any, state: list[Any], body: Callable[[], list[Any]]) -> list[Any]:
        """What body() makes of the state where the condition holds, else the state."""
        before = self.b.block
        yes, join = self.function.append_basic_block("some"), self.function.append_basic_block("joined")
        self.b.cbranch(condition, yes, join)
        self.b.position_at_end(yes)
        made = body()
        last = self.b.block
        self.b.branch(join)
        self.b.position_at_end(join)
        phis = []
        for x, y in zip(state, made, strict=True):
            phi = self.b.phi(x.type)
            phi.add_incoming(x, before)
            phi.add_incoming(y, last)
            phis.append(phi)
        return phis

    def guarded(self, count: Any, unroll: int, ka: Any, pb: Any, accs: list[Any]) -> tuple[Any, Any, list[Any]]:
        def body() -> list[Any]:
            a, b, now = self.loop(count, unroll, ka, pb, accs)
            return [a, b, *now]

        made = self.when(self.b.icmp_unsigned("!=", count, self.i64(0)), [ka, pb, *accs], body)
        return made[0], made[1], made[2:]

    def tail(self, ka: Any, pb: Any, accs: list[Any]) -> list[Any]:
        """The last 1 to 3 bytes of K: the row's last 4 bytes, shifted, so that nothing past the row is read."""
        if self.dot.group == 1 or (self.dot.group == 2 and not self.tile.in_place):
            return accs
        tail = self.arg["tail"]

        def body() -> list[Any]:
            back = self.b.sub(ka, self.b.sub(self.i64(4), tail))
            bits = self.b.sub(ir.Constant(I32, 32), self.b.shl(self.b.trunc(tail, I32), ir.Constant(I32, 3)))
            a = [
                self.flipped(self.splat(self.b.lshr(self.load(row, I32, 1), bits), self.lanes))
                for row in self.a_rows(back)
            ]
            a = [self.b.bitcast(x, self.kind) for x in a]
            own = self.multiply(accs[: self.size], a, self.b_vectors(pb))
            return own + accs[self.size :]

        return self.when(self.b.icmp_unsigned("!=", tail, self.i64(0)), accs, body)

    def loop_over_segments(self, ka: Any, accs: list[Any]) -> list[Any]:
        before = self.b.block
        body, end = self.function.append_basic_block("segment"), self.function.append_basic_block("last")
        self.b.branch(body)
        self.b.position_at_end(body)
        state = [self.arg["segments"], self.arg["starts"], self.arg["b"], *accs]
        phis = [self.b.phi(x.type) for x in state]
        for phi, x in zip(phis, state, strict=True):
            phi.add_incoming(x, before)
        begin = self.b.add(ka, self.b.sext(self.load(phis[1], I32, 4), I64))
        if self.tile.own is None:
            _, pb, now = self.segment(begin, phis[2], phis[3:])
        else:
            step = self.own_channels if self.tile.side is None else self.side_by_side
            pb, now = step(*self.tile.own, begin, phis[2], phis[3:])
        left = self.b.sub(phis[0], self.i64(1))
        after = [left, self.offset(phis[1], 4), pb, *now]
        for phi, x in zip(phis, after, strict=True):
            phi.add_incoming(x, self.b.block)
        self.b.cbranch(self.b.icmp_unsigned("!=", left, self.i64(0)), body, end)
        self.b.position_at_end(end)
        return now

    def own_channels(self, channels: int, outputs: int, ka: Any, pb: Any, accs: list[Any]) -> tuple[Any, list[Any]]:
        """A segment of which every column reads the channels of its group: vectors of A, whose lanes are spread."""
        n, now, rows = self.tile.vectors, list(accs), self.a_rows(ka)
        step = 4 * (self.lanes // outputs * channels)  # bytes of A that a vector of columns reads
        for i, row in enumerate(rows):
            for j in range(n):
                a = self.load(self.offset(row, step * j), self.kind, 4)
                at = pb
                for c in range(channels):
                    order = [lane // outputs * channels + c for lane in range(self.lanes)]
                    spread = a if order == list(range(self.lanes)) else self.shuffle(a, order)
                    b = self.load(self.offset(at, 4 * self.lanes * j), self.kind, 4 * self.lanes)
                    now[i * n + j] = self.dot.emit(self, now[i * n + j], spread, b)
                    at = self.b.add(at, self.arg["pitch"])
        for _ in range(channels):
            pb = self.b.add(pb, self.arg["pitch"])
        return pb, now

    def side_by_side(self, channels: int, outputs: int, ka: Any, pb: Any, accs: list[Any]) -> tuple[Any, list[Any]]:
        """The same for taps next to each other, of rows next to each other: each position is loaded once."""
        assert self.tile.side is not None
        taps, stride, apart = self.tile.side
        n, now = self.tile.vectors, list(accs)
        order = [lane // outputs for lane in range(self.lanes)]
        b = []
        for _ in range(taps):
            b.append([self.load(self.offset(pb, 4 * self.lanes * j), self.kind, 4 * self.lanes) for j in range(n)])
            pb = self.b.add(pb, self.arg["pitch"])
        address, at = self.b.add(self.offsets[0], ka), 0
        for q in sorted({i * stride + c * apart for i in range(self.tile.rows) for c in range(taps)}):
            for _ in range(at, q):
                address = self.b.add(address, self.arg["tail"])
            at = q
            for j in range(n):
                a = self.load(self.offset(address, 4 * (self.lanes // outputs * channels) * j), self.kind, 4)
                a = a if outputs == 1 else self.shuffle(a, order)
                for i in range(self.tile.rows):
                    c, rest = divmod(q - i * stride, apart)
                    if rest == 0 and 0 <= c < taps:
                        now[i * n + j] = self.dot.emit(self, now[i * n + j], a, b[c][j])
        return pb, now

    def corrected(self, sums: list[Any]) -> list[Any]:
        """The sums with the terms (factor of the row) x (factor of the column): asymmetric zero points."""
        n, width = self.tile.vectors, 4 * self.lanes
        for term in range(self.tile.terms):
            plane = self.arg["columns"]
            for _ in range(2 + term):
                plane = self.b.add(plane, self.arg["plane"])
            columns = [self.load(self.offset(plane, width * j), self.kind, 4) for j in range(n)]
            for i in range(self.tile.rows):
                factor = self.splat(self.load(self.offset(self.arg["rows"], 8 * i + 4 * term), I32, 4), self.lanes)
                for j in range(n):
                    sums[i * n + j] = self.b.add(sums[i * n + j], self.b.mul(factor, columns[j]))
        return sums


def emit(module: Any, tile: Tile, attributes: tuple[str, ...] = ()) -> Any:
    """The tile as an internal function of the module, made once."""
    made = module.globals.get(tile.name)
    if made is None:
        made = function(module, tile.name, len(ARGUMENTS), attributes)
        _Builder(tile, made).build()
    return made


def table(tiles: tuple[Any, ...], emit: Callable[..., Any] = emit) -> Any:
    """An intrinsic `(index) -> address` of tiles[index], which `call` takes. The tiles become part of the module.

    emit   (module, tile, attributes) -> the function of one tile; a tile has `name` and `level`
    """
    name = "table_" + "_".join(tile.name for tile in tiles)

    @intrinsic
    def address(typingctx: Any, index: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            module = builder.module
            attributes = isa.restriction(isa.LEVELS[tiles[0].level])
            functions = [emit(module, tile, attributes) for tile in tiles]
            pointer = functions[0].type
            kind = ir.ArrayType(pointer, len(functions))
            entries = module.globals.get(name)
            if entries is None:
                entries = ir.GlobalVariable(module, kind, name)
                entries.linkage, entries.global_constant = "internal", True
                entries.initializer = ir.Constant(kind, functions)
            entry = builder.load(builder.gep(entries, [ir.Constant(I64, 0), args[0]], inbounds=True))
            return builder.ptrtoint(entry, I64)

        return types.int64(types.int64), codegen

    return address


def _caller() -> Any:
    names = ", ".join(ARGUMENTS)
    scope: dict[str, Any] = {}

    def signature_and_code(tile: Any, *given: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            from ..simd import VOID

            kind = ir.FunctionType(VOID, [I64] * len(ARGUMENTS))
            builder.call(builder.inttoptr(args[0], kind.as_pointer()), args[1:])
            return context.get_dummy_value()

        return types.void(*[types.int64] * (1 + len(ARGUMENTS))), codegen

    exec(f"def call(typingctx, tile, {names}):\n    return make(tile, {names})", {"make": signature_and_code}, scope)
    return intrinsic(scope["call"])


call = _caller()
