"""A problem as something to call, with a given tile, on a device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...executors.tiling import TilingExecutor
from ...executors.tuned import STAGE, Tunable, machine_of
from ...kernels.cpu import isa
from ...kernels.forge import Counts
from ...primitives.errors import ArgumentError
from ..machine import calm, peak
from ..timing import settle
from .problem import Problem, aligned
from .sampling import WallClock

Array = np.ndarray[Any, Any]
YARDS = 4  # attempts at a yardstick that no other program disturbs


@dataclass
class Ready:
    """A plan bound to the problem's data. call: runs it; outputs: what the last call left."""

    call: Callable[[], Any]
    outputs: Mapping[str, Array]
    plan: Any


class Device:
    """The CPU, on so many threads.

    fixed   tiles of other steps, which stay as they are
    calm    says whether the core is our own right now; None where nobody can say
    """

    name = "cpu"

    def __init__(self, threads: int = 1, level: str | None = None) -> None:
        self.threads = threads
        self.isa = level
        self.timer: Any = WallClock()
        self.calm: calm.Calm | None = calm.probe()
        self._yard: Any = None
        self.fixed: dict[str, dict[str, int]] = {}

    def executor(self, tile: Mapping[str, Mapping[str, int]]) -> Any:
        return TilingExecutor(self.threads, isa=self.isa, tile=tile, tuned=False)

    def plan(self, problem: Problem, step: str = "", tile: Mapping[str, int] | None = None) -> Any:
        """A plan with a tile for one step, laid out for the problem's sizes."""
        tiles = {name: dict(t) for name, t in self.fixed.items()}
        if tile:
            tiles[step] = {**tiles.get(step, {}), **tile}
        return self.executor(tiles).compile(problem.pipe, problem.shapes)

    def make(self, problem: Problem, step: str = "", tile: Mapping[str, int] | None = None) -> Ready:
        """A plan, bound to the problem's inputs and to outputs of its own, which hold nothing right yet."""
        plan = self.plan(problem, step, tile)
        outputs = {n: aligned(y) for n, y in problem.reference[0].items()}
        for y in outputs.values():
            y.reshape(-1).view(np.uint8)[...] = 0xA5
        return Ready(plan.bind(problem.inputs, outputs), outputs, plan)

    @property
    def machine(self) -> str:
        """The name under which the store keeps what is measured here."""
        return machine_of("cpu", self.isa)

    def yardstick(self) -> float | None:
        """Microseconds of a fixed piece of arithmetic on registers, now; None where there is none."""
        if self._yard is None:
            level = isa.select(self.isa).name
            self._yard = peak.dot(level) or peak.fma(level) or ()
            if self._yard:
                self._yard.call()
        if not self._yard:
            return None
        found = []
        for _ in range(YARDS):
            found += [WallClock().time(self._yard.call, 1) for _ in range(2)]
            if self.calm is None or self.calm():
                break
        return 1e6 * min(found)

    def settle(self) -> None:
        """Before a block of calls: let the threads of others stop spinning."""
        if self.threads > 1:
            settle()

    def release(self) -> None:
        """Nothing to give back."""

    def compiled(self) -> int:
        """Specialisations compiled so far."""
        return Counts.compiled

    def kept(self) -> int:
        """Those of them that another process can take from the cache."""
        return Counts.kept


def device(name: str, threads: int = 1, level: str | None = None) -> Device:
    """The device of that name: "cpu", "cuda:0", or "interpreter" (CUDA kernels without a GPU)."""
    if name == "cpu":
        return Device(threads, level)
    if name == "interpreter" or name.startswith("cuda"):
        from .cuda import CudaDevice

        return CudaDevice(name)
    raise ArgumentError(f"there is no device {name!r}; there is cpu, cuda:N and interpreter")


def tunables(plan: Any) -> dict[str, Tunable]:
    """The steps of a laid out plan whose tile is open, by the name that tile= knows them by."""
    return {name: step for name, step in plan.tiles.tunable.items() if step.variant.tile_params}


@dataclass(frozen=True)
class Stage:
    """Steps that a plan runs tile by tile: the step to ask, and the rows that the plan takes by itself."""

    step: str
    steps: tuple[str, ...]
    rows: int
    size: int

    def values(self) -> tuple[int, ...]:
        """Rows worth trying: none (0), and powers of two up to all of them."""
        return (0, *(n for n in (8, 16, 32, 64, 128, 256, 512, 1024) if n < self.size))


def stages(plan: Any, problem: Problem) -> list[Stage]:
    """The stages of several steps in a plan, each by a step of the user's pipeline that is in it."""
    found = []
    for chain in getattr(plan.prepare(problem.shapes), "chains", ()):
        inside = {step.name for step in chain.steps}
        notes = [note for note in plan.lowered.notes if note.became and note.became[-1] in inside]
        if notes:
            found.append(
                Stage(notes[0].steps[0], tuple(n for note in notes for n in note.steps), chain.tile, chain.size)
            )
    return found


__all__ = ["STAGE", "Device", "Ready", "Stage", "device", "stages", "tunables"]
