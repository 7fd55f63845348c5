"""`tilework bench formats` and `tilework bench accuracy`: the options; format_bars.py and accuracy/ do the work."""

from __future__ import annotations

from typing import Annotated

import typer

from ..options import Json, print_json


def bench_formats(
    names: Annotated[list[str] | None, typer.Argument(metavar="TYPE...", help="GGUF's names; none: all.")] = None,
    check: Annotated[bool, typer.Option("--check", help="Compare bytes with the package gguf, time nothing.")] = False,
    products: Annotated[bool, typer.Option(help="Also time products with K-quants against int4.")] = True,
    rates: Annotated[bool, typer.Option(help="Time encode and decode.")] = True,
    threads: Annotated[str, typer.Option(metavar="N,..", help="Numbers of threads, one after another.")] = "1,2",
    rounds: Annotated[int, typer.Option(min=1)] = 7,
    as_json: Json = False,
) -> None:
    """GGUF's block types against the package gguf: encode, decode, products."""
    from . import bars as format_bars

    chosen, counts = names or (), tuple(map(int, threads.split(",")))
    if check:
        result = {"check": format_bars.check(chosen)}
    else:
        result = {
            "rates": [row for n in counts for row in format_bars.rates(chosen, n, rounds)] if rates else [],
            "products": [row for n in counts for row in format_bars.products(threads=n)] if products else [],
        }
    print_json(result) if as_json else format_bars.show(result)
    if check and any(row["decoded"] or row.get("encoded") for row in result["check"]):
        raise typer.Exit(1)


def bench_accuracy(
    tasks: Annotated[list[str] | None, typer.Argument(metavar="TASK...", help="digits, sentences; none: both.")] = None,
    schemes: Annotated[
        list[str] | None,
        typer.Option("--scheme", metavar="NAME", help="int4_g128, int4_g128+feedback and so on; may be repeated."),
    ] = None,
    picture: Annotated[str | None, typer.Option("--picture", metavar="FILE", help="Draw it: .png, .svg, .pdf.")] = None,
    as_json: Json = False,
) -> None:
    """What schemes and ways of fitting cost on digits and on similarities of sentences."""
    from . import accuracy

    result = accuracy.measure(tasks or ("digits", "sentences"), schemes or ())
    print_json(result) if as_json else accuracy.show(result)
    if picture is not None:
        accuracy.draw(result, picture)
