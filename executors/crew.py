"""The threads that help to run programs: started when they are first wanted, kept for the life of the process.

One crew serves all plans and all Python threads. A run takes who is free and works on by itself where nobody is, so
plans that run at once share the processors instead of crowding them. kernels/crew.py is what the threads execute.
"""

from __future__ import annotations

import atexit
import ctypes
import logging
import os
import signal
import sys
import threading
from typing import Any

import numpy as np

from ..kernels import crew, forge
from ..primitives.memory import address_of, aligned_bytes

log = logging.getLogger("tilework")

MOST = 255  # workers of a process
_ENTRY = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


class Crew:
    """Boxes in which workers find their programs, and the threads that look into them."""

    def __init__(self) -> None:
        self.boxes = aligned_bytes(MOST * crew.BOX * 8, 128).view(np.int64).reshape(MOST, crew.BOX)
        self.boxes[:] = 0
        self.count = np.zeros(2, np.int64)
        self.threads: list[threading.Thread] = []
        self._lock = threading.Lock()

    def hire(self, wanted: int) -> None:
        """See to it that there are so many workers, as far as the system lets there be."""
        if len(self.threads) >= min(wanted, MOST):
            return
        serve = _function(crew.SERVE)
        with self._lock:
            while len(self.threads) < min(wanted, MOST):
                box = self.boxes[len(self.threads)]
                _prepare(box)
                thread = threading.Thread(target=_work, args=(serve, box), name="tilework", daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:
                    log.warning("only %d helping threads: %s", len(self.threads), error)
                    return
                self.threads.append(thread)
                self.count[0] = len(self.threads)

    def dismiss(self) -> None:
        """Tell all workers to stop, and wait a moment for them."""
        with self._lock:
            threads, self.threads = self.threads, []
            self.count[0] = 0
            if threads:
                stop = _function(crew.STOP_WORKER)
            for n, _ in enumerate(threads):
                stop(address_of(self.boxes[n]), 0, 0)
            for thread in threads:
                thread.join(1.0)


def _work(serve: Any, box: Any) -> None:
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # they are for Python's own threads
    box[crew.THREAD] = threading.get_native_id()
    serve(address_of(box), 0, 0)


def _prepare(box: Any) -> None:
    libc = ctypes.CDLL(None)
    box[:] = 0
    libc.pthread_mutex_init(ctypes.c_void_p(address_of(box[crew.MUTEX :])), None)
    libc.pthread_cond_init(ctypes.c_void_p(address_of(box[crew.CONDITION :])), None)


def _function(source: str) -> Any:
    return _ENTRY(forge.entry(forge.Native(source, raw=True), 0, ()).address)


def possible() -> bool:
    """Whether this system has the threads that kernels/crew.py calls for."""
    return sys.platform != "win32"


_crew: Crew | None = None
_lock = threading.Lock()


def the_crew() -> Crew:
    """The process's crew."""
    global _crew
    with _lock:
        if _crew is None:
            _crew = Crew()
            atexit.register(_crew.dismiss)
        return _crew


def _after_fork() -> None:
    global _crew, _lock
    _crew, _lock = None, threading.Lock()  # the parent's threads are not here


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
