"""The tables of `tilework bench peers conv`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.markup import escape
from rich.table import Table

from ..machine import load
from ..terminal import wide_console
from .report import _bars, _digits, _peer, machine_line


def show(result: Mapping[str, Any]) -> None:
    """Print a result of conv.measure for people."""
    out = wide_console()
    out.print(machine_line(result["machine"]))
    out.print("peers: " + (", ".join(f"{n} {v}" for n, v in result["peers"].items()) or "none"))
    for peer, absent in result["missing"].items():
        out.print(escape(f"{peer} is left out: {absent} is not installed; pip install 'tilework[peers]'"))
    rows = result["rows"]
    for layout, threads in dict.fromkeys((row["layout"], row["threads"]) for row in rows):
        mine = [r for r in rows if (r["layout"], r["threads"]) == (layout, threads)]
        out.print(_table(result["what"], layout, threads, mine))
    if any((row["others"] or 0) > load.BUSY for row in rows):
        out.print(f"! other programs used more than {load.BUSY:.0%} of the processors meanwhile: run it again.")
    out.print("us: median of the rounds. ratio: peer's time / tilework's in the same round, median (p10-p90).")
    if result["bars"]:
        out.print(_bars(result["bars"]))


def _table(what: str, layout: str, threads: int, rows: Sequence[Mapping[str, Any]]) -> Table:
    title = f"{what}, {layout} in and out, {threads} thread{'s' * (threads > 1)}"
    table = Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("N,C,H,O,k,s,p,g", no_wrap=True)
    for column in ("us", "Gop/s", "% peak"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("peers, us", no_wrap=True)
    table.add_column("ratio to the best", no_wrap=True)
    for row in rows:
        if row["wrong"]:
            table.add_row(row["shape"], "", "", "", f"[red]wrong: {escape(row['wrong'])}[/]", "")
            continue
        table.add_row(
            row["shape"] + " !" * ((row["others"] or 0) > load.BUSY),
            f"{row['us']:.{_digits(row['us'])}f}",
            f"{row['gops']:.0f}",
            "" if row["peak_share"] is None else f"{100 * row['peak_share']:.0f}",
            "  ".join(_peer(peer, found, row["best"]) for peer, found in row["peers"].items()),
            escape("; ".join(row["left_out"]))
            if row["ratio"] is None
            else f"{row['ratio']:.2f} ({row['low']:.2f}-{row['high']:.2f})",
        )
    return table
