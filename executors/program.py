"""A program: what the native loop walks, and the memory of one run.

kernels/dispatch.py has the loop and the layout of the tables that are made here.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from ..kernels import dispatch, forge
from ..kernels.crew import TEAM, TEAM_OF_CREW, WORKER
from ..primitives.errors import ArgumentError
from ..primitives.memory import address_of, aligned_bytes
from . import crew

Array = np.ndarray[Any, Any]
_ENTRY = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)

ZERO, ARENA, LOCAL, FIRST_EXTERNAL = 0, 1, 2, 3  # bases: absolute addresses, the arena, the worker's own memory, arrays


@lru_cache(maxsize=1)
def serial_address() -> int:
    """The loop for one thread."""
    return forge.entry(forge.Native(dispatch.SERIAL, raw=True), 1, ()).address


@lru_cache(maxsize=1)
def serial() -> Any:
    """The loop for one thread, as a ctypes function; a call releases the GIL."""
    return _ENTRY(serial_address())


@lru_cache(maxsize=2)
def worker_address(traced: bool = False) -> int:
    """The loop of one of several workers; a traced one notes when it called what (`RunMemory.trace`)."""
    return forge.entry(forge.Native(dispatch.worker(traced), raw=True), 1, ()).address


def nothing_address() -> int:
    """An entry that does nothing: what walking a program costs shows where all of its entries are this one."""
    return dispatch.nothing()[0]


@lru_cache(maxsize=1)
def clock() -> Any:
    """Reads the processor's time-stamp counter into the address that it is given; 0 where there is none."""
    return _ENTRY(forge.entry(forge.Native(dispatch.CLOCK, raw=True), 1, ()).address)


@lru_cache(maxsize=1)
def own_threads() -> bool:
    """Whether programs run on the library's own threads; TILEWORK_THREADING=numba takes those of Numba's layer."""
    given = os.environ.get("TILEWORK_THREADING", "own")
    if given not in ("own", "numba"):
        raise ArgumentError(f"TILEWORK_THREADING={given!r}; 'own' or 'numba'")
    return given == "own" and crew.possible()


@lru_cache(maxsize=1)
def team_address() -> int:
    """Runs several workers at once."""
    if own_threads():
        return forge.entry(forge.Native(TEAM_OF_CREW, raw=True), 1, ()).address
    return forge.entry(forge.Native(dispatch.TEAM, raw=True, parallel=True), 1, ()).address


@lru_cache(maxsize=1)
def team() -> Any:
    """The same as a ctypes function."""
    return _ENTRY(team_address())


@dataclass(frozen=True)
class Row:
    """One entry of a stage: its code, its block, and a (tiles, 2 * axes) table of ranges.

    cost      of one tile, about bytes moved
    operands  where in the block each operand begins, and its rank
    given     the array of each operand that has one already, a constant or what the step itself made
    """

    address: int
    block: Array
    ranges: Array
    step: str
    cost: float = np.inf
    keep: Any = field(default=None, repr=False, compare=False)
    operands: tuple[tuple[int, int], ...] = ()
    given: tuple[Array | None, ...] = field(default=(), repr=False, compare=False)


@dataclass(frozen=True)
class Fix:
    """Where a chain's intermediate lies while one tile runs: worker memory + offset - displacement[tile]."""

    base: int
    offset: int
    displacement: Array


@dataclass(frozen=True)
class Stage:
    """Tiles that may run in any order and at once; each runs the rows in order.

    spread  each tile is a step of its own: one row each, and as many tiles as rows
    """

    tiles: int
    rows: tuple[Row, ...]
    fixes: tuple[Fix, ...] = ()
    spread: bool = False


