"""What is decided before a GEMM runs on the CPU: instruction, tile, panels, cache blocks, and the tiles' addresses."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from ... import forge
from .. import isa
from ..epilogues.finish import Finish
from ..epilogues.real_epilogue import After
from ..epilogues.real_finish import RealFinish
from ..epilogues.user_finish import UserFinish
from . import driver as gemm
from . import rows, wide_rows
from .dot import DOTS
from .microkernel import Tile
from .packing import PanelLayout, shift_of_a, shift_of_b

L2_FOR_A = 384 * 1024  # bytes of A that one pass over the panels keeps in L2
REAL_A = 1536 * 1024  # the same for float32 sums, which read A slowly enough to take it from L3
L2_FOR_OUTPUT = 896 * 1024  # bytes of output from which its lines are asked for ahead of time
PANEL_LIMIT = 1024 * 1024  # bytes of a panel of B beyond which K is split
K_SPLIT = 512 * 1024  # bytes of a panel that one pass then reads

# Bytes of packed B that tiles of up to SHORT rows, bound by memory, ask for ahead of time. On Zen 5 it is worth 9 to
# 12 % at 1 x 768 x 3072; on Zen 4 the hardware's own prefetch is 10 to 15 % better without.
SHORT = 4
AHEAD = {"znver5": 2048}
# rows x vectors of the tile, by level: measured, see tests/kernels/cpu for what each reaches
_SHAPES: dict[str, tuple[int, int]] = {
    "avx512_vnni": (6, 4),
    "avx512": (6, 4),
    "avx_vnni": (6, 2),
    "avx2": (6, 2),
    "generic": (4, 2),
    "neon": (6, 4),
    "dotprod": (6, 4),
    "i8mm": (6, 4),
}
# tallest tile where all of N fits in fewer vectors
_NARROW = {1: 16, 2: 8, 3: 8}


@dataclass(frozen=True)
class Family:
    """A specialisation: all tiles of one GEMM, for every height up to `rows`.

    store    what tiles of full panels write: "s32", "f32", "u8" or "s8"
    full     whether there are full panels
    rest     vectors of the last panel where it is narrower; 0 if there is none
    rest_store  what its tiles write
    after, rest_after  what follows float32 sums, in full panels and in the last one
    in_place rows of 2-byte elements are read where they are, and may end within a step
    segmented  rows of A have offsets of their own, and are read in segments: a convolution
    own, side  what columns and rows of a convolution of few channels read (microkernel.Tile)
    split_k  whether tiles that resume are wanted
    """

    level: str
    dot: str
    store: str
    rows: int
    vectors: int
    full: bool
    rest: int
    rest_store: str
    flip_a: bool = False
    terms: int = 0
    split_k: bool = False
    ahead: int = 0
    after: After | None = None
    rest_after: After | None = None
    in_place: bool = False
    segmented: bool = False
    own: tuple[int, int] | None = None
    side: tuple[int, int, int] | None = None

    def tiles(self, *, rest: bool, resume: bool = False) -> tuple[Tile, ...]:
        level = isa.LEVELS[self.level]
        return tuple(
            Tile(
                self.level,
                self.dot,
                rows,
                self.rest if rest else self.vectors,
                self.rest_store if rest else self.store,
                masked=rest and level.masked and not self.split_k,
                flip_a=self.flip_a,
                terms=0 if resume else self.terms,
                resume=resume,
                ahead=self.ahead if rows <= SHORT else 0,
                in_place=self.in_place,
                addressing="table" if self.segmented else "stride",
                segmented=self.segmented,
                after=self.rest_after if rest else self.after,
                own=self.own,
                side=self.side,
            )
            for rows in range(1, self.rows + 1)
        )

    def source(self) -> str:
        """Text of the generated module; its entry writes the tiles' addresses, in the order of `tables`."""
        lines = [
            "from tilework.kernels.cpu.gemm.microkernel import After, Tile, table",
            "from tilework.kernels.cpu.simd import put_s64",
            "",
        ]
        body, at = ["", "def entry(bases, block, ranges):"], 0
        for name, tiles in self.tables().items():
            lines.append(f"{name} = table((")
            lines += [f"    {tile!r}," for tile in tiles]
            lines.append("))")
            body += [
                f"    for r in range({len(tiles)}):",
                f"        put_s64(bases[0], {at} + r, {name}(r))",
            ]
            at += len(tiles)
        return "\n".join([*lines, *body, "    return 0", ""])

    def tables(self) -> dict[str, tuple[Tile, ...]]:
        tables = {}
        for kind, resume in (("tiles", False), ("resume", True)):
            if resume and not self.split_k:
                continue
            if self.full:
                tables[f"full_{kind}"] = self.tiles(rest=False, resume=resume)
            if self.rest:
                tables[f"rest_{kind}"] = self.tiles(rest=True, resume=resume)
        return tables


