"""Sweeps on a GPU, timed by events; or in the interpreter of CUDA kernels, where only the checks mean something."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ... import executors
from .plans import Device, Ready
from .problem import Problem
from .sampling import WallClock


class CudaDevice(Device):
    """A GPU, or "interpreter". A result is checked after a whole run; what is timed are launches of its graph alone.

    executor  makes an executor from (device=, tile=, tuned=); None: this package's own
    """

    def __init__(self, name: str, executor: Any = None) -> None:
        super().__init__()
        self.name, self.calm = name, None
        self._make = executor or executors.CudaExecutor
        self._own = self._make(device=name, tile={}, tuned=False)
        if name != "interpreter":
            from ...executors.cuda.timer import EventTimer

            self.timer = EventTimer(self._own.runner)
        else:
            self.timer = WallClock()

    @property
    def machine(self) -> str:
        return str(self._own.machine)

    def executor(self, tile: Mapping[str, Mapping[str, int]]) -> Any:
        return self._make(device=self.name, tile=tile, tuned=False)

    def make(self, problem: Problem, step: str = "", tile: Mapping[str, int] | None = None) -> Ready:
        ready = super().make(problem, step, tile)
        if self.name != "interpreter":
            ready.call()
            ready.call = ready.plan.launches(problem.shapes)
        return ready

    def kept(self) -> int:
        """None: a context of the driver does not outlive a fork."""
        return 0

    def yardstick(self) -> None:
        """A GPU's clock is not the CPU's."""
        return