class Program:
    """Stages one after another, as tables that native code reads. Immutable; holds no address of any run."""

    def __init__(self, stages: Sequence[Stage]) -> None:
        self.stages = tuple(stages)
        self.rows = [row for stage in stages for row in stage.rows]
        fixes = [fix for stage in stages for fix in stage.fixes]
        self._stage_table = np.zeros((len(stages), dispatch.STAGE), np.int64)
        self._row_table = np.zeros((len(self.rows), dispatch.ROW), np.int64)
        self._fix_table = np.zeros((len(fixes), dispatch.FIX), np.int64)
        row = fix = 0
        for n, stage in enumerate(stages):
            rows = 1 if stage.spread else len(stage.rows)
            cost = max(sum(r.cost for r in stage.rows), dispatch.LOOK / dispatch.MOST_TILES)
            weight = int(min(cost, dispatch.LOOK + 1))
            self._stage_table[n] = stage.tiles, row, rows, fix, len(stage.fixes), int(stage.spread), weight
            row += len(stage.rows)
            fix += len(stage.fixes)
        for n, r in enumerate(self.rows):
            step = r.ranges.strides[0] if len(r.ranges) > 1 else 0
            self._row_table[n] = r.address, address_of(r.block), address_of(r.ranges), step
        for n, f in enumerate(fixes):
            self._fix_table[n] = f.base, f.offset, address_of(f.displacement)
        self._finish([row.step for row in self.rows])

    def _finish(self, steps: Sequence[str]) -> None:
        self.steps = list(steps)
        tables = (self._stage_table, self._row_table, self._fix_table)
        self.header = np.array([len(self._stage_table), *map(address_of, tables), LOCAL], np.int64)
        self.address = address_of(self.header)
        self.progress_words = dispatch.HEAD + dispatch.PROGRESS * len(self._stage_table)

    @classmethod
    def of_tables(cls, stages: Array, rows: Array, fixes: Array, steps: Sequence[str]) -> Program:
        """A program whose tables exist, in memory that they keep alive; only `run`, which needs nothing else, can be asked.

        steps   the step of each row
        """
        made = cls(())
        made._stage_table, made._row_table, made._fix_table = stages, rows, fixes
        made._finish(steps)
        return made

    @property
    def tables(self) -> tuple[Array, Array, Array]:
        """Stages, rows and fixes, as native code reads them."""
        return self._stage_table, self._row_table, self._fix_table

    def __len__(self) -> int:
        return len(self.steps)


class RunMemory:
    """The memory of one run of a binding: bases per worker, progress, arena, and each worker's own scratch.

    wake  whether its programs are long enough to wake threads that sleep
    """

    def __init__(
        self,
        workers: int,
        bases: int,
        arena_bytes: int,
        local_bytes: int,
        progress_words: int,
        align: int = 64,
        wake: bool = True,
    ) -> None:
        self.workers = workers
        self.arena = aligned_bytes(arena_bytes + 64, align)
        local = -(-local_bytes // 128) * 128 + 64
        self.local = aligned_bytes(workers * local, 64)
        pitch = -(-bases // 8) * 8
        self.bases = aligned_bytes(workers * pitch * 8, 64).view(np.int64).reshape(workers, pitch)
        self.bases[:] = 0
        self.bases[:, ARENA] = address_of(self.arena)
        self.bases[:, LOCAL] = address_of(self.local) + local * np.arange(workers)
        self.progress = aligned_bytes(max(progress_words, dispatch.HEAD) * 8, 64).view(np.int64)
        self.progress[:] = 0
        self.bases_address = address_of(self.bases)
        self.progress_address = address_of(self.progress)
        self.team = np.zeros(TEAM + workers, np.int64)
        self.team_address = address_of(self.team)
        if workers > 1:
            self.team[:TEAM] = workers, worker_address(), self.bases_address, self.bases.strides[0], 0, 0, int(wake)
            if own_threads():
                helpers = crew.the_crew()
                helpers.hire(workers - 1)
                self.team[4:TEAM] = address_of(helpers.boxes), address_of(helpers.count), int(wake)

    def run(self, program: Program, parallel: bool) -> int:
        """Walk the program to its end; returns 0, or the status that a tile returned (see `failed`)."""
        self.progress[: None if parallel else dispatch.HEAD] = 0  # an earlier run may have been interrupted
        while self.resume(program, parallel):
            if self.progress[1]:
                return int(self.progress[1])
        return 0

    def resume(self, program: Program, parallel: bool) -> int:
        """Go on where the program stands; not 0 if it stopped again, by a status or to let Python see its signals."""
        self.progress[0] = 0
        function, first = (team(), self.team_address) if parallel else (serial(), self.bases_address)
        return int(function(first, program.address, self.progress_address))

    def trace(self, program: Program) -> Array:
        """Run a program once, from beginning to end, with all of the workers; int64 (calls, dispatch.EVENT) of what ran."""
        calls = sum(stage.tiles * (1 if stage.spread else len(stage.rows)) for stage in program.stages)
        events = np.zeros((calls + 1, dispatch.EVENT), np.int64)
        self.progress[:] = 0
        self.progress[dispatch.EVENTS] = address_of(events)
        worker, traced = int(self.team[WORKER]), worker_address(traced=True)
        run = team() if self.workers > 1 else _ENTRY(traced)
        self.team[WORKER] = traced
        try:
            while run(
                self.team_address if self.workers > 1 else self.bases_address, program.address, self.progress_address
            ):
                if self.progress[1]:
                    break
                self.progress[0] = 0
        finally:
            self.team[WORKER] = worker
        return events[: int(self.progress[dispatch.EVENTS + 1])]

    def failed(self, program: Program) -> str:
        """The step whose tile returned a status."""
        return program.steps[int(self.progress[2])]