@cache
def addresses(family: Family) -> tuple[dict[str, int], Any]:
    """The address of each table of tile addresses, and what keeps them alive."""
    tables = family.tables()
    made = forge.table(family.source(), sum(map(len, tables.values())))
    places, at = {}, made.words.ctypes.data
    for name, tiles in tables.items():
        places[name] = at
        at += 8 * len(tiles)
    return places, made


def call_native(address: int, bases: Any, block: Any, ranges: Any) -> int:
    """Call a native entry from Python."""
    entry = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 3)(address)
    return int(entry(bases.ctypes.data, block.ctypes.data, ranges.ctypes.data))


def operand_words(**arrays: Any) -> list[int]:
    """The words of the driver's operands (gemm.OPERANDS) for arrays that stay where they are: base 0."""
    words: list[int] = []
    for name in gemm.OPERANDS:
        array = arrays.get(name)
        if array is None:
            words += [0] * (6 if name == "residual" else 4)
        else:
            words += [0, array.ctypes.data, *array.shape, *array.strides]
    return words


@lru_cache(maxsize=1)
def driver() -> forge.Entry:
    """The driver's native entry."""
    return forge.entry(
        forge.Native("from tilework.kernels.cpu.gemm.driver import gemm_entry as entry\n", raw=True), 2, ()
    )


