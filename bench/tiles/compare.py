"""Two results of the same sweeps held together: what became slower, beyond what the noise explains.

A machine has seconds in which everything is slower. So each time is divided by that of a fixed piece of work, done right
after it, where both results have one; and points that were timed while another program shared the core are left out. The
verdict is then taken over all points: a change of the code moves all of them,
while noise moves each by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from ...primitives.errors import ArgumentError
from ..machine.calm import LIMIT as LIMIT_OF_CALM
from .result import Result, Sweep
from .space import show

LIMIT = 0.025
NOISE = 2.0  # times the spread of the points' ratios that a median of them may move by chance
FEWEST = 3  # points that were timed on a calm core in both, for a verdict on these alone
BETTER, SAME, WORSE, UNSURE = "faster", "same", "slower", "unsure"


@dataclass(frozen=True)
class Change:
    """One sweep in both results.

    ratio    new time / old, the median over the points of both; low, high: its range for what chance explains
    points   how many points both have
    verdict  faster, same, slower; unsure where too few points are known, or the range is wider than the limit
    slowest  [(tile, new / old)] of the points that moved most
    """

    kernel: str
    label: str
    threads: int
    ratio: float
    low: float
    high: float
    points: int
    verdict: str
    why: str = ""
    slowest: list[tuple[str, float]] = field(default_factory=list)


@dataclass(frozen=True)
class Comparison:
    """All of it. failed: whether something is slower by more than the limit."""

    limit: float
    changes: list[Change]
    missing: list[str]
    remarks: list[str]

    @property
    def failed(self) -> bool:
        return any(c.verdict == WORSE for c in self.changes)

    def to_dict(self) -> dict[str, Any]:
        """What the JSON file holds, with its schema's name and version."""
        return {"schema": "tilework.comparison", "version": 1, **asdict(self), "failed": self.failed}


def compare(old: Result, new: Result, limit: float = LIMIT) -> Comparison:
    """Hold two results together.

    limit   how much slower counts: 0.025 is 2.5 %

    Raises ArgumentError where they have no sweep in common.
    """
    before, after = _by_key(old), _by_key(new)
    common = [k for k in before if k in after]
    if not common:
        raise ArgumentError(
            f"the results have no sweep in common: the old one has {_names(before)}, the new one {_names(after)}"
        )
    changes = [_change(before[k], after[k], limit) for k in common]
    missing = [f"only the old result has {_name(k)}" for k in before if k not in after]
    missing += [f"only the new result has {_name(k)}" for k in after if k not in before]
    return Comparison(limit, changes, missing, _remarks(old, new, before, after))


Key = tuple[str, str, str, int, str, str]


def _by_key(result: Result) -> dict[Key, Sweep]:
    return {(s.kernel, s.step, s.label, s.threads, s.device, s.cache): s for s in result.sweeps}


def _name(key: Key) -> str:
    return f"{key[0]} {key[2]} on {key[3]} thread{'s' * (key[3] > 1)} of {key[4]}"


def _names(found: Mapping[Key, Sweep]) -> str:
    return ", ".join(map(_name, found)) or "none"


def _change(old: Sweep, new: Sweep, limit: float) -> Change:
    yard = all(p.yard_us for s in (old, new) for p in s.timed)
    before, after = _times(old, yard), _times(new, yard)
    common = [tile for tile in before if tile in after]
    if not common:
        return Change(new.kernel, new.label, new.threads, 1.0, 0.0, 0.0, 0, UNSURE, "no tile was timed in both")
    calm = [tile for tile in common if before[tile].calm and after[tile].calm]
    disturbed = len(calm) < FEWEST
    common = common if disturbed else calm
    ratios = np.array([after[tile].time / before[tile].time for tile in common])
    middle = float(np.median(ratios))
    error = _error(ratios) if len(ratios) > 2 else max(_spread(old), _spread(new), 0.01)
    low, high = middle * (1 - error), middle * (1 + error)
    verdict, why = SAME, ""
    if middle > 1 + limit and low > 1 + limit / 2:
        verdict = WORSE
    elif middle < 1 / (1 + limit) and high < 1 - limit / 2:
        verdict = BETTER
    elif error > limit:
        verdict, why = UNSURE, f"the points moved by {error:.1%} of their own: measure again on a quiet machine"
    moved = max(_moved(old), _moved(new))
    if verdict in (WORSE, BETTER) and moved > abs(middle - 1):
        verdict, why = (
            UNSURE,
            f"the machine's own speed moved by {moved:.1%} meanwhile: measure again on a quiet machine",
        )
    if verdict in (WORSE, BETTER) and (disturbed or _never_calm(old, new)):
        verdict, why = UNSURE, "another program shared the core while one of them was measured: measure again"
    order = sorted(range(len(ratios)), key=lambda n: -float(ratios[n]))[:3]
    slowest = [(show(dict(common[n])), float(ratios[n])) for n in order]
    return Change(new.kernel, new.label, new.threads, middle, low, high, len(ratios), verdict, why, slowest)


