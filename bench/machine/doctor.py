"""`tilework doctor`: what this machine has, as facts first and as text second."""

from __future__ import annotations

import ctypes.util
import importlib
import importlib.metadata
import os
import platform
import re
import sys
from pathlib import Path
from typing import Any

from ... import __version__

LIBRARIES = ("numba", "llvmlite", "numpy", "ml_dtypes")
THREADING_LAYERS = {"tbb": "tbbpool", "omp": "omppool", "workqueue": "workqueue"}  # in Numba's order of preference
NOT_FOR_USERS = ("dev",)


def examine() -> dict[str, Any]:
    """Return everything doctor knows as one JSON-ready dictionary."""
    return {
        "versions": versions(),
        "cpu": cpu(),
        "caches": caches(),
        "threads": threads(),
        "gpu": gpu(),
        "extras": extras(),
        "tuning": tuned(),
        "load": load(),
    }


def versions() -> dict[str, str | None]:
    """Return the version of Python, of tilework and of the libraries that decide what a kernel compiles to."""
    return {
        "python": platform.python_version(),
        "tilework": __version__,
        **{name: version_of(name) for name in LIBRARIES},
    }


def version_of(distribution: str) -> str | None:
    """Return the installed version of a distribution, or None."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def cpu() -> dict[str, Any]:
    """Return the CPU's names, its count, the features that LLVM may use, and the instruction set level in use.

    NUMBA_CPU_NAME and NUMBA_CPU_FEATURES, or TILEWORK_ISA, can hold the level below what the features would allow.
    """
    from llvmlite import binding

    from ...kernels.cpu import isa

    features = binding.get_host_cpu_features()
    return {
        "model": model_name(),
        "llvm_name": binding.get_host_cpu_name(),
        "architecture": platform.machine(),
        "usable_cores": usable_cores(),
        "isa": isa.select().name,
        "isa_levels": [level.name for level in isa.available()],
        "features": sorted(name for name, present in features.items() if present),
    }


def model_name() -> str:
    """Return the name that the maker gave the CPU."""
    info = read("/proc/cpuinfo") or ""
    found = re.search(r"^model name\s*:\s*(.+)$", info, re.MULTILINE)
    return found.group(1) if found else platform.processor() or "unknown"


def usable_cores() -> int:
    """Return how many cores this process may run on; a container's limit on CPU time is not counted."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def caches() -> list[dict[str, Any]]:
    """Return each folder that compiled code goes to, and whether it can be written."""
    from ...kernels import cache

    folders = {"tilework": cache.folder()}
    if "NUMBA_CACHE_DIR" in os.environ:
        folders["numba"] = Path(os.environ["NUMBA_CACHE_DIR"])
    return [
        {"of": owner, "path": str(path), "writable": writable(path), "bytes": size_of(path)}
        for owner, path in folders.items()
    ]


def tuned() -> dict[str, Any]:
    """Return what the tuning store has for this CPU: measured points, tiles that plans may take, and those that are stale.

    A line is stale where other sources of this package or another compiler made the code that it timed. A user's own
    kernels have sources of their own, so their lines count as stale here where only a plan can tell.
    """
    from ...kernels import tuning

    machine = tuning.cpu_machine()
    lines = list(tuning.lines(machine))
    own = (tuning.SCHEMA, tuning.source_of(tuning.find), tuning.compiler())
    chosen = [line for line in lines if line["kind"] == tuning.TUNED]
    stale = [line for line in chosen if (line.get("schema"), line.get("source"), line.get("compiler")) != own]
    return {
        "path": str(tuning.path(machine)),
        "points": len(lines) - len(chosen),
        "tuned": len(chosen),
        "stale": len(stale),
        "used": os.environ.get(tuning.SWITCH) != "0",
    }


def writable(folder: Path) -> bool:
    """Return whether a file could be made in a folder, which need not exist yet."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)


def size_of(folder: Path) -> int:
    """Return the bytes of all files below a folder; one that another process removes meanwhile counts nothing."""
    total = 0
    for root, _, files in os.walk(folder):
        for name in files:
            try:
                total += os.stat(os.path.join(root, name)).st_size
            except FileNotFoundError:
                continue
    return total


def threads() -> dict[str, Any]:
    """Return Numba's threading layers that load here, and how many threads it would start."""
    import numba

    return {
        "available": [layer for layer, module in THREADING_LAYERS.items() if loads(f"numba.np.ufunc.{module}")],
        "asked_for": numba.config.THREADING_LAYER,
        "count": numba.config.NUMBA_NUM_THREADS,
    }


