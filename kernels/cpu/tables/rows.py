"""Rows chosen and rows in order on the CPU. kernels/reference/tables.py says what the steps compute."""

from __future__ import annotations

import numpy as np
from numba import njit

from ...factory import register
from ...forge import Native
from ...tables.rows import DIGITS, Compact, SortOrder
from .text import length, optional, tile_of


@register("compact", backend="cpu")
def compact(kernel: Compact) -> Native:
    """Every row is written where the next chosen one goes, so that nothing is guessed wrong; only some of them count."""
    columns = range(len(kernel.types))
    body = [f"n = {length(kernel, 'mask')}", "chosen = 0"]
    if kernel.types:
        body += [
            "for i in range(n):",
            *(f"    y{c}[chosen] = x{c}[i]" for c in columns),
            "    chosen += np.int64(mask[i])",
        ]
    else:
        body += ["for i in range(n):", "    chosen += np.int64(mask[i])"]
    body += [*(f"y{c}[chosen:] = 0" for c in columns), "count[()] = chosen", "return 0"]
    names = ["mask", *optional(kernel), *(f"x{c}" for c in columns), "count", *(f"y{c}" for c in columns)]
    return tile_of("n", names, body)


@njit(nogil=True, error_model="numpy")
def radix_sort(keys, order, other_keys, other_order, counts):
    """Sort keys and their places by a byte at a time, from the lowest; a byte in which all agree is passed over."""
    n = keys.shape[0]
    swapped = False
    for digit in range(8):
        shift = np.uint64(8 * digit)
        for b in range(256):
            counts[b] = 0
        for i in range(n):
            counts[(keys[i] >> shift) & np.uint64(255)] += 1
        if n == 0 or counts[(keys[0] >> shift) & np.uint64(255)] == n:
            continue
        total = 0
        for b in range(256):
            total, counts[b] = total + counts[b], total
        for i in range(n):
            b = (keys[i] >> shift) & np.uint64(255)
            other_keys[counts[b]] = keys[i]
            other_order[counts[b]] = order[i]
            counts[b] += 1
        keys, other_keys, order, other_order = other_keys, keys, other_order, order
        swapped = not swapped
    return swapped


@register("sort_order", backend="cpu")
def sort_order(kernel: SortOrder) -> Native:
    size = {"f32": 32, "s32": 32, "f64": 64, "s64": 64, "u8": 8, "s16": 16}[kernel.dtype]
    top, whole = f"np.uint64({2 ** (size - 1)})", f"np.uint64({2**size - 1})"
    lines = ["k = np.uint64(keys[i])"]
    if kernel.dtype.startswith("f"):
        infinity = {32: 0x7F800000, 64: 0x7FF0000000000000}[size]
        lines += [
            f"missing = (k & ~{top}) > np.uint64({infinity})",
            f"if k == {top}:",
            "    k = np.uint64(0)",  # -0 is 0
            f"k = (~k & {whole}) if k & {top} else (k | {top})",
        ]
    elif kernel.dtype.startswith("s"):
        lines.append(f"k = k ^ {top}")
    if kernel.descending:
        lines.append(f"k = ~k & {whole}")
    if kernel.dtype.startswith("f"):
        lines += ["if missing:", f"    k = {whole}"]
    body = [
        f"n = {length(kernel, 'keys')}",
        "mine, theirs, places = scratch[:n], scratch[n : 2 * n], scratch[2 * n : 3 * n]",
        f"order, counts = places.view(np.int64), scratch[3 * n : 3 * n + {DIGITS}].view(np.int64)",
        "for i in range(n):",
        *(f"    {line}" for line in lines),
        "    mine[i] = k",
        "    y[i] = i",
        "if radix_sort(mine, y[:n], theirs, order, counts):",
        "    for i in range(n):",
        "        y[i] = order[i]",
        "for i in range(n, y.shape[0]):",
        "    y[i] = i",
        "return 0",
    ]
    return tile_of(
        "n", ["keys", *optional(kernel), "y", "scratch"], body, f"from {__package__}.rows import radix_sort\n"
    )


@register("row_count", backend="cpu")
def row_count() -> Native:
    return tile_of("n", ["x", "y"], ["y[()] = x.shape[0]", "return 0"])
