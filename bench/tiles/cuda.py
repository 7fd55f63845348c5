"""Sweeps on a GPU, timed by events; or in the interpreter of CUDA kernels, where only the checks mean something."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ... import executors
from ...executors.cuda_timer import EventTimer
from ...executors.tuned import machine
from ...primitives.errors import Unsupported
from .plans import Device
from .sampling import WallClock


class CudaDevice(Device):
    """A GPU, or "interpreter".

    executor  makes an executor from (device, tile=...); None: this package's own
    timer     None: events on the GPU; the interpreter has no clock but the process's
    """

    def __init__(self, name: str, executor: Any = None, timer: Any = None) -> None:
        super().__init__()
        self.name = name
        self._executor = executor or _own_executor()
        if timer is None:
            timer = WallClock() if name == "interpreter" else EventTimer()
        self.timer = timer

    @property
    def machine(self) -> str:
        return machine(self.name.partition(":")[0], None)

    def yardstick(self) -> None:
        """A GPU's clock is not the CPU's."""
        return

    def executor(self, tile: Mapping[str, Mapping[str, int]]) -> Any:
        return self._executor(device=self.name, tile=tile)


def _own_executor() -> Any:
    try:
        return executors.CudaExecutor
    except AttributeError as error:
        raise Unsupported(f"there is no executor for CUDA devices here ({error}); --device cpu works") from error
