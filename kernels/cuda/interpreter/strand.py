"""Threads that run in step: one NumPy vector holds a register of all of them, a mask says who takes part."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from .faults import KernelFault

if TYPE_CHECKING:
    from .machine import Machine

Array = np.ndarray[Any, Any]


class Strand:
    """Whole blocks, or one warp of a block.

    mask            lanes that take part; None: all
    number          of each lane's thread in the grid: block number * threads in a block + thread
    block_epoch     block barriers that each lane has passed; warp_epoch likewise
    """

    def __init__(self, machine: Machine, number: Array) -> None:
        self.machine, self.number = machine, number
        self.threads = machine.threads
        self.block_number = number // machine.threads
        self.size = number.size
        self.mask: Array | None = None
        self.block_epoch = np.zeros(self.size, np.int64)
        self.warp_epoch = np.zeros(self.size, np.int64)
        self.line = 0
        self.copies: list[list[Any]] = [[]]  # groups of asynchronous copies, the last one open
        self._all = np.arange(self.size)

    def lanes(self) -> Array:
        return self._all if self.mask is None else np.flatnonzero(self.mask)

    def spread(self, found: Array, lanes: Array) -> Array:
        """Values of some lanes as a vector of all; the others hold poison."""
        if lanes.size == self.size:
            return found
        poison = np.nan if found.dtype.kind == "f" else False if found.dtype.kind == "b" else 0x5A5A5A5A
        whole = np.full(self.size, poison, found.dtype)
        whole[lanes] = found
        return whole

    @staticmethod
    def kind(x: Any) -> str:
        """ "f" float32, "i" integer, "u" uint64, "b" bool, "d" what would become float64."""
        if isinstance(x, (np.ndarray, np.generic)):
            if x.dtype.kind == "u" and x.dtype != np.uint64:
                return "i"
            return "d" if x.dtype == np.float64 else x.dtype.kind
        if isinstance(x, bool):
            return "b"
        return "i" if isinstance(x, int) else "d" if isinstance(x, float) else "?"

    def merged(self, old: Any, new: Any) -> Any:
        """The new value in the lanes that take part, the old one in the others."""
        if self.mask is None or old is None:
            return new
        if isinstance(new, tuple):
            return tuple(self.merged(o, n) for o, n in zip(old, new, strict=True))
        if not isinstance(new, (np.ndarray, np.generic, int, float)):
            return new
        a, b = self.kind(old), self.kind(new)
        if a != b and "f" in (a, b):
            self.fault("typing", f"a variable is {a!r} on one path and {b!r} on another: the compiler makes it float64")
        if a != b and "u" in (a, b):  # a name taken for a value of another type; the old one is gone
            return new
        return np.where(self.mask, new, old)

    def wrapped(self, x: Any, dtype: Any) -> Any:
        """An integer cut to the bits of a type, as int64."""
        if isinstance(x, np.ndarray):
            return x.astype(dtype).astype(np.int64)
        return int(np.array(int(x) % 2**64, np.uint64).astype(dtype))

    def vector(self, x: Any, dtype: Any = np.int64) -> Array:
        """A value as a vector of all lanes."""
        if isinstance(x, np.ndarray) and x.shape == (self.size,):
            return x
        return np.full(self.size, x, dtype)

    def fault(self, kind: str, what: str, lane: int | None = None) -> NoReturn:
        if lane is None:
            lanes = self.lanes()
            lane = int(lanes[0]) if lanes.size else 0
        raise KernelFault(
            kind, f"kernel {self.machine.name!r}, {self.machine.where(self.line)}: {what}; {self.place(lane)} [{kind}]"
        )

    def place(self, lane: int) -> str:
        return self.machine.place(int(self.number[min(lane, self.size - 1)]))

    # Barriers ------------------------------------------------------------------------------------------------------

    def whole_warps(self, what: str) -> Array:
        """The warps that take part, by position in the strand; a fault where some lanes of one do not."""
        if self.mask is None:
            return np.arange(self.size // 32)
        part = self.mask.reshape(-1, 32)
        active = part.any(1)
        if not part[active].all():
            warp = int(np.flatnonzero(active & ~part.all(1))[0])
            n = int(part[warp].sum())
            self.fault(
                "divergence", f"{what} with {n} of a warp's 32 lanes: the others are elsewhere or have left", 32 * warp
            )
        return np.flatnonzero(active)

    def sync_warp(self) -> None:
        warps = self.whole_warps("cuda.syncwarp()")
        self.warp_epoch.reshape(-1, 32)[warps] += 1

    def sync_block(self) -> None:
        self.machine.barrier(self)
