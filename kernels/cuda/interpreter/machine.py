"""Grids, blocks, schedules: which threads run in step, and in which order.

Without a seed whole blocks run in step, many at once: fast, and the record of memory still finds every race of what was
accessed. With a seed each warp runs by itself from one barrier to the next, in an order that the seed draws, blocks too,
so that a kernel cannot lean on an order either.
"""

from __future__ import annotations

import ctypes
import linecache
import random
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ....primitives.errors import ArgumentError
from .faults import KernelFault
from .memory import POISON, Pointer, Region
from .program import Program, program_of
from .strand import Strand

Array = np.ndarray[Any, Any]
LANES = 8192  # that run in step where blocks need not be apart
AXES = "xyz"


class Machine:
    """One launch of one kernel."""

    def __init__(self, program: Program, grid: tuple[int, ...], block: tuple[int, ...], seed: int | None) -> None:
        self.program, self.name = program, program.name
        self.grid = (*grid, 1, 1)[:3]
        self.block = (*block, 1, 1)[:3]
        self.threads = self.block[0] * self.block[1] * self.block[2]
        self.random = None if seed is None else random.Random(seed)
        self.shared: dict[Any, Region] = {}
        self._lanes: Array | None = None
        self._turns: _Turns | None = None

    # What a kernel asks ----------------------------------------------------------------------------------------------

    def place_of(self, s: Strand, path: str) -> Any:
        """cuda.threadIdx.x and its like: a number where all lanes agree, else a vector."""
        _, kind, axis = path.split(".")
        d = AXES.index(axis)
        if kind in ("blockDim", "gridDim"):
            return (self.block if kind == "blockDim" else self.grid)[d]
        sizes = self.block if kind == "threadIdx" else self.grid
        if sizes[d] == 1:
            return 0
        linear = s.number % self.threads if kind == "threadIdx" else s.block_number
        before = int(np.prod(sizes[:d], dtype=np.int64))
        found = linear // before % sizes[d]
        return int(found[0]) if kind == "blockIdx" and (found[0] == found).all() else found

    def shared_array(self, s: Strand, site: Any, size: int, dtype: Any) -> Pointer:
        """The array of this call site, one for each block of the strand."""
        nbytes = -(-size * np.dtype(dtype).itemsize // 16) * 16
        first = int(s.block_number[0])
        blocks = int(s.block_number[-1]) - first + 1
        key = (site, first) if self._turns is not None else site
        if key not in self.shared:
            self.shared[key] = Region(
                f"shared memory of {Path(self.program.file).name}:{site[1]}",
                np.full(nbytes * blocks, POISON, np.uint8),
                writable=True,
                fresh=True,
            )
        base = (s.block_number - first) * nbytes if blocks > 1 else 0
        return Pointer(self.shared[key], dtype, base, size, "")

    def barrier(self, s: Strand) -> None:
        """Every thread of a block arrives, or none does."""
        if self._turns is not None:
            if s.mask is not None and not s.mask.all():
                s.fault(
                    "deadlock", f"cuda.syncthreads() with {int(s.mask.sum())} lanes of a warp: the others never come"
                )
            self._turns.arrive(s)
        else:
            part = np.ones(s.size, bool) if s.mask is None else s.mask
            blocks = part.reshape(-1, self.threads)
            if (blocks.any(1) & ~blocks.all(1)).any():
                row = int(np.flatnonzero(blocks.any(1) & ~blocks.all(1))[0])
                lane = row * self.threads + int(np.flatnonzero(blocks[row])[0])
                s.fault(
                    "deadlock",
                    f"cuda.syncthreads() with {int(blocks[row].sum())} of {self.threads} threads: the others never come",
                    lane,
                )
        lanes = s.lanes()
        s.block_epoch[lanes] += 1
        s.warp_epoch[lanes] += 1

    def coin(self) -> bool:
        return self.random is not None and self.random.random() < 0.5

    # For messages ------------------------------------------------------------------------------------------------------

    def place(self, number: int) -> str:
        return (
            f"block {_unravel(number // self.threads, self.grid)} thread {_unravel(number % self.threads, self.block)}"
        )

    def where(self, line: int) -> str:
        text = linecache.getline(self.program.file, line).strip()
        return f"{Path(self.program.file).name}:{line} `{text}`" if text else f"line {line}"

    def last_lane(self, positions: int, n: int) -> int:
        """The lane that byte position n of the access under way belongs to."""
        s = self._current
        lanes = s.lanes()
        return int(lanes[min(n * lanes.size // max(positions, 1), lanes.size - 1)]) if lanes.size else 0

    # Running -----------------------------------------------------------------------------------------------------------

    _current: Strand

    def run(self, args: list[Any]) -> None:
        total = self.grid[0] * self.grid[1] * self.grid[2]
        if self.random is not None:
            order = list(range(total))
            self.random.shuffle(order)
            for block in order:
                self._run_warps(block, args)
            return
        together = max(1, LANES // self.threads)
        for first in range(0, total, together):
            last = min(first + together, total)
            self.shared.clear()
            strand = self._current = Strand(self, np.arange(first * self.threads, last * self.threads))
            self._run_strand(strand, args)

    def _run_strand(self, strand: Strand, args: list[Any]) -> None:
        with np.errstate(all="ignore"):
            self.program.call(strand, args)
        if any(strand.copies):
            strand.fault("race", "the kernel ends with asynchronous copies that nobody waited for")

    def _run_warps(self, block: int, args: list[Any]) -> None:
        assert self.random is not None
        self.shared.clear()
        strands = [
            Strand(self, np.arange(block * self.threads + w, block * self.threads + w + 32))
            for w in range(0, self.threads, 32)
        ]
        self._turns = _Turns(self, self.random)
        self._turns.run(strands, lambda s: self._run_strand(s, args))


class _Turns:
    """Warps of one block that take turns, one running at a time, from barrier to barrier."""

    def __init__(self, machine: Machine, rng: random.Random) -> None:
        self.machine, self.random = machine, rng
        self.resume: dict[Strand, threading.Semaphore] = {}
        self.back = threading.Semaphore(0)
        self.stopping = False

    def run(self, strands: list[Strand], body: Callable[[Strand], None]) -> None:
        failures: list[BaseException] = []
        finished: set[Strand] = set()

        def warp(s: Strand) -> None:
            self.resume[s].acquire()
            try:
                if not self.stopping:
                    body(s)
            except _Stopped:
                pass
            except BaseException as error:
                failures.append(error)
            finished.add(s)
            self.back.release()

        self.resume = {s: threading.Semaphore(0) for s in strands}
        threads = [threading.Thread(target=warp, args=(s,), daemon=True) for s in strands]
        for thread in threads:
            thread.start()
        try:
            while not failures and len(finished) < len(strands):
                turn = list(strands)
                self.random.shuffle(turn)
                early = len(finished)
                for s in turn:
                    if s in finished:
                        continue
                    self.machine._current = s
                    self.resume[s].release()
                    self.back.acquire()
                    if failures:
                        break
                if not failures and 0 < len(finished) < len(strands) and len(finished) != early:
                    waiting = next(s for s in strands if s not in finished)
                    waiting.fault(
                        "deadlock", "cuda.syncthreads() that other warps of the block never reach: they have ended"
                    )
        finally:
            self.stopping = True
            for s in strands:
                if s not in finished:
                    self.resume[s].release()
            for thread in threads:
                thread.join()
        if failures:
            raise failures[0]

    def arrive(self, s: Strand) -> None:
        self.back.release()
        self.resume[s].acquire()
        if self.stopping:
            raise _Stopped


class _Stopped(Exception):
    """Unwinds a warp whose block has failed."""


def _unravel(n: int, sizes: tuple[int, ...]) -> tuple[int, ...]:
    found = []
    for size in sizes:
        found.append(n % size)
        n //= size
    return tuple(found)


def run(
    kernel: Callable[..., Any],
    grid: tuple[int, ...],
    block: tuple[int, ...],
    args: Sequence[Any],
    *,
    seed: int | None = None,
) -> None:
    """Execute a kernel on the CPU, checked.

    grid, block  sizes along x, y, z; a block has a multiple of 32 threads
    args         per parameter an array, which the kernel sees as a pointer to its first element and may write if the
                 array may be written, or an integer
    seed         None: blocks in step. A number: warps one at a time, in an order drawn from it

    Raises KernelFault, naming kernel, line and thread.
    """
    threads = int(np.prod(block))
    if threads % 32 or not 32 <= threads <= 1024:
        raise ArgumentError(f"a block of {threads} threads; a multiple of 32 up to 1024 works")
    program = program_of(kernel)
    if len(args) != len(program.parameters):
        raise ArgumentError(f"kernel {program.name!r} has {len(program.parameters)} parameters; {len(args)} were given")
    if 0 in grid:
        return
    machine = Machine(program, tuple(map(int, grid)), tuple(map(int, block)), seed)
    try:
        machine.run(pointers(program.parameters, args))
    except KernelFault:
        raise
    except RecursionError as error:
        raise KernelFault("unsupported", f"kernel {program.name!r}: {error}") from error


def pointers(names: Sequence[str], args: Sequence[Any]) -> list[Any]:
    """Arrays as pointers into regions; arrays that share memory share a region, so that races between them show."""
    spans = []  # (first byte, end, writable, position)
    for n, arg in enumerate(args):
        if isinstance(arg, np.ndarray):
            low, high = np.lib.array_utils.byte_bounds(arg) if arg.size else (arg.ctypes.data, arg.ctypes.data)
            spans.append((low, high, arg.flags.writeable, n))
    spans.sort(key=lambda span: span[:2])
    found: list[Any] = [int(a) if not isinstance(a, np.ndarray) else None for a in args]
    group: list[Any] = []

    def close() -> None:
        if not group:
            return
        low, high = min(g[0] for g in group), max(g[1] for g in group)
        raw = (ctypes.c_uint8 * (high - low)).from_address(low) if high > low else b""
        data = np.frombuffer(raw, np.uint8)
        name = " and ".join(names[g[3]] for g in group)
        region = Region(name, data, writable=any(g[2] for g in group), start=low % 16)
        for first, end, _, n in group:
            dtype = args[n].dtype
            base = args[n].ctypes.data - low
            length = (end - low - base) // dtype.itemsize if args[n].size else 0
            found[n] = Pointer(region, dtype, base, length, names[n], (base - (first - low)) // dtype.itemsize)
        group.clear()

    for span in spans:
        if group and span[0] >= max(g[1] for g in group):
            close()
        group.append(span)
    close()
    return found
