"""What pictures show, taken from a result: the same numbers for the terminal, for files and for the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...primitives.errors import ArgumentError
from ..tiles.result import Result, Sweep


@dataclass(frozen=True)
class Grid:
    """The best figure of each pair of values. cells[row][column]: the figure, or None where nothing was timed."""

    x: str
    y: str
    columns: tuple[int, ...]
    rows: tuple[int, ...]
    cells: tuple[tuple[float | None, ...], ...]
    what: str
    higher_is_better: bool
    rest: str


def grid(sweep: Sweep, x: str, y: str) -> Grid:
    """A heat map's numbers: GOPS where the operations are known, else microseconds.

    x  the parameter of the rows; y  that of the columns. Other parameters are at their best for each pair.
    """
    for name in (x, y):
        if name not in sweep.values:
            raise ArgumentError(f"{name!r} was not varied; {', '.join(sweep.values) or 'nothing'} was")
    if x == y:
        raise ArgumentError(f"a map needs two parameters, not {x!r} twice")
    best: dict[tuple[int, int], float] = {}
    for p in sweep.points:
        if p.p5_us is None or p.status not in ("ok", "dropped") or x not in p.tile or y not in p.tile:
            continue
        at = p.tile[x], p.tile[y]
        best[at] = min(best.get(at, float("inf")), p.p5_us)
    rows, columns = (tuple(v for v in sweep.values[n] if any(at[i] == v for at in best)) for i, n in ((0, x), (1, y)))
    counted = sweep.operations > 0

    def cell(at: tuple[int, int]) -> float | None:
        us = best.get(at)
        return None if us is None else sweep.gops(us) if counted else us

    cells = tuple(tuple(cell((r, c)) for c in columns) for r in rows)
    rest = [n for n in sweep.values if n not in (x, y) and len(sweep.values[n]) > 1]
    return Grid(x, y, columns, rows, cells, "GOPS" if counted else "us", counted, ", ".join(rest))


@dataclass(frozen=True)
class Spot:
    """A point of the roofline: operations per byte, and operations per second in thousands of millions."""

    name: str
    intensity: float
    gops: float


def spots(result: Result) -> list[Spot]:
    """One for each sweep whose operations and bytes are known: its chosen tile. Those on the fewest threads, as the roofs."""
    found = []
    fewest = min((s.threads for s in result.sweeps), default=1)
    for s in (s for s in result.sweeps if s.threads == fewest):
        gops = s.gops(time_us(s))
        if gops is not None and s.bytes:
            found.append(Spot(s.label, s.operations / s.bytes, gops))
    return found


def time_us(sweep: Sweep) -> float | None:
    """Of the chosen tile: in the final where there was one."""
    rival = next((r for r in sweep.finalists if r.tile == sweep.best), None)
    if rival is not None:
        return rival.p5_us
    return sweep.chosen.p5_us if sweep.chosen else None


Series = dict[str, list[tuple[float, float]]]


def by_size(result: Result) -> Series:
    """{"tilework" or a peer: [(operations or position, us)]}, of the sweeps on the least threads; two shapes at least.

    Several kernels have a line each, by their names.
    """
    fewest = min((s.threads for s in result.sweeps), default=1)
    found: Series = {}
    mine = [s for s in result.sweeps if s.threads == fewest and time_us(s)]
    one = len({s.kernel for s in mine}) == 1
    for n, s in enumerate(sorted(mine, key=lambda s: s.operations)):
        at = s.operations or float(n + 1)
        found.setdefault("tilework" if one else s.kernel, []).append((at, time_us(s) or 0.0))
        for r in s.peers:
            found.setdefault(r.name, []).append((at, r.p5_us))
    return found if any(len(line) > 1 for line in found.values()) else {}


def by_threads(result: Result) -> Series:
    """{shape: [(threads, times as fast as on the fewest)]}, of shapes that were swept on several numbers of threads."""
    found: Series = {}
    groups: dict[tuple[str, str, str], list[Sweep]] = {}
    for s in result.sweeps:
        if time_us(s):
            groups.setdefault((s.kernel, s.step, s.label), []).append(s)
    for (_, _, label), sweeps in groups.items():
        if len({s.threads for s in sweeps}) < 2:
            continue
        ordered = sorted(sweeps, key=lambda s: s.threads)
        first = time_us(ordered[0]) or 1.0
        found[label] = [(s.threads, first / (time_us(s) or first)) for s in ordered]
    return found


def roofs(result: Result, threads: int | None = None) -> tuple[dict[str, float], dict[str, float]]:
    """(ceilings of arithmetic in GOPS, bytes a second of each level in GB/s), for the fewest threads measured."""
    known: Sequence[str] = sorted(result.ceilings, key=int)
    if not known:
        return {}, {}
    found = result.ceilings[str(threads) if threads and str(threads) in known else known[0]]
    units = {s.unit for s in result.sweeps if s.unit}
    return {n: v for n, v in found["gops"].items() if n in units or not units}, found["read"]


def best_axes(sweep: Sweep) -> tuple[str, str] | None:
    """The two parameters with the most values, where there are two that vary."""
    several = sorted((n for n, v in sweep.values.items() if len(v) > 1), key=lambda n: -len(sweep.values[n]))
    return (several[1], several[0]) if len(several) > 1 and sweep.timed else None
