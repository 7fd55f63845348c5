"""What is not meant to work: types and granularities that a step does not take, and the named errors that say so.

    python -m tilework.bench.prove.refused              the table of docs/proof.md
    python -m tilework.bench.prove.refused --run 300    also runs what can be built after all, for so many seconds

Every step of the self-test is asked for every type and granularity that its cells leave out. Either its pipeline
cannot be built, with an error of the library: no layout and no executor has been chosen by then. Or it can, and then
every executor has to give what the reference gives, as for any cell. An error of Python from inside the library, and
a difference, are faults.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ...primitives import dtypes
from ...primitives.errors import TileworkError
from .draw import LAYOUTS, SIZES, Cell, Draw, Family
from .run import FAMILIES, OF, compared, executors

PACKAGE = Path(__file__).resolve().parents[2]
INSIDE = tuple(str(PACKAGE / room) for room in ("kernels", "executors", "primitives"))
COMBINED = ("network",)  # several steps of fixed types
DRAWS = 3


@dataclass
class Outcome:
    """What became of a cell: names of errors, faults, and whether some draw could be built."""

    errors: set[str] = field(default_factory=set)
    faults: list[str] = field(default_factory=list)
    built: bool = False


def others(family: Family) -> Iterator[Cell]:
    """Types and granularities that the family's steps leave out; of products, the types of both operands in pairs."""
    granularities = sorted({c.granularity for c in family.cells})
    names = list(dtypes.DTYPES)
    if any(" " in c.dtype for c in family.cells):
        names = [f"{a} {b}" for a, b in itertools.product(names, names)]
    for step in sorted({c.step for c in family.cells} - set(COMBINED)):
        for dtype, granularity in itertools.product(names, granularities):
            cell = Cell(step, dtype, granularity)
            if cell not in OF:
                yield cell


def asked(family: Family, cell: Cell, number: int) -> tuple[str, str]:
    """("error", its name), ("built", ""), ("fault", what and where), or ("none", why) where no such arrays are."""
    draw = Draw((number, 9), LAYOUTS[number % len(LAYOUTS)], 9)
    try:
        found = family.draw(draw, cell)
        for n, value in enumerate(found if isinstance(found, tuple) else (found,)):
            draw.pipe.output(f"y{n}", value)
    except TileworkError as error:
        return "error", type(error).__name__
    except Exception as error:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename.startswith(INSIDE)]
        if frames:
            return "fault", f"{type(error).__name__}: {error} ({Path(frames[-1].filename).name}:{frames[-1].lineno})"
        return "none", f"{type(error).__name__}: {error}"
    return "built", ""


def outcome(family: Family, cell: Cell) -> Outcome:
    """What becomes of some draws of a cell."""
    found = Outcome()
    for number in range(DRAWS):
        what, text = asked(family, cell, number)
        found.built |= what == "built"
        if what == "error":
            found.errors.add(text)
        elif what == "fault":
            found.faults.append(f"{cell.step}, {cell.dtype}, {cell.granularity}: {text}")
    return found


def shown(names: set[str], most: int = 4) -> str:
    """A few names, and how many more."""
    found = sorted(names)
    return (
        ", ".join(found) if len(found) <= most else f"{', '.join(found[: most - 1])} and {len(found) - most + 1} more"
    )


def row(family: Family, found: dict[Cell, Outcome]) -> str:
    """A line of the table: steps, how many other cells there are, errors, and how many can be built."""
    refused = [o for o in found.values() if not o.built]
    errors = Counter(name for o in refused for name in o.errors)
    names = ", ".join(f"`{name}`" for name, _ in sorted(errors.items(), key=lambda e: (-e[1], e[0])))
    steps = {c.step for c in family.cells} - set(COMBINED)
    return f"| {shown(steps)} | {len(found)} | {len(refused)} | {names} | {len(found) - len(refused)} |"


HEADER = (
    "| steps | types and granularities left out | refused | with | can be built |",
    "|---|---|---|---|---|",
)


def table() -> tuple[list[str], list[str], list[tuple[Family, Cell]]]:
    """The lines of the table, the faults, and the cells that can be built."""
    lines, faults, built = list(HEADER), [], []
    for family in FAMILIES:
        found = {cell: outcome(family, cell) for cell in others(family)}
        if not found:
            continue
        lines.append(row(family, found))
        faults += [text for o in found.values() for text in o.faults]
        built += [(family, cell) for cell, o in found.items() if o.built]
    return lines, faults, built


def tried(built: list[tuple[Family, Cell]], seconds: float, seed: int = 0) -> tuple[int, list[str]]:
    """Run cells that can be built on every executor, in random order: how many configurations, and what is wrong."""
    end, ways = time.monotonic() + seconds, executors()
    count, wrong = 0, list[str]()
    order = list(built)
    random.Random(seed).shuffle(order)
    for number, (family, cell) in enumerate(order):
        OF[cell] = family
        for variant, layout in enumerate(LAYOUTS):
            if time.monotonic() > end:
                return count, wrong
            try:
                family.draw(Draw((seed, number), layout, SIZES[-1], (variant,)), cell)
            except TileworkError:  # this draw is refused by name; another one of the cell could be built
                break
            found = compared(cell, layout, (seed, number), SIZES[-1], ways, (variant,))
            count += len(ways) - len(found)
            wrong += [f"{cell.step}, {cell.dtype}, {cell.granularity}, {layout}, {w}: {t}" for w, t in found.items()]
            if found:
                break
    return count, wrong


def main(given: list[str] | None = None) -> int:
    """Print the table and what is wrong; 1 where anything is."""
    parser = argparse.ArgumentParser(prog="python -m tilework.bench.prove.refused", description=__doc__)
    parser.add_argument("--run", type=float, default=0, help="seconds in which what can be built is run")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(given)
    lines, wrong, built = table()
    print("\n".join(lines))
    if options.run:
        count, differing = tried(built, options.run, options.seed)
        print(f"{count} configurations of cells that can be built")
        wrong += differing
    for text in wrong:
        print(text)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
