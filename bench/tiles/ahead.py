"""Specialisations compiled side by side before anything is timed: timing and compiling at once would spoil the times.

A compiler keeps Python's lock for most of its work, so it is processes that share the work. They are forked: what a sweep
measures may live in the user's script and nowhere else. What they compile comes back through the kernel cache.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import NoReturn

from ...kernels.forge import Counts
from ..machine.doctor import usable_cores

Task = Callable[[], object]
WORD = 2  # bytes of a task's number in the pipe that all take their next one from
MOST = 30_000  # tasks: their numbers fit into a pipe, which holds 64 KiB


class Helpers:
    """Forked processes and the caller do the tasks together: whoever is free takes the next."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        """Fork. Where the system cannot, or there is one processor, the caller does them all."""
        self.tasks = tasks[:MOST]
        self.children: list[tuple[int, int]] = []
        self.queue, into = os.pipe()
        os.write(into, b"".join(n.to_bytes(WORD, "little") for n in range(len(self.tasks))))
        os.close(into)
        count = min(usable_cores(), len(self.tasks)) if hasattr(os, "fork") else 1
        for _ in range(1, count):
            out, into = os.pipe()
            with warnings.catch_warnings():
                # Python warns of forks beside other threads; the child takes no lock of theirs and ends without cleaning up.
                warnings.simplefilter("ignore", DeprecationWarning)
                child = os.fork()
            if child == 0:
                self._live(into)
            os.close(into)
            self.children.append((child, out))

    def run(self) -> int:
        """Do what is left of the tasks, and wait; how many specialisations the others compiled. Ctrl-C ends them too."""
        compiled = 0
        try:
            self._work()
            for _, out in self.children:
                compiled += int.from_bytes(os.read(out, 8), "little")
        finally:
            for child, out in self.children:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                os.close(out)
            os.close(self.queue)
            self.children = []
        return compiled

    def _work(self) -> None:
        """Take tasks until none is left. Whatever fails here fails again when its tile is measured, and is said then."""
        while word := os.read(self.queue, WORD):
            with contextlib.suppress(Exception):
                self.tasks[int.from_bytes(word, "little")]()

    def _live(self, into: int) -> NoReturn:
        """The child's whole life. It ends without cleaning up, which would flush and close what is the parent's."""
        try:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            sys.stdout = sys.stderr = open(os.devnull, "w")
            before = Counts.compiled
            self._work()
            os.write(into, (Counts.compiled - before).to_bytes(8, "little"))
        finally:
            os._exit(0)
