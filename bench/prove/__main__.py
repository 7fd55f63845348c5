"""python -m tilework.bench.prove --count 200000: see the package."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

from .run import OTHER_LEVEL, VARIANTS, Proof


def tried(
    count: int,
    seed: int,
    seconds: float,
    steps: str | None = None,
    stop: bool = False,
    run: Callable[..., Proof] | None = None,
    other_level: float = OTHER_LEVEL,
) -> Proof:
    """Run with a bar on a terminal; elsewhere with a line every minute.

    run   what takes the function that shows progress; in this process, by default
    """
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    bounded = seconds < float("inf")
    columns = (BarColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, disable=not sys.stderr.isatty(), transient=True) as bar:
        task = bar.add_task("", total=seconds if bounded else count)
        began = time.monotonic()
        said = [0.0]

        def each(proof: Proof) -> None:
            text = f"{proof.count} configurations, {len(proof.failures)} differ"
            elapsed = time.monotonic() - began
            bar.update(task, completed=elapsed if bounded else proof.count, description=text)
            if not sys.stderr.isatty() and elapsed - said[0] > 60:
                said[0] = elapsed
                print(f"{text}, {elapsed:.0f} s", file=sys.stderr, flush=True)

        if run is not None:
            return run(each)
        return Proof(other_level=other_level).run(count, seed, seconds, steps, stop, each)


def main(given: list[str] | None = None) -> int:
    """Try random configurations and print what was tried; 1 if any differs."""
    from . import parts, table

    parser = argparse.ArgumentParser(prog="python -m tilework.bench.prove", description=__doc__)
    parser.add_argument("--count", type=int, default=200_000, help="configurations to compare")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--steps", help="only cells with this in 'step, type, granularity'")
    parser.add_argument("--stop", action="store_true", help="stop at the first that differs; in one process")
    parser.add_argument(
        "--other-level", type=float, default=OTHER_LEVEL, help="how many draws also run on a lower level"
    )
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--first", type=int, default=0, help="begin with this part")
    parser.add_argument("--variants", type=int, default=VARIANTS, help="sizes and elements for what was compiled once")
    parser.add_argument(
        "--keep", metavar="FILE", help="a line for each part; a run that was stopped goes on after them"
    )
    parser.add_argument("--whole", action="store_true", help="show steps that were not tried, too")
    parser.add_argument("--json", metavar="FILE", help="write everything there")
    options = parser.parse_args(given)
    try:
        parts.chosen(options.steps)
        keep = Path(options.keep) if options.keep else None

        def in_parts(each: Callable[[Proof], None]) -> Proof:
            return parts.run(
                options.count, options.seed, options.minutes * 60, options.steps, keep, options.jobs, options.first,
                options.variants, options.other_level, each,
            )  # fmt: skip

        many = options.count > 1000 and not options.stop
        proof = tried(
            options.count, options.seed, options.minutes * 60, options.steps, options.stop,
            in_parts if many else None, options.other_level,
        )  # fmt: skip
    except ValueError as error:
        parser.error(str(error))
    table.show(proof, options.whole)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(table.as_json(proof), file)
    return 1 if proof.failures else 0


if __name__ == "__main__":
    sys.exit(main())
