"""What a depthwise convolution becomes on the CPU: tables of its weights, and one sweep over the image.

What follows the sums is what follows a GEMM's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ....primitives.kernel import ArgSpec, IndexSpace
from ...conv import Conv
from ...factory import WithParams, register
from ...forge import Native
from ...indexing import Index
from ...window import canonical, image_follows, in_three, index_axes, result_follows
from .. import isa
from ..epilogues.finish import Finish
from ..epilogues.user_finish import UserFinish
from ..gemm import driver as gemm
from ..gemm import packing
from ..gemm import plan as gemm_plan
from ..gemm.steps import _NO_BYTES, _spread
from . import driver
from .kernel import Block, Unit, addresses
from .weights import parts, places

_NO_IMAGE = np.zeros((0, 0, 0, 0, 0), np.uint8)
SUMS = 16  # outputs that a unit holds, at most: four vectors each


def blocks(conv: Conv, level: isa.Level, store: str, low: Any, high: Any, quotient: bool = False) -> tuple[Block, ...]:
    """Blocks of 64 channels, and of 16 or 32 for the rest; one that would pass the end begins earlier.

    low, high  (C,) the least and the greatest that a weight of each channel can be, less its zero point
    """
    channels = len(low)
    kd, kh, kw = in_three(conv.kernel, 1)
    stride, apart = in_three(conv.strides, 1), in_three(conv.dilations, 1)
    span = (kh - 1) * apart[1] + 1
    # outputs above each other share rows where they lie next to each other: four rows of taps for 3 are worth it
    tall = {3: 2, 5: 4, 7: 2}.get(kh, 1) if stride[1] == apart[1] == kd == 1 else 1
    wide = 2 if kw > 1 and stride[2] < (kw - 1) * apart[2] + 1 and 4 * tall * 2 <= SUMS else 1
    total = (tall - 1) * stride[1] + span

    def unit(rows: int, outputs: int, size: int, height: int, masked: bool, many: int) -> Unit:
        read = tuple(
            tuple(a * height + r * stride[1] + b * apart[1] for a in range(kd) for b in range(kh)) for r in range(rows)
        )
        return Unit(level.name, (kd * kh, kw), apart[2], read, outputs, stride[2], size, store, masked, many, quotient)

    found, first = [], 0
    while first < channels:
        size = next((n for n in (16, 32) if channels - first <= n), 64)
        masked = channels < size
        start = first if first + size <= channels else max(0, channels - size)
        inside = slice(start, start + size)
        many = parts(int(low[inside].min()), int(high[inside].max()))
        whole, one = unit(tall, wide, size, total, masked, many), unit(1, 1, size, span, masked, many)
        found.append(Block(start, whole, one))
        first += size
    return tuple(found)


@dataclass(frozen=True)
class DepthwiseConv:
    """out[n, .., c] = epilogue(the window of channel c of x at n, .. times the weights of c), channels last.

    blocks  how channels are cut
    store   type of the result; direct: whether the kernels store it by themselves
    extra   (type, index over the result's axes) of what a generated finish reads
    """

    conv: Conv
    level: str
    channels: int
    blocks: tuple[Block, ...]
    store: str
    direct: bool
    finish: Finish | UserFinish
    shape: tuple[Any, ...]
    a_shift: int
    residual: str = ""
    table: str = ""
    extra: tuple[tuple[str, Index], ...] = ()

    name = "depthwise_panels"

    def signature(self) -> tuple[ArgSpec, ...]:
        conv = self.conv
        follows = result_follows(conv.y_layout)
        x = next(spec for spec in conv.signature() if spec.slot == "x")
        assert x.shape is not None
        specs = [
            ArgSpec(
                "x",
                conv.x_dtype,
                shape=(*x.shape[:-1], self.channels),
                follows=image_follows(conv.window, conv.x_layout, None),
            ),
            ArgSpec("tables", "u8", align=64),
            ArgSpec("columns", "u8", align=64),
        ]
        if self.residual:
            specs.append(ArgSpec("residual", self.residual, follows=follows))
        if self.table:
            specs.append(ArgSpec("table", self.table, shape=(256,)))
        for n, (dtype, index) in enumerate(self.extra):
            specs.append(ArgSpec(f"x{n}", dtype, follows=tuple(follows[at[0]] if at else None for at in index)))
        specs.append(ArgSpec("out", self.store, "write", follows=follows))
        return tuple(specs)

    def infer(self, shapes: Mapping[str, Any], operands: Mapping[str, Any]) -> dict[str, Any]:
        return {"out": self.shape}

    def index_space(self) -> IndexSpace:
        return IndexSpace(index_axes(self.conv.window, self.channels, self.channels))

    def execute(self, ctx: Any) -> None:
        x, out, conv = ctx.read("x"), ctx.write("out"), self.conv
        conv.window.check("conv", x.shape[1:-1])
        others = [np.broadcast_to(ctx.read("residual"), out.shape)] if self.residual else []
        others += [_spread(ctx.read(f"x{n}"), index, out.shape) for n, (_, index) in enumerate(self.extra)]
        others = [canonical(o, conv.y_layout) for o in others]
        x, y = canonical(x, conv.x_layout), canonical(out, conv.y_layout)
        scratch = ctx.scratch(_laid(self, x.shape, y.shape)[1])
        ctx.sweep(
            self,
            x,
            y,
            others[0] if self.residual else _NO_IMAGE,
            ctx.read("tables"),
            ctx.read("columns").reshape(-1),
            ctx.read("table") if self.table else _NO_BYTES,
            scratch,
            _described(self.blocks, self.channels),
            *others[bool(self.residual) :],
        )

    def detail(self, x: Any, out: Any, *_: Any) -> str:
        """What one unit holds, for `explain()`."""
        unit = self.blocks[0].unit
        most = max(block.unit.parts for block in self.blocks)
        return (
            f"vpdpbusd on {self.level}, {len(unit.rows)} x {unit.wide} outputs of {unit.channels} channels at once, "
            f"rows of the image in a ring{f', weights as sums of {most} s8' if most > 1 else ''}"
        )

    def cost(self, extents: Mapping[str, int], x: Any, out: Any, *_: Any) -> float:
        """About the bytes that could have been moved meanwhile."""
        return float(max(x.nbytes + out.nbytes, 4 * int(np.prod(out.shape))))


@lru_cache(maxsize=1024)
def _described(which: tuple[Block, ...], channels: int) -> Any:
    """What the driver reads of each block (driver.DESCRIPTION); kept, since plans hold its address."""
    units = tuple(dict.fromkeys(unit for block in which for unit in (block.unit, block.one)))
    found = dict(zip(units, addresses(units)[0], strict=True))
    return np.array(
        [
            [block.channel, found[block.unit], at[0], found[block.one], at[1]]
            for block, at in zip(which, places(which, channels), strict=True)
        ],
        np.int64,
    )


@lru_cache(maxsize=1024)
def _laid(kernel: DepthwiseConv, x: tuple[int, ...], out: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
    """The words that follow the operands, and bytes of scratch. x, out: shapes (N, D, H, W, C)."""
    window = kernel.conv.window
    kd, kh, kw = in_three(window.kernel, 1)
    stride, apart = in_three(window.strides, 1), in_three(window.dilations, 1)
    unit = kernel.blocks[0].unit
    tall, channels, width = len(unit.rows), kernel.channels, out[3]
    slots = (tall - 1) * stride[1] + (kh - 1) * apart[1] + 1
    line = (max(width - 1, 0) * stride[2] + (kw - 1) * apart[2] + 1) * channels + 128
    pitch = -(-line // 64) * 64
    pitch += 64 * (pitch % 1024 == 0)  # rows a power of two apart would share sets of L1
    held = max(channels, kernel.blocks[-1].unit.channels)
    places, at = {}, gemm.WORK
    for name, nbytes in (
        ("at_rows", 8 * kd * slots),
        ("at_zeros", pitch),
        ("at_ring", kd * slots * pitch),
        ("at_tile", 0 if kernel.direct else 4 * tall * width * held + 256),
        ("at_block", 8 * (gemm.WORDS + 6 * (len(kernel.extra) + 1))),
    ):
        places[name] = at
        at += -(-nbytes // 64) * 64
    layout = packing.PanelLayout(4, channels, isa.LEVELS[kernel.level].lanes, 4, 4)
    names = dict(zip(driver.NAMES[:15], window.words(), strict=True)) | places
    names |= {
        "slots": slots,
        "pitch": pitch,
        "flip": 0x80 if kernel.conv.x_dtype == "s8" else 0,
        "finish": 0 if kernel.direct else gemm_plan.finisher(kernel.finish).address,
        "plane": packing.plane_bytes(layout),
        "item": {"u8": 1, "s8": 1}.get(kernel.store, 4) if kernel.direct else 4,
        "a_shift": kernel.a_shift,
        "tall": tall,
        "wide": unit.wide,
        "held": held,
        "extras": len(kernel.extra),
    }
    return tuple(names[n] for n in driver.NAMES), at + 64


@register("depthwise_panels", backend="cpu", variant="vector")
def build(kernel: DepthwiseConv) -> WithParams:
    def params(x: Any, out: Any, *_: Any) -> list[int]:
        return list(_laid(kernel, x.shape, out.shape)[0])

    return WithParams(
        Native("from tilework.kernels.cpu.depthwise.driver import depthwise_entry as entry\n", raw=True),
        params,
        trailing=len(kernel.extra),
    )
