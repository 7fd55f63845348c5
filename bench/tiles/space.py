"""The tiles of a sweep: every combination of the parameters' values, less those that cannot be or are the same."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...executors.tuned import STAGE, Tunable
from ...kernels.tileparams import TileParam, Work
from ...primitives.errors import ArgumentError
from ...primitives.kernel import index_space

Tile = dict[str, int]
LIMIT = 20_000  # combinations; beyond it somebody has made a mistake
_RANGE = re.compile(r"(\d+):(\d+)(?::(\d+)(x?))?")


def parse(words: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Values from words like `mr=4,6,8`, `kc=128:1024:2x` (doubling) and `mc=32:128:32` (steps of 32, end included)."""
    found: dict[str, tuple[int, ...]] = {}
    for word in words:
        name, equals, text = word.partition("=")
        values: list[int] = []
        for part in text.split(","):
            span = _RANGE.fullmatch(part)
            if span:
                values += _span(word, *span.groups())
            elif part.isdigit():
                values.append(int(part))
            else:
                equals = ""
        if not (name and equals and values):
            raise ArgumentError(
                f"tile values {word!r}: name=N,N,.. or name=LOW:HIGH:STEP or name=LOW:HIGH:2x is needed"
            )
        found[name] = tuple(dict.fromkeys(values))
    return found


def _span(word: str, low: str, high: str, step: str | None, times: str | None) -> list[int]:
    lo, hi, by = int(low), int(high), int(step or 1)
    if by < (2 if times else 1) or lo < 1 or hi < lo or (hi - lo) // (1 if times else by) > LIMIT * by:
        raise ArgumentError(f"tile values {word!r}: the range is empty or has no end")
    values = []
    while lo <= hi:
        values.append(lo)
        lo = lo * by if times else lo + by
    return values


@dataclass(frozen=True)
class Candidate:
    """One tile of a space. tile: what is asked for; {}: the implementation's own choice. work: what its model says."""

    tile: Tile
    group: Tile
    work: Work | None = None

    @property
    def default(self) -> bool:
        return not self.tile


@dataclass
class Space:
    """The tiles to try at one step.

    values    {parameter: values}, of those that are varied
    compiled  which of them make another specialisation
    pruned    [(tile, why)] for what was left out
    """

    values: dict[str, tuple[int, ...]]
    compiled: tuple[str, ...]
    candidates: list[Candidate] = field(default_factory=list)
    pruned: list[tuple[Tile, str]] = field(default_factory=list)

    @property
    def groups(self) -> int:
        """How many specialisations there are."""
        return len({tuple(sorted(c.group.items())) for c in self.candidates})

    @classmethod
    def make(
        cls,
        step: Tunable,
        isa: str | None,
        given: Mapping[str, Sequence[int]] | None = None,
        stages: Sequence[int] = (),
    ) -> Space:
        """The space of a step.

        given   {parameter: values} to try; parameters that it does not name are left to the implementation. None: every
                parameter, at the values that the implementation thinks worth it
        stages  rows of a stage worth trying, where the step is in one

        Raises ArgumentError for a parameter that the step does not have.
        """
        params = {name: TileParam.of(p) for name, p in step.variant.tile_params.items()}
        facts = step.facts({}, isa)
        if given is None:
            values = {name: p.choices(facts) for name, p in params.items()}
            if stages:
                values[STAGE] = tuple(stages)
            values = {name: v for name, v in values.items() if v}
        else:
            values = {name: tuple(v) for name, v in given.items()}
            _check(values, params, step)
        if math.prod(map(len, values.values())) > LIMIT:
            raise ArgumentError(
                f"{math.prod(map(len, values.values()))} tiles are more than {LIMIT}; name fewer values"
            )
        space = cls(values, tuple(n for n in values if n in params and params[n].compiled))
        space._fill(step, isa)
        return space

    def _fill(self, step: Tunable, isa: str | None) -> None:
        own = step.variant.work(step.facts({}, isa))
        seen: dict[Any, Tile] = {} if own is None else {_same(own, {}): {}}
        self.candidates.append(Candidate({}, self._group({}, own), own))
        for values in itertools.product(*self.values.values()):
            tile = dict(zip(self.values, values, strict=True))
            try:
                work = step.variant.work(step.facts({n: v for n, v in tile.items() if n != STAGE}, isa))
            except ArgumentError as error:
                self.pruned.append((tile, str(error)))
                continue
            if work is not None:
                same = _same(work, tile)
                if same in seen:
                    self.pruned.append((tile, f"comes to the same as {show(seen[same])}"))
                    continue
                seen[same] = tile
                if work.hopeless:
                    self.pruned.append((tile, work.hopeless))
                    continue
            self.candidates.append(Candidate(tile, self._group(tile, work), work))

    def _group(self, tile: Tile, work: Work | None) -> Tile:
        """What the tile's specialisation depends on: as its model says, else the parameters that are compiled in."""
        if work is not None and work.group:
            return dict(work.group)
        return {name: tile[name] for name in self.compiled if name in tile}


def _same(work: Work, tile: Mapping[str, int]) -> Any:
    """What tells a tile's program from another's: the model's parameters, and those that the model does not know."""
    rest = {n: v for n, v in tile.items() if n not in work.tile}
    return tuple(sorted(work.tile.items())), tuple(sorted(rest.items()))


def _check(values: Mapping[str, tuple[int, ...]], params: Mapping[str, TileParam], step: Tunable) -> None:
    space = index_space(step.kernel)
    axes = [axis.name for axis in space.axes if axis.split] if space is not None else []
    known = [*params, *axes, STAGE]
    for name, found in values.items():
        if name not in known:
            raise ArgumentError(f"step {step.steps[0]!r} has no tile parameter {name!r}; it has {', '.join(known)}")
        if not found or any(n < (name != STAGE) for n in found):
            raise ArgumentError(f"tile {name}={found}: positive integers are needed")


def show(tile: Mapping[str, int]) -> str:
    """A tile as people read it."""
    return " ".join(f"{name} {n}" for name, n in tile.items()) or "own choice"
