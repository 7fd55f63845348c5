"""Keys found among keys on the CPU. kernels/reference/tables.py says what the steps compute."""

from __future__ import annotations

import numpy as np
from numba import njit

from ...factory import register
from ...forge import Native
from ...tables.keys import FULL, TWICE, KeyCodes
from .text import length, optional, tile_of

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_LOCATE = f"from {__package__}.keys import locate, shift_of\n"


@njit(error_model="numpy")
def shift_of(size):
    """64 less the bits of a place's number."""
    bits = 0
    while (1 << bits) < size:
        bits += 1
    return np.uint64(64 - bits)


@njit(error_model="numpy")
def locate(table, key, shift):
    """The place of a key, or the free one where it would go."""
    mask = table.shape[0] - 1
    at = np.int64((np.uint64(key) * GOLDEN) >> shift)
    while table[at, 1] >= 0 and table[at, 0] != key:
        at = (at + 1) & mask
    return at


@register("key_table", backend="cpu")
def key_table() -> Native:
    body = [
        "shift = shift_of(table.shape[0])",
        "table[:, 0] = 0",
        "table[:, 1] = -1",
        "for n in range(keys.shape[0]):",
        "    key = np.int64(keys[n])",
        "    at = locate(table, key, shift)",
        "    if table[at, 1] >= 0:",
        f"        return {TWICE}",
        "    table[at, 0] = key",
        "    table[at, 1] = n",
        "return 0",
    ]
    return tile_of("k", ["keys", "table"], body, _LOCATE)


@register("key_find", backend="cpu")
def key_find() -> Native:
    body = [
        "shift = shift_of(table.shape[0])",
        "for n in range(n0, n1):",
        "    y[n] = np.int32(table[locate(table, np.int64(keys[n]), shift), 1])",
        "return 0",
    ]
    return tile_of("n", ["keys", "table", "y"], body, _LOCATE)


@register("key_codes", backend="cpu")
def key_codes(kernel: KeyCodes) -> Native:
    body = [
        "shift = shift_of(table.shape[0])",
        f"count = {length(kernel, 'keys')}",
        "y[count:] = -1",
        "for n in range(count):",
        *(["    if not where[n]:", "        y[n] = -1", "        continue"] if kernel.where else []),
        "    key = np.int64(keys[n])",
        "    at = locate(table, key, shift)",
        "    if table[at, 1] < 0:",
        "        if used[0] == found.shape[0]:",
        f"            return {FULL}",
        "        table[at, 0] = key",
        "        table[at, 1] = used[0]",
        "        found[used[0]] = key",
        "        used[0] += 1",
        "    y[n] = np.int32(table[at, 1])",
        "return 0",
    ]
    return tile_of("n", ["keys", *optional(kernel), "table", "found", "used", "y"], body, _LOCATE)
