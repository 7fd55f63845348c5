"""Writing new rows into a cache on the CPU. kernels/reference/cache_append.py says what it does."""

from __future__ import annotations

from ...cache_append import FULL, CacheAppend
from ...factory import register
from ...forge import Native


@register("cache_append", backend="cpu")
def build(kernel: CacheAppend) -> Native:
    return Native(
        f"""\
import numpy as np
from numba import njit


@njit(nogil=True, error_model="numpy")
def tile(b0, b1, g0, g1, new, position, cache):
    start = np.int64(position[()])
    if start < 0 or start + new.shape[2] > cache.shape[2]:
        return np.int32({FULL})
    for b in range(b0, b1):
        for g in range(g0, g1):
            for t in range(new.shape[2]):
                row, target = new[b, g, t], cache[b, g, start + t]
                for d in range(row.size):
                    target[d] = row[d]
    return np.int32(0)
"""
    )
