"""What a run cost: time per kernel, bytes moved, and the share spent outside kernels."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from . import inputs as doors
from .program import Program, RunMemory

if TYPE_CHECKING:
    from .bound import Bound
    from .plan import TilingPlan


@dataclass(frozen=True)
class StepProfile:
    """One step: median seconds of its kernel, and the bytes of its operands, each counted once."""

    step: str
    kernel: str
    time_s: float
    bytes_moved: int


@dataclass(frozen=True)
class Profile:
    """Medians over `runs` runs. `time_s` is the whole run, doors and memory included."""

    pipeline: str
    time_s: float
    steps: tuple[StepProfile, ...]
    runs: int

    @property
    def kernel_time_s(self) -> float:
        return sum(step.time_s for step in self.steps)

    @property
    def share_outside(self) -> float:
        """The part of the run that no kernel accounts for, 0 to 1."""
        return max(0.0, 1 - self.kernel_time_s / self.time_s) if self.time_s else 0.0

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "share_outside": self.share_outside}

    def save_trace(self, path: str | os.PathLike[str]) -> None:
        """Write the steps as a Chrome trace (chrome://tracing, Perfetto): median times, one step after another."""
        events, now = [], 0.0
        for step in self.steps:
            duration = step.time_s * 1e6
            args = {"kernel": step.kernel, "bytes": step.bytes_moved}
            events.append({"name": step.step, "ph": "X", "ts": now, "dur": duration, "pid": 0, "tid": 0, "args": args})
            now += duration
        whole = {"name": self.pipeline, "ph": "X", "ts": 0, "dur": self.time_s * 1e6, "pid": 0, "tid": 1}
        with open(path, "w") as file:
            json.dump({"traceEvents": [whole, *events], "displayTimeUnit": "ns"}, file)

    def __str__(self) -> str:
        lines = [f"{self.pipeline}: {self.time_s * 1e6:.1f} us a run, {self.share_outside:.0%} of it outside kernels"]
        for step in self.steps:
            rate = f"{step.bytes_moved / step.time_s / 1e9:7.2f} GB/s" if step.time_s else ""
            lines.append(f"  {step.step:28} {step.time_s * 1e6:10.1f} us {step.bytes_moved:12} bytes {rate}")
        return "\n".join(lines)


def profile(plan: TilingPlan, inputs: Mapping[str, Any], repeat: int) -> Profile:
    """Medians over `repeat` runs: the whole run as a caller sees it, and each kernel alone, on one thread."""
    state = {k: v.copy() for k, v in plan.state.items()}
    results = plan.run(inputs, state=dict(state) if plan._has_state else None)
    totals = []
    for _ in range(max(1, repeat)):
        start = time.perf_counter()
        plan.run(inputs, results, state=dict(state) if plan._has_state else None)
        totals.append(time.perf_counter() - start)
    bound = next(reversed(plan._bindings.values()))
    memory = bound.take()
    try:
        times = _times(plan, bound, memory, inputs, results, repeat)
    finally:
        bound.give_back(memory)
    steps = []
    for item in bound.binding.laid:
        moved = 0
        for value in [*item.step.inputs.values(), *item.step.outputs.values()]:
            if value.dtype is not None:
                where = bound.binding.placed.get(value.name)
                shape = where.shape if where is not None else value.data.shape
                moved += int(np.prod(shape, dtype=np.int64)) * value.dtype.numpy.itemsize
        steps.append(StepProfile(item.step.name, item.step.kernel.name, times.get(item.step.name, 0.0), moved))
    return Profile(plan.pipe.name, float(np.median(totals)), tuple(steps), len(totals))


def _times(
    plan: TilingPlan, bound: Bound, memory: RunMemory, inputs: Mapping[str, Any], results: Any, repeat: int
) -> dict[str, float]:
    arrays = {name: doors.as_array(value, inputs[name]) for name, value in plan._wanted.items()}
    states = bound.states(plan.state)
    external = {**arrays, **states, **{value: results[name] for value, name in bound._direct.items()}}
    bound._point(memory, external)
    times: dict[str, list[float]] = {}
    single = [(item, Program(item.stages) if item.stages else None) for item in bound.binding.laid]
    for _ in range(max(1, repeat)):
        for item, program in single:
            start = time.perf_counter()
            if program is not None:
                memory.run(program, False)
            elif item.python:
                bound._run_python(item.step, memory, external)
            times.setdefault(item.step.name, []).append(time.perf_counter() - start)
    return {name: float(np.median(found)) for name, found in times.items()}
