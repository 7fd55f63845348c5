"""Rows chosen and rows in order on the CPU. kernels/reference/tables.py says what the steps compute."""

from __future__ import annotations

from ...factory import register
from ...forge import Native
from ...tables.rows import Compact, SortOrder
from ..integers import integers
from ..simd import get_s64, put_s64
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


@integers
def radix_sort(n, keys, order, step, other_keys, other_order, counts):
    """Sort n keys and their places by a byte at a time, from the lowest; a byte in which all agree is passed over.

    keys, order, other_keys, other_order, counts  addresses of 64-bit words, 256 of them in counts
    step                                          bytes from one place of `order` to the next
    Returns whether what is sorted is in the other ones.
    """
    swapped, other_step = 0, 8
    for digit in range(8):
        shift = 8 * digit
        for b in range(256):
            put_s64(counts, b, 0)
        for i in range(n):
            b = (get_s64(keys, i) >> shift) & 255
            put_s64(counts, b, get_s64(counts, b) + 1)
        if n == 0 or get_s64(counts, (get_s64(keys, 0) >> shift) & 255) == n:
            continue
        total = 0
        for b in range(256):
            before = total
            total += get_s64(counts, b)
            put_s64(counts, b, before)
        for i in range(n):
            key = get_s64(keys, i)
            b = (key >> shift) & 255
            place = get_s64(counts, b)
            put_s64(other_keys, place, key)
            put_s64(other_order + place * other_step, 0, get_s64(order + i * step, 0))
            put_s64(counts, b, place + 1)
        keys, other_keys = other_keys, keys
        order, other_order, step, other_step = other_order, order, other_step, step
        swapped = 1 - swapped
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
        "mine, theirs = place(scratch, (0,)), place(scratch, (n,))",
        "places, counts = place(scratch, (2 * n,)), place(scratch, (3 * n,))",
        "for i in range(n):",
        *(f"    {line}" for line in lines),
        "    scratch[i] = k",
        "    y[i] = i",
        "if radix_sort(n, mine, place(y, (0,)), y.strides[0], theirs, places, counts):",
        "    for i in range(n):",
        "        y[i] = np.int64(scratch[2 * n + i])",
        "for i in range(n, y.shape[0]):",
        "    y[i] = i",
        "return 0",
    ]
    return tile_of(
        "n",
        ["keys", *optional(kernel), "y", "scratch"],
        body,
        f"from {__package__}.rows import radix_sort\nfrom {__package__.rpartition('.')[0]}.elements import place\n",
    )


@register("row_count", backend="cpu")
def row_count() -> Native:
    return tile_of("n", ["x", "y"], ["y[()] = x.shape[0]", "return 0"])
