"""Aggregates over a moving window on the CPU. kernels/reference/tables.py says what they compute."""

from __future__ import annotations

from ...factory import register
from ...forge import Native
from ...tables.window import Rolling
from .text import tile_of

PIECE = 2048  # rows that stay in the nearest cache while the window goes over them


@register("rolling", backend="cpu")
def rolling(kernel: Rolling) -> Native:
    fold = {
        "sum": "out[n] = out[n] + row[n]",
        "min": "out[n] = row[n] if row[n] < out[n] else out[n]",
        "max": "out[n] = row[n] if row[n] > out[n] else out[n]",
    }[kernel.how]
    body = [
        f"for first in range(n0, n1, {PIECE}):",
        f"    last = min(first + {PIECE}, n1)",
        "    out, row = y[first:last], x[first:last]",
        "    for n in range(out.shape[0]):",
        "        out[n] = row[n]",
        f"    for j in range(1, {kernel.width}):",
        "        row = x[first + j : last + j]",
        "        for n in range(out.shape[0]):",
        f"            {fold}",
        "return 0",
    ]
    return tile_of("n", ["x", "y"], body)
