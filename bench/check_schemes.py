"""Plain Python against compiled code, over all shipped schemes and many blocks: `python -m tilework.bench.check_schemes`.

Every value that a scheme makes is compared to the bit: parameters, codes, weights. Shapes are ragged, and the data has
ties, zeros of both signs, subnormals, infinities and NaN planted in it. Exits with status 1 where anything differs.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Iterator

import numpy as np

import tilework as tw
from tilework.executors.schemes import checking

BLOCKS = (1, 7, 16, 32, 48, 100, 128, "row", (13, 37))
VALUES = 10**8


def data(rng: np.random.Generator, rows: int, columns: int) -> np.ndarray:
    """Weights of a random size, with trouble in some rows."""
    w = (rng.standard_normal((rows, columns)) * 2.0 ** rng.integers(-20, 20)).astype(np.float32)
    special = np.array([0.0, -0.0, 1e-42, -1e-45, np.inf, -np.inf, np.nan, 3.4e38, 1.1754944e-38], np.float32)
    for row in range(0, rows, 3):
        kind = int(rng.integers(0, 5))
        if kind == 0:
            w[row] = rng.integers(-64, 65, columns) / np.float32(8)
        elif kind == 1:
            w[row, rng.integers(0, columns, 5)] = rng.choice(special, 5)
        elif kind == 2:
            w[row] = rng.choice(special[:4], columns)
        elif kind == 3:
            w[row] = np.abs(w[row])
        else:
            w[row] *= np.float32(1e-38)
    return w


def variants(names: list[str]) -> Iterator[tw.Scheme]:
    """Every scheme in every block, again and again."""
    shipped = [tw.schemes.get(name) for name in names]
    made = [s if s.block == block else s.replace(block=block) for s, block in itertools.product(shipped, BLOCKS)]
    return itertools.cycle(made)


def run(values: int, names: list[str], seed: int = 0) -> tuple[int, int]:
    """Compare until so many values were; returns how many were, and how many of them differ."""
    rng = np.random.default_rng(seed)
    compared = different = 0
    shown = start = time.monotonic()
    for scheme in variants(names):
        if compared >= values:
            break
        x = data(rng, int(rng.integers(5, 40)), int(rng.integers(20, 900)))
        python, compiled = checking.both(scheme, x)
        for part, wanted in python.items():
            apart = checking.apart(wanted, compiled[part])
            compared += apart.size
            different += int(apart.sum())
            if apart.any():
                at = tuple(map(int, np.argwhere(apart)[0]))
                print(
                    f"{scheme.name}, block {scheme.block}: {part} {at}: {wanted[at]!r}, compiled {compiled[part][at]!r}"
                )
        if time.monotonic() - shown > 10:
            shown = time.monotonic()
            print(f"{compared:,} of {values:,} values, {different} differ, {shown - start:.0f} s", file=sys.stderr)
    return compared, different


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--values", type=float, default=VALUES, help="how many values to compare")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "schemes", nargs="*", help="shipped schemes; none: all, but for groups that differ in size only"
    )
    given = parser.parse_args()
    names = given.schemes or [n for n in tw.schemes.names() if not n.partition("_g")[2].startswith(("64", "128"))]
    compared, different = run(int(given.values), names, given.seed)
    print(
        f"{different} of {compared:,} values differ between plain Python and compiled code, over {len(names)} schemes"
    )
    sys.exit(1 if different else 0)


if __name__ == "__main__":
    main()
