"""The tables of `tilework bench peers`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from .. import peers
from ..machine import load
from ..terminal import wide_console

TITLES = {
    "compute": "bound by arithmetic",
    "overhead": "bound by the call",
    "memory": "bound by memory",
}


def show(result: Mapping[str, Any]) -> None:
    """Print a result of gemm.measure for people."""
    console = wide_console()
    console.print(machine_line(result["machine"]))
    versions = ", ".join(f"{name} {version}" for name, version in result["peers"].items())
    console.print(f"peers: {versions or 'none'}")
    for peer, absent in result["missing"].items():
        console.print(escape(f"{peer} is left out: {absent} is not installed; pip install 'tilework[peers]'"))
    seen = dict.fromkeys((row["table"], row["threads"]) for row in result["rows"])
    for table, threads in seen:
        console.print(
            _table(table, threads, [r for r in result["rows"] if (r["table"], r["threads"]) == (table, threads)])
        )
    if result["rows"]:
        for found in dict.fromkeys(text for row in result["rows"] for text in row["left_out"]):
            console.print(escape(f"left out because its result is wrong: {found}"))
        if any((row["others"] or 0) > load.BUSY for row in result["rows"]):
            console.print(f"! other programs used more than {load.BUSY:.0%} of the processors meanwhile: run it again.")
        console.print(
            "% peak: of arithmetic on registers, or of reading the weights' bytes, probed in the same rounds."
        )
        console.print("us: median of the rounds. ratio: peer's time / tilework's in the same round, median (p10-p90).")
        if any(name in peers.DISPATCHED for row in result["rows"] for name in row["peers"]):
            console.print("~ of this time, 16 to 20 us are the dispatch of torch.ops.")
    if result["bars"]:
        console.print(_bars(result["bars"]))


def machine_line(machine: Mapping[str, Any]) -> str:
    """What was measured on, and under which load."""
    loads = [machine[k]["load_1min"] for k in ("load_before", "load_after")]
    average = " -> ".join(f"{x:.2f}" for x in loads if x is not None) or "unknown"
    return (
        f"{machine['model']} ({machine['llvm_name']}), {machine['usable_cores']} cores, {machine['isa']}, "
        f"L3 {machine['l3_bytes'] >> 20} MiB   load {average}   {machine['rounds']} rounds"
    )


def _table(name: str, threads: int, rows: Sequence[Mapping[str, Any]]) -> Table:
    title = f"GEMM {TITLES[name]}, {threads} thread{'s' * (threads > 1)}"
    table = Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("M x K x N", no_wrap=True)
    table.add_column("output", no_wrap=True)
    for column in ("us", "Gop/s", *(["GB/s"] if name == "memory" else []), "% peak"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("peers, us", no_wrap=True)
    table.add_column("ratio to the best", no_wrap=True)
    table.add_column("bar", justify="right", no_wrap=True)
    last = None
    for row in rows:
        how = [
            row["output"],
            *(["run"] if row["call"] == "run" else []),
            *(["rotated"] if row["weights"] == "rotated" else []),
        ]
        first = row["shape"] if row["shape"] != last else ""
        last = row["shape"]
        if (row["others"] or 0) > load.BUSY:
            how.append("!")
        if row["wrong"]:
            table.add_row(first, " ".join(how), f"[red]wrong: {escape(row['wrong'])}[/]")
            continue
        table.add_row(
            first,
            " ".join(how),
            f"{row['us']:.{_digits(row['us'])}f}",
            f"{row['gops']:.0f}",
            *([f"{row['gb_per_s']:.0f}"] if name == "memory" else []),
            "" if row["peak_share"] is None else f"{100 * row['peak_share']:.0f}",
            "  ".join(_peer(peer, found, row["best"]) for peer, found in row["peers"].items()),
            escape("; ".join(row["left_out"]))
            if row["ratio"] is None
            else f"{row['ratio']:.2f} ({row['low']:.2f}-{row['high']:.2f})",
            ""
            if row["wanted"] is None
            else f"[{'green' if row['met'] else 'red'}]{row['wanted']:.2f}{'' if row['met'] else ' no'}[/]",
        )
    return table


def _peer(name: str, found: Mapping[str, float], best: str) -> str:
    slow = name in peers.DISPATCHED and found["us"] < peers.DISPATCH_SHOWS * 1e6
    text = f"{name} {'~' * slow}{found['us']:.{_digits(found['us'])}f}"
    return f"[bold]{text}[/]" if name == best else text


def _digits(us: float) -> int:
    return 2 if us < 10 else 1 if us < 1000 else 0


def _bars(bars: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(title="bars", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for column, justify in (("what", "left"), ("found", "right"), ("wanted", "right"), ("", "left"), ("", "left")):
        table.add_column(column, justify=justify)  # type: ignore[arg-type]
    for bar in bars:
        unit = f" {bar['unit']}" if bar["unit"] else ""
        digits = (
            0 if isinstance(bar["value"], int) else 1 if bar["unit"] == "%" else 3 if bar["unit"] in ("us", "s") else 2
        )
        table.add_row(
            bar["bar"],
            f"{bar['value']:.{digits}f}{unit}",
            f"{'>=' if bar['least'] else '<='} {bar['wanted']:g}{unit}",
            "[green]met[/]" if bar["met"] else "[red]no[/]",
            escape(bar["note"]),
        )
    return table


def show_linear(result: Mapping[str, Any]) -> None:
    """Print a result of linear.measure for people."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=160)
    console.print(machine_line(result["machine"]))
    for peer, absent in result["missing"].items():
        console.print(escape(f"{peer} is left out: {absent} is not installed; pip install 'tilework[peers]'"))
    seen = dict.fromkeys((row["table"], row["weights"], row["threads"]) for row in result["rows"])
    for key in seen:
        name, weights, threads = key
        table = Table(
            title=f"linear, {name}, weights {weights}, {threads} thread{'s' * (threads > 1)}",
            box=box.SIMPLE_HEAD,
            padding=(0, 1, 0, 0),
        )
        for column in ("what", "M x K x N", "us", "Gop/s", "GB/s", "against", "us", "ratio", "bar"):
            table.add_column(column, justify="left" if column in ("what", "against") else "right", no_wrap=True)
        for row in result["rows"]:
            if (row["table"], row["weights"], row["threads"]) == key:
                table.add_row(*_linear_row(row))
        console.print(table)
    console.print("us: median of the rounds. ratio: the other's time / tilework's in the same round, median (p10-p90).")


def _linear_row(row: Mapping[str, Any]) -> tuple[str, ...]:
    wanted = ""
    if row["wanted"] is not None:
        met = row["ratio"] >= row["wanted"]
        wanted = f"[{'green' if met else 'red'}]{row['wanted']:.2f}{'' if met else ' no'}[/]"
    return (
        row["what"],
        row["shape"],
        f"{row['us']:.{_digits(row['us'])}f}",
        f"{row['gops']:.0f}",
        f"{row['gb_per_s']:.0f}",
        row["against"],
        f"{row['other_us']:.{_digits(row['other_us'])}f}",
        f"{row['ratio']:.2f} ({row['low']:.2f}-{row['high']:.2f})",
        wanted,
    )
