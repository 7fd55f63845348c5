"""Quantiles by groups on the CPU. kernels/reference/tables.py says what the steps compute."""

from __future__ import annotations

from ...factory import register
from ...forge import Native
from ...tables.group import OUTSIDE
from ...tables.sketch import Sketch, SketchQuantile
from .text import length, optional, tile_of


@register("sketch", backend="cpu")
def sketch(kernel: Sketch) -> Native:
    body = [
        f"n = {length(kernel, 'x')}",
        "for i in range(n):",
        *(["    if not where[i]:", "        continue"] if kernel.where else []),
        "    g = codes[i]",
        "    if g < 0 or g >= counts.shape[0]:",
        f"        return {OUTSIDE}",
        "    b = np.int64(x[i])",
        "    if (b & 0x7FFFFFFF) > 0x7F800000:",
        "        continue",
        "    if b == 0x80000000:",
        "        b = 0",
        "    b = (~b & 0xFFFFFFFF) if b >= 0x80000000 else (b | 0x80000000)",
        f"    counts[g, b >> {32 - kernel.bits}] += 1",
        "return 0",
    ]
    return tile_of("n", ["x", "codes", *optional(kernel), "counts"], body)


@register("sketch_quantile", backend="cpu")
def sketch_quantile(kernel: SketchQuantile) -> Native:
    shift = 32 - kernel.bits
    body = [
        "for g in range(g0, g1):",
        "    total = np.int64(0)",
        "    for b in range(counts.shape[1]):",
        "        total += counts[g, b]",
        "    for j in range(q.shape[0]):",
        "        rank = max(np.ceil(q[j] * np.float64(total)), 1.0)",
        "        seen, b = np.int64(0), 0",
        "        while b < counts.shape[1] - 1 and np.float64(seen + counts[g, b]) < rank:",
        "            seen += counts[g, b]",
        "            b += 1",
        f"        key = (np.int64(b) << {shift}) | {1 << (shift - 1)}",
        "        key = key ^ 0x80000000 if key >= 0x80000000 else ~key & 0xFFFFFFFF",
        "        y[g, j] = np.uint32(key if total > 0 else 0x7FC00000)",
        "return 0",
    ]
    return tile_of("g", ["counts", "q", "y"], body)
