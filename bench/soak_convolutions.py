"""Random convolutions against the reference: python -m tilework.bench.soak_convolutions --count 20000

The convolutions are made by tests/executors/random_convolutions.py; each runs on every instruction set level that this
machine has. Exits with 1 where a byte differs, and prints the seed, from which the case can be made again.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from pathlib import Path
from typing import Any

GENERATOR = Path(__file__).resolve().parents[1] / "tests" / "executors" / "random_convolutions.py"


def generator() -> Any:
    """The module that makes the cases; it is not installed with the package."""
    if not GENERATOR.exists():
        raise SystemExit(f"{GENERATOR} is missing: run this from a checkout of the sources")
    spec = importlib.util.spec_from_file_location("random_convolutions", GENERATOR)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # user functions are looked up by their module's name
    spec.loader.exec_module(module)
    return module


def main(given: list[str] | None = None) -> int:
    """Compare as many random convolutions as the command line asks for; exit with 1 if any differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20_000, help="convolutions to compare")
    parser.add_argument("--first", type=int, default=0, help="seed of the first")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    options = parser.parse_args(given)
    from ..kernels.cpu import isa

    made = generator()
    levels = [level.name for level in isa.available()]
    start = time.monotonic()
    done = wrong = 0
    for seed in range(options.first, options.first + options.count):
        case = made.make(seed)
        ways = [{"threads": 1 + (seed + n) % 2, "isa": level} for n, level in enumerate(levels)]
        found = made.compare(case, ways)
        for text in found:
            print(text, flush=True)
        done, wrong = done + 1, wrong + bool(found)
        if time.monotonic() - start > options.seconds:
            break
    took = time.monotonic() - start
    print(f"{done} convolutions on {', '.join(levels)}: {wrong} wrong, {took:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
