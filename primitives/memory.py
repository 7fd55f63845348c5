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
    """Address of element zero, which is not the lowest one where a stride is negative."""
    return int(array.__array_interface__["data"][0])


def alignment_of(address: int) -> int:
    """Largest power of two up to 4096 that divides an address."""
    return min(address & -address, MAX_ALIGN) if address else MAX_ALIGN


def aligned_bytes(nbytes: int, align: int = 64) -> NDArray[np.uint8]:
    """Return uninitialised uint8 (nbytes,) whose address is a multiple of align."""
    block = np.empty(nbytes + align, np.uint8)
    start = -address_of(block) % align
    return block[start : start + nbytes]


def strided(
    array: NDArray[Any], shape: tuple[int, ...], strides: tuple[int, ...], writeable: bool = True
) -> NDArray[Any]:
    """The memory of an array under another shape and other strides, in bytes. Nothing is checked.

    NumPy's as_strided goes by the name of the type, and for one of ml_dtypes' that name means nothing ("<f1" of
    float8_e5m2); here the elements are nameless bytes on the way.
    """
    plain = array.view(np.dtype((np.void, array.itemsize)))
    return np.lib.stride_tricks.as_strided(plain, shape, strides, writeable=writeable).view(array.dtype)


class _Memory:
    """Bytes at an address, for NumPy to look at; keeps their owner alive."""

    def __init__(self, address: int, nbytes: int, readonly: bool, owner: object) -> None:
        self.owner = owner
        self.__array_interface__ = {"version": 3, "shape": (nbytes,), "typestr": "|u1", "data": (address, readonly)}


def array_at(
    address: int,
    shape: tuple[int, ...],
    byte_strides: tuple[int, ...],
    dtype: np.dtype[Any],
    readonly: bool,
    owner: object,
) -> NDArray[Any]:
    """Return the array whose element zero lies at an address of this process. It keeps owner alive."""
    array: NDArray[Any]
    if 0 in shape or not address:
        array = np.empty(shape, dtype)
    else:
        steps = [(n - 1) * s for n, s in zip(shape, byte_strides, strict=True)]
        before = -sum(s for s in steps if s < 0)
        memory = np.asarray(_Memory(address - before, sum(map(abs, steps)) + dtype.itemsize, readonly, owner))
        array = np.ndarray(shape, dtype, buffer=memory, offset=before, strides=byte_strides)
    array.flags.writeable = not readonly
    return array
