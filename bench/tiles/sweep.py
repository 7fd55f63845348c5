"""A sweep: every tile is checked, then timed; the fastest meet in a final; what was found is kept as it is found."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ...executors.tuned import Tunable
from ...kernels import tuning
from ...primitives.errors import ArgumentError, TileworkError
from ..machine import ceilings, load
from . import ahead, caching, final, rivals, search
from .plans import Device, Ready, tunables
from .problem import Problem
from .result import DROPPED, FAILED, OK, PRUNED, WRONG, Point, Rival, Sweep
from .sampling import SLOW, Sample, sample
from .space import Candidate, Space, Tile, show

TOP = 4  # tiles in the final, beside the own choice
COLD_SAMPLES = 5
SHORT = 1.0  # seconds: points that took less than this together are timed again; one slow second would be all of it
PASSES = 3  # over such points
MOST_PASSES = 1000  # over those that were never timed while the core was our own
AHEAD = 0.5  # of the budget: what compiling beforehand may take; the rest is compiled when it is its turn
PATIENCE = 10.0  # seconds for all of that
# of a point, in the store
REMEMBERED = ("status", "why", "p5_us", "median_us", "samples", "spread", "stopped", "yard_us", "calm")


@dataclass
class Options:
    """How to sweep.

    tiles    {parameter: values}; None: all parameters at the values that the implementation thinks worth it
    search   full, race or model
    budget   seconds for one step at one shape; what is not reached is left
    cache    what is hot while tiles are ranked: hot, weights or all (see caching.MODES)
    cold     the same for the second figure of the tiles in the final
    peers    names of peers or of their libraries
    resume   whether times of earlier runs count; False measures anew
    save     whether plans are to take the chosen tile from now on
    rounds   of the final
    """

    tiles: Mapping[str, Sequence[int]] | None = None
    search: str = "race"
    budget: float = 60.0
    cache: str = "hot"
    cold: str = "all"
    peers: Sequence[str] = ()
    resume: bool = True
    save: bool = False
    rounds: int = final.ROUNDS
    seed: int = 0

    def __post_init__(self) -> None:
        for mode in (self.cache, self.cold):
            caching.before(mode, ())
        if self.search not in search.SEARCHES:
            raise ArgumentError(f"there is no search {self.search!r}; there is {', '.join(search.SEARCHES)}")
        if self.budget <= 0 or self.rounds < 1:
            raise ArgumentError(f"budget={self.budget} s, rounds={self.rounds}: more than nothing is needed")
        rivals.named(self.peers)


class Watch:
    """What a sweep tells while it runs; a progress bar is one."""

    def begin(self, sweep: Sweep, total: int) -> None:
        """Points are about to be measured."""

    def point(self, sweep: Sweep, point: Point) -> None:
        """One more was."""

    def phase(self, what: str) -> None:
        """Something else than points takes time now."""

    def end(self) -> None:
        """The sweep is over."""


@dataclass
class Sweeper:
    """One step of one problem on one device."""

    problem: Problem
    step: str
    device: Device
    options: Options
    watch: Watch = field(default_factory=Watch)
    stages: Sequence[int] = ()
    elsewhere: int = field(default=0, init=False)  # specialisations that other processes compiled for this sweep

    def run(self) -> Sweep:
        """Sweep. Ctrl-C ends it early; what was found until then is returned, and is in the store."""
        begun, busy = time.perf_counter(), load.Moment.now()
        self.end = begun + self.options.budget
        self.compiled, self.kept = self.device.compiled(), self.device.kept()
        own = self.device.plan(self.problem)
        first = time.perf_counter() - begun
        self.tunable = find(own, self.step)
        isa = self.device.isa
        space = Space.make(self.tunable, isa, self.options.tiles, self.stages)
        self.before = caching.before(self.options.cache, [*self.problem.inputs.values()])
        self.sweep = self._empty(space)
        measured = self.device.name == "cpu" and self._works(space)
        self.ceilings = ceilings.known(self.device.threads, isa) if measured else None
        if self.ceilings is not None:
            self.sweep.unit = self._works(space)
            self.sweep.peak_gops = self.ceilings.gops.get(self.sweep.unit)
        self.points = {key(c.tile): self._point(c) for c in space.candidates}
        self.sweep.points = list(self.points.values()) + [
            Point(tile, status=PRUNED, why=why) for tile, why in space.pruned
        ]
        self.stored = self._stored() if self.options.resume else {}
        self._count()
        if self.sweep.compiled:
            self.sweep.compile_s += first
        helpers = self._helpers(space)
        self.watch.begin(self.sweep, len(space.candidates))
        try:
            self._compile(helpers)
            started = time.perf_counter()
            try:
                search.run(self.options.search, space.candidates, self._measure, self._predict)
            except search.Stop:
                self.sweep.spent = True
            self._again(started)
            self._final()
        except KeyboardInterrupt:
            self.sweep.interrupted = True
            self.sweep.best = self.sweep.timed[0].tile if self.sweep.timed else {}
        finally:
            self.watch.end()
            self.device.release()
        self._judge_model()
        self.sweep.wall_s = time.perf_counter() - begun
        self.sweep.calm_us = self.device.calm.best if self.device.calm is not None else None
        self.sweep.others = busy.others_since() if busy else None
        if self.options.save and not self.sweep.interrupted and self.sweep.timed:
            self.save()
        return self.sweep

    def _empty(self, space: Space) -> Sweep:
        step = self.tunable
        return Sweep(
            kernel=step.key.kernel,
            step=self.step,
            label=self.problem.label,
            sizes=dict(step.sizes),
            dtypes=list(step.dtypes),
            threads=self.device.threads,
            device=self.device.name,
            search=self.options.search,
            cache=self.options.cache,
            cold=self.options.cold,
            source=step.key.source,
            operations=self.problem.operations,
            bytes=self.problem.bytes,
            values={name: list(v) for name, v in space.values.items()},
            groups=space.groups,
            checked=self.problem.reference[1],
        )

    @staticmethod
    def _works(space: Space) -> str:
        """Which ceiling holds for the step's arithmetic; empty where its implementation has no model."""
        return next((c.work.unit for c in space.candidates if c.work is not None), "")

    def _predict(self, c: Candidate) -> float | None:
        """Seconds by the model; None where there is none."""
        if c.work is None or self.ceilings is None:
            return None
        return self.ceilings.seconds(c.work.operations, c.work.unit, dict(c.work.bytes))

    def _point(self, c: Candidate) -> Point:
        predicted = self._predict(c)
        return Point(
            c.tile,
            runs=dict(c.work.tile) if c.work is not None else {},
            why="not measured",
            predicted_us=predicted * 1e6 if predicted is not None else None,
        )

    # Compiling ---------------------------------------------------------------------------------------------------

    def _helpers(self, space: Space) -> ahead.Helpers | None:
        """Who compiles what the search measures first; None where all is there, or what is compiled here is not kept.

        Whether it is shows at the own choice, which is compiled by now.
        """
        if self.device.kept() == self.kept:
            return None
        first = search.first(self.options.search, space.candidates, self._predict)
        tiles = [c.tile for c in first if not c.default and key(c.tile) not in self.stored]
        return ahead.Helpers([partial(self._plan, tile) for tile in tiles])

    def _plan(self, tile: Tile) -> None:
        if time.perf_counter() < self.end - (1 - AHEAD) * self.options.budget:
            self.device.plan(self.problem, self.step, tile)

    def _compile(self, helpers: ahead.Helpers | None) -> None:
        if helpers is not None:
            self.watch.phase(f"compiling {len(helpers.tasks)}")
            started = time.perf_counter()
            self.elsewhere = helpers.run()
            self.sweep.compile_s += time.perf_counter() - started
            self._count()

    def _count(self) -> None:
        self.sweep.compiled = self.device.compiled() - self.compiled + self.elsewhere

    # Measuring ---------------------------------------------------------------------------------------------------

    def _measure(self, c: Candidate, least: int, best: float) -> Point | None:
        point = self.points[key(c.tile)]
        if point.status in (WRONG, FAILED) or (point.status == DROPPED and point.p5_us):
            return point
        if point.status == OK and _enough(point.samples, point.stopped, least):
            return point
        stored = self.stored.get(key(c.tile))
        if stored is not None and (
            stored["status"] == DROPPED or _enough(stored.get("samples", 0), stored.get("stopped"), least)
        ):
            self._take(point, stored)
        else:
            if time.perf_counter() >= self.end and not c.default:
                raise search.Stop
            self._time(c, point, least, best)
            self._keep(point)
        self.watch.point(self.sweep, point)
        return point

    def _time(self, c: Candidate, point: Point, least: int, best: float) -> None:
        """Make a plan, compare what it gives with the right result, then time it."""
        compiled, started = self.device.compiled(), time.perf_counter()
        try:
            ready = self.device.make(self.problem, self.step, c.tile)
            if self.device.compiled() > compiled:
                self.sweep.compile_s += time.perf_counter() - started
                self._count()
            ready.call()
            point.why = self.problem.wrong(ready.outputs)
        except ArgumentError as error:
            point.status, point.why = PRUNED, str(error)
            return
        except (TileworkError, ArithmeticError, LookupError, TypeError, ValueError, RuntimeError, MemoryError) as error:
            point.status, point.why = FAILED, f"{type(error).__name__}: {error}"
            return
        if point.why:
            point.status = WRONG
            return
        self.device.settle()
        incumbent = float("inf") if c.default or self.options.search == "full" else best
        found = sample(
            ready.call,
            self.device.timer,
            incumbent=incumbent,
            best=best,
            least=least,
            before=self.before,
            calm=self.device.calm,
        )
        self._fill(point, found, self.device.yardstick())
        point.status = DROPPED if found.stopped == "slow" else OK
        point.why = f"more than {100 * (SLOW - 1):.0f} % slower than the best so far" if point.status == DROPPED else ""

    def _again(self, started: float) -> None:
        """Time what stands in some more passes, where all of it took little time, and keep the best figures of each.

        What was never timed while the core was our own goes on being timed until it is, or the time is over.
        """
        ours, calm = [p for p in self.sweep.timed if p.origin == "measured"], self.device.calm
        if time.perf_counter() - started > SHORT:
            return
        end = min(time.perf_counter() + PATIENCE, self.end)
        for done in range(1, MOST_PASSES):
            if done >= PASSES:
                ours = [p for p in ours if p.calm is False]
            if not ours or self.sweep.spent or time.perf_counter() > end:
                return
            if calm is not None and not calm():
                self.watch.phase("another program shares the core: waiting")
                calm.wait(end - time.perf_counter())
            for point in ours:
                ready = self.device.make(self.problem, self.step, point.tile)
                ready.call()
                found = sample(ready.call, self.device.timer, before=self.before, calm=calm)
                self._fill(point, found, self.device.yardstick())
                self._keep(point)

    @staticmethod
    def _fill(point: Point, found: Sample, yard: float | None) -> None:
        """What was found of a point. Of several times the best counts, because noise only ever adds; first those of a calm core."""
        p5 = found.p5 * 1e6
        if point.p5_us is None or _rank(found.calm, p5) < _rank(point.calm, point.p5_us):
            point.p5_us, point.median_us, point.calm = p5, found.median * 1e6, found.calm
            point.spread, point.stopped = found.spread, found.stopped
        point.samples += found.samples
        point.yard_us = min(filter(None, (yard, point.yard_us)), default=None)

    # The store ---------------------------------------------------------------------------------------------------

    @property
    def where(self) -> str:
        """What tells these times from others of the same key: what was timed with the step, on which data, how."""
        fixed = {name: tile for name, tile in sorted(self.device.fixed.items())}
        graph = " ".join(f"{s.name}:{s.kernel.name}" for s in self.problem.pipe.order())
        return f"{self.problem.label} | {graph} | {fixed} | {self.options.cache} | seed {self.options.seed}"

    def _stored(self) -> dict[Any, dict[str, Any]]:
        """Points of earlier runs, by tile."""
        mine = self.tunable.key.facts()
        found = {}
        for line in tuning.lines(self.device.machine, tuning.POINT):
            known = line.get("status") in (OK, DROPPED)  # what was wrong is looked at again
            if known and all(line.get(k) == v for k, v in mine.items()) and line.get("where") == self.where:
                found[key(line["tile"])] = line
        return found

    def _keep(self, point: Point) -> None:
        if point.status in (OK, DROPPED, WRONG):
            facts = {k: getattr(point, k) for k in REMEMBERED}
            line = {"kind": tuning.POINT, **self.tunable.key.facts(), "tile": point.tile, "where": self.where, **facts}
            tuning.append(self.device.machine, line)

    def _take(self, point: Point, line: Mapping[str, Any]) -> None:
        for k in REMEMBERED:
            setattr(point, k, line.get(k, getattr(point, k)))
        point.origin = "store"
        self.sweep.resumed += 1

    def save(self) -> None:
        """Let plans take the chosen tile from now on."""
        tile = {**self.device.fixed.get(self.step, {}), **self.sweep.best}
        chosen = self.sweep.chosen
        line = {
            "kind": tuning.TUNED,
            **self.tunable.key.facts(),
            "tile": tile,
            "p5_us": chosen.p5_us if chosen else None,
            "others": self.sweep.others,
            "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }
        self.sweep.saved = tuning.append(self.device.machine, line)

    # The final ---------------------------------------------------------------------------------------------------

    def _final(self) -> None:
        sweep, own = self.sweep, self.points[key({})]
        best = sweep.timed[:TOP]
        if not best:
            sweep.best = {}
            return
        if own.status in (OK, DROPPED) and own not in best:
            best.append(own)
        self.watch.phase("final")
        ready: dict[str, Ready] = {}
        tiles: dict[str, Tile] = {}
        for point in best:
            name = show(point.tile)
            ready[name], tiles[name] = self.device.make(self.problem, self.step, point.tile), point.tile
        others, sweep.left_out = rivals.make(self.problem, self.options.peers, self.device.threads)
        calls = {**{name: r.call for name, r in ready.items()}, **{peer.name: peer.call for peer in others}}
        times = final.rounds(calls, self.device.timer, self.options.rounds, self.device.settle)
        chosen = final.choose(times, show({}), list(tiles))
        sweep.best = tiles[chosen]
        self.watch.phase("cold")
        cold = self._cold(calls)
        for name in calls:
            ratio = final.ratio(times, name, chosen)
            p5 = float(sorted(times[name])[0]) * 1e6
            convention = next((peer.convention for peer in others if peer.name == name), "")
            rival = Rival(
                name,
                tiles.get(name),
                p5,
                ratio.median,
                ratio.low,
                ratio.high,
                final.tied(ratio),
                convention,
                cold.get(name),
            )
            (sweep.finalists if name in tiles else sweep.peers).append(rival)
        for point in best:
            point.cold_us = cold.get(show(point.tile))
        sweep.finalists.sort(key=lambda r: (r.name != chosen, r.ratio))

    def _cold(self, calls: Mapping[str, Any]) -> dict[str, float]:
        """Microseconds of a call when `options.cold` is not in any cache."""
        before = caching.before(self.options.cold, self.problem.inputs.values())
        if before is None:
            return {}
        found = {}
        for name, call in calls.items():
            seconds = sample(call, self.device.timer, least=COLD_SAMPLES, seconds=0.0, before=before)
            found[name] = seconds.p5 * 1e6
        return found

    def _judge_model(self) -> None:
        """How well the model's ranking stands to what was measured."""
        known = [p for p in self.sweep.timed if p.predicted_us is not None and p.tile]
        if len(known) < 2:
            return
        ranked = sorted(known, key=lambda p: p.predicted_us or 0.0)
        best = known[0].p5_us or 1.0
        kept = max(search.KEPT, round(search.KEPT_SHARE * len(self.points))) - 1
        self.sweep.model = {
            "rank_of_best": ranked.index(known[0]) + 1,
            "first_regret": (ranked[0].p5_us or 0.0) / best - 1,
            "kept": min(kept, len(ranked)),
            "kept_regret": min(p.p5_us or 0.0 for p in ranked[:kept]) / best - 1,
            "points": len(ranked),
        }


def key(tile: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """A tile as the key of a dictionary."""
    return tuple(sorted(tile.items()))


def _enough(samples: int, stopped: str | None, least: int) -> bool:
    """Whether a point needs no more samples, where so many are wanted at least."""
    return samples >= least or stopped in ("behind", "budget")


def _rank(calm: bool | None, us: float) -> tuple[bool, float]:
    """What makes one figure of a point better than another."""
    return calm is False, us


def find(plan: Any, step: str) -> Tunable:
    """The step of a plan that is to be swept. Raises ArgumentError, saying which there are."""
    known = plan.tiles.tunable
    if step in known:
        return known[step]
    raise ArgumentError(
        f"there is no step {step!r} whose tile could be swept; there is {', '.join(tunables(plan)) or ', '.join(known) or 'none'}"
    )
