"""Aligned memory and addresses: what Buffer and Arena stand on."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import ArgumentError

MAX_ALIGN = 4096


def checked_align(align: object) -> int:
    """Return align as an int. Raises ArgumentError unless it is a power of two from 1 to 4096."""
    if isinstance(align, (int, np.integer)) and not isinstance(align, bool):
        value = int(align)
        if 1 <= value <= MAX_ALIGN and value & (value - 1) == 0:
            return value
    raise ArgumentError(f"align is a power of two up to {MAX_ALIGN}, such as 16, 32, 64 or 4096; found {align!r}")


def address_of(array: NDArray[Any]) -> int:
    """Address of the first element (of element zero, where strides are negative)."""
    return int(array.__array_interface__["data"][0])


def alignment_of(address: int) -> int:
    """Largest power of two up to 4096 that divides an address."""
    return min(address & -address, MAX_ALIGN) if address else MAX_ALIGN


def aligned_bytes(nbytes: int, align: int = 64) -> NDArray[np.uint8]:
    """Return uninitialised uint8 (nbytes,) whose address is a multiple of align."""
    block = np.empty(nbytes + align, np.uint8)
    start = -address_of(block) % align
    return block[start : start + nbytes]
