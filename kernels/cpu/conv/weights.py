"""Weights of a convolution as matrices that the GEMM's packing takes: one a group, (K, N) in the order of segments.

A segment is what of a window lies contiguously in an image: all taps along W and their channels; all of a window, where
there is one axis; one tap's channels, where taps are apart or a group has not all channels. Each takes whole steps:
what fills the last one is zero. Where groups have few outputs they are one matrix: of integers, whose columns have the
zero point where they meet other groups' channels; of real numbers, whose columns each read those of their own group.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ....primitives import dtypes
from ....primitives.kernel import ArgSpec, Axis, IndexSpace
from ...conv import Conv
from ...factory import WithParams, register
from ...forge import Native

Array = np.ndarray[Any, Any]
# What stands where weights have no zero point; kept, since plans hold its address.
NO_ZERO_POINT = {name: np.zeros((), dtypes.get(name).numpy) for name in ("u8", "s8", "s16", "f32", "f16", "bf16")}


@dataclass(frozen=True)
class Segments:
    """
    kernel       taps along D, H and W
    channels     of a group
    outputs      of a group
    groups       how many
    deep, joint  taps along H and along W that are one segment
    group        consecutive values of K in 4 bytes (dot.Dot.group)
    merged       groups of the convolution that are one group here: the weights between them are zero points
    fill         what fills the last step of a segment: packing stores it as zero
    own          outputs that share the channels of a group, where columns read those of their own; else 0
    """

    kernel: tuple[int, int, int]
    channels: int
    outputs: int
    groups: int
    deep: int
    joint: int
    group: int
    merged: int = 1
    fill: int = 0
    own: int = 0

    @property
    def length(self) -> int:
        """Values of K in a segment."""
        return self.deep * self.joint * self.channels

    @property
    def steps(self) -> int:
        return -(-self.length // self.group)

    @property
    def count(self) -> int:
        kd, kh, kw = self.kernel
        return kd * (kh // self.deep) * (kw // self.joint)

    @property
    def K(self) -> int:
        """Values of K with what fills the steps."""
        return self.count * self.steps * self.group


def segments(kernel: Conv, w: tuple[int, ...], group: int, lanes: int, merge: bool) -> Segments:
    """How weights of the shape (G, Og, KD, KH, KW, Cg) are cut.

    group  of the instruction
    merge  whether groups may become one, which multiplies some channels by weights of zero: not where zero times a
           number is not always zero
    """
    groups, outputs, kd, kh, kw, channels = w
    if kernel.real and groups > 1 and outputs < lanes and lanes % outputs == 0 and channels <= outputs:
        side = channels == 1 and kw > 1
        return Segments((kd, kh, kw), channels, groups * outputs, 1, 1, kw if side else 1, 1, own=outputs)
    merged = 1
    if merge and groups > 1 and outputs < lanes:
        merged = max(q for q in range(1, groups + 1) if groups % q == 0 and q * outputs <= lanes)
    joint = kw if groups == merged and (kw == 1 or kernel.dilations[-1] == 1) else 1
    alone = kernel.spatial == 1 and groups == merged and (kh == 1 or kernel.dilations[0] == 1)
    return Segments(
        (kd, kh, kw),
        channels * merged,
        outputs * merged,
        groups // merged,
        kh if alone else 1,
        joint,
        group,
        merged,
        128 if kernel.w_dtype == "u8" and group == 4 else 0,
    )


def arrange(w: Array, cut: Segments, zero: Array | int = 0) -> Array:
    """(G, Og, KD, KH, KW, Cg) weights to (groups, K, outputs). zero: their zero point, one or (G * Og,)."""
    outputs, channels = w.shape[1], w.shape[5]
    if cut.own:
        return w.transpose(2, 3, 4, 5, 0, 1).reshape(1, cut.K, cut.outputs)  # taps, then channels
    zero = np.broadcast_to(np.asarray(zero, w.dtype), (cut.groups * cut.outputs,))
    taps = np.empty((cut.groups, *cut.kernel, cut.channels, cut.outputs), w.dtype)
    taps[:] = zero.reshape(cut.groups, 1, 1, 1, 1, cut.outputs)
    for q in range(cut.merged):
        part = w[q :: cut.merged].transpose(0, 2, 3, 4, 5, 1)
        taps[..., q * channels : (q + 1) * channels, q * outputs : (q + 1) * outputs] = part
    out = np.full((cut.groups, cut.count, cut.steps * cut.group, cut.outputs), cut.fill, w.dtype)
    out[:, :, : cut.length] = taps.reshape(cut.groups, cut.count, cut.length, cut.outputs)
    return out.reshape(cut.groups, cut.K, cut.outputs)


@dataclass(frozen=True)
class ArrangeWeights:
    """`arrange` for weights that are known only at run time, or whose zero points are."""

    conv: Conv
    cut: Segments

    @property
    def zero(self) -> bool:
        """Whether zero points are written between groups, and so are an operand."""
        return self.cut.merged > 1 and bool(self.conv.b_zero_point)

    name = "arrange_weights"

    def signature(self) -> tuple[ArgSpec, ...]:
        cut = self.cut
        given = {spec.slot: spec for spec in self.conv.signature()}
        return (
            ArgSpec("w", self.conv.w_dtype, shape=given["w"].shape),
            *([ArgSpec("b_zero_point", self.conv.w_dtype, shape=given["b_zero_point"].shape)] if self.zero else []),
            ArgSpec("b", self.conv.w_dtype, "write", shape=(cut.groups, cut.K, cut.outputs), follows=("g", None, None)),
        )

    def index_space(self) -> IndexSpace:
        return IndexSpace((Axis("g", self.cut.groups),))

    def execute(self, ctx: Any) -> None:
        cut = self.cut
        b = ctx.write("b").reshape(cut.groups, cut.count, cut.steps * cut.group, cut.outputs)
        zero = ctx.read("b_zero_point") if self.zero else NO_ZERO_POINT[self.conv.w_dtype]
        zero = np.broadcast_to(zero, (cut.groups * cut.outputs,))
        ctx.sweep(self, self.conv.canonical_weights(ctx.read("w")), zero, b)


_SOURCE = """\
from numba import njit


