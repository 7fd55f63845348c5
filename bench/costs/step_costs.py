"""What the first run of each step costs: `python -m tilework.bench.costs.step_costs`.

One random configuration of a step for each of its types and granularities (of bench/prove, which draws them) is run on
one thread, in a process of its own that has compiled nothing of it and whose cache is empty. Printed for each step: the
entries it compiled at most, and the processor's seconds of its dearest configuration. Planning and compiling are one
thread's work; what the same configuration takes once everything is compiled is not counted, nor is Numba's own start.

    python -m tilework.bench.costs.step_costs conv      # steps whose name holds this
    python -m tilework.bench.costs.step_costs --each 1  # of each step so many configurations, spread over its types
    python -m tilework.bench.costs.step_costs --keep FILE   # a line for each; goes on after those that are in the file
    python -m tilework.bench.costs.step_costs --keep FILE --markdown PAGE   # the table as a page

Exits with 1 where a configuration takes longer than `--most` seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
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


def alone(cell: Cell, seed: int) -> tuple[float, int]:
    """`first` in a process that is as this one was before, with a cache of its own."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TILEWORK_CACHE_DIR"] = folder
        if not hasattr(os, "fork"):
            return first(drawn(cell, seed))
        came, goes = os.pipe()
        child = os.fork()
        if not child:
            try:
                os.write(goes, json.dumps(first(drawn(cell, seed))).encode())
            finally:
                os._exit(0)
        os.close(goes)
        with os.fdopen(came, "rb") as pipe:
            said = pipe.read()
        os.waitpid(child, 0)
    if not said:
        raise RuntimeError(f"the first run of {cell.step} {cell.dtype} {cell.granularity} failed")
    seconds, entries = json.loads(said)
    return seconds, entries


def chosen(part: str, each: int | None) -> list[Cell]:
    """The cells of steps whose name holds `part`: all, or so many of each step, from its first to its last."""
    steps: dict[str, list[Cell]] = {}
    for cell in OF:
        if part in cell.step:
            steps.setdefault(cell.step, []).append(cell)
    found = []
    for cells in steps.values():
        count = min(each or len(cells), len(cells))
        found += [cells[n * (len(cells) - 1) // max(count - 1, 1)] for n in range(count)]
    return found


def measure(cells: list[Cell], seed: int, kept: Path | None) -> list[dict[str, Any]]:
    """A row for each cell; those that a file has are not measured again."""
    rows = [json.loads(line) for line in kept.read_text("utf-8").splitlines()] if kept and kept.exists() else []
    known = {(row["step"], row["type"], row["granularity"]) for row in rows}
    warm = tw.Pipeline("warm")  # Numba itself and the loop that runs programs
    warm.output("y", ops.relu(warm.input("x", "s8", (4,))))
    tw.TilingExecutor(1, tuned=False).compile(warm).run({"x": np.zeros(4, np.int8)})
    for cell in track(cells, "cells", console=Console(stderr=True), transient=True):
        if (cell.step, cell.dtype, cell.granularity) in known:
            continue
        seconds, entries = alone(cell, seed)
        row = {"step": cell.step, "type": cell.dtype, "granularity": cell.granularity}
        rows.append({**row, "seconds": round(seconds, 3), "entries": entries})
        if kept:
            with kept.open("a", encoding="utf-8") as file:
                file.write(json.dumps(rows[-1]) + "\n")
    return rows


def by_step(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The dearest row of each step, how many there are, and their median; dearest first."""
    steps: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        steps.setdefault(row["step"], []).append(row)
    found = []
    for of in steps.values():
        most = max(of, key=lambda row: row["seconds"])
        median = statistics.median(row["seconds"] for row in of)
        found.append({**most, "measured": len(of), "median": median})
    return sorted(found, key=lambda row: -row["seconds"])


def page(rows: list[dict[str, Any]]) -> str:
    """The table in Markdown."""
    steps = by_step(rows)
    over = [row["step"] for row in steps if row["seconds"] > MOST]
    return "".join([
        "# What the first run of each step costs\n\n",
        "Processor's seconds of planning and compiling a pipeline of one step whose code no cache has, made by\n",
        "`python -m tilework.bench.costs.step_costs`: its docstring says how. A pipeline compiles only what it uses;\n",
        "steps share code, so several take less than their sum, and a second process takes milliseconds.\n\n",
        f"{len(rows)} configurations of {len(steps)} steps, {len(over)} of them over {MOST:g} s",
        f": {', '.join(over)}" if over else "",
        ".\n\n| step | most | of | entries | median | configurations |\n|---|---|---|---|---|---|\n",
        *(
            f"| {r['step']} | {r['seconds']:.2f} | {r['type']} {r['granularity']} | {r['entries']} | {r['median']:.2f} "
            f"| {r['measured']} |\n"
            for r in steps
        ),
    ])  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("steps", nargs="?", default="", help="only steps whose name holds this")
    parser.add_argument("--each", type=int, help="so many configurations of each step")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--most", type=float, default=MOST, help="seconds that a configuration may take")
    parser.add_argument("--keep", type=Path, help="write each row there, and leave out those that are")
    parser.add_argument("--markdown", type=Path, help="write the table there, too")
    asked = parser.parse_args(arguments)
    before = os.environ.get("TILEWORK_CACHE_DIR")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TILEWORK_CACHE_DIR"] = folder
        rows = measure(chosen(asked.steps, asked.each), asked.seed, asked.keep)
    os.environ.pop("TILEWORK_CACHE_DIR")
    if before is not None:
        os.environ["TILEWORK_CACHE_DIR"] = before
    columns = ("step", "seconds", "type", "granularity", "entries", "median", "measured")
    table = Table(*columns)
    for row in by_step(rows):
        table.add_row(*(f"{row[c]:.2f}" if c in ("seconds", "median") else str(row[c]) for c in columns))
    Console().print(table)
    over = sorted({row["step"] for row in rows if row["seconds"] > asked.most})
    print(f"{len(rows)} configurations, steps over {asked.most:g} s: {', '.join(over) or 'none'}")
    if asked.markdown:
        asked.markdown.write_text(page(rows), encoding="utf-8")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
