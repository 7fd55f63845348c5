"""Random pipelines against the reference, for as long as one likes: python -m tilework.bench.soak_pipelines --count 10000

The pipelines and the ways to run them are tests/executors/random_pipelines.py. Exits with 1 where a byte differs, and
prints the seed and the variant, from which the case can be made again.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("NUMBA_NUM_THREADS", "3")  # before Numba is imported: three workers, whatever the machine has

GENERATOR = Path(__file__).resolve().parents[1] / "tests" / "executors" / "random_pipelines.py"
WIDE = 50  # one pipeline of so many takes all types, ranks and functions, most of which have to be compiled


def generator() -> Any:
    """The module that makes the pipelines; it is not installed with the package."""
    if not GENERATOR.exists():
        raise SystemExit(f"{GENERATOR} is missing: run this from a checkout of the sources")
    spec = importlib.util.spec_from_file_location("random_pipelines", GENERATOR)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # user functions are looked up by their module's name
    spec.loader.exec_module(module)
    return module


def main(given: list[str] | None = None) -> int:
    """Compare as many random pipelines as the command line asks for; exit with 1 if any differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000, help="pipelines to compare")
    parser.add_argument("--first", type=int, default=0, help="seed of the first")
    parser.add_argument("--variants", type=int, default=4, help="of the 36 combinations of tiles, threads, fuse, chain")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--wide", type=int, default=WIDE, help="one of so many is of all types; 0: none")
    options = parser.parse_args(given)
    pipelines = generator()
    start = said = time.monotonic()
    done = steps = wrong = 0
    for seed in range(options.first, options.first + options.count):
        wide = bool(options.wide) and seed % options.wide == options.wide - 1
        case = pipelines.make(seed, wide=wide)
        found = pipelines.compare(case, pipelines.chosen(seed, options.variants))
        for variant, text in found:
            print(f"seed {seed}{' wide' if wide else ''}, {variant}: {text}")
        done += 1
        steps += len(case.pipe.steps)
        wrong += bool(found)
        now = time.monotonic()
        if now - said > 2 and sys.stderr.isatty():
            said = now
            left = (now - start) / done * (options.count - done)
            print(f"\r{done} of {options.count}, {wrong} differ, {left / 60:.0f} min left ", end="", file=sys.stderr)
        if now - start > options.seconds:
            break
    took = time.monotonic() - start
    print(f"{done} pipelines, {steps} steps, {options.variants + 2} executors each: {wrong} differ, {took:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