@njit(nogil=True, error_model="numpy")
def tile(g0, g1, w, zero, b, own, taps, merged, fill):
    groups, outputs, depth, height, width, channels = w.shape
    if own:  # one matrix, whose rows are taps and then the channels of a group
        for k in range(depth * height * width * channels):
            tap, c = k // channels, k % channels
            z, y, x = tap // (height * width), tap // width % height, tap % width
            for g in range(groups):
                for o in range(outputs):
                    b[0, k // b.shape[2], k % b.shape[2], g * outputs + o] = w[g, o, z, y, x, c]
        return
    for g in range(g0, g1):
        b[g] = b.dtype.type(fill)
        for tap in range(depth * height * width):
            z, y, x = tap // (height * width), tap // width % height, tap % width
            segment, place = tap // taps, tap % taps * channels * merged
            if merged > 1:
                for c in range(channels * merged):
                    for o in range(outputs * merged):
                        b[g, segment, place + c, o] = zero[g * merged * outputs + o]
            for q in range(merged):
                for c in range(channels):
                    for o in range(outputs):
                        b[g, segment, place + q * channels + c, q * outputs + o] = w[g * merged + q, o, z, y, x, c]
"""


@register("arrange_weights", backend="cpu")
def build(kernel: ArrangeWeights) -> WithParams:
    """The tile function; how weights are cut follows its operands, so that one serves all of a type."""
    cut = kernel.cut
    words = [cut.own, cut.deep * cut.joint, cut.merged, cut.fill]

    def params(*_: Any) -> list[int]:
        return words

    return WithParams(Native(_SOURCE), params)
