"""What a run cost, on two levels: the pipeline as a caller sees it, and the hot loop of each kernel."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

LARGE = 0.01  # of the native time: a dispatch share above it is worth a warning


@dataclass(frozen=True)
class StepProfile:
    """One step.

    time_s       median seconds of all its tiles in a hot loop on one thread, dispatch left out
    bytes_moved  of its operands, each counted once
    operations   multiplications and additions, 0 where the kernel does not say
    kind         whose peak they count against: "int8" or "float32"
    calls        entries that a run calls: tiles
    python       whether Python runs it
    """

    step: str
    kernel: str
    time_s: float
    bytes_moved: int
    operations: float = 0.0
    kind: str = ""
    calls: int = 1
    python: bool = False


@dataclass(frozen=True)
class Event:
    """One call of an entry in a run: seconds from the beginning of the run."""

    step: str
    tile: int
    worker: int
    start_s: float
    time_s: float


@dataclass(frozen=True)
class Profile:
    """Medians over `runs` runs. `time_s` is the whole run, doors and memory included.

    native_s    of that, the native program and the Python steps between its parts; 0 where there is no program
    dispatch_s  what walking the program costs on one thread: time in which no entry runs
    threads     that the run used at most
    peaks       what this machine was measured to do: operations a second by kind, bytes a second by the largest operand
                size that they hold for
    events      every call of one run, for a trace
    """

    pipeline: str
    time_s: float
    steps: tuple[StepProfile, ...]
    runs: int
    native_s: float = 0.0
    dispatch_s: float = 0.0
    threads: int = 1
    peaks: Mapping[str, float] = field(default_factory=dict)
    events: tuple[Event, ...] = ()

    @property
    def kernel_time_s(self) -> float:
        return sum(step.time_s for step in self.steps)

    @property
    def share_outside(self) -> float:
        """The part of the run that no kernel accounts for, 0 to 1, on one thread."""
        return max(0.0, 1 - self.kernel_time_s / self.time_s) if self.time_s else 0.0

    @property
    def entry_s(self) -> float:
        """What the way from Python into the program and back costs."""
        return max(0.0, self.time_s - self.native_s) if self.native_s else 0.0

    @property
    def dispatch_share(self) -> float:
        """The part of the native time on one thread in which no entry runs."""
        native = self.dispatch_s + sum(step.time_s for step in self.steps if not step.python)
        return self.dispatch_s / native if native else 0.0

    @property
    def too_small(self) -> tuple[str, ...]:
        """Steps whose calls are so short that walking to them takes more than a hundredth of their time."""
        calls = sum(step.calls for step in self.steps if not step.python)
        each = self.dispatch_s / calls if calls else 0.0
        return tuple(s.step for s in self.steps if not s.python and each * s.calls > LARGE * s.time_s)

    @property
    def warning(self) -> str:
        """What to say where the dispatch share is large; empty where it is not."""
        if self.dispatch_share <= LARGE or not self.too_small:
            return ""
        return (
            f"{self.pipeline}: {self.dispatch_share:.1%} of the native time is dispatch; too small to be kernels of their "
            f"own at these sizes: {', '.join(self.too_small)}"
        )

    def to_dict(self) -> dict[str, Any]:
        found = {**asdict(self), "share_outside": self.share_outside, "entry_s": self.entry_s}
        return {**found, "dispatch_share": self.dispatch_share, "too_small": list(self.too_small)}

    def save_trace(self, path: str | os.PathLike[str]) -> None:
        """Write one run as a Chrome trace (chrome://tracing, Perfetto): every call of an entry on the thread that made it."""
        kernels = {step.step: step for step in self.steps}
        events = self.events or _one_after_another(self.steps)
        end = max((e.start_s + e.time_s for e in events), default=self.time_s)
        found: list[dict[str, Any]] = [
            {"name": self.pipeline, "ph": "X", "ts": 0, "dur": end * 1e6, "pid": 0, "tid": "run", "args": {}}
        ]
        for e in events:
            step = kernels[e.step]
            args = {"kernel": step.kernel, "bytes": step.bytes_moved, "tile": e.tile}
            times = {"ts": e.start_s * 1e6, "dur": e.time_s * 1e6}
            found.append({"name": e.step, "ph": "X", **times, "pid": 0, "tid": f"worker {e.worker}", "args": args})
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"traceEvents": found, "displayTimeUnit": "ns"}, file)

    def __str__(self) -> str:
        lines = [f"{self.pipeline}: {self.time_s * 1e6:.1f} us a run, {self.share_outside:.0%} of it outside kernels"]
        if self.native_s:
            lines.append(
                f"  native {self.native_s * 1e6:.1f} us on {self.threads} thread{'s' * (self.threads > 1)}, of which "
                f"dispatch {self.dispatch_s * 1e9:.0f} ns ({self.dispatch_share:.2%} on one thread); Python entry "
                f"{self.entry_s * 1e6:.2f} us"
            )
        for step in self.steps:
            line = f"  {step.step:32} {step.time_s * 1e6:10.2f} us"
            if step.time_s:
                line += f" {step.bytes_moved / step.time_s / 1e9:8.2f} GB/s{self._of_peak(step, 'bytes')}"
            if step.operations and step.time_s:
                line += f" {step.operations / step.time_s / 1e9:8.1f} GOPS{self._of_peak(step, step.kind)}"
            lines.append(line + ("  in Python" if step.python else ""))
        if self.warning:
            lines.append(f"  {self.warning}")
        return "\n".join(lines)

    def _of_peak(self, step: StepProfile, kind: str) -> str:
        if kind == "bytes":
            sizes = sorted(int(name.removeprefix("bytes up to ")) for name in self.peaks if name.startswith("bytes"))
            fits = [n for n in sizes if step.bytes_moved <= n] or sizes[-1:]
            peak = self.peaks[f"bytes up to {fits[0]}"] if fits else 0.0
            rate = step.bytes_moved / step.time_s
        else:
            peak, rate = self.peaks.get(kind, 0.0), step.operations / step.time_s
        return f" ({rate / peak:4.0%} of peak)" if peak else ""


def _one_after_another(steps: tuple[StepProfile, ...]) -> list[Event]:
    """Events of steps that were timed alone."""
    events, now = [], 0.0
    for step in steps:
        events.append(Event(step.step, 0, 0, now, step.time_s))
        now += step.time_s
    return events
