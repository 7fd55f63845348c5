"""Which depthwise convolutions the vector kernel takes, and the step that they become."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ....primitives.pipeline import Value
from ...chain import Chain
from ...conv import Conv
from ...factory import Expand, register
from ...relayout import channels_last, turned
from .. import gemm_expand, packing
from .. import isa as levels
from ..conv.expand import as_last, gather
from ..finish import Finish
from ..gemm_expand import _constant, _fixed
from ..gemm_steps import compiled
from ..user_finish import UserFinish, user_finish
from .steps import DepthwiseConv, blocks, tables

MOST_TAPS = 64  # of a kernel, whose code holds each of them


def takes(kernel: Any, operands: Mapping[str, Any], isa: str | None = None) -> str | None:
    """A requirement: the vector kernel can run this convolution and everything after it."""
    base = kernel.base if isinstance(kernel, Chain) else kernel
    level = levels.select(isa)
    if level.dot != "vpdpbusd" or level.lanes != 16:
        return f"it is for avx512_vnni, and this is {level.name}"
    if base.symmetric or base.transposed:
        return "it is for bytes, and not transposed"
    w = _constant(operands["w"])
    if w is None or w.size == 0:
        return "its weights are known only at run time"
    weights = base.canonical_weights(w)
    if weights.shape[1] != 1 or weights.shape[5] != 1:
        return "its groups have more than a channel, or more than an output"
    if int(np.prod(base.kernel)) > MOST_TAPS:
        return f"its window has more than {MOST_TAPS} taps"
    zeros = [operands.get(slot) for slot in ("a_zero_point", "b_zero_point")]
    if any(zero is not None and _constant(zero) is None for zero in zeros):
        return "its zero points are known only at run time"
    real = centred(base, weights, zeros[1])
    if real.min() < -128 or real.max() > 127:
        return "its weights, less their zero points, do not fit s8"
    _, epilogue, reason = gather(kernel, operands)
    if reason is None and any(
        value is not None and _constant(value) is None for value in (epilogue.bias, epilogue.multiplier, epilogue.shift)
    ):
        return "its bias is known only at run time"
    return reason


def centred(conv: Conv, weights: Any, zero_point: Any) -> Any:
    """Weights less their zero points: int64 (C, taps above each other, taps along W)."""
    zero = np.zeros(1, np.int64) if zero_point is None else zero_point.data.reshape(-1).astype(np.int64)
    groups, _, kd, kh, kw, _ = weights.shape
    return weights.reshape(groups, kd * kh, kw).astype(np.int64) - zero[:, None, None]


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
    weights = centred(conv, conv.canonical_weights(operands["w"].data), operands.get("b_zero_point"))
    channels = weights.shape[0]
    finish: Finish | UserFinish = Finish(
        level.name, epilogue.out, epilogue.scale, epilogue.residual_dtype, epilogue.table is not None
    )
    residual, table, residual_dtype = epilogue.residual, epilogue.table, epilogue.residual_dtype
    extra: list[Any] = []
    if epilogue.generated:
        finish, extra = user_finish(level.name, epilogue.stages, channels)
        epilogue = gemm_expand.Epilogue(out=finish.out, bias=epilogue.bias, generated=True)
    direct = epilogue.direct and epilogue.out in ("u8", "s8")
    a_zero, shift = operands.get("a_zero_point"), 128 if conv.x_dtype == "s8" else 0
    data = {
        slot: value.data.reshape(-1)
        for slot, value in (("bias", epilogue.bias), ("multiplier", epilogue.multiplier), ("shift", epilogue.shift))
        if value is not None
    }
    columns = packing.fold(
        packing.PanelLayout(4, channels, level.lanes, 4, 4),
        weights.sum((1, 2)).astype(np.int32),
        a_zero_point=0 if a_zero is None else int(a_zero.data.reshape(-1)[0]),
        a_shift=shift,
        bias=data.get("bias"),
        multiplier=data.get("multiplier"),
        shift=31 - data["shift"] if "shift" in data else None,
        constants=epilogue.constants(),
    )
    planes = columns.data[packing.CONSTANTS_SIZE :]
    starts = planes[: 4 * channels].view(np.int32)
    multipliers = planes[columns.plane : columns.plane + 4 * channels].view(np.float32)
    which = blocks(conv, level, channels, epilogue.out if direct else "s32")
    packed, places = tables(which, weights.astype(np.int8), starts, multipliers)
    spatial = [conv.window.output(d, n) for d, n in enumerate(x.shape[1:-1])]
    step = DepthwiseConv(
        conv,
        level.name,
        channels,
        which,
        tuple(places),
        epilogue.out,
        direct,
        finish,
        (x.shape[0], *spatial, channels),
        shift,
        residual="" if residual is None else residual_dtype,
        table="" if table is None else table.dtype.name,
        extra=tuple((value.dtype.name, index) for value, index in extra),
    )
    rank = conv.spatial + 2
    more: dict[str, Any] = {} if residual is None else {"residual": as_last(pipe, residual, first, rank)}
    if table is not None:
        more["table"] = table
    more |= {f"x{n}": as_last(pipe, value, first, rank) for n, (value, _) in enumerate(extra)}
    out: Value = pipe.add(
        step, x=x, tables=_fixed(pipe, "tables", packed), columns=_fixed(pipe, "columns", columns.data), **more
    )
    out.axes = conv.y_layout
    return turned(pipe, out, last=False) if first else out
