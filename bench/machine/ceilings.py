"""The ceilings of this machine, measured once and kept: arithmetic, and the bytes a second of each cache level.

`tilework bench peak` measures them anew. They are kept beside the tuning store, under the same name.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass
from typing import Any

from ...kernels import tuning
from ...kernels.cpu import caches, isa
from .. import timing
from . import doctor, load, peak

SCHEMA = 1
ROUNDS = 9
LEVELS = ("l1", "l2", "l3", "memory")
_FILL = {"l1": 0.5, "l2": 0.5, "l3": 0.4}  # of a level: how much of it a probe reads
BEYOND = 4  # times the last cache, for memory


@dataclass(frozen=True)
class Ceilings:
    """What the machine does at most.

    gops    {"dot": 8-bit operations, "fma": float32 operations}, thousands of millions a second; those that are known
    read    {level: GB/s of reading}
    triad   {level: GB/s of a = b + s * c}
    others  share of the processors that other programs used meanwhile
    """

    machine: str
    model: str
    threads: int
    gops: dict[str, float]
    read: dict[str, float]
    triad: dict[str, float]
    others: float | None
    measured: str

    def seconds(self, operations: float, unit: str, moved: dict[str, float]) -> float:
        """How long so many operations and so many bytes from each level take at least, when nothing overlaps badly.

        The longest of them, and a third of the others: a core computes while it loads, but not perfectly.
        """
        parts = [operations / (self.gops[unit] * 1e9)] if unit in self.gops else []
        parts += [n / (self.read[level] * 1e9) for level, n in moved.items() if level in self.read]
        return max(parts) + (sum(parts) - max(parts)) / 3 if parts else 0.0


def known(threads: int = 1, level: str | None = None) -> Ceilings:
    """Those that were measured on this machine before, else measured now."""
    return read(threads, level) or measure(threads, level)


def read(threads: int = 1, level: str | None = None) -> Ceilings | None:
    """Those that were measured before; None where there are none for this machine and these probes."""
    try:
        facts = json.loads(_file(threads, level).read_text(encoding="utf-8"))
        if facts.pop("schema") != SCHEMA or facts.pop("compiler") != tuning.compiler():
            return None
        return Ceilings(**facts)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def measure(threads: int = 1, level: str | None = None, rounds: int = ROUNDS) -> Ceilings:
    """Probe arithmetic on registers and each cache level, and keep what was found."""
    name = isa.select(level).name
    begun = load.Moment.now()
    gops = {}
    for unit, probe in (("dot", peak.dot(name, threads)), ("fma", peak.fma(name, threads))):
        if probe is not None:
            gops[unit] = _rate(probe, rounds)
    sizes = caches.sizes()
    share = {"l1": threads, "l2": threads, "l3": 1}  # of a level that each core has to itself, all are read
    found: dict[str, dict[str, float]] = {"read": {}, "triad": {}}
    for where in LEVELS:
        nbytes = BEYOND * sizes["l3"] if where == "memory" else int(sizes[where] * _FILL[where]) * share[where]
        found["read"][where] = _rate(peak.read(nbytes, threads), rounds)
        found["triad"][where] = _rate(peak.triad(nbytes, threads), rounds)
    others = begun.others_since() if begun else None
    ceilings = Ceilings(
        tuning.cpu_machine(level), doctor.model_name(), threads, gops, found["read"], found["triad"], others,
        time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    )  # fmt: skip
    _keep(ceilings, level)
    return ceilings


def _rate(probe: peak.Probe, rounds: int) -> float:
    """Thousands of millions of its work a second, at the 5th percentile of its times."""
    times = timing.paired({"probe": probe.call}, rounds)
    return probe.work / times.p5("probe") / 1e9


def _file(threads: int, level: str | None) -> Any:
    path = tuning.path(tuning.cpu_machine(level))
    return path.with_suffix(f".{threads}.peak.json")


def _keep(ceilings: Ceilings, level: str | None) -> None:
    try:
        path = _file(ceilings.threads, level)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = path.with_suffix(f".{os.getpid()}.tmp")
        temporary.write_text(
            json.dumps({"schema": SCHEMA, "compiler": tuning.compiler(), **asdict(ceilings)}, indent=2)
        )
        os.replace(temporary, path)
    except OSError:
        return  # what cannot be kept is measured again


def show(ceilings: Ceilings) -> None:
    """Print them for people."""
    from rich.table import Table

    from ..terminal import wide_console

    table = Table(
        title=f"{ceilings.model}, {ceilings.machine}, {ceilings.threads} thread{'s' * (ceilings.threads > 1)}"
    )
    for heading in ("ceiling", "measured", ""):
        table.add_column(heading, justify="right" if heading == "measured" else "left")
    units = {"dot": "GOPS of 8-bit products on registers", "fma": "GFLOPS of float32 on registers"}
    for unit, rate in ceilings.gops.items():
        table.add_row(unit, f"{rate:.0f}", units[unit])
    for level in ceilings.read:
        table.add_row(f"{level} read", f"{ceilings.read[level]:.1f}", "GB/s")
    for level in ceilings.triad:
        table.add_row(f"{level} triad", f"{ceilings.triad[level]:.1f}", "GB/s, two reads and a write")
    console = wide_console()
    console.print(table)
    if ceilings.others is not None and ceilings.others > load.BUSY:
        console.print(f"! other programs used {ceilings.others:.0%} of the processors meanwhile: run it again.")
