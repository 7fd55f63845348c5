"""When several threads may be used: never in a forked child, and as Numba's threading layers can stand it."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

from .program import own_threads, team_address

log = logging.getLogger("tilework")

_busy = threading.Lock()
_in_child = False


def _after_fork() -> None:
    global _in_child, _busy
    _in_child = True
    _busy = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

_said = False


def allowed() -> bool:
    """Whether this process may start threads. A forked child may not: OpenMP would kill or hang it."""
    global _said
    if _in_child and not _said:
        _said = True
        log.warning("this process was forked: tilework runs on one thread here; start processes with 'spawn' instead")
    return not _in_child


@lru_cache(maxsize=1)
def layer() -> str:
    """Numba's threading layer: omp, tbb or workqueue."""
    import numba

    team_address()  # the layer is chosen when the first parallel code is made
    return str(numba.threading_layer())


def exclusive() -> bool:
    """Whether a parallel region needs `region`: after a fork, and under workqueue, which aborts on concurrent use."""
    return _in_child or not (own_threads() or layer() != "workqueue")


@contextmanager
def region(wanted: bool) -> Iterator[bool]:
    """Yields whether to run in parallel: not while another thread does, where the layer cannot stand that."""
    if not wanted or not allowed():
        yield False
    elif own_threads() or layer() != "workqueue":
        yield True
    elif _busy.acquire(blocking=False):
        try:
            yield True
        finally:
            _busy.release()
    else:
        yield False
