"""The name of a kept plan: a hash of everything that it depends on."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...kernels import cache, factory
from . import files

if TYPE_CHECKING:
    from ..tiling import TilingExecutor

ROOMS = ("primitives", "kernels", "executors", "frontends")
VARIABLES = ("TILEWORK_ISA", "TILEWORK_TUNED", "TILEWORK_THREADING")


def of_run(identity: str, executor: TilingExecutor, shapes: Mapping[str, tuple[int, ...]]) -> str | None:
    """The name for a pipeline at these shapes of its inputs; None where nothing may be kept for such an executor."""
    if executor.tile or not _usable(executor.backend, executor.threads):
        return None
    settings = (
        executor.threads,
        executor.backend,
        executor.fuse,
        executor.chain,
        executor.isa,
        executor.numerics,
        executor.tuned,
        _tuning() if executor.tuned else None,
        *(os.environ.get(name) for name in VARIABLES),
    )
    at = sorted((name, [int(n) for n in shape]) for name, shape in shapes.items())
    return f"{digest(identity, repr(settings), json.dumps(at), *_here())}.run"


def digest(*facts: str) -> str:
    """A hash of facts together with this package's sources."""
    return hashlib.sha256("\0".join((sources(), *facts)).encode()).hexdigest()[:40]


def _usable(backend: str, threads: int) -> bool:
    from numba.core import config

    from ..program import own_threads

    if files.limit() == 0 or config.DISABLE_JIT or not factory.is_own(backend) or backend != "cpu":
        return False
    return threads == 1 or own_threads()


@lru_cache(maxsize=1)
def _here() -> tuple[str, ...]:
    """The compiler and the machine."""
    import llvmlite
    import numba
    from numba.core import config

    return (
        platform.python_version(),
        numba.__version__,
        llvmlite.__version__,
        np.__version__,
        *machine(),
        *(f"{option}={getattr(config, option, None)}" for option in (*cache.OPTIONS, "CPU_NAME", "CPU_FEATURES")),
    )


def machine() -> tuple[str, ...]:
    """The processor: its name, and what it can do as the system says, or as LLVM finds out, which takes milliseconds."""
    import llvmlite.binding as llvm

    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            said = next(line for line in file if line.startswith(("flags", "Features")))
    except (OSError, StopIteration):
        said = llvm.get_host_cpu_features().flatten()
    return platform.machine(), llvm.get_host_cpu_name(), said


@lru_cache(maxsize=1)
def sources() -> str:
    """A hash over the package's sources. Reading them takes longer than some models run, so it is kept for their state."""
    root = Path(__file__).parents[2]
    state = hashlib.sha256(repr(_state(root)).encode()).hexdigest()[:40]
    name = f"{state}.sources"
    known = files.read(name) if files.limit() else None
    if known is not None:
        return bytes(known).decode()
    found = cache.stamp(root, ROOMS)
    if files.limit():
        files.write(name, found.encode())
    return found


def _state(root: Path) -> list[tuple[Any, ...]]:
    """Path, size, time of change and number of every source file."""
    found, waiting = [], [os.fspath(root / room) for room in ROOMS if (root / room).is_dir()]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.name.endswith(".py"):
                    stat = entry.stat()
                    found.append((entry.path, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino))
                elif entry.is_dir() and entry.name != "__pycache__":
                    waiting.append(entry.path)
    return sorted(found)


def _tuning() -> list[tuple[Any, ...]]:
    """The state of what was tuned on this machine."""
    try:
        found = [(path.name, path.stat()) for path in (cache.folder() / "tune").iterdir()]
    except (OSError, RuntimeError):
        return []
    return sorted((name, stat.st_size, stat.st_mtime_ns) for name, stat in found)
