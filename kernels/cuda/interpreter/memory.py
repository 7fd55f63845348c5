"""Memory as kernels see it, with a record for every byte of who wrote and who read it last.

Two accesses to one byte, one of them a write, by different threads are a race unless a barrier of their block lies
between them, or a warp barrier where both are in one warp. The record finds a race whatever the schedule was. It also
knows bytes of shared memory that nobody wrote, and bytes that an asynchronous copy has not delivered yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from .strand import Strand

POISON = 0xA5
MANY = -1  # readers: more than one thread

Array = np.ndarray[Any, Any]


class Region:
    """Bytes that are checked together: one operand, or the shared memory of the blocks in a strand.

    writable   kernels may store to it; what is not is exempt from the record
    fresh      nothing was written yet: reading a byte before it is written is a fault
    start      address of the first byte, modulo 16
    """

    def __init__(self, name: str, data: Array, *, writable: bool, fresh: bool = False, start: int = 0) -> None:
        self.name, self.data, self.writable, self.fresh, self.start = name, data, writable, fresh, start
        if writable:
            n = data.size
            self.writer = np.zeros(n, np.int64)  # thread number + 1; 0: nobody in this launch
            self.write_epoch = np.zeros((2, n), np.int64)  # barriers of the block, of the warp, when it was written
            self.reader = np.zeros(n, np.int64)  # thread number + 1, MANY, or 0
            self.read_epoch = np.zeros((2, n), np.int64)
            self.pending = np.zeros(n, bool)

    def read(self, s: Strand, at: Array, size: int, lanes: Array) -> None:
        """Note that lanes read `size` bytes at byte positions; raise a fault where that is a race."""
        if not self.writable:
            return
        where, me, block, warp = self._spread(s, at, size, lanes)
        if self.pending[where].any():
            self._fault(
                s, "race", "reads bytes that an asynchronous copy has not delivered", where, self.pending[where]
            )
        writer = self.writer[where]
        if self.fresh and not writer.all():
            self._fault(s, "uninitialised", "reads bytes that nobody wrote", where, writer == 0)
        self._ordered(s, where, writer, self.write_epoch, me, block, warp, "reads what another thread writes")
        before = self.reader[where]
        stale = self.read_epoch[0][where] < block[1]
        self.reader[where] = np.where((before == 0) | (before == me) | stale, me, MANY)
        self.read_epoch[0][where], self.read_epoch[1][where] = block[1], warp[1]
        clash = (self.reader[where] != me) & (self.reader[where] != MANY)
        self.reader[where[clash]] = MANY  # lanes of this very instruction

    def write(self, s: Strand, at: Array, size: int, lanes: Array, *, delivered: bool = False) -> None:
        """Note that lanes write. delivered: these are the bytes of their own asynchronous copy."""
        if not self.writable:
            self._fault(s, "bounds", "writes memory that it may only read", at, np.ones(at.size, bool))
        where, me, block, warp = self._spread(s, at, size, lanes)
        if not delivered and self.pending[where].any():
            self._fault(s, "race", "writes bytes that an asynchronous copy is about to", where, self.pending[where])
        self._ordered(
            s, where, self.writer[where], self.write_epoch, me, block, warp, "writes what another thread writes"
        )
        self._ordered(
            s, where, self.reader[where], self.read_epoch, me, block, warp, "writes what another thread reads"
        )
        self.writer[where] = me
        self.write_epoch[0][where], self.write_epoch[1][where] = block[1], warp[1]
        self.reader[where] = 0
        clash = self.writer[where] != me
        if clash.any():
            self._fault(s, "race", "writes one place from several lanes at once", where, clash)

    def _spread(self, s: Strand, at: Array, size: int, lanes: Array) -> tuple[Array, Array, Any, Any]:
        """Each byte's position, its thread, and (number, barriers passed) of its block and of its warp."""
        me, block, warp = s.number[lanes] + 1, s.block_number[lanes], s.number[lanes] // 32
        passed = s.block_epoch[lanes], s.warp_epoch[lanes]
        if size == 1:
            return at, me, (block, passed[0]), (warp, passed[1])
        where = (at[:, None] + np.arange(size)).ravel()
        me, block, warp, block_epoch, warp_epoch = (np.repeat(x, size) for x in (me, block, warp, *passed))
        return where, me, (block, block_epoch), (warp, warp_epoch)

    def _ordered(
        self, s: Strand, where: Array, other: Array, epochs: Array, me: Array, block: Any, warp: Any, what: str
    ) -> None:
        """Raise a fault where another thread's access is not separated from this one by a barrier."""
        foreign = (other != 0) & (other != me)
        if not foreign.any():
            return
        many = other == MANY  # of this block, or it would have been a race already where any wrote
        same_block = many | ((other - 1) // s.threads == block[0])
        same_warp = ~many & ((other - 1) // 32 == warp[0])
        apart = (same_block & (epochs[0][where] < block[1])) | (same_warp & (epochs[1][where] < warp[1]))
        bad = foreign & ~apart
        if bad.any():
            self._fault(s, "race", f"{what} with no barrier between", where, bad, other)

    def _fault(self, s: Strand, kind: str, what: str, where: Array, bad: Array, other: Array | None = None) -> None:
        n = int(np.flatnonzero(bad)[0])
        whom = "" if other is None or other[n] <= 0 else f" (the other is {s.machine.place(int(other[n]) - 1)})"
        s.fault(kind, f"{what}: byte {int(where[n])} of {self.name}{whom}", s.machine.last_lane(where.size, n))


class Pointer:
    """A typed pointer into a region: what `x[i]` in a kernel reads and writes.

    base     byte position of element 0; an array has one for each lane
    length   elements that may be touched from element 0 on
    before   elements that may be touched before it: an array's strides may be negative
    """

    __slots__ = ("base", "before", "dtype", "length", "name", "region")

    def __init__(self, region: Region, dtype: Any, base: Any, length: int, name: str, before: int = 0) -> None:
        self.region, self.dtype, self.base, self.length, self.name = region, np.dtype(dtype), base, length, name
        self.before = before

    def positions(self, s: Strand, index: Any, nbytes: int) -> tuple[Array, Array]:
        """(lanes that take part, their byte positions) of accesses of `nbytes` at an element index; checked."""
        lanes = s.lanes()
        if isinstance(index, np.ndarray):
            if index.dtype.kind == "f":
                s.fault("typing", f"indexes {self.name} with a float")
            at = index[lanes].astype(np.int64, copy=False)
        else:
            at = np.full(lanes.size, int(index), np.int64)
        item = self.dtype.itemsize
        low, high = (int(at.min()), int(at.max())) if at.size else (0, -1)
        if low < -self.before or (high * item + nbytes > self.length * item and at.size):
            bad = int(np.flatnonzero((at < -self.before) | (at * item + nbytes > self.length * item))[0])
            s.fault(
                "bounds",
                f"touches {self.name}[{int(at[bad])}], {nbytes} bytes, of {self.length} elements of {item} bytes",
                int(lanes[bad]),
            )
        base = self.base[lanes] if isinstance(self.base, np.ndarray) else self.base
        at = at * item + base
        if nbytes > 1 and ((at + self.region.start) % nbytes).any():
            bad = int(np.flatnonzero((at + self.region.start) % nbytes)[0])
            s.fault("alignment", f"touches {nbytes} bytes of {self.name} at byte {int(at[bad])}", int(lanes[bad]))
        return lanes, at

    def load(self, s: Strand, index: Any) -> Array:
        lanes, at = self.positions(s, index, self.dtype.itemsize)
        self.region.read(s, at, self.dtype.itemsize, lanes)
        found = self.region.data[at[:, None] + np.arange(self.dtype.itemsize)].view(self.dtype).ravel()
        return s.spread(widened(found), lanes)

    def store(self, s: Strand, index: Any, value: Any) -> None:
        lanes, at = self.positions(s, index, self.dtype.itemsize)
        self.region.write(s, at, self.dtype.itemsize, lanes)
        given = value[lanes] if isinstance(value, np.ndarray) else np.full(lanes.size, value)
        if (given.dtype.kind == "f") != (self.dtype.kind == "f"):
            s.fault("typing", f"stores {given.dtype} to {self.name}, which is {self.dtype}")
        raw = np.ascontiguousarray(given.astype(self.dtype)).view(np.uint8).reshape(lanes.size, self.dtype.itemsize)
        self.region.data[at[:, None] + np.arange(self.dtype.itemsize)] = raw

    def load_bytes(self, s: Strand, index: Any, nbytes: int) -> tuple[Array, Array]:
        """(lanes, bytes of shape (lanes, nbytes))."""
        lanes, at = self.positions(s, index, nbytes)
        self.region.read(s, at, nbytes, lanes)
        return lanes, self.region.data[at[:, None] + np.arange(nbytes)]

    def store_bytes(self, s: Strand, index: Any, raw: Array) -> None:
        """raw: (all lanes, nbytes) uint8."""
        lanes, at = self.positions(s, index, raw.shape[1])
        self.region.write(s, at, raw.shape[1], lanes)
        self.region.data[at[:, None] + np.arange(raw.shape[1])] = raw[lanes]


def widened(found: Array) -> Array:
    """A loaded element as it lies in a register: every integer is an int64 here, but for uint64."""
    if found.dtype.kind == "f" or found.dtype == np.uint64 or found.dtype.kind == "b":
        return found
    return found.astype(np.int64)


class Local:
    """A thread's own array: one value for each lane and element; None until it is written."""

    __slots__ = ("dtype", "name", "values")

    def __init__(self, size: int, dtype: Any, name: str) -> None:
        self.dtype, self.name = np.dtype(dtype), name
        self.values: list[Any] = [None] * size

    def _place(self, s: Strand, index: Any) -> int:
        if isinstance(index, np.ndarray):
            taken = index[s.lanes()]
            if taken.size and (taken != taken[0]).any():
                s.fault("unsupported", f"indexes {self.name}, a local array, differently in different lanes")
            index = int(taken[0]) if taken.size else 0
        if not 0 <= index < len(self.values):
            s.fault("bounds", f"touches {self.name}[{int(index)}] of {len(self.values)} elements")
        return int(index)

    def load(self, s: Strand, index: Any) -> Any:
        found = self.values[self._place(s, index)]
        if found is None:
            s.fault("uninitialised", f"reads {self.name}[{index}], which was not written")
        return found

    def store(self, s: Strand, index: Any, value: Any) -> None:
        n = self._place(s, index)
        if (s.kind(value) == "f") != (self.dtype.kind == "f"):
            s.fault("typing", f"stores {s.kind(value)} to {self.name}, which is {self.dtype}")
        if self.dtype.kind in "iu" and self.dtype.itemsize < 8:
            value = s.wrapped(value, self.dtype)
        self.values[n] = s.merged(self.values[n], value)
