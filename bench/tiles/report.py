"""A sweep's result as text: the line that says what was measured on what, the tiles, the peers, and what became of the rest."""

from __future__ import annotations

import io
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..machine import load
from ..pictures.data import best_axes
from ..pictures.terminal import heatmap
from .result import DROPPED, FAILED, LEFT, PRUNED, WRONG, Point, Result, Sweep
from .space import show as show_tile

WIDTH = 120


def text(result: Result, top: int = 10, heat: tuple[str, str] | None = None) -> str:
    """Everything as plain text."""
    console = Console(file=io.StringIO(), width=WIDTH, highlight=False)
    show(result, console, top, heat)
    return console.file.getvalue()  # type: ignore[attr-defined]


def show(result: Result, console: Console | None = None, top: int = 10, heat: tuple[str, str] | None = None) -> None:
    """Print a result. heat: two tile parameters for a map; None: the two with the most values, where there are two."""
    console = console or _console()
    for sweep in result.sweeps:
        console.print(_headline(result, sweep))
        console.print(_tiles(sweep, top))
        axes = heat or best_axes(sweep)
        if axes and set(axes) <= sweep.values.keys():
            console.print(escape(heatmap(sweep, *axes)))
        if sweep.peers:
            console.print(_peers(sweep))
        for line in _footnotes(result, sweep):
            console.print(line)
        console.print()


def _console() -> Console:
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=WIDTH)


def _headline(result: Result, sweep: Sweep) -> str:
    m = result.machine
    peak = f"   peak {sweep.peak_gops:.0f} {_unit(sweep)} (measured)" if sweep.peak_gops else ""
    threads = f"{sweep.threads} thread{'s' * (sweep.threads > 1)}"
    seed = result.settings.get("seed", 0)
    return (
        f"[bold]{escape(sweep.kernel)}[/]  {escape(sweep.label)}  {threads}  {m['model']} {m['isa']}{peak}"
        f"   data uniform, seed {seed}"
        + (f"   step {escape(sweep.step)}" if sweep.step not in ("", sweep.kernel) else "")
        + ("" if sweep.device == "cpu" else f"   on {sweep.device}")
    )


def _unit(sweep: Sweep) -> str:
    return "GFLOPS" if sweep.unit == "fma" else "GOPS"


def _rate(sweep: Sweep, us: float | None) -> tuple[str, str]:
    gops = sweep.gops(us)
    if gops is None:
        return "", ""
    return f"{gops:.0f}" if gops >= 10 else f"{gops:.2f}", f"{gops / sweep.peak_gops:.0%}" if sweep.peak_gops else ""


def digits(us: float | None) -> str:
    """Microseconds with as many digits as a measurement has."""
    return "" if us is None else f"{us:.{2 if us < 10 else 1 if us < 1000 else 0}f}"


def _tiles(sweep: Sweep, top: int) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in ("", "tile"):
        table.add_column(heading, no_wrap=True)
    for heading in ("p5 us", _unit(sweep), "%peak", "spread", "samples", f"cold ({sweep.cold})", "to best"):
        table.add_column(heading, justify="right", no_wrap=True)
    final = {show_tile(r.tile or {}): r for r in sweep.finalists}
    rows = [p for r in sweep.finalists if (p := _find(sweep, r.tile)) is not None]
    rows += [p for p in sweep.timed if p not in rows]
    for p in rows[:top]:
        rival = final.get(show_tile(p.tile))
        us = rival.p5_us if rival else p.p5_us
        ratio = ""
        if rival is not None and p.tile != sweep.best:
            ratio = f"{rival.ratio:.3f} ({rival.low:.3f}-{rival.high:.3f})" + (" tie" if rival.tie else "")
        table.add_row(
            "*" if p.tile == sweep.best else "",
            escape(_named(p)),
            digits(us),
            *_rate(sweep, us),
            f"{p.spread:.1%}" if p.spread is not None else "",
            f"{p.samples}{'!' if p.stopped == 'budget' else ''}",
            f"{p.cold_us / us - 1:+.0%}" if p.cold_us and us else "",
            ratio,
        )
    return table


def _find(sweep: Sweep, tile: dict[str, int] | None) -> Point | None:
    return next((p for p in sweep.points if p.tile == (tile or {})), None)


def _named(p: Point) -> str:
    if p.tile:
        return show_tile(p.tile)
    return "own choice" + (f" ({show_tile(p.runs)})" if p.runs else "")


def _peers(sweep: Sweep) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("peer", no_wrap=True)
    for heading in ("p5 us", _unit(sweep), "%peak", "tilework is"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("convention")
    for r in sorted(sweep.peers, key=lambda r: r.p5_us):
        tie = "  tie" if r.tie else ""
        table.add_row(
            r.name,
            digits(r.p5_us),
            *_rate(sweep, r.p5_us),
            f"{r.ratio:.2f}x ({r.low:.2f}-{r.high:.2f}){tie}",
            r.convention,
        )
    return table


def _footnotes(result: Result, sweep: Sweep) -> list[str]:
    counts = ", ".join(
        f"{n} {what}"
        for what, n in (
            ("pruned", sweep.count(PRUNED)),
            ("given up as slow", sweep.count(DROPPED)),
            ("[red]wrong[/]", sweep.count(WRONG)),
            ("[red]failed[/]", sweep.count(FAILED)),
            ("not measured (budget)" if sweep.spent else "passed over", sweep.count(LEFT)),
        )
        if n
    )
    lines = [
        f"{len(sweep.timed)} of {len(sweep.points)} tiles timed ({sweep.search}, {sweep.cache} caches)"
        + (f", {counts}" if counts else "")
        + f"; {sweep.groups} groups, {sweep.compiled} compiled in {sweep.compile_s:.1f} s"
        + (f"; {sweep.resumed} from earlier runs (--fresh measures anew)" if sweep.resumed else "")
        + f"; {sweep.wall_s:.1f} s"
    ]
    bad = [p for p in sweep.points if p.status in (WRONG, FAILED)]
    lines += [f"[red]x {escape(show_tile(p.tile))}: {p.status}, {escape(p.why)}[/]" for p in bad[:10]]
    if any(p.stopped == "budget" for p in sweep.timed):
        lines.append("samples!: never steady; the machine was busy, or the call varies")
    if sweep.model:
        m = sweep.model
        lines.append(
            f"model: its first choice is {m['first_regret']:.1%} slower than the best measured, the best of its first "
            f"{m['kept']} is {m['kept_regret']:.1%}; the best is number {m['rank_of_best']} of {m['points']} in its order"
        )
    lines += [escape(f"left out: {why}") for why in sweep.left_out]
    lines.append(_closing(result, sweep))
    if sweep.others is not None and sweep.others > load.BUSY:
        lines.append(f"! other programs used {sweep.others:.0%} of the processors meanwhile: figures are worth little.")
    if sweep.interrupted:
        lines.append("interrupted: what was measured is kept, and the same command goes on from there.")
    return lines


def _closing(result: Result, sweep: Sweep) -> str:
    parts = [f"right by {sweep.checked}"] if sweep.checked else []
    if sweep.operations and sweep.bytes:
        parts.append(f"{sweep.operations / sweep.bytes:.0f} ops/byte")
    tile = escape(show_tile(sweep.best))
    parts.append(f"saved: {tile}" if sweep.saved else f"chosen: {tile}")
    loads: list[Any] = [(result.machine.get(k) or {}).get("load_1min") for k in ("load_before", "load_after")]
    if all(x is not None for x in loads):
        parts.append("load {:.1f} -> {:.1f}".format(*loads))
    return "   ".join(parts)
