"""A long proof in parts, each in a process of its own, so that memory stays bounded and what is done can be kept.

A part is a few neighbouring cells of one round, in all layouts; neighbours share the helpers that were compiled. What
a part found is one line of JSON in the file of the run: a run that was stopped goes on after what is there.
"""

from __future__ import annotations

import itertools
import json
import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from . import table
from .draw import LAYOUTS, Cell
from .run import OTHER_LEVEL, VARIANTS, Failure, Proof
from .run import chosen as chosen

CELLS = 40  # of a part


def tried(seed: int, turn: int, first: int, steps: str | None, variants: int, other_level: float) -> dict[str, Any]:
    """Part `first` of round `turn`, ready for JSON."""
    began = time.monotonic()
    proof = Proof(other_level=other_level)
    for number, cell in chosen(steps)[first * CELLS : (first + 1) * CELLS]:
        for layout in LAYOUTS:
            for _ in proof.one(cell, layout, (seed, turn, number), variants):
                pass
    proof.seconds = time.monotonic() - began
    return {"seed": seed, "turn": turn, "part": first, "steps": steps, "variants": variants, **table.as_json(proof)}


def read(line: dict[str, Any]) -> Proof:
    """The proof of such a line."""
    failures = [
        Failure(
            Cell(f["step"], f["dtype"], f["granularity"]), f["layout"], f["executor"], tuple(f["seed"]),
            tuple(f["variant"]), f["limit"], f["text"],
        )
        for f in line["failures"]
    ]  # fmt: skip
    return Proof(Counter({tuple(cell[:-1]): cell[-1] for cell in line["covered"]}), failures, line["seconds"])


def run(
    count: int,
    seed: int,
    seconds: float,
    steps: str | None,
    kept: Path | None,
    jobs: int = 1,
    first: int = 0,
    variants: int = VARIANTS,
    other_level: float = OTHER_LEVEL,
    each: Callable[[Proof], None] = lambda proof: None,
) -> Proof:
    """Parts from `first` on, round after round, until there are `count` configurations or the time is over.

    kept   where a line for each part is kept, and taken from if it is there
    """
    whole, done = Proof(), set()
    if kept is not None and kept.exists():
        for line in map(json.loads, kept.read_text(encoding="utf-8").splitlines()):
            if (line["seed"], line["steps"], line["variants"]) == (seed, steps, variants):
                done.add((line["turn"], line["part"]))
                whole.add(read(line))
    each(whole)
    end = time.monotonic() + seconds
    left = (place for place in _places(-(-len(chosen(steps)) // CELLS), first) if place not in done)
    context = multiprocessing.get_context("spawn")
    running: dict[Connection, tuple[Any, tuple[int, int]]] = {}
    try:
        while whole.count < count and time.monotonic() < end:
            while len(running) < jobs:
                place = next(left)
                reading, writing = context.Pipe(False)
                child = context.Process(target=_part, args=(writing, seed, *place, steps, variants, other_level))
                child.start()
                writing.close()
                running[reading] = child, place
            ready: list[Any] = wait(list(running), min(60.0, max(0.0, end - time.monotonic())))
            for reading in ready:
                child, (turn, part) = running.pop(reading)
                try:
                    line = reading.recv()
                except EOFError:
                    child.join()
                    raise RuntimeError(f"part {part} of round {turn} ended its process ({child.exitcode})") from None
                child.join()
                whole.add(read(line))
                each(whole)
                if kept is not None:
                    with kept.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(line) + "\n")
    finally:
        for child, _ in running.values():
            child.terminate()  # a part that nobody waits for
    return whole


def _part(writing: Connection, *given: Any) -> None:
    """What a process does: one part."""
    writing.send(tried(*given))


def _places(parts: int, first: int) -> Iterator[tuple[int, int]]:
    """(round, part), from part number `first` of all rounds on."""
    for number in itertools.count(first):
        yield number // parts, number % parts
