"""pool on the CPU: one output position after the other, all channels of a tap at once.

kernels/reference/pool.py says what it computes. Images with channels first are turned first (relayout.py), as for a
convolution.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...primitives import dtypes
from ..factory import Expand, WithParams, register
from ..forge import Native
from ..pool import Pool
from ..relayout import channels_last, turned
from ..window import in_three

_SOURCE = """\
import numpy as np
from numba import njit
from {package}.elements import place, read_at, write_at
from {package}.pool_rows import add_rows, fill_row, keep_larger, window
from {package}.scalar import rint32, saturate_narrow


@njit(nogil=True, error_model="numpy")
def tile({ranges}, x, {arguments}y, {words}):
    count = o1 - o0
    depth, height, width = x.shape[1], x.shape[2], x.shape[3]
    outputs_d, outputs_h, outputs_w = y.shape[1], y.shape[2], y.shape[3]
    step_d, step_h, step_w = ld * x.strides[1], lh * x.strides[2], lw * x.strides[3]
    for n in range(n0, n1):
        for d in range(d0, d1):
            z0, zn, zc = window(d, depth, outputs_d, kd, sd, pd, qd, ld, adaptive, padding)
            for h in range(h0, h1):
                y0, yn, yc = window(h, height, outputs_h, kh, sh, ph, qh, lh, adaptive, padding)
                for v in range(outputs_w):
                    q0, qn, qc = window(v, width, outputs_w, kw, sw, pw, qw, lw, adaptive, padding)
                    out = place(y, (n, d, h, v, o0))
                    {begin}
                    for a in range(zn):
                        for b in range(yn):
                            row = place(x, (n, z0, y0, q0, o0)) + a * step_d + b * step_h
                            {tap}
                    {end}
"""
_RANGES = "n0, n1, d0, d1, h0, h1, o0, o1"
_WORDS = "kd, kh, kw, sd, sh, sw, pd, ph, pw, qd, qh, qw, ld, lh, lw, adaptive, padding"

_MEAN = """\
among = np.float32(zc * yc * qc)
                    for i in range(count):
                        write_at(y, out, i * y.strides[4], read_at(y, out, i * y.strides[4]) / among)"""
_CODES = """\
among, scale, zero = np.float32(zc * yc * qc), multiplier[()], np.int32(y_zero[()])
                    for i in range(count):
                        real = np.float32(read_at(sums, total, i * 4)) * scale / among
                        write_at(y, out, i * y.strides[4], saturate_narrow(rint32(real), zero, {lo}, {hi}))"""
_SUMS = """\
total = place(sums, (0,))
                    fill_row(sums, total, -(zn * yn * qn) * np.int64(x_zero[()]), count)"""


@register("pool", backend="cpu")
def build(kernel: Pool) -> WithParams:
    """The tile function; the window's numbers follow its operands."""
    codes = dtypes.get(kernel.dtype)
    if kernel.scaled:
        begin, tap = _SUMS, "add_rows(sums, x, total, row, count, qn, step_w)"
        end = _CODES.format(lo=int(codes.min), hi=int(codes.max))
    elif kernel.kind == "average":
        begin, tap, end = (
            "fill_row(y, out, np.float32(0.0), count)",
            "add_rows(y, x, out, row, count, qn, step_w)",
            _MEAN,
        )
    else:
        least = "np.float32(-np.inf)" if kernel.x_dtype == "f32" else str(int(codes.min))
        begin, tap, end = f"fill_row(y, out, {least}, count)", "keep_larger(x, y, out, row, count, qn, step_w)", ""
    text = _SOURCE.format(
        package=__package__,
        ranges=_RANGES,
        arguments="x_zero, multiplier, y_zero, sums, " if kernel.scaled else "",
        words=_WORDS,
        begin=begin,
        tap=tap,
        end=end,
    )
    words = [
        *in_three(kernel.kernel, 1),
        *in_three(kernel.strides, 1),
        *in_three(kernel.before, 0),
        *in_three(kernel.after, 0),
        *in_three(kernel.dilations, 1),
        int(bool(kernel.adaptive)),
        int(kernel.count_padding),
    ]
    if kernel.adaptive:
        words[12:15] = [1, 1, 1]

    def params(*_: Any) -> list[int]:
        return words

    return WithParams(Native(text, joined=True), params)


def first(kernel: Pool) -> str | None:
    """A requirement: there is something to turn."""
    return None if "C" in (kernel.x_layout[1], kernel.y_layout[1]) else "its channels are last already"


@register("expand.pool", backend="cpu", requires=first)
def build_expand() -> Expand:
    return Expand(expand)


def expand(pipe: Any, kernel: Pool, operands: Mapping[str, Any]) -> Any:
    """Add the steps of a pool over an image with channels first, turned before and behind."""
    last = channels_last(kernel.x_layout)
    x = turned(pipe, operands["x"], last=True) if kernel.x_layout[1] == "C" else operands["x"]
    y = pipe.add(replace(kernel, x_layout=last, y_layout=last), **{**operands, "x": x})
    y.axes = last
    return turned(pipe, y, last=False) if kernel.y_layout[1] == "C" else y
