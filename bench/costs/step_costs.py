"""What the first run of each step costs: `python -m tilework.bench.costs.step_costs`.

One random configuration of a step for each of its types and granularities (of bench/prove, which draws them) is run on
one thread, with nothing kept from an earlier process. Printed for each step: the entries it compiled, all and at most,
and the processor's seconds of its dearest configuration. Planning and compiling are one thread's work; what the same
configuration takes once everything is compiled is not counted. Steps share entries, and what an earlier one compiled is
not compiled again.

    python -m tilework.bench.costs.step_costs conv      # steps whose name holds this
    python -m tilework.bench.costs.step_costs --one     # one type of each step
    python -m tilework.bench.costs.step_costs --json FILE

Exits with 1 where a configuration takes longer than `--most` seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

import tilework as tw

from ...kernels import ops
from ...kernels.forge import Counts
from ..prove.draw import Cell, Draw
from ..prove.run import OF

MOST = 2.0  # seconds


def drawn(cell: Cell, seed: int) -> Draw:
    """A pipeline of one configuration and its inputs; one with something in it where three draws give one."""
    for turn in range(3):
        draw = Draw((seed, turn))
        found = OF[cell].draw(draw, cell)
        for n, value in enumerate(found if isinstance(found, tuple) else (found,)):
            draw.pipe.output(f"y{n}", value)
        if all(np.size(x) for x in draw.inputs.values() if not callable(x)):
            break
    return draw


def first(draw: Draw) -> tuple[float, int]:
    """Seconds and compiled entries of the first run, beyond what a second plan and its run take."""
    spent = []
    before = Counts.compiled
    for _ in range(2):
        start = time.process_time()
        tw.TilingExecutor(1, tuned=False).compile(draw.pipe).run(draw.inputs)
        spent.append(time.process_time() - start)
        compiled = Counts.compiled - before
    return max(spent[0] - spent[1], 0.0), compiled


def measure(part: str, one: bool, seed: int) -> list[dict[str, Any]]:
    """A row for each step: its cells, entries, and the dearest cell."""
    warm = tw.Pipeline("warm")  # Numba itself and the loop that runs programs
    warm.output("y", ops.relu(warm.input("x", "s8", (4,))))
    tw.TilingExecutor(1, tuned=False).compile(warm).run({"x": np.zeros(4, np.int8)})
    steps: dict[str, list[Cell]] = {}
    for cell in OF:
        if part in cell.step:
            steps.setdefault(cell.step, []).append(cell)
    rows = []
    for step, cells in track(steps.items(), "steps", console=Console(stderr=True), transient=True):
        found = [(*first(drawn(cell, seed)), cell) for cell in (cells[:1] if one else cells)]
        seconds, entries, dearest = max(found, key=lambda row: row[0])
        rows.append({
            "step": step,
            "configurations": len(found),
            "compiled": sum(row[1] for row in found),
            "most_entries": entries,
            "most_s": seconds,
            "dearest": f"{dearest.dtype} {dearest.granularity}",
        })  # fmt: skip
    return sorted(rows, key=lambda row: -row["most_s"])


def main(arguments: list[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("steps", nargs="?", default="", help="only steps whose name holds this")
    parser.add_argument("--one", action="store_true", help="one type of each step")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--most", type=float, default=MOST, help="seconds that a configuration may take")
    parser.add_argument("--json", type=Path, help="write the rows there, too")
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TILEWORK_CACHE_DIR"] = folder
        rows = measure(asked.steps, asked.one, asked.seed)
    table = Table("step", "configurations", "compiled", "dearest", "its entries", "its seconds")
    for row in rows:
        columns = ("step", "configurations", "compiled", "dearest", "most_entries")
        table.add_row(*(str(row[c]) for c in columns), f"{row['most_s']:.2f}")
    Console().print(table)
    over = [row["step"] for row in rows if row["most_s"] > asked.most]
    print(f"{len(rows)} steps, {len(over)} over {asked.most:g} s{': ' if over else ''}{', '.join(over)}")
    if asked.json:
        asked.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