@dataclass(frozen=True)
class Plan:
    """Everything about a GEMM but its addresses and M.

    read_a   how rows of A with unit inner stride are copied (rows.COPY, ...); 0 if they are read in place
    a_shift, b_shift   what storing the operands adds to their zero points (packing.fold)
    """

    K: int
    N: int
    a_dtype: str
    b_dtype: str
    family: Family
    layout: PanelLayout
    read_a: int
    a_shift: int
    b_shift: int
    out_item: int
    finish: bool
    finish_rest: bool
    given_mc: int | None = None
    given_kc: int | None = None

    @property
    def multiple(self) -> int:
        """Columns between places where N may be cut between threads."""
        return self.layout.nr

    def mc(self, M: int) -> int:
        """Rows of A in a pass: what L2 holds, in whole tiles of nearly equal number."""
        mr = self.family.rows
        if self.given_mc is not None:
            return max(mr, self.given_mc // mr * mr)
        room = REAL_A if DOTS[self.family.dot].real else L2_FOR_A
        limit = max(mr, room // (4 * self.layout.steps) // mr * mr)
        passes = max(1, -(-M // limit))
        return max(mr, -(-M // passes // mr) * mr)

    @property
    def kc(self) -> int:
        """Steps of K in a pass; the last pass never has a single one, which might be a tail without a whole step."""
        steps = self.layout.steps
        if not self.family.split_k:
            return steps
        if self.given_kc is not None:
            kc = max(2, self.given_kc // self.layout.group)
        else:
            kc = max(64, K_SPLIT // (4 * self.layout.nr))
        while steps % kc == 1:
            kc += 1
        return kc

    def copied(self, unit_stride: bool) -> int:
        """Bytes between copied rows of A; 0 if they are read in place. Powers of two would share sets of L1."""
        if unit_stride and not self.read_a:
            return 0
        pitch = -(-4 * self.layout.steps // 64) * 64
        return pitch + 64 * (pitch % 1024 == 0)

    def scratch_bytes(self, M: int, *, unit_stride: bool = True) -> int:
        """Bytes of scratch that one call for up to M rows needs; unit_stride says whether A's inner stride is one."""
        mc = self.mc(M)
        tile = 4 * self.layout.nr * (mc if self.family.split_k else gemm.HELD * self.family.rows)
        return gemm.WORK + 8 * mc + 64 + tile + mc * self.copied(unit_stride) + 64

    def parameters(self, M: int, *, plane: int, terms: int, unit_stride: bool = True, finish: int = 0) -> list[int]:
        """The words that follow the operands in the driver's block (gemm.NAMES)."""
        places, _ = addresses(self.family)
        copied = self.copied(unit_stride)
        read = (self.read_a or _COPY.get(self.a_dtype, rows.COPY)) if copied else 0
        signed = self.a_dtype == "s8"
        words = {
            "full_tiles": places.get("full_tiles", 0),
            "rest_tiles": places.get("rest_tiles", 0),
            "full_resume": places.get("full_resume", 0),
            "rest_resume": places.get("rest_resume", 0),
            "full_finish": finish if self.finish else 0,
            "rest_finish": finish if self.finish_rest else 0,
            "prepare": preparation(read, signed, terms),
            "mr": self.family.rows,
            "nr": self.layout.nr,
            "rest_width": self.layout.rest_vectors * self.layout.lanes,
            "steps": self.layout.steps,
            "item": self.out_item,
            "plane": plane,
            "mc": self.mc(M),
            "kc": self.kc,
            "copied": copied,
            "read_a": read,
            "terms": terms,
            "signed_a": int(signed),
            "a_shift": self.a_shift,
            "tail": 0 if copied else self.K * _BYTES.get(self.a_dtype, 1) & 3,
            "own": int(self.out_item * M * self.N >= L2_FOR_OUTPUT),
        }
        return [words[name] for name in gemm.NAMES]


@cache
def _preparation(read_a: int, signed: bool, factors: bool) -> forge.Entry:
    make = f"factors_entry({read_a}, {signed})" if factors else f"copy_entry({read_a})"
    name = make.partition("(")[0]
    home = "wide_rows" if read_a >= wide_rows.COPY_2 else "rows"
    return forge.entry(
        forge.Native(f"from tilework.kernels.cpu.gemm.{home} import {name}\n\nentry = {make}\n", raw=True), 1, ()
    )


def preparation(read_a: int, signed: bool, terms: int) -> int:
    """Address of the entry that prepares rows, 0 if none is needed."""
    if not read_a and not terms:
        return 0
    return _preparation(read_a, signed if terms else False, bool(terms)).address


@cache
def finisher(finish: Finish | RealFinish | UserFinish) -> forge.Entry:
    """The finish entry's compiled form; Plan.parameters wants its address."""
    if isinstance(finish, UserFinish):
        return forge.entry(forge.Native(finish.source(), raw=True), 2, ())
    home = "real_finish import After, RealFinish" if isinstance(finish, RealFinish) else "finish import Finish"
    text = f"from tilework.kernels.cpu.epilogues.{home}, finish_entry\n\nentry = finish_entry({finish!r})\n"
    return forge.entry(forge.Native(text, raw=True), 2, ())


@cache
def packer(level: str, dot: str, dtype: str) -> forge.Entry:
    """The entry that packs B at run time (pack_b.py)."""
    text = f"from tilework.kernels.cpu.gemm.pack_b import pack_entry\n\nentry = pack_entry({level!r}, {dot!r}, {dtype!r})\n"
    return forge.entry(forge.Native(text, raw=True), 1, ())


@cache
def folder() -> forge.Entry:
    """The entry that folds zero points and bias at run time (pack_b.py)."""
    return forge.entry(
        forge.Native("from tilework.kernels.cpu.gemm.pack_b import fold_entry as entry\n", raw=True), 1, ()
    )


ITEM = {"s32": 4, "f32": 4, "u8": 1, "s8": 1, "u16": 2, "s16": 2, "bool": 1}
REAL = ("f32", "f16", "bf16")
_BYTES = {"s16": 2, "bf16": 2, "f16": 2, "f32": 4}  # of an element of A; 1 for the others
_COPY = {"s16": wide_rows.COPY_2, "bf16": wide_rows.COPY_2, "f32": wide_rows.COPY_4}
_WIDEN = {"bf16": wide_rows.WIDEN_BF16, "f16": wide_rows.WIDEN_F16}


def instruction(level: isa.Level, a_dtype: str, b_dtype: str, pairs_fit: bool = False) -> str:
    """The name in dot.DOTS of what multiplies these types at this level."""
    if a_dtype in REAL:
        return "vdpbf16ps" if a_dtype == b_dtype == "bf16" and isa.multiplies_bf16(level) else "fma"
    if a_dtype == "s16":
        return {"vpdpbusd": "vpdpwssd", "vpmaddwd": "vpmaddwd"}.get(level.dot, "plain")
    if level.dot == "vpmaddwd" and pairs_fit and a_dtype == "u8":
        return "vpmaddubsw"
    return level.dot


def plan(
    K: int,
    N: int,
    a_dtype: str,
    b_dtype: str,
    store: str = "s32",
    *,
    terms: int = 0,
    finish: bool = False,
    level: isa.Level | None = None,
    pairs_fit: bool = False,
    tile: tuple[int, int] | None = None,
    mc: int | None = None,
    kc: int | None = None,
    after: After | None = None,
) -> Plan:
    """Choose instruction, tile and panels.

    store      element type that the epilogue leaves
    terms      packing.Columns.terms
    finish     whether tiles go through a finish entry instead of storing by themselves
    pairs_fit  whether vpmaddubsw is known to be exact (packing.pairs_fit)
    tile       rows and vectors of the tile, instead of the measured ones
    mc, kc     rows and depth of a cache block, instead of those that fit
    after      what follows float32 sums
    """
    level = level or isa.select()
    dot = instruction(level, a_dtype, b_dtype, pairs_fit)
    mr, vectors = tile or _SHAPES[level.name]
    lanes, group = level.lanes, DOTS[dot].group
    needed = max(1, -(-N // lanes))
    if needed < vectors or N < vectors * lanes:
        vectors = needed
        if tile is None and level.registers >= 32:
            mr = _NARROW.get(vectors, mr)
    layout = PanelLayout(K, N, lanes, vectors, group)
    split_k = 4 * layout.steps * layout.nr > PANEL_LIMIT if kc is None else kc < K
    rest = layout.rest_vectors
    finish = finish or split_k
    finish_rest = finish or bool(layout.rest % lanes and not level.masked)
    raw = "f32" if DOTS[dot].real else "s32"
    read_a = _read(a_dtype, dot, K)
    return Plan(
        K,
        N,
        a_dtype,
        b_dtype,
        Family(
            level.name,
            dot,
            raw if finish else store,
            mr,
            vectors,
            layout.full > 0,
            rest,
            raw if finish_rest else store,
            flip_a=group == 4 and shift_of_a(a_dtype, dot) != 0,
            terms=(terms & 1) + (terms >> 1),
            split_k=split_k,
            ahead=AHEAD.get(isa.target()[1], 0),
            after=None if finish else after,
            rest_after=None if finish_rest else after,
            in_place=group == 2 and not read_a,
        ),
        layout,
        read_a=read_a,
        a_shift=shift_of_a(a_dtype, dot),
        b_shift=shift_of_b(b_dtype, dot),
        out_item=ITEM[store],
        finish=finish,
        finish_rest=finish_rest,
        given_mc=mc,
        given_kc=kc,
    )


def _read(a_dtype: str, dot: str, K: int) -> int:
    """How rows of A are copied whatever their stride; 0 if they are not. The tail of K reads a row's last 4 bytes."""
    if a_dtype in _BYTES:
        if DOTS[dot].element != a_dtype:
            return _WIDEN[a_dtype]
        return 0 if K * _BYTES[a_dtype] >= 4 else _COPY[a_dtype]
    if DOTS[dot].group == 2:
        return rows.WIDEN_U8 if a_dtype == "u8" else rows.WIDEN_S8
    return 0 if K >= 4 else rows.COPY
