"""What was tried: step x type x granularity x layout x executor, as a table to read and as numbers to keep."""

from __future__ import annotations

from collections import Counter
from typing import Any

from .draw import LAYOUTS
from .run import OF, Proof, executors, levels


def missing(proof: Proof) -> list[tuple[str, ...]]:
    """Cells of the table that are meant to work and were not tried: every step, type and granularity in every layout
    on every executor of this machine's best level. Lower levels are tried by chance, and counted."""
    wanted = ((c.step, c.dtype, c.granularity, layout, name) for c in OF for layout in LAYOUTS for name in executors())
    return [cell for cell in wanted if not proof.covered[cell]]


def as_json(proof: Proof) -> dict[str, Any]:
    """Everything, ready for JSON."""
    left = missing(proof)
    return {
        "schema": 1,
        "configurations": proof.count,
        "seconds": round(proof.seconds, 1),
        "failures": [
            {
                "step": f.cell.step,
                "dtype": f.cell.dtype,
                "granularity": f.cell.granularity,
                "layout": f.layout,
                "executor": f.executor,
                "seed": list(f.seed),
                "variant": list(f.variant),
                "limit": f.limit,
                "text": f.text,
                "script": f.script(),
            }
            for f in proof.failures
        ],
        "cells": len(OF) * len(LAYOUTS) * len(executors()),
        "cells tried": len(OF) * len(LAYOUTS) * len(executors()) - len(left),
        "covered": [[*cell, n] for cell, n in sorted(proof.covered.items())],
    }


def show(proof: Proof, whole: bool = False) -> None:
    """Print a row for each step: its types and granularities, how many cells were tried, how many differ."""
    from rich.table import Table

    from ..terminal import wide_console

    console = wide_console()
    tried: Counter[str] = Counter()
    cells: dict[str, set[tuple[str, ...]]] = {}
    for cell, n in proof.covered.items():
        tried[cell[0]] += n
        cells.setdefault(cell[0], set()).add(cell)
    wrong = Counter(f.cell.step for f in proof.failures)
    table = Table("step", "types", "granularities", "cells tried", "configurations", "differ", title="What was tried")
    each = len(LAYOUTS) * len(executors())
    below = set(levels())
    for step in sorted({c.step for c in OF}):
        if not whole and not tried[step] and not wrong[step]:
            continue
        known = [c for c in OF if c.step == step]
        types = sorted({c.dtype for c in known})
        granularities = sorted({c.granularity for c in known})
        done = sum(cell[4] not in below for cell in cells.get(step, ()))
        table.add_row(
            step,
            ", ".join(types) if len(types) <= 6 else f"{len(types)} types",
            ", ".join(granularities),
            f"{done} of {len(known) * each}",
            str(tried[step]),
            str(wrong[step]),
        )
    console.print(table)
    for place, what in ((3, "layout"), (4, "executor")):
        totals: Counter[str] = Counter()
        for cell, n in proof.covered.items():
            totals[cell[place]] += n
        console.print(f"{what}: " + ", ".join(f"{name} {n}" for name, n in sorted(totals.items())))
    for failure in proof.failures[:20]:
        c = failure.cell
        console.print(
            f"\n{c.step}, {c.dtype}, {c.granularity}, {failure.layout}, {failure.executor}: {failure.text}",
            style="red",
            markup=False,
        )
        console.print(failure.script(), markup=False)
    left = len(missing(proof))
    total = len(OF) * each
    console.print(
        f"{proof.count} configurations, {total - left} of {total} cells of the table, {len(proof.failures)} differ; "
        f"{proof.seconds:.0f} s"
    )
