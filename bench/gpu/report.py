"""The table of a GPU's figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table


def show(device: str, result: Mapping[str, Any]) -> None:
    """Print what Bench.run found."""
    console = Console(highlight=False)
    console = console if console.is_terminal else Console(highlight=False, width=140)
    console.print(
        escape(f"{device}: copies {result['copy_bytes_per_s'] / 1e9:.0f} GB/s, multiplies int8 at ")
        + f"{result['int8_operations_per_s'] / 1e12:.1f} TOPS (both measured)"
    )
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("case", no_wrap=True)
    for column in ("hot, us", "cold, us", "TOPS", "GB/s", "roofline"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("peers, us")
    table.add_column("share", justify="right", no_wrap=True)
    table.add_column("bar", justify="right", no_wrap=True)
    for row in result["rows"]:
        share = row["share"]
        met = "?" if share is None else "met" if share >= row["bar"] else "not met"
        table.add_row(
            row["case"],
            f"{1e6 * row['hot_s']:.1f}",
            f"{1e6 * row['cold_s']:.1f}",
            f"{1e-12 * row['operations'] / row['hot_s']:.1f}" if row["operations"] else "",
            f"{1e-9 * row['bytes_moved'] / row['cold_s']:.0f}" if row["bytes_moved"] else "",
            f"{row['roofline']:.0%}" if row["roofline"] else "",
            ", ".join(f"{name} {1e6 * time_s:.1f}" for name, time_s in row["peers"].items()),
            "?" if share is None else f"{share:.0%} of {row['of']}",
            f"{row['bar']:.0%} {met}" + (f"; {row['wrong']}" if row["wrong"] else ""),
        )
    console.print(table)
    for name, why in result["missing"].items():
        console.print(escape(f"{name} is left out: {why}"))
    for name in result["left_out"]:
        console.print(escape(f"no time was left for {name}"))
