"""Which convolutions, and which steps after them, the micro-kernels take; and the steps that they become.

What may follow a convolution and how it is gathered is the GEMM's (gemm/expand.py, gemm/real_expand.py): an output channel is
a column, an output position a row. All of it is channels last; images and residuals in other layouts are turned first,
and the result is turned back (relayout.py), which executors.layouts takes out again between neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ....primitives.errors import ArgumentError
from ....primitives.pipeline import Value
from ...chain import Chain
from ...conv import Conv
from ...factory import Expand, register
from ...relayout import channels_last, permuted, turned
from ...tileparams import TileParam
from .. import isa as levels
from ..epilogues.epilogue import CONSTANTS_SIZE
from ..epilogues.finish import Finish
from ..epilogues.real_epilogue import After
from ..epilogues.real_finish import RealFinish
from ..epilogues.user_finish import UserFinish, user_finish
from ..gemm import expand as gemm_expand
from ..gemm import packing, real_expand
from ..gemm.dot import DOTS
from ..gemm.expand import _constant, _fixed, _record
from ..gemm.steps import ROW_SUM, Engine, PackPanels, compiled
from ..gemm.tiles import TILES as GEMM_TILES
from ..gemm.tiles import given_tile
from . import phases, plan
from .steps import FoldGroups, PanelConv
from .weights import ArrangeWeights, Segments, arrange, segments


def gather(kernel: Any, operands: Mapping[str, Any]) -> tuple[Conv, Any, str | None]:
    """The convolution and the epilogue of a kernel or a chain, channels last; and why the chain cannot be one kernel."""
    base = kernel.base if isinstance(kernel, Chain) else kernel
    found: Any = real_expand.Epilogue() if base.real else gemm_expand.Epilogue()
    if not isinstance(kernel, Chain):
        return base, found, None
    rank = base.spatial + 2
    for n, (stage, at) in enumerate(kernel.stages):
        own = {slot.removeprefix(f"s{n}_"): v for slot, v in operands.items() if slot.startswith(f"s{n}_")}
        if base.y_layout[1] == "C":
            stage = permuted(stage, rank)
            if stage is None:
                return base, found, "it is not known how to run it channels last"
        reason = found.take(stage, at, own, rank)
        if reason is not None:
            return base, found, reason
    return base, found, None


def takes(kernel: Any, operands: Mapping[str, Any]) -> str | None:
    """A requirement: the micro-kernels can run this convolution and everything after it."""
    base = kernel.base if isinstance(kernel, Chain) else kernel
    if not all(isinstance(n, int) and n > 0 for n in operands["w"].shape):
        return "its weights have sizes that are known only at run time, or none at all"
    if phases.serves(base, operands) is None:
        return "its phases are convolutions of their own"
    if base.x_dtype == "s16" and _constant(operands["w"]) is None:
        return "s16 weights are known only at run time"
    return gather(kernel, operands)[2]


TILES = {
    "mr": GEMM_TILES["mr"],
    "nr": GEMM_TILES["nr"],
    "band": TileParam(values=(1, 2, 4, 7, 8, 14, 16, 28, 56), doc="rows of output that are made from one copy"),
}


@register("expand.conv", backend="cpu", variant="microkernel", requires=(compiled, takes), tile_params=TILES)
@register("expand.fused_conv", backend="cpu", variant="microkernel", requires=(compiled, takes), tile_params=TILES)
def build(isa: str | None = None, tile: Mapping[str, int] | None = None) -> Expand:
    return Expand(lambda pipe, kernel, operands: expand(pipe, kernel, operands, isa, tile or {}))


def expand(
    pipe: Any, kernel: Any, operands: dict[str, Value], level_name: str | None, tile: Mapping[str, int]
) -> Value:
    """Add the steps of a convolution and its epilogue to `pipe`; returns what they write."""
    base, epilogue, _ = gather(kernel, operands)
    first = base.y_layout[1] == "C"
    x = turned(pipe, operands["x"], last=True) if base.x_layout[1] == "C" else operands["x"]
    last = channels_last(base.x_layout)
    conv = replace(base, x_layout=last, y_layout=last)
    out = panels(pipe, conv, epilogue, {**operands, "x": x}, levels.select(level_name), tile, first)
    return turned(pipe, out, last=False) if first else out


def panels(
    pipe: Any,
    conv: Conv,
    epilogue: Any,
    operands: dict[str, Value],
    level: levels.Level,
    tile: Mapping[str, int],
    first: bool,
) -> Value:
    """The steps for channels last. first: whether operands of the epilogue that are images have them first."""
    if tile.get("band", 1) < 1:
        raise ArgumentError(f"tile band={tile['band']}: a positive integer is needed")
    x, w = operands["x"], operands["w"]
    dot, cut, arranged, fits, terms = _arranged(conv, w, operands.get("b_zero_point"), level)
    outputs = cut.groups * cut.outputs
    residual, table = getattr(epilogue, "residual", None), getattr(epilogue, "table", None)
    residual_dtype = getattr(epilogue, "residual_dtype", "")
    engine, extra, epilogue = _engine(conv, epilogue, level, tile, fits, terms, outputs)
    given = {"bias": epilogue.bias, "multiplier": epilogue.scale if conv.real else epilogue.multiplier}
    if not conv.real:
        given["shift"] = epilogue.shift
        given |= {slot: operands.get(slot) for slot in ("a_zero_point", "b_zero_point")}
    present = {slot: value for slot, value in given.items() if value is not None}
    made = plan.tiles(engine, cut, dot, conv.window)
    shifts = made.a_shift, made.b_shift
    packed, columns = _operands(
        pipe, conv, engine, epilogue, cut, (w, operands.get("b_zero_point")), arranged, present, made.layout, shifts
    )
    spatial = [conv.window.output(d, n) for d, n in enumerate(x.shape[1:-1])]
    panels = PanelConv(
        engine,
        conv,
        cut,
        dot,
        (x.shape[0], *spatial, outputs),
        residual=residual_dtype,
        table="" if table is None else table.dtype.name,
        extra=tuple((value.dtype.name, index) for value, index in extra),
        band=tile.get("band"),
        idle=conv.real and dot == "fma" and _idle(_constant(w), _constant(epilogue.bias)),
    )
    rank = conv.spatial + 2
    more: dict[str, Any] = {} if residual is None else {"residual": as_last(pipe, residual, first, rank)}
    if table is not None:
        more["table"] = table
    more |= {f"x{n}": as_last(pipe, value, first, rank) for n, (value, _) in enumerate(extra)}
    out: Value = pipe.add(panels, x=x, packed=packed, columns=columns, **more)
    out.axes = conv.y_layout
    return out


def _idle(w: Any, bias: Any) -> bool:
    """PanelConv.idle; the operands are None where they are not known."""
    if w is None or bias is None:
        return False
    return bool(np.isfinite(w.astype(np.float32)).all() and not np.any((bias == 0) & np.signbit(bias)))


def as_last(pipe: Any, value: Value, first: bool, rank: int) -> Value:
    """An operand of the epilogue, channels last where it is an image."""
    return turned(pipe, value, last=True) if first and value.ndim == rank else value


def weights_shape(conv: Conv, w: tuple[int, ...]) -> tuple[int, ...]:
    """Sizes of (G, Og, KD, KH, KW, Cg)."""
    return tuple(conv.canonical_weights(np.broadcast_to(np.zeros((), np.uint8), w)).shape)


def _arranged(conv: Conv, w: Value, b_zero: Value | None, level: levels.Level) -> tuple[str, Segments, Any, bool, int]:
    """The instruction, how weights are cut for it, the weights so arranged if they are known, and Engine's
    `pairs_fit` and `terms`."""
    shape, data = weights_shape(conv, w.shape), _constant(w)
    known = np.zeros(1, np.int64) if b_zero is None else _constant(b_zero)

    def asymmetric(dot: str) -> bool:
        return known is None or bool(np.any(known.astype(np.int64) + packing.shift_of_b(conv.w_dtype, dot)))

    def arranged(cut: Segments) -> Any:
        if data is None or (known is None and cut.merged > 1):  # between merged groups lie their zero points
            return None
        return arrange(conv.canonical_weights(data), cut, 0 if known is None else known.reshape(-1))

    cut, fits = segments(conv, shape, 4, level.lanes, not conv.real), False
    if conv.x_dtype == "u8" and conv.w_dtype == "s8" and level.dot == "vpmaddwd":
        made = arranged(cut)
        fits = made is not None and all(packing.pairs_fit(b) for b in made)
    dot = "fma" if cut.own else plan.instruction(level, conv, cut.length, fits)
    terms = ROW_SUM if not conv.real and asymmetric(dot) else 0
    cut = segments(conv, shape, DOTS[dot].group, level.lanes, not conv.real)
    return dot, cut, arranged(cut), fits, terms


def _engine(
    conv: Conv,
    epilogue: Any,
    level: levels.Level,
    tile: Mapping[str, int],
    fits: bool,
    terms: int,
    outputs: int,
) -> tuple[Engine, list[Any], Any]:
    """The engine, what a generated finish reads, and what is left of the epilogue to fold."""
    extra: list[Any] = []
    finish: Finish | RealFinish | UserFinish
    if conv.real:
        after: After | None = epilogue.after
        finish = RealFinish(level.name, epilogue.after)
        store, direct = epilogue.after.out, True
    else:
        finish = epilogue.finish(level.name)
        store, direct = epilogue.out, epilogue.direct
        after = epilogue.after if direct else None
    if epilogue.generated:
        sums = "f32" if conv.real else "s32"
        finish, extra = user_finish(level.name, epilogue.stages, outputs, sums)
        store, direct, after = finish.out, False, None
        epilogue = (
            real_expand.Epilogue()
            if conv.real
            else gemm_expand.Epilogue(out=finish.out, bias=epilogue.bias, generated=True)
        )
    engine = Engine(
        level.name,
        conv.x_dtype,
        conv.w_dtype,
        store,
        terms=terms,
        finish=finish,
        direct=direct,
        pairs_fit=fits,
        after=after,
        **{name: given for name, given in given_tile(level, tile).items() if name == "tile"},
    )
    return engine, extra, epilogue


def _operands(
    pipe: Any,
    conv: Conv,
    engine: Engine,
    epilogue: Any,
    cut: Segments,
    given: tuple[Value, Value | None],
    arranged: Any,
    present: Mapping[str, Value],
    layout: packing.PanelLayout,
    shifts: tuple[int, int],
) -> tuple[Any, Any]:
    """Packed weights and folded columns: constants where everything is known, else steps that make them."""
    if arranged is not None and all(_constant(value) is not None for value in present.values()):
        return _packed_now(pipe, conv, engine, epilogue, cut, arranged, present, layout, shifts)
    arranging, (w, zero) = ArrangeWeights(conv, cut), given
    b = pipe.add(arranging, w=w, **({"b_zero_point": zero} if arranging.zero else {}))
    # real numbers that are not multiplied in pairs are packed as float32, whatever both types are
    alone = replace(engine, a_dtype="f32") if conv.real and layout.group == 1 else engine
    packed, sums = pipe.add(PackPanels(alone, 1), b=b)
    record = epilogue.record() if conv.real else _record(epilogue)
    fold = FoldGroups(engine, 1, tuple(present), not conv.real and epilogue.scale == "fixed")
    return packed, pipe.add(fold, sums=sums, record=record, **present)


def _packed_now(
    pipe: Any,
    conv: Conv,
    engine: Engine,
    epilogue: Any,
    cut: Segments,
    arranged: Any,
    given: Mapping[str, Value],
    layout: packing.PanelLayout,
    shifts: tuple[int, int],
) -> tuple[Any, Any]:
    """The same through NumPy: nothing has to be compiled for what runs once."""
    n = cut.outputs
    packed = packing.aligned(cut.groups * _aligned(layout.nbytes)).reshape(cut.groups, -1)
    columns = packing.aligned(cut.groups * packing.columns_bytes(layout)).reshape(cut.groups, -1)
    for g in range(cut.groups):
        data = {slot: value.data.reshape(-1) for slot, value in given.items()}
        data = {s: x[g * n : (g + 1) * n] if x.size > 1 and s != "a_zero_point" else x for s, x in data.items()}
        packed[g, : layout.nbytes] = packing.pack(arranged[g], layout)
        if conv.real:
            columns[g, :CONSTANTS_SIZE] = epilogue.record()
            for plane, slot in enumerate(("bias", "multiplier")):
                if slot in data:
                    start = CONSTANTS_SIZE + plane * packing.plane_bytes(layout)
                    columns[g, start : start + 4 * n].view(np.float32)[:] = data[slot]
            continue
        a_zero = data.get("a_zero_point")
        columns[g] = packing.fold(
            layout,
            packing.column_sums(arranged[g], layout.group),
            a_zero_point=int(a_zero[0]) if a_zero is not None else 0,
            b_zero_point=data.get("b_zero_point", 0),
            a_shift=shifts[0],
            b_shift=shifts[1],
            bias=data.get("bias"),
            multiplier=data.get("multiplier"),
            shift=31 - data["shift"] if "shift" in data else None,
            constants=epilogue.constants(),
        ).data
    return _fixed(pipe, "packed", packed), _fixed(pipe, "columns", columns)


def _aligned(nbytes: int) -> int:
    return -(-nbytes // packing.ALIGN) * packing.ALIGN
