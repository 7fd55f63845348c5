"""What a GEMM becomes on the CPU: B packed, its columns folded, and the panels multiplied.

Three steps, of which the first two are computed when the plan is made if B and the zero points are constants. The
engine below (gemm.py, plan.py) decides tiles and instructions; this file gives it operands.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from ....primitives import sizes
from ....primitives.kernel import ArgSpec, Axis, IndexSpace
from ...factory import WithParams, register
from ...forge import Native, jit_disabled
from ...indexing import Index
from .. import isa
from ..epilogues.epilogue import CONSTANTS_SIZE
from ..epilogues.finish import Finish
from ..epilogues.real_epilogue import After
from ..epilogues.real_finish import RealFinish
from ..epilogues.user_finish import UserFinish
from . import pack_b, packing
from . import plan as gemm_plan
from .rows import ROW_SUM, ROW_ZERO

TILES = ("mr", "nr", "mc", "kc")  # what tile= may set beside the axes of the index space
MOST_COLUMNS = 64  # columns that a panel may add to N


@dataclass(frozen=True)
class Engine:
    """Everything about a GEMM that does not depend on its sizes; `plan` adds those.

    store   element type that the epilogue leaves
    terms   rows.ROW_ZERO + rows.ROW_SUM: the correction terms that depend on the row
    finish  what a tile that does not store by itself goes through
    direct  whether tiles store by themselves where they can
    tile, mc, kc  rows and vectors of the register tile, rows and depth of a cache block, instead of the chosen ones
    after   what follows float32 sums, where they are such
    """

    level: str
    a_dtype: str
    b_dtype: str
    store: str
    terms: int = 0
    finish: Finish | RealFinish | UserFinish | None = None
    direct: bool = True
    pairs_fit: bool = False
    tile: tuple[int, int] | None = None
    mc: int | None = None
    kc: int | None = None
    after: After | None = None

    def plan(self, K: int, N: int) -> gemm_plan.Plan:
        return _plan(self, K, N)


@lru_cache(maxsize=4096)
def _plan(engine: Engine, K: int, N: int) -> gemm_plan.Plan:
    return gemm_plan.plan(
        K,
        N,
        engine.a_dtype,
        engine.b_dtype,
        engine.store,
        terms=engine.terms,
        finish=not engine.direct,
        level=isa.LEVELS[engine.level],
        pairs_fit=engine.pairs_fit,
        tile=engine.tile,
        mc=engine.mc,
        kc=engine.kc,
        after=engine.after,
    )


def packed_bytes(K: Any, N: Any, group: int) -> Any:
    """At least the bytes of packed B: an integer, or an expression of run-time sizes."""
    steps = sizes.maximum(1, sizes.ceildiv(K, group))
    return _whole(4 * (steps * (N + MOST_COLUMNS)) + packing.SLACK)


def columns_bytes(N: Any) -> Any:
    """At least the bytes of the folded columns."""
    return _whole(packing.PLANES * (4 * (N + MOST_COLUMNS) + packing.ALIGN) + CONSTANTS_SIZE)


def _whole(nbytes: Any) -> Any:
    """Up to whole cache lines, so that what follows is aligned too."""
    return packing.ALIGN * sizes.ceildiv(nbytes, packing.ALIGN)


@dataclass(frozen=True)
class PackPanels:
    """Pack B (.., K, N) into panels, and sum its columns as they are stored."""

    engine: Engine
    batch: int = 0

    name = "pack_panels"

    def signature(self) -> tuple[ArgSpec, ...]:
        lead = tuple(f"B{d}" for d in range(self.batch))
        return (
            ArgSpec("b", self.engine.b_dtype, shape=(*lead, "K", "N")),
            ArgSpec("packed", "u8", "write", align=64),
            ArgSpec("sums", "s32", "write", align=64),
        )

    def infer(self, shapes: Mapping[str, Any], operands: Mapping[str, Any]) -> dict[str, Any]:
        *lead, K, N = shapes["b"]
        group = self.engine.plan(4, MOST_COLUMNS).layout.group
        return {"packed": (*lead, packed_bytes(K, N, group)), "sums": (*lead, N + MOST_COLUMNS)}

    def index_space(self) -> IndexSpace:
        return IndexSpace((Axis("n", "N", multiple=MOST_COLUMNS * 4),))

    def execute(self, ctx: Any) -> None:
        b, packed, sums = ctx.read("b"), ctx.write("packed"), ctx.write("sums")
        for at in np.ndindex(b.shape[:-2]):
            ctx.sweep(self, b[at], packed[at], sums[at])


@register("pack_panels", backend="cpu")
def build_pack(kernel: PackPanels) -> WithParams:
    engine = kernel.engine

    def params(b: Any, packed: Any, sums: Any) -> list[int]:
        layout = engine.plan(*b.shape).layout
        words = {"nr": layout.nr, "rest_width": layout.rest_vectors * layout.lanes, "steps": layout.steps}
        return [words[name] for name in pack_b.PACK_PARAMETERS]

    dot = engine.plan(4, MOST_COLUMNS).family.dot
    if engine.b_dtype in ("u8", "s8"):
        home, given = "pack_b", f"{engine.level!r}, {dot!r}, {engine.b_dtype!r}"
    else:
        home, given = "wide_pack", f"{dot!r}, {engine.b_dtype!r}"
    text = f"from tilework.kernels.cpu.gemm.{home} import pack_entry\n\nentry = pack_entry({given})\n"
    return WithParams(Native(text, raw=True), params)


@dataclass(frozen=True)
class FoldColumns:
    """Fold column sums, zero points, bias and multipliers into the planes that tiles read.

    batch  leading dimensions of the sums
    slots  which of bias, multiplier, shift, a_zero_point, b_zero_point there are
    """

    engine: Engine
    batch: int = 0
    slots: tuple[str, ...] = ()
    fixed: bool = False

    name = "fold_columns"

    def signature(self) -> tuple[ArgSpec, ...]:
        kinds = {
            "bias": "s32" if self.engine.after is None else "f32",  # copied bit for bit either way
            "multiplier": "s32" if self.fixed else "f32",
            "shift": "s32",
            "a_zero_point": self.engine.a_dtype,
            "b_zero_point": self.engine.b_dtype,
        }
        return (
            ArgSpec("sums", "s32", shape=(*(f"B{d}" for d in range(self.batch)), "R")),
            *(ArgSpec(slot, kinds[slot]) for slot in self.slots),
            ArgSpec("record", "u8", shape=(CONSTANTS_SIZE,)),
            ArgSpec("columns", "u8", "write", align=64),
        )

    def infer(self, shapes: Mapping[str, Any], operands: Mapping[str, Any]) -> dict[str, Any]:
        *lead, room = shapes["sums"]
        return {"columns": (*lead, columns_bytes(room - MOST_COLUMNS))}

    def index_space(self) -> IndexSpace:
        return IndexSpace((Axis("n", sizes.size("R") - MOST_COLUMNS, split=False),))

    def execute(self, ctx: Any) -> None:
        sums, record, columns = ctx.read("sums"), ctx.read("record"), ctx.write("columns")
        n = sums.shape[-1] - MOST_COLUMNS
        operands = []
        for slot in ("bias", "multiplier", "shift"):
            operands.append(_along(ctx.read(slot), n) if slot in self.slots else _NO_WORDS)
        a_zero = ctx.read("a_zero_point") if "a_zero_point" in self.slots else None
        operands.append(_NO_BYTES if a_zero is None else np.broadcast_to(a_zero, (1,)))
        operands.append(_along(ctx.read("b_zero_point"), n) if "b_zero_point" in self.slots else _NO_BYTES)
        for at in np.ndindex(sums.shape[:-1]):
            ctx.sweep(self, sums[at][:n], *operands, record, columns[at])


def _along(operand: Any, n: int) -> Any:
    """One value for all columns, or one each, as (n,)."""
    while operand.ndim > 1:
        operand = operand[0]
    return np.broadcast_to(operand, (n,))


_NO_BYTES = np.zeros(0, np.uint8)
_NO_WORDS = np.zeros(0, np.int32)
_NO_ROWS = np.zeros((0, 0), np.uint8)


@register("fold_columns", backend="cpu")
def build_fold(kernel: FoldColumns) -> WithParams:
    engine = kernel.engine

    def params(sums: Any, *_: Any) -> list[int]:
        plan = engine.plan(4, sums.shape[0])
        words = {
            "plane": packing.plane_bytes(plan.layout),
            "a_shift": plan.a_shift,
            "b_shift": plan.b_shift,
            "terms": engine.terms,
            "signed_a": int(engine.a_dtype == "s8"),
            "signed_b": int(engine.b_dtype == "s8"),
        }
        return [words[name] for name in pack_b.FOLD_PARAMETERS]

    return WithParams(Native("from tilework.kernels.cpu.gemm.pack_b import fold_entry as entry\n", raw=True), params)


@dataclass(frozen=True)
class PanelGemm:
    """out[.., m, n] = epilogue(a[.., m, :] times packed columns n).

    a_batch, b_batch  per leading dimension of the operand, the batch axis that it follows; None: size 1
    row_zero_points   whether A has a zero point per row
    shape             of the result, in the pipeline's sizes
    residual, table   types of what the epilogue reads; "" where it has none
    extra             (type, index over the result's axes) of what a generated finish reads
    """

    engine: Engine
    shape: tuple[Any, ...]
    batch: int = 0
    a_batch: tuple[int | None, ...] = ()
    b_batch: tuple[int | None, ...] = ()
    row_zero_points: bool = False
    residual: str = ""
    table: str = ""
    extra: tuple[tuple[str, Index], ...] = ()

    name = "gemm_panels"
    own_tiles: ClassVar[tuple[str, ...]] = TILES

    def signature(self) -> tuple[ArgSpec, ...]:
        batch = "cdefgh"[: self.batch]
        a = tuple(1 if d is None else batch[d].upper() for d in self.a_batch)
        a_follows = tuple(None if d is None else batch[d] for d in self.a_batch)
        specs = [
            ArgSpec("a", self.engine.a_dtype, shape=(*a, "M", "K"), follows=(*a_follows, "m", None)),
            ArgSpec("packed", "u8", align=64, follows=("n",)),
            ArgSpec("columns", "u8", align=64),
        ]
        if self.row_zero_points:
            specs.append(ArgSpec("row_zero_points", self.engine.a_dtype))
        if self.residual:
            specs.append(ArgSpec("residual", self.residual, follows=(*batch, "m", "n")))
        if self.table:
            specs.append(ArgSpec("table", self.table, shape=(256,)))
        axes = (*batch, "m", "n")
        for n, (dtype, index) in enumerate(self.extra):
            specs.append(ArgSpec(f"x{n}", dtype, follows=tuple(axes[at[0]] if at else None for at in index)))
        out = (*(x.upper() for x in batch), "M", "N")
        specs.append(ArgSpec("out", self.engine.store, "write", shape=out, follows=(*batch, "m", "n")))
        return tuple(specs)

    def infer(self, shapes: Mapping[str, Any], operands: Mapping[str, Any]) -> dict[str, Any]:
        return {"out": self.shape}

    def index_space(self) -> IndexSpace:
        return IndexSpace((Axis("m", "M", multiple=4), Axis("n", "N", multiple=MOST_COLUMNS)))

    def execute(self, ctx: Any) -> None:
        a, packed, columns, out = ctx.read("a"), ctx.read("packed"), ctx.read("columns"), ctx.write("out")
        zeros = ctx.read("row_zero_points") if self.row_zero_points else None
        residual = ctx.read("residual") if self.residual else None
        table = ctx.read("table") if self.table else _NO_BYTES
        extra = [_spread(ctx.read(f"x{n}"), index, out.shape) for n, (_, index) in enumerate(self.extra)]
        K, N = a.shape[-1], out.shape[-1]
        if residual is not None:
            residual = np.broadcast_to(residual, out.shape)
        if zeros is not None:
            zeros = np.broadcast_to(zeros[..., 0] if zeros.ndim > 1 else zeros, out.shape[:-1])
        kernel = self
        if out.shape[-1] > 1 and out.strides[-1] != out.itemsize:  # tiles store whole vectors: these go value by value
            kernel = replace(self, engine=replace(self.engine, direct=False))
        scratch = ctx.scratch(kernel.engine.plan(K, N).scratch_bytes(out.shape[-2], unit_stride=_unit(a)))
        for a_at, b_at, at in self._pieces(out.shape[:-2]):
            rows = a[a_at]
            ctx.sweep(
                kernel,
                rows,
                packed[b_at],
                out[at],
                columns[b_at],
                zeros[at] if zeros is not None else _NO_BYTES,
                residual[at] if residual is not None else _NO_ROWS,
                table,
                scratch,
                *(x[at] for x in extra),
            )

    def detail(self, a: Any, packed: Any, out: Any, *_: Any) -> str:
        """Instruction, register tile and cache blocks at these sizes, for `explain()`."""
        plan = self.engine.plan(a.shape[1], out.shape[1])
        family, layout = plan.family, plan.layout
        vectors = family.vectors if family.full else family.rest
        given = [
            n
            for n, on in zip(("mr, nr", "mc", "kc"), (self.engine.tile, self.engine.mc, self.engine.kc), strict=True)
            if on
        ]
        return (
            f"{family.dot} on {family.level}, mr x nr {family.rows} x {vectors * layout.lanes}, mc {plan.mc(a.shape[0])}, "
            f"kc {plan.kc * layout.group}" + (f" ({', '.join(given)} as asked)" if given else "")
        )

    def _pieces(self, batch: tuple[int, ...]) -> Iterator[tuple[Any, Any, Any]]:
        for at in np.ndindex(batch):
            yield _follow(self.a_batch, at), _follow(self.b_batch, at), at

    def operations(self, extents: Mapping[str, int], a: Any, *_: Any) -> float:
        """Multiplications and additions of the product."""
        return 2.0 * math.prod(extents.values()) * a.shape[-1]

    def cost(self, extents: Mapping[str, int], a: Any, *_: Any) -> float:
        """About the bytes that could have been moved meanwhile: 8 products in the time of a byte, or B read once."""
        m, n, depth = extents["m"], extents["n"], max(1, a.shape[-1])
        return max(m * n * depth / 8, depth * n, 4.0 * m * n)


def _follow(follows: tuple[int | None, ...], at: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(0 if d is None else at[d] for d in follows)


def _spread(operand: Any, index: Index, shape: tuple[int, ...]) -> Any:
    """An operand with the shape of the result: stride 0 along axes that it does not follow."""
    axes = {at[0] for at in index if at is not None}
    operand = operand[(*(0 if at is None else slice(None) for at in index), ...)]
    return np.broadcast_to(operand[(*(slice(None) if d in axes else None for d in range(len(shape))), ...)], shape)


def _unit(rows: Any) -> bool:
    return rows.shape[-1] <= 1 or rows.strides[-1] == rows.itemsize


@register("gemm_panels", backend="cpu", variant="microkernel")
def build_gemm(kernel: PanelGemm) -> WithParams:
    engine = kernel.engine

    def params(a: Any, packed: Any, out: Any, columns: Any, *_: Any) -> list[int]:
        plan = engine.plan(a.shape[1], out.shape[1])
        needed = engine.finish is not None and (plan.finish or plan.finish_rest)
        finish = gemm_plan.finisher(engine.finish).address if needed else 0
        plane = packing.plane_bytes(plan.layout)
        return plan.parameters(a.shape[0], plane=plane, terms=engine.terms, unit_stride=_unit(a), finish=finish)

    driver = Native("from tilework.kernels.cpu.gemm.driver import gemm_entry as entry\n", raw=True)
    return WithParams(driver, params, trailing=len(kernel.extra))


def compiled() -> str | None:
    """A requirement: native code may be made."""
    return "NUMBA_DISABLE_JIT asks for plain Python" if jit_disabled() else None


__all__ = ["ROW_SUM", "ROW_ZERO", "Engine", "FoldColumns", "PackPanels", "PanelGemm", "compiled"]
