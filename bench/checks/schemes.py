"""Plain Python against compiled code, over all shipped schemes and many blocks: `python -m tilework.bench.checks.schemes`.

Every value that a scheme makes is compared to the bit: parameters, codes, weights. Shapes are ragged, and the data has
ties, zeros of both signs, subnormals, infinities and NaN planted in it.

Plain Python makes some 20,000 values a second. So two comparisons are made: compiled code with the plain functions run
over all blocks at once (bench/checks/scheme_lanes.py: the same operations in the same order, on NumPy arrays), for all values;
and that with CPython calling the functions weight by weight, for a sample of every scheme in every block. Exits with
status 1 where anything differs.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

import tilework as tw
from tilework.bench.checks import scheme_lanes
from tilework.executors.schemes import checking

BLOCKS = (1, 7, 16, 32, 48, 100, 128, "row", (13, 37))
VALUES = 10**8
ROUNDS = 2  # over all schemes and blocks, with other data and shapes; in the first one, some by CPython
SIZE = 400_000  # weights of a matrix at most
SAMPLE = 2000


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


def variants(names: list[str]) -> list[tw.Scheme]:
    """Every scheme in every block; those with a layout of their own have one."""
    made = []
    for scheme in map(tw.schemes.get, names):
        blocks = BLOCKS if scheme.block_bytes is None else (scheme.block,)
        made += [scheme if scheme.block == block else scheme.replace(block=block) for block in blocks]
    return made


@dataclass
class Found:
    """How many values were compared, and how many of them differ: with the functions on arrays, and weight by weight."""

    values: int = 0
    different: int = 0
    sampled: int = 0
    sample_different: int = 0

    def compare(
        self, scheme: tw.Scheme, wanted: Mapping[str, np.ndarray], found: Mapping[str, np.ndarray], who: str
    ) -> int:
        """Count; say where the first difference of each part is."""
        different = 0
        for part, right in wanted.items():
            apart = checking.apart(right, found[part])
            different += int(apart.sum())
            if apart.any():
                at = tuple(map(int, np.argwhere(apart)[0]))
                print(f"{scheme.name}, block {scheme.block}: {part} {at}: {right[at]!r}, {who} {found[part][at]!r}")
        return different

    def add(self, scheme: tw.Scheme, x: np.ndarray, sample: int) -> None:
        """Compare one matrix; of its first rows, `sample` weights by CPython."""
        lanes = scheme_lanes.parts(scheme, x)
        self.values += sum(part.size for part in lanes.values())
        self.different += self.compare(scheme, lanes, checking.native(scheme, x), "compiled")
        if sample:
            few = np.ascontiguousarray(x[: max(1, sample // x.shape[1])])
            literal = checking.literal(scheme, few)
            self.sampled += sum(part.size for part in literal.values())
            self.sample_different += self.compare(scheme, literal, scheme_lanes.parts(scheme, few), "on arrays")


def run(values: int, names: list[str], seed: int = 0, sample: int = SAMPLE) -> Found:
    """Compare until so many values were, in rounds over every scheme and block."""
    rng = np.random.default_rng(seed)
    found, made = Found(), variants(names)
    size = min(SIZE, max(400, values // (2 * ROUNDS * len(made))))
    shown = start = time.monotonic()
    for n, scheme in enumerate(itertools.cycle(made)):
        if found.values >= values:
            break
        columns = int(rng.integers(20, 900))
        x = data(rng, max(5, size // columns), columns)
        found.add(scheme, x, sample if n < len(made) else 0)
        if time.monotonic() - shown > 10:
            shown = time.monotonic()
            print(
                f"{found.values:,} of {values:,} values, {found.different} differ; {found.sampled:,} by CPython, "
                f"{found.sample_different} differ; {shown - start:.0f} s",
                file=sys.stderr,
                flush=True,
            )
    return found


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--values", type=float, default=VALUES, help="how many values to compare")
    parser.add_argument(
        "--sample", type=int, default=SAMPLE, help="weights of each scheme and block that CPython makes"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "schemes", nargs="*", help="shipped schemes; none: all, but for groups that differ in size only"
    )
    given = parser.parse_args()
    names = given.schemes or [n for n in tw.schemes.names() if not n.partition("_g")[2].startswith(("64", "128"))]
    found = run(int(given.values), names, given.seed, given.sample)
    print(
        f"{found.different} of {found.values:,} values differ between compiled code and the plain functions on arrays, "
        f"and {found.sample_different} of {found.sampled:,} between these and CPython, weight by weight; over "
        f"{len(variants(names))} schemes and blocks"
    )
    sys.exit(1 if found.different or found.sample_different else 0)


if __name__ == "__main__":
    main()