def _error(ratios: Any) -> float:
    """How far the median of the ratios may be off by chance: from their median absolute deviation."""
    deviation = 1.4826 * float(np.median(np.abs(ratios - np.median(ratios))))
    return NOISE * 1.2533 * deviation / len(ratios) ** 0.5 / float(np.median(ratios))


@dataclass(frozen=True)
class _Time:
    """Of a point: microseconds, or pieces of the fixed work; calm: unless it is known that the core was not our own."""

    time: float
    calm: bool


def _times(sweep: Sweep, yard: bool) -> dict[tuple[tuple[str, int], ...], _Time]:
    return {
        tuple(sorted(p.tile.items())): _Time(p.p5_us / (p.yard_us if yard and p.yard_us else 1.0), p.calm is not False)
        for p in sweep.timed
        if p.p5_us
    }


def _never_calm(old: Sweep, new: Sweep) -> bool:
    """Whether the probe of a calm core was never as fast in one of them as in the other."""
    if not old.calm_us or not new.calm_us:
        return False
    return max(old.calm_us, new.calm_us) > LIMIT_OF_CALM * min(old.calm_us, new.calm_us)


def _moved(sweep: Sweep) -> float:
    """How far the fixed piece of work was apart from point to point: what the machine did by itself."""
    known = [p.yard_us for p in sweep.timed if p.yard_us]
    if len(known) < 3:
        return 0.0
    low, high = np.percentile(known, (10, 90))
    return float(high / low - 1)


def _spread(sweep: Sweep) -> float:
    known = [p.spread for p in sweep.timed if p.spread is not None]
    return float(np.median(known)) if known else 0.0


def _remarks(old: Result, new: Result, before: Mapping[Key, Sweep], after: Mapping[Key, Sweep]) -> list[str]:
    """What makes the comparison worth less."""
    found = []
    for what in ("model", "isa", "usable_cores", "compiler"):
        if old.machine.get(what) != new.machine.get(what):
            found.append(f"{what} was {old.machine.get(what)} and is {new.machine.get(what)}: not the same machine")
    for k in before:
        if k in after and (before[k].peak_gops or 0) and (after[k].peak_gops or 0):
            moved = (after[k].peak_gops or 1) / (before[k].peak_gops or 1)
            if abs(moved - 1) > LIMIT:
                found.append(f"{_name(k)}: the measured peak itself moved by {moved - 1:+.1%}")
    for name, result in (("old", old), ("new", new)):
        if any((s.others or 0) > 0.08 for s in result.sweeps):
            found.append(f"other programs were busy while the {name} result was measured")
    return found


def show_comparison(found: Comparison) -> None:
    """Print it for people."""
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console(highlight=False)
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in ("kernel", "shape", "threads", "points", "new / old", "verdict", "moved most"):
        table.add_column(heading, justify="right" if heading in ("threads", "points") else "left")
    colours = {WORSE: "red", BETTER: "green", UNSURE: "yellow"}
    for c in found.changes:
        colour = colours.get(c.verdict)
        verdict = f"[{colour}]{c.verdict}[/]" if colour else c.verdict
        most = "; ".join(f"{tile} {ratio:.2f}" for tile, ratio in c.slowest[:1])
        table.add_row(
            escape(c.kernel), escape(c.label), str(c.threads), str(c.points), f"{c.ratio:.3f} ({c.low:.3f}-{c.high:.3f})",
            verdict + (f": {c.why}" if c.why else ""), escape(most),
        )  # fmt: skip
    console.print(table)
    for line in [*found.missing, *found.remarks]:
        console.print(escape(line))
    console.print(f"slower means by more than {found.limit:.1%}, and more than chance explains")


__all__ = ["LIMIT", "Change", "Comparison", "compare", "show_comparison"]
