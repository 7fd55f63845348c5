"""A bar on stderr, where that is a terminal: points done, pruned, compiled, the best so far, the time left."""

from __future__ import annotations

from typing import Any

from .result import PRUNED, Point, Sweep
from .sweep import Watch


class Bar(Watch):
    """Drawn by rich; says nothing where nobody looks."""

    def __init__(self) -> None:
        from rich.console import Console

        self.console = Console(stderr=True)
        self.progress: Any = None
        self.seen: set[int] = set()

    def begin(self, sweep: Sweep, total: int) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self.seen = set()
        self.progress = Progress(
            TextColumn("{task.fields[name]}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[more]}"),
            TimeRemainingColumn(compact=True),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,
        )
        self.progress.start()
        self.task = self.progress.add_task(
            "", total=total, name=f"{sweep.kernel} {sweep.label}", more=self._more(sweep)
        )

    def point(self, sweep: Sweep, point: Point) -> None:
        self.seen.add(id(point))
        self.progress.update(self.task, completed=len(self.seen), more=self._more(sweep))

    def phase(self, what: str) -> None:
        self.progress.update(self.task, more=f"{what} ...")

    def end(self) -> None:
        if self.progress is not None:
            self.progress.stop()
            self.progress = None

    @staticmethod
    def _more(sweep: Sweep) -> str:
        parts = [f"{sweep.count(PRUNED)} pruned", f"{sweep.compiled} compiled ({sweep.compile_s:.1f} s)"]
        if sweep.timed:
            us = sweep.timed[0].p5_us
            gops = sweep.gops(us)
            parts.append(f"best {gops:.0f} GOPS" if gops else f"best {us:.1f} us")
        return "  ".join(parts)
