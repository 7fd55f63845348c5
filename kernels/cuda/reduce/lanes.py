"""The order of every float32 reduction: sixteen lanes and a tree. Half a warp holds the sixteen of one row.

kernels/reference/reduce/lanes.py says what the order is. Each function takes what a thread's lane came to and gives all
sixteen the result.
"""

from __future__ import annotations

import numpy as np

from .. import ptx
from ..seam import device
from ..vectormath import maximum, minimum


@device
def joined_add(v, first):
    """The tree: lane i with lane i + 8, then i + 4, i + 2 and i + 1; `first` is the lane of the warp that is lane 0."""
    for step in range(4):
        v = ptx.add(v, ptx.from_bits(ptx.shfl_down(ptx.bits(v), np.int32(8 >> step))))
    return ptx.from_bits(ptx.shfl_idx(ptx.bits(v), np.int32(first)))


@device
def joined_mul(v, first):
    for step in range(4):
        v = ptx.mul(v, ptx.from_bits(ptx.shfl_down(ptx.bits(v), np.int32(8 >> step))))
    return ptx.from_bits(ptx.shfl_idx(ptx.bits(v), np.int32(first)))


@device
def joined_max(v, first):
    for step in range(4):
        v = maximum(v, ptx.from_bits(ptx.shfl_down(ptx.bits(v), np.int32(8 >> step))))
    return ptx.from_bits(ptx.shfl_idx(ptx.bits(v), np.int32(first)))


@device
def joined_min(v, first):
    for step in range(4):
        v = minimum(v, ptx.from_bits(ptx.shfl_down(ptx.bits(v), np.int32(8 >> step))))
    return ptx.from_bits(ptx.shfl_idx(ptx.bits(v), np.int32(first)))


@device
def below(v, step):
    """The 64-bit value of the lane `step` above, as two words."""
    low = np.int64(ptx.shfl_down(np.int32(v), np.int32(step))) & 4294967295
    return (np.int64(ptx.shfl_down(np.int32(v >> 32), np.int32(step))) << 32) | low
