"""A step on CUDA as data: which kernels are launched, on how many threads, over which memory.

A builder of this backend returns a `Device`. Asked with operands (arrays, or only their shapes and strides) it answers
with launches; who runs them, and where, is not its business.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...primitives import dtypes

# How a kernel sees a stored element: floats that the compiler cannot compute with are their bits, as are booleans.
POINTEES = {
    "u8": "u8", "s8": "s8", "u16": "u16", "s16": "s16", "u32": "u32", "s32": "s32", "u64": "u64", "s64": "s64",
    "f32": "f32", "f16": "u16", "bf16": "u16",
}  # fmt: skip


@dataclass(frozen=True)
class At:
    """A pointer argument: the first element of operand number `operand` of the step."""

    operand: int


@dataclass(frozen=True)
class Temp:
    """A pointer argument: temporary memory number `index` of the step, of a type."""

    index: int
    dtype: str = "u8"


@dataclass(frozen=True)
class Status:
    """A pointer argument: one int32 that starts at 0; what a kernel leaves there becomes the step's status."""


Argument = int | At | Temp | Status


@dataclass(frozen=True)
class Launch:
    """One kernel launch.

    kernel       a plain Python function over kernels/cuda/seam.py's names
    parameters   per parameter its type: "s64" for an integer, "f32*" for a pointer
    grid, block  sizes along x, y, z
    args         what goes there
    writes       positions of the pointers that it stores through; others are only read
    """

    kernel: Callable[..., Any]
    parameters: tuple[str, ...]
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    args: tuple[Argument, ...]
    writes: tuple[int, ...]

    @property
    def name(self) -> str:
        return self.kernel.__name__

    @property
    def threads(self) -> int:
        return self.block[0] * self.block[1] * self.block[2]


@dataclass(frozen=True)
class Launches:
    """What a step does, in order, and the bytes of the temporary memory that it needs meanwhile."""

    launches: tuple[Launch, ...]
    temporaries: tuple[int, ...] = ()


@dataclass(frozen=True)
class Device:
    """An implementation on CUDA: `plan(*operands)` says what to launch. operands need shape, strides and dtype only."""

    plan: Callable[..., Launches]


def pointee(dtype: Any) -> str:
    """The type of the elements behind a pointer to such data; everything of 8 bits or less is u8 but s8."""
    return POINTEES.get(dtypes.get(dtype).name, "u8")


def element_strides(array: Any) -> tuple[int, ...]:
    """Strides in elements."""
    return tuple(stride // array.dtype.itemsize for stride in array.strides)


def address(array: Any) -> int:
    """The byte position that alignment is judged by: an array's address, an operand's offset from an aligned base."""
    offset = getattr(array, "offset", None)
    return int(offset if offset is not None else array.__array_interface__["data"][0])


def ceildiv(a: int, b: int) -> int:
    return -(-a // b)
