"""Which depthwise convolutions the vector kernel takes, and the step that they become."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ....primitives import dtypes
from ....primitives.pipeline import Value
from ...chain import Chain
from ...conv import Conv
from ...factory import Expand, register
from ...relayout import channels_last, turned
from .. import isa as levels
from ..conv.expand import as_last, gather, weights_shape
from ..conv.steps import FoldGroups
from ..epilogues.finish import Finish
from ..epilogues.user_finish import UserFinish, user_finish
from ..gemm import expand as gemm_expand
from ..gemm import packing
from ..gemm.expand import _constant, _fixed, _record
from ..gemm.steps import MOST_COLUMNS, Engine, compiled
from .kernel import Block
from .steps import DepthwiseConv, blocks
from .weights import DepthwiseWeights, FillTables, fill, weight_tables

MOST_TAPS = 64  # of a kernel, whose code holds each of them


def takes(kernel: Any, operands: Mapping[str, Any], isa: str | None = None) -> str | None:
    """A requirement: the vector kernel can run this convolution and everything after it."""
    base = kernel.base if isinstance(kernel, Chain) else kernel
    level = levels.select(isa)
    if level.dot != "vpdpbusd" or level.lanes != 16:
        return f"it is for avx512_vnni, and this is {level.name}"
    if base.symmetric or base.transposed:
        return "it is for bytes, and not transposed"
    if not all(isinstance(n, int) and n > 0 for n in operands["w"].shape):
        return "its weights have sizes that are known only at run time, or none at all"
    weights = weights_shape(base, operands["w"].shape)
    if weights[1] != 1 or weights[5] != 1:
        return "its groups have more than a channel, or more than an output"
    if int(np.prod(base.kernel)) > MOST_TAPS:
        return f"its window has more than {MOST_TAPS} taps"
    return gather(kernel, operands)[2]


def centred(conv: Conv, weights: Any, zero_point: Any) -> Any:
    """Weights less their zero points: int64 (C, taps above each other, taps along W)."""
    zero = np.zeros(1, np.int64) if zero_point is None else zero_point.reshape(-1).astype(np.int64)
    groups, _, kd, kh, kw, _ = weights.shape
    return weights.reshape(groups, kd * kh, kw).astype(np.int64) - zero[:, None, None]


def _ranges(conv: Conv, weights: Any, zero_point: Value | None, channels: int) -> tuple[Any, Any]:
    """Per channel the least and the greatest that a weight, less its zero point, can be. weights: None if unknown."""
    info = np.iinfo(dtypes.get(conv.w_dtype).numpy)
    low, high = (np.full(channels, n, np.int64) for n in (info.min, info.max))
    if weights is not None:
        weights = weights.reshape(channels, -1).astype(np.int64)
        low, high = weights.min(1), weights.max(1)
    if zero_point is None:
        return low, high
    data = _constant(zero_point)
    if data is None:
        return low - info.max, high - info.min
    return low - data.reshape(-1).astype(np.int64), high - data.reshape(-1).astype(np.int64)


@register("expand.conv", backend="cpu", variant="depthwise", requires=(compiled, takes), priority=10)
@register("expand.fused_conv", backend="cpu", variant="depthwise", requires=(compiled, takes), priority=10)
def build(isa: str | None = None) -> Expand:
    return Expand(lambda pipe, kernel, operands: expand(pipe, kernel, operands, isa))


def expand(pipe: Any, kernel: Any, operands: dict[str, Value], level_name: str | None) -> Value:
    """Add the steps of a depthwise convolution and its epilogue to `pipe`; returns what they write."""
    base, epilogue, _ = gather(kernel, operands)
    level = levels.select(level_name)
    first = base.y_layout[1] == "C"
    x = turned(pipe, operands["x"], last=True) if base.x_layout[1] == "C" else operands["x"]
    last = channels_last(base.x_layout)
    conv = replace(base, x_layout=last, y_layout=last)
    w, zero = operands["w"], operands.get("b_zero_point")
    known = _constant(w)
    channels = weights_shape(conv, w.shape)[0]
    low, high = _ranges(conv, None if known is None else conv.canonical_weights(known), zero, channels)
    finish: Finish | UserFinish = epilogue.finish(level.name)
    residual, table, residual_dtype = epilogue.residual, epilogue.table, epilogue.residual_dtype
    extra: list[Any] = []
    if epilogue.generated:
        finish, extra = user_finish(level.name, epilogue.stages, channels)
        epilogue = gemm_expand.Epilogue(out=finish.out, bias=epilogue.bias, generated=True)
    direct = epilogue.direct and epilogue.out in ("u8", "s8")
    which = blocks(conv, level, epilogue.out if direct else "s32", low, high, direct and epilogue.quotient is not None)
    tables, columns = _operands(pipe, conv, level, epilogue, which, operands, channels)
    spatial = [conv.window.output(d, n) for d, n in enumerate(x.shape[1:-1])]
    step = DepthwiseConv(
        conv,
        level.name,
        channels,
        which,
        epilogue.out,
        direct,
        finish,
        (x.shape[0], *spatial, channels),
        _shift(conv),
        residual="" if residual is None else residual_dtype,
        table="" if table is None else table.dtype.name,
        extra=tuple((value.dtype.name, index) for value, index in extra),
    )
    rank = conv.spatial + 2
    more: dict[str, Any] = {} if residual is None else {"residual": as_last(pipe, residual, first, rank)}
    if table is not None:
        more["table"] = table
    more |= {f"x{n}": as_last(pipe, value, first, rank) for n, (value, _) in enumerate(extra)}
    out: Value = pipe.add(step, x=x, tables=tables, columns=columns, **more)
    out.axes = conv.y_layout
    return turned(pipe, out, last=False) if first else out


def _shift(conv: Conv) -> int:
    """What storing the image as u8 adds to its values, and so to its zero point."""
    return 128 if conv.x_dtype == "s8" else 0


def _operands(
    pipe: Any,
    conv: Conv,
    level: levels.Level,
    epilogue: Any,
    which: tuple[Block, ...],
    operands: Mapping[str, Value],
    channels: int,
) -> tuple[Any, Any]:
    """The tables and the columns that the step reads: constants where everything is known, else steps make them."""
    w, zero = operands["w"], operands.get("b_zero_point")
    given = {
        "bias": epilogue.bias,
        "multiplier": epilogue.multiplier,
        "shift": epilogue.shift,
        "a_zero_point": operands.get("a_zero_point"),
    }
    present = {slot: value for slot, value in given.items() if value is not None}
    layout = packing.PanelLayout(4, channels, level.lanes, 4, 4)
    data, zero_data = _constant(w), None if zero is None else _constant(zero)
    tables: Any = None
    if data is not None and (zero is None or zero_data is not None):
        weights = centred(conv, conv.canonical_weights(data), zero_data)
        tables, sums = weight_tables(which, weights), weights.sum((1, 2)).astype(np.int32)
        if all(_constant(value) is not None for value in present.values()):
            columns = _columns(
                layout, sums, {s: value.data.reshape(-1) for s, value in present.items()}, conv, epilogue
            )
            planes = columns.data[packing.CONSTANTS_SIZE :][: 2 * columns.plane].view(np.int32)
            fill(which, channels, tables, planes.reshape(2, -1))
            return _fixed(pipe, "tables", tables), _fixed(pipe, "columns", columns.data)
        tables = _fixed(pipe, "tables", tables)
        sums = pipe.constant("sums", np.pad(sums, (0, MOST_COLUMNS))[None])
    else:
        more = {} if zero is None else {"b_zero_point": zero}
        tables, sums = pipe.add(DepthwiseWeights(conv, which, channels), w=w, **more)
    # what is left of the weights is symmetric s8
    engine = Engine(level.name, conv.x_dtype, "s8", "s32")
    fold = FoldGroups(engine, 1, tuple(present), epilogue.scale == "fixed")
    columns = pipe.add(fold, sums=sums, record=_record(epilogue), **present)
    made = pipe.add(FillTables(which, channels, packing.plane_bytes(layout)), weights=tables, columns=columns)
    return made, columns


def _columns(
    layout: packing.PanelLayout, sums: Any, data: Mapping[str, Any], conv: Conv, epilogue: Any
) -> packing.Columns:
    return packing.fold(
        layout,
        sums,
        a_zero_point=int(data["a_zero_point"][0]) if "a_zero_point" in data else 0,
        a_shift=_shift(conv),
        bias=data.get("bias"),
        multiplier=data.get("multiplier"),
        shift=31 - data["shift"] if "shift" in data else None,
        constants=epilogue.constants(),
    )
