"""What a run cost: time per kernel, bytes moved, and the share spent outside kernels."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from typing import Any


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
