"""python -m tilework.bench.prove --count 200000: see the package."""

from __future__ import annotations

import argparse
import json
import sys

from .run import Proof


def tried(count: int, seed: int, seconds: float, steps: str | None = None, stop: bool = False) -> Proof:
    """Run with a bar on a terminal; elsewhere with a line every minute."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    bounded = seconds < float("inf")
    columns = (BarColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, disable=not sys.stderr.isatty(), transient=True) as bar:
        task = bar.add_task("", total=seconds if bounded else count)
        said = [0.0]

        def each(proof: Proof) -> None:
            text = f"{proof.count} configurations, {len(proof.failures)} differ"
            bar.update(task, completed=proof.seconds if bounded else proof.count, description=text)
            if not sys.stderr.isatty() and proof.seconds - said[0] > 60:
                said[0] = proof.seconds
                print(f"{text}, {proof.seconds:.0f} s", file=sys.stderr, flush=True)

        return Proof().run(count, seed, seconds, steps, stop, each)


def main(given: list[str] | None = None) -> int:
    """Try random configurations and print what was tried; 1 if any differs."""
    from . import table

    parser = argparse.ArgumentParser(prog="python -m tilework.bench.prove", description=__doc__)
    parser.add_argument("--count", type=int, default=200_000, help="configurations to compare")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--steps", help="only steps whose name holds this")
    parser.add_argument("--stop", action="store_true", help="stop at the first that differs")
    parser.add_argument("--whole", action="store_true", help="show steps that were not tried, too")
    parser.add_argument("--json", metavar="FILE", help="write everything there")
    options = parser.parse_args(given)
    try:
        proof = tried(options.count, options.seed, options.minutes * 60, options.steps, options.stop)
    except ValueError as error:
        parser.error(str(error))
    table.show(proof, options.whole)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(table.as_json(proof), file)
    return 1 if proof.failures else 0


if __name__ == "__main__":
    sys.exit(main())
