"""What a sweep found: its points, the choice, and its versioned JSON form (docs/bench.md describes every field)."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from ...primitives.errors import ArgumentError, FileFormatError

SCHEMA, VERSION = "tilework.sweep", 1
OK, WRONG, FAILED, PRUNED, DROPPED, LEFT = "ok", "wrong", "failed", "pruned", "dropped", "left"


@dataclass
class Point:
    """One tile.

    tile       what was asked for; {}: the implementation's own choice
    runs       what it came to, where the implementation's model says
    status     ok; wrong (its result differs: it cannot win); failed (it raised); pruned (not worth trying); dropped
               (given up as clearly slower); left (the search passed it over, or the budget was spent)
    why        of any other status than ok
    p5_us      microseconds a call, the 5th percentile of `samples`; median_us their median
    spread     of the fastest quarter of the samples
    stopped    why sampling ended: steady, budget, behind or slow
    calm       whether they were taken while the core was our own (bench/machine/calm.py); None: nobody looked
    yard_us    microseconds that a fixed piece of work took right after it: how fast the machine was at that time
    cold_us    the same with the caches as `Sweep.cold` says
    predicted_us  what the model said before anything was compiled
    origin     "measured" now, or "store": in an earlier run
    """

    tile: dict[str, int]
    runs: dict[str, int] = field(default_factory=dict)
    status: str = LEFT
    why: str = ""
    p5_us: float | None = None
    median_us: float | None = None
    samples: int = 0
    spread: float | None = None
    stopped: str = ""
    calm: bool | None = None
    yard_us: float | None = None
    cold_us: float | None = None
    predicted_us: float | None = None
    origin: str = "measured"


@dataclass
class Rival:
    """Something that was timed in the same rounds as the chosen tile, in the final.

    name     "tile" and its parameters, or a peer
    ratio    its time / the chosen tile's in the same round: median, and the range of the rounds
    tie      whether the range holds 1
    """

    name: str
    tile: dict[str, int] | None
    p5_us: float
    ratio: float
    low: float
    high: float
    tie: bool
    convention: str = ""
    cold_us: float | None = None


@dataclass
class Sweep:
    """One step at one shape, on so many threads of one device.

    search     full, race or model; `cache`: what was hot while points were ranked; `cold`: what cold_us stands for
    best       the chosen tile; {}: the implementation's own choice, which others did not beat beyond the noise
    checked    who said what the right result is
    model      how well the model ranked: rank of the best, regret of its first choice and of what was measured
    peak_gops  the measured ceiling of the arithmetic that this step does
    calm_us    what the probe of a calm core took at its fastest
    """

    kernel: str
    step: str
    label: str
    sizes: dict[str, int | None]
    dtypes: list[str]
    threads: int
    device: str
    search: str
    cache: str
    source: str
    operations: float
    bytes: float
    points: list[Point] = field(default_factory=list)
    best: dict[str, int] = field(default_factory=dict)
    finalists: list[Rival] = field(default_factory=list)
    peers: list[Rival] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    values: dict[str, list[int]] = field(default_factory=dict)
    groups: int = 0
    compiled: int = 0
    compile_s: float = 0.0
    wall_s: float = 0.0
    resumed: int = 0
    interrupted: bool = False
    spent: bool = False
    checked: str = ""
    cold: str = "all"
    unit: str = ""
    peak_gops: float | None = None
    model: dict[str, Any] = field(default_factory=dict)
    saved: bool = False
    others: float | None = None
    calm_us: float | None = None

    @property
    def timed(self) -> list[Point]:
        """The points that have a time and may win, fastest first."""
        good = [p for p in self.points if p.status == OK and p.p5_us is not None]
        return sorted(good, key=lambda p: p.p5_us or 0.0)

    @property
    def chosen(self) -> Point | None:
        """The point of the chosen tile."""
        return next((p for p in self.points if p.tile == self.best and p.p5_us is not None), None)

    def gops(self, us: float | None) -> float | None:
        """Thousands of millions of operations a second; None where the operations are not known."""
        return self.operations / us / 1e3 if us and self.operations else None

    def count(self, status: str) -> int:
        return sum(p.status == status for p in self.points)


@dataclass
class Result:
    """All sweeps of one command, with the machine that they ran on."""

    machine: dict[str, Any]
    sweeps: list[Sweep] = field(default_factory=list)
    ceilings: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def best(self) -> dict[str, int]:
        """The chosen tile of the first sweep."""
        return self._first().best

    def _first(self) -> Sweep:
        if not self.sweeps:
            raise ArgumentError("nothing was swept")
        return self.sweeps[0]

    def against(self, peer: str, sweep: int = 0) -> Rival:
        """How the chosen tile stands to a peer: `ratio` is how many times as fast it is, with its range.

        peer   the beginning of its name; "torch" is the fastest of torch's
        """
        found = [p for p in self.sweeps[sweep].peers if p.name.startswith(peer)]
        if not found:
            known = ", ".join(p.name for p in self.sweeps[sweep].peers) or "none"
            raise ArgumentError(f"there is no peer {peer!r} in this result; there is {known}")
        return min(found, key=lambda p: p.p5_us)

    def table(self, top: int = 10) -> str:
        """What `tilework bench sweep` prints, as text."""
        from .report import text

        return text(self, top)

    def heatmap(self, x: str, y: str, sweep: int = 0) -> str:
        """A map of two tile parameters as text: the best of each pair."""
        from ..pictures.terminal import heatmap

        return heatmap(self.sweeps[sweep], x, y)

    def to_dict(self) -> dict[str, Any]:
        """What the JSON file holds, with its schema's name and version."""
        return {"schema": SCHEMA, "version": VERSION, **asdict(self)}

    def to_json(self, path: str | os.PathLike[str]) -> None:
        """Write everything to a file, which `Result.load` and `tilework bench show|compare` read."""
        Path(path).write_text(json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n", encoding="utf-8")

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """One line a point."""
        from .export import csv

        Path(path).write_text(csv(self), encoding="utf-8")

    def to_markdown(self, path: str | os.PathLike[str]) -> None:
        """The tables, for a report."""
        from .export import markdown

        Path(path).write_text(markdown(self), encoding="utf-8")

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """One page with all tables and pictures, which needs nothing beside it."""
        from ..pictures.page import page

        Path(path).write_text(page(self), encoding="utf-8")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Result:
        """Read what `to_json` wrote. Raises FileFormatError for anything else, saying what was expected."""
        try:
            found = json.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise ArgumentError(f"{error}") from error
        except ValueError as error:
            raise FileFormatError(
                f"{path} is no JSON ({error}); a file of `tilework bench sweep --json` is needed"
            ) from None
        return cls.from_dict(found, str(path))

    @classmethod
    def from_dict(cls, found: Any, name: str = "this") -> Result:
        """The inverse of `to_dict`; fields that a later version added are passed over."""
        if not isinstance(found, dict) or found.get("schema") != SCHEMA or found.get("version") != VERSION:
            what = (found.get("schema"), found.get("version")) if isinstance(found, dict) else type(found).__name__
            raise FileFormatError(f"{name} has schema {what}; ({SCHEMA!r}, {VERSION}) is needed")
        try:
            sweeps = [
                _made(
                    Sweep,
                    {
                        **each,
                        "points": [_made(Point, p) for p in each["points"]],
                        "finalists": [_made(Rival, r) for r in each["finalists"]],
                        "peers": [_made(Rival, r) for r in each["peers"]],
                    },
                )
                for each in found["sweeps"]
            ]
            return cls(found["machine"], sweeps, found.get("ceilings", {}), found.get("settings", {}))
        except (KeyError, TypeError) as error:
            raise FileFormatError(f"{name} lacks what a sweep's result has: {error}") from None


def _made(kind: Any, facts: dict[str, Any]) -> Any:
    known = {f.name for f in fields(kind)}
    return kind(**{k: v for k, v in facts.items() if k in known})
