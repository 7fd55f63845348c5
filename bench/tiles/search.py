"""In which order tiles are measured, and which are given up early.

full    every tile, until its time is steady
race    one tile of each compile group, of which the better half go on; then a few samples of each of their tiles, of
        which the better half are measured until they are steady
model   the tiles that the model ranks first, until they are steady
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ...primitives.errors import ArgumentError
from .result import DROPPED, OK, Point
from .sampling import FIRST, LEAST
from .space import Candidate

SEARCHES = ("full", "race", "model")
NEAR = 1.05  # times the best: near enough to go on, whatever half it is in
KEPT, KEPT_SHARE = 12, 0.1  # tiles that a model-guided search measures

Measure = Callable[[Candidate, int, float], Point | None]  # (candidate, least samples, seconds of the best so far)
Predict = Callable[[Candidate], float | None]


class Stop(Exception):
    """The budget is spent."""


def run(search: str, candidates: Sequence[Candidate], measure: Measure, predict: Predict) -> None:
    """Measure candidates; the first of them is the implementation's own choice, and is measured in any case.

    measure   returns None, or raises Stop, where nothing is measured any more
    """
    if search not in SEARCHES:
        raise ArgumentError(f"there is no search {search!r}; there is {', '.join(SEARCHES)}")
    if search == "full":
        _rung(_by_group(candidates), measure, LEAST, float("inf"))
    elif search == "model":
        _rung(_by_group(ranked(candidates, predict)), measure, LEAST, float("inf"))
    else:
        _race(candidates, measure, predict)


def first(search: str, candidates: Sequence[Candidate], predict: Predict) -> list[Candidate]:
    """One candidate of each specialisation that the search will measure, whatever it finds."""
    found = ranked(candidates, predict) if search == "model" else candidates
    return [group[0] for group in _groups(found).values()]


def ranked(candidates: Sequence[Candidate], predict: Predict) -> list[Candidate]:
    """Those that a model-guided search measures: the own choice, and the fastest by the model.

    Where there is no model, those closest to the own choice come first: the parameters' middle values.
    """
    rest = candidates[1:]
    known = [(t, n, c) for n, c in enumerate(rest) if (t := predict(c)) is not None]
    if len(known) < len(rest):
        middle = len(rest) / 2
        known = [(abs(n - middle), n, c) for n, c in enumerate(rest)]
    known.sort(key=lambda found: found[:2])
    kept = max(KEPT, round(KEPT_SHARE * len(candidates)))
    return [candidates[0], *(c for _, _, c in known[: kept - 1])]


def _groups(candidates: Iterable[Candidate]) -> dict[tuple[tuple[str, int], ...], list[Candidate]]:
    """Those of one specialisation together, in order of their first member."""
    groups: dict[tuple[tuple[str, int], ...], list[Candidate]] = {}
    for c in candidates:
        groups.setdefault(tuple(sorted(c.group.items())), []).append(c)
    return groups


def _by_group(candidates: Iterable[Candidate]) -> list[Candidate]:
    """The same, with those of one specialisation together; groups in order of their first member."""
    return [c for group in _groups(candidates).values() for c in group]


def _rung(
    candidates: Sequence[Candidate], measure: Measure, least: int, best: float
) -> tuple[list[tuple[float, Candidate]], float]:
    """Measure each; those that stand, with their seconds, and the best so far."""
    standing = []
    for c in candidates:
        point = measure(c, least, best)
        if point is not None and point.status in (OK, DROPPED) and point.p5_us is not None:
            standing.append((point.p5_us * 1e-6, c))
            best = min(best, point.p5_us * 1e-6)
    return standing, best


def _race(candidates: Sequence[Candidate], measure: Measure, predict: Predict) -> None:
    groups = _groups(candidates)
    heads = [min(group, key=lambda c: (not c.default, predict(c) or 0.0)) for group in groups.values()]
    standing, best = _rung(heads, measure, FIRST, float("inf"))
    kept = {id(c) for c in _better_half(standing, best)}
    members = [
        c for c in candidates if any(c in groups[key] for key, f in zip(groups, heads, strict=True) if id(f) in kept)
    ]
    standing, best = _rung(_by_group(members), measure, FIRST, best)
    _rung(_better_half(standing, best), measure, LEAST, best)


def _better_half(standing: Sequence[tuple[float, Candidate]], best: float) -> list[Candidate]:
    ordered = sorted(standing, key=lambda found: found[0])
    half = -(-len(ordered) // 2)
    return [c for n, (seconds, c) in enumerate(ordered) if n < half or seconds <= NEAR * best]