def loads(module: str) -> bool:
    """Return whether a compiled module and the libraries that it links to can be loaded."""
    try:
        importlib.import_module(module)
    except ImportError:
        return False
    return True


def gpu() -> dict[str, Any]:
    """Return whether a CUDA driver is installed, without starting it, and what keeps kernels from being compiled."""
    from ...kernels.cuda import compile as kernels

    return {
        "cuda_driver": ctypes.util.find_library("nvcuda" if sys.platform == "win32" else "cuda"),
        "kernels_missing": kernels.missing(),
    }


def extras() -> list[dict[str, Any]]:
    """Return, for each extra of the package, which of its distributions are present and which are missing."""
    found: dict[str, dict[str, str | None]] = {}
    for text in importlib.metadata.requires("tilework") or ():
        requirement = re.match(r"([\w.-]+).*extra == ['\"]([\w-]+)['\"]", text)
        if requirement and requirement[2] not in NOT_FOR_USERS:
            found.setdefault(requirement[2], {})[requirement[1]] = version_of(requirement[1])
    return [
        {
            "extra": extra,
            "present": {name: version for name, version in packages.items() if version},
            "missing": [name for name, version in packages.items() if not version],
        }
        for extra, packages in found.items()
    ]


def load() -> dict[str, Any]:
    """Return what else the machine is doing: timings taken under load are not worth much."""
    averages = os.getloadavg() if hasattr(os, "getloadavg") else None
    governor = read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
    ticks = (read("/proc/stat") or "cpu").splitlines()[0].split()[1:]
    steal = int(ticks[7]) / max(1, sum(map(int, ticks[:8]))) if len(ticks) > 7 else None
    return {
        "load_1min": averages[0] if averages else None,
        "governor": governor.strip() if governor else None,
        "steal_share_since_boot": steal,
    }


def read(path: str) -> str | None:
    """Return the text of a system file, or None where this system has none."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError:
        return None


def show(facts: dict[str, Any]) -> None:
    """Print the facts for people, with what to do where something is missing."""
    from rich.markup import escape
    from rich.table import Table

    from ..terminal import wide_console

    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    table.add_row("versions", "  ".join(f"{name} {version}" for name, version in facts["versions"].items()))

    cpu = facts["cpu"]
    table.add_row("cpu", f"{cpu['model']} ({cpu['llvm_name']}, {cpu['architecture']}), {cpu['usable_cores']} cores")
    table.add_row("isa", f"{cpu['isa']}  (levels here: {' '.join(cpu['isa_levels'])})")
    table.add_row("features", " ".join(cpu["features"]))

    for cache in facts["caches"]:
        state = "writable" if cache["writable"] else "[red]not writable: kernels compile anew in every process[/]"
        table.add_row(f"{cache['of']} cache", f"{cache['path']}  {cache['bytes'] / 1e6:.1f} MB  {state}")

    threads = facts["threads"]
    layers = " ".join(threads["available"])
    table.add_row("threads", f"{threads['count']}  layers: {layers}  asked for: {threads['asked_for']}")
    missing = facts["gpu"]["kernels_missing"]
    table.add_row("cuda driver", facts["gpu"]["cuda_driver"] or "not found: CudaExecutor('interpreter') needs none")
    table.add_row(
        "cuda kernels", f"[yellow]{escape(missing)}[/]" if missing else "can be compiled and assembled without a device"
    )

    for extra in facts["extras"]:
        present = "  ".join(f"{name} {version}" for name, version in extra["present"].items())
        missing = ", ".join(extra["missing"])
        how = f"[yellow]missing {missing}[/]: pip install 'tilework\\[{extra['extra']}]'" if missing else ""
        table.add_row(f"extra {extra['extra']}", "  ".join(filter(None, (present, how))))

    tuning = facts["tuning"]
    stale = f", [yellow]{tuning['stale']} of them stale[/]: measured with other sources" if tuning["stale"] else ""
    off = "" if tuning["used"] else "  (TILEWORK_TUNED=0: not used)"
    table.add_row("tuned tiles", f"{tuning['tuned']}{stale}  {tuning['points']} points  {tuning['path']}{off}")

    load = facts["load"]
    parts = [f"1 min average {load['load_1min']:.2f}"] if load["load_1min"] is not None else []
    parts += [f"steal {load['steal_share_since_boot']:.1%}"] if load["steal_share_since_boot"] is not None else []
    parts += [f"governor {load['governor']}"] if load["governor"] else []
    table.add_row("load", "  ".join(parts) or "unknown")
    wide_console().print(table)
