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
from {package}.scalar import *


@njit(inline="always")
def window(i, n, outputs, size, stride, before, after, step, adaptive, padding):
    # first position, taps, and how many of them count
    if adaptive:
        first = i * n // outputs
        end = ((i + 1) * n + outputs - 1) // outputs
        return first, end - first, max(end - first, 1)
    first = i * stride - before
    skipped = (-first + step - 1) // step if first < 0 else 0
    start = first if padding else first + skipped * step
    end = n + after if padding else n
    most = size - (0 if padding else skipped)
    return first, size, max(min(most, max(0, (end - start + step - 1) // step)), 1)


@njit(nogil=True, error_model="numpy")
def tile(
    n0, n1, d0, d1, h0, h1, o0, o1, x, {arguments}y,
    kd, kh, kw, sd, sh, sw, pd, ph, pw, qd, qh, qw, ld, lh, lw, adaptive, padding,
):
    for n in range(n0, n1):
        for d in range(d0, d1):
            z0, zn, zc = window(d, x.shape[1], y.shape[1], kd, sd, pd, qd, ld, adaptive, padding)
            for h in range(h0, h1):
                y0, yn, yc = window(h, x.shape[2], y.shape[2], kh, sh, ph, qh, lh, adaptive, padding)
                for v in range(y.shape[3]):
                    q0, qn, qc = window(v, x.shape[3], y.shape[3], kw, sw, pw, qw, lw, adaptive, padding)
                    out = y[n, d, h, v, o0:o1]
                    {total}
                    {total_name}[:] = {start}
                    taps = 0
                    for a in range(zn):
                        z = z0 + a * ld
                        if z < 0 or z >= x.shape[1]:
                            continue
                        for b in range(yn):
                            p = y0 + b * lh
                            if p < 0 or p >= x.shape[2]:
                                continue
                            for c in range(qn):
                                q = q0 + c * lw
                                if q < 0 or q >= x.shape[3]:
                                    continue
                                taps += 1
                                row = x[n, z, p, q, o0:o1]
                                for i in range(row.size):
                                    {tap}
                    {end}
"""

_TAP = {
    "max": "out[i] = max(out[i], row[i])",
    "max_f32": "out[i] = row[i] if row[i] > out[i] or row[i] != row[i] else out[i]",
    "sum_f32": "out[i] = out[i] + row[i]",
    "sum": "total[i] += np.int32(row[i])",
}
_MEAN = """\
count = np.float32(zc * yc * qc)
                    for i in range(out.size):
                        out[i] = out[i] / count"""
_CODES = """\
count, shift = np.float32(zc * yc * qc), np.int32(taps * np.int64(x_zero[()]))
                    scale, zero = multiplier[()], np.int32(y_zero[()])
                    for i in range(out.size):
                        real = np.float32(np.int32(total[i] - shift)) * scale / count
                        out[i] = saturate_narrow(rint32(real), zero, {lo}, {hi})"""


@register("pool", backend="cpu")
def build(kernel: Pool) -> WithParams:
    """The tile function; the window's numbers follow its operands."""
    codes = dtypes.get(kernel.dtype)
    if kernel.scaled:
        tap, end = _TAP["sum"], _CODES.format(lo=int(codes.min), hi=int(codes.max))
    elif kernel.kind == "average":
        tap, end = _TAP["sum_f32"], _MEAN
    else:
        tap, end = _TAP["max_f32" if kernel.x_dtype == "f32" else "max"], "pass"
    start = "0" if kernel.kind == "average" else "-np.inf" if kernel.x_dtype == "f32" else str(int(codes.min))
    text = _SOURCE.format(
        package=__package__,
        arguments="x_zero, multiplier, y_zero, sums, " if kernel.scaled else "",
        total="total = sums[: o1 - o0]" if kernel.scaled else "pass",
        total_name="total" if kernel.scaled else "out",
        start=start,
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

    return WithParams(Native(text), params)


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
