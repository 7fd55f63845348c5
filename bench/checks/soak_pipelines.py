"""Random pipelines against the reference, for as long as one likes: python -m tilework.bench.checks.soak_pipelines --count 10000

The pipelines and the ways to run them are tests/executors/random_pipelines.py. Most share what has to be compiled: kinds
of steps, their order behind a product and widths come from a pool of some hundred, structure, sizes and numbers don't.
One in `--fresh` draws everything anew, one in `--wide` also from all types, ranks and functions; each of those compiles
for seconds. Exits with 1 where a byte differs, and prints a script that makes the case again, cut down to the first value
that differs.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

os.environ.setdefault("NUMBA_NUM_THREADS", "3")  # before Numba is imported: three workers, whatever the machine has

from ...kernels import forge
from .sources import module_at

FRESH, WIDE = 100, 400  # one pipeline of so many


def generator() -> Any:
    """The module that makes the pipelines; it is not installed with the package."""
    return module_at("tests", "executors", "random_pipelines.py")


def main(given: list[str] | None = None) -> int:
    """Compare as many random pipelines as the command line asks for; exit with 1 if any differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000, help="pipelines to compare")
    parser.add_argument("--first", type=int, default=0, help="seed of the first")
    parser.add_argument("--variants", type=int, default=4, help="of the 36 combinations of tiles, threads, fuse, chain")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--pool", type=int, default=0, help="number of the pool")
    parser.add_argument("--fresh", type=int, default=FRESH, help="one of so many is of no pool; 0: none, 1: all")
    parser.add_argument("--wide", type=int, default=WIDE, help="one of so many is of all types; 0: none")
    options = parser.parse_args(given)
    pipelines = generator()
    start = time.monotonic()
    seeds = range(options.first, options.first + options.count)
    steps = done = wrong = 0
    with progress(len(seeds)) as advance:
        for seed in seeds:
            wide = bool(options.wide) and seed % options.wide == options.wide - 1
            fresh = wide or (bool(options.fresh) and seed % options.fresh == options.fresh - 1)
            made = {"wide": wide, "pool": None if fresh else options.pool}
            case = pipelines.make(seed, **made)
            found = pipelines.compare(case, pipelines.chosen(seed, options.variants))
            for variant, text in found:
                print(f"seed {seed} {made}, {variant}: {text}", flush=True)
            if found:
                show_script(pipelines, case, made, found[0][0])
            done, steps, wrong = done + 1, steps + len(case.pipe.steps), wrong + bool(found)
            advance(f"{wrong} differ, {forge.Counts.compiled} entries compiled")
            if time.monotonic() - start > options.seconds:
                break
    took = time.monotonic() - start
    functions = len(pipelines.ONE) + len(pipelines.ONE_SCALED) + len(pipelines.TWO) + 1
    print(
        f"{done} pipelines, {steps} steps, {options.variants + 2} executors each, {functions} user functions: {wrong} "
        f"differ; {took:.0f} s, {forge.Counts.compiled} entries compiled, {forge.Counts.loaded} from the cache"
    )
    return 1 if wrong else 0


def show_script(pipelines: Any, case: Any, made: dict[str, Any], which: Any) -> None:
    """Print a script that makes the failure again, of as few steps as it takes."""
    name = pipelines.shrunk(case, which)
    small = case if name is None else pipelines.part(case, name)
    take = "" if name is None else f"case = pipelines.part(case, {name!r})\n"
    print(
        f"--- {len(small.pipe.steps)} of {len(case.pipe.steps)} steps\n{small.pipe!r}\n---\n"
        f"from tilework.bench.checks.soak_pipelines import generator\npipelines = generator()\n"
        f"case = pipelines.make({case.seed}, **{made})\n{take}"
        f"print(pipelines.compare(case, {[] if which == 'single thread' else [which]}))\n---",
        flush=True,
    )


@contextlib.contextmanager
def progress(total: int) -> Iterator[Callable[[str], None]]:
    """A bar on a terminal; elsewhere a line every minute. The callable counts one more, with a text."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (MofNCompleteColumn(), BarColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    with Progress(*columns, disable=not sys.stderr.isatty(), transient=True) as bar:
        task, said, count = bar.add_task("", total=total), time.monotonic(), 0

        def advance(text: str) -> None:
            nonlocal said, count
            count += 1
            bar.update(task, advance=1, description=text)
            if not sys.stderr.isatty() and time.monotonic() - said > 60:
                said = time.monotonic()
                print(f"{count} of {total}: {text}", file=sys.stderr, flush=True)

        yield advance


if __name__ == "__main__":
    sys.exit(main())
