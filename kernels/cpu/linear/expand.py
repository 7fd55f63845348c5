"""Which linear steps, and which steps after them, the compiled kernels take; and the steps that they become.

Weights and their parameters are constants: they are packed once, when the plan is made, whatever their format, so a
kernel never sees how a checkpoint stored them. What follows may be what follows a gemm of real numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ....primitives.pipeline import Value
from ...chain import Chain
from ...factory import Expand, Whole, register
from ...linear import Linear
from ...reference.steps import linear_step
from ...tileparams import TileParam
from .. import isa as levels
from ..epilogues.epilogue import CONSTANTS_SIZE
from ..epilogues.real_finish import RealFinish
from ..epilogues.user_finish import UserFinish, user_finish
from ..gemm import packing, real_expand
from ..gemm.expand import _constant, _fixed
from ..gemm.steps import compiled
from ..gemm.tiles import row_blocks
from . import layout, real_rows, real_steps, real_store, rows, steps, store
from .decode import Round, user_source


class Epilogue(real_expand.Epilogue):
    """What follows. The standard stages read planes that are made with the plan, so their operands are constants."""

    def _bias(self, kernel: Any, at: str, operands: Mapping[str, Any], rank: int) -> str | None:
        if _constant(operands["b" if at == "a" else "a"]) is None:
            return "what is added is known only at run time"
        return super()._bias(kernel, at, operands, rank)


def gather(kernel: Any, operands: Mapping[str, Any]) -> tuple[Linear, Epilogue, str | None]:
    """The linear and the epilogue of a kernel or a chain; and why the chain cannot be one kernel."""
    found = Epilogue()
    if isinstance(kernel, Linear):
        return kernel, found, None
    base = kernel.base
    for n, (stage, at) in enumerate(kernel.stages):
        own = {slot.removeprefix(f"s{n}_"): v for slot, v in operands.items() if slot.startswith(f"s{n}_")}
        reason = found.take(stage, at, own, base.batch + 2)
        if reason is not None:
            return base, found, reason
    return base, found, None


def takes(kernel: Any, operands: Mapping[str, Any]) -> str | None:
    """A requirement: the compiled kernels can run this linear and everything after it."""
    base = kernel.base if isinstance(kernel, Chain) else kernel
    for slot in _weights(base):
        if _constant(operands[slot]) is None:
            return f"{slot} is known only at run time, and weights are packed when the plan is made"
    return gather(kernel, operands)[2]


def _weights(base: Linear) -> tuple[str, ...]:
    return ("codes", *base.format.parameters, *(("table",) if base.format.kind == "table" else ()))


TILES = {"mc": TileParam(values=row_blocks, doc="rows of x in a pass over the weights")}


@register("expand.linear", backend="cpu", variant="packed", requires=(compiled, takes), tile_params=TILES)
@register("expand.fused_linear", backend="cpu", variant="packed", requires=(compiled, takes), tile_params=TILES)
def build(isa: str | None = None, tile: Mapping[str, int] | None = None) -> Expand:
    return Expand(lambda pipe, kernel, operands: expand(pipe, kernel, operands, isa, tile or {}))


@register("linear", backend="cpu", variant="plain", priority=-100)
def build_plain(kernel: Linear) -> Whole:
    """The reference: where weights are known only at run time, or nothing may be compiled."""
    return linear_step(kernel)


def expand(
    pipe: Any, kernel: Any, operands: dict[str, Value], level_name: str | None, tile: Mapping[str, int]
) -> Value:
    """Add the steps of a linear and its epilogue to `pipe`; returns what they write."""
    base, epilogue, _ = gather(kernel, operands)
    level = levels.select(level_name)
    x = operands["x"]
    weights = [operands[slot].data for slot in _weights(base)]
    N = weights[0].shape[0]
    finish: RealFinish | UserFinish = RealFinish(level.name, epilogue.after)
    out, extra = epilogue.after.out, []
    if epilogue.generated:
        finish, extra = user_finish(level.name, epilogue.stages, N, "f32")
        out, epilogue = finish.out, Epilogue()
    columns, plane = _columns(epilogue, N, layout.columns_of(level))
    make = _integers if base.compute == "int8" else _reals
    rows, kind, engine, packed, table = make(base, level, weights, finish, tile.get("mc"))
    read = tuple((value.dtype.name, index) for value, index in extra)
    panels = kind(engine, (*x.shape[:-1], N), out, plane, base.batch, read)
    made: Value = pipe.add(
        panels,
        rows=pipe.add(rows, x=x),
        packed=_fixed(pipe, "packed", packed),
        columns=_fixed(pipe, "columns", columns),
        table=_fixed(pipe, "table", table),
        **{f"x{n}": value for n, (value, _) in enumerate(extra)},
    )
    return made


def _integers(base: Linear, level: levels.Level, weights: list[Any], finish: Any, mc: int | None) -> tuple[Any, ...]:
    """The step that makes rows, the class and engine of the one that multiplies, packed weights and table."""
    kept = store.store(level, base.format, base.K, *weights)
    codes, packed = kept.codes, kept.layout
    row = rows.RowLayout(
        base.K, packed.depth, packed.unit, codes.item, packed.parameters == 2 or codes.form == "shifts"
    )
    quantize = rows.QuantizeRows(row, codes, base.x_dtype, kept.above, base.activation == "row", base.batch)
    engine = steps.Engine(codes, packed, kept.zeros, row.block, row.pitch, finish, mc)
    return quantize, steps.LinearPanels, engine, kept.packed, kept.table


def _reals(base: Linear, level: levels.Level, weights: list[Any], finish: Any, mc: int | None) -> tuple[Any, ...]:
    """The same for float32 and bfloat16."""
    kept = real_store.store(level, base.format, base.K, *weights)
    native = base.compute == "bf16" and levels.multiplies_bf16(level)
    form = "f32" if base.compute == "f32" else "bf16" if native else "rounded"
    copy = real_rows.CopyRows(base.K, base.x_dtype, form, base.batch)
    engine = real_steps.RealEngine(
        kept.layout,
        kept.decode,
        "vdpbf16ps" if native else "fma",
        None if form == "f32" else Round(level.name, native, kept.numbers),
        user_source(level.name, base.format.captured, base.format.position) if base.format.kind == "decode" else "",
        real_rows.FORMS[form],
        copy.pitch,
        finish,
        mc,
    )
    return copy, real_steps.RealPanels, engine, kept.packed, kept.table


def _columns(epilogue: Epilogue, N: int, nr: int) -> tuple[Any, int]:
    """The constants and planes that finish entries read, and the bytes of a plane."""
    plane = -(-4 * -(-N // nr) * nr // packing.ALIGN) * packing.ALIGN
    columns = packing.aligned(CONSTANTS_SIZE + 2 * plane)
    columns[:CONSTANTS_SIZE] = epilogue.record()
    for n, value in enumerate((epilogue.bias, epilogue.scale)):
        if value is not None:
            start = CONSTANTS_SIZE + n * plane
            columns[start : start + 4 * N].view(np.float32)[:] = value.data.reshape(-1)
    return columns, plane
