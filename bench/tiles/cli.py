"""`tilework bench sweep|peak|run|show|compare`. Bodies import what they need when they run."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

Json = Annotated[
    str | None, typer.Option("--json", metavar="FILE", help="Write everything there too; - prints it instead.")
]
Html = Annotated[str | None, typer.Option("--html", metavar="FILE", help="Write one page with tables and pictures.")]
Markdown = Annotated[str | None, typer.Option("--md", metavar="FILE", help="Write the tables as Markdown.")]
Csv = Annotated[str | None, typer.Option("--csv", metavar="FILE", help="Write one line a point.")]
Png = Annotated[
    list[str] | None,
    typer.Option("--picture", metavar="FILE", help="Draw into FILE.png or FILE.svg (extra plot); may be repeated."),
]
Heat = Annotated[str | None, typer.Option("--heatmap", metavar="X,Y", help="Two tile parameters for the map.")]
Top = Annotated[int, typer.Option(min=1, help="How many tiles to print.")]


def sweep(
    shapes: Annotated[
        list[str] | None, typer.Argument(metavar="[MxKxN | NAME=N,..]...", help="Shapes, as the kernel has them.")
    ] = None,
    kernel: Annotated[
        str, typer.Option(metavar="NAME", help="A kernel's name, or file.py:NAME of a kernel of your own.")
    ] = "gemm_u8s8s32",
    pipeline: Annotated[
        str | None, typer.Option(metavar="TARGET", help="Instead: a saved pipeline, or file.py:name, timed whole.")
    ] = None,
    step: Annotated[
        str, typer.Option(metavar="NAME", help="Of the pipeline: a step, or all. Default: its stages, else its steps.")
    ] = "",
    sizes: Annotated[
        list[str] | None, typer.Option("--size", metavar="NAME=N", help="A run-time size of the pipeline.")
    ] = None,
    tiles: Annotated[
        list[str] | None,
        typer.Option("--tiles", metavar="NAME=N,N,..", help="Also NAME=LOW:HIGH:STEP and NAME=LOW:HIGH:2x."),
    ] = None,
    search: Annotated[str, typer.Option(metavar="race|full|model", help="Which tiles are measured.")] = "race",
    budget: Annotated[str, typer.Option(metavar="SECONDS", help="For one step at one shape.")] = "60s",
    cache: Annotated[str, typer.Option(metavar="hot|weights|all", help="What a call finds in the caches.")] = "hot",
    threads: Annotated[str, typer.Option(metavar="N,..", help="Numbers of threads, one after another.")] = "1",
    device: Annotated[str, typer.Option(metavar="cpu|cuda:0|interpreter", help="Where it runs.")] = "cpu",
    isa: Annotated[str | None, typer.Option(metavar="LEVEL", help="Hold tilework to this instruction set.")] = None,
    peers: Annotated[str, typer.Option(metavar="torch,ort", help="Other libraries for the final.")] = "",
    output: Annotated[str, typer.Option(metavar="s32|u8", help="Of an integer GEMM: u8 adds bias, scale, relu.")] = "",
    scheme: Annotated[
        str | None, typer.Option(metavar="NAME", help="Of a linear layer: a shipped scheme, or file.py:NAME.")
    ] = None,
    save: Annotated[bool, typer.Option("--save", help="Plans take the chosen tiles from now on.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Measure anew what earlier runs have measured.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Of the random data.")] = 0,
    heat: Heat = None,
    top: Top = 10,
    json_file: Json = None,
    html: Html = None,
    md: Markdown = None,
    csv: Csv = None,
    pictures: Png = None,
) -> None:
    """Time tiles, each checked first; choose one, and say how sure that is.

    Ctrl-C keeps all that was measured: the same command goes on from there. Exits with status 1 if a tile gives a wrong
    result.
    """
    from . import api, words
    from .progress import Bar

    shapes, values = words.split(shapes, tiles)
    more: dict[str, Any] = {
        "tiles": words.tiles_of(values),
        "search": search,
        "budget": words.seconds(budget),
        "cache": cache,
        "threads": words.counts(threads),
        "device": device,
        "isa": isa,
        "peers": [p for p in peers.split(",") if p],
        "save": save,
        "resume": not fresh,
        "seed": seed,
        "watch": Bar(),
        "maker": words.maker_of(output, scheme),
    }
    if json_file not in (None, "-"):
        more["done"] = lambda found: found.to_json(json_file)
    if pipeline is not None:
        words.no_shapes(shapes)
        result = api.sweep(pipeline=words.pipeline_of(pipeline), sizes=words.sizes_of(sizes), step=step, **more)
    else:
        found = words.kernel_of(kernel)
        result = api.sweep(found, [words.shape_of(s) for s in shapes], **more)
    words.give(result, json_file, html, md, csv, pictures, heat, top)
    raise typer.Exit(_status(result))


def peak(
    threads: Annotated[str, typer.Option(metavar="N,..", help="Numbers of threads, one after another.")] = "1",
    isa: Annotated[str | None, typer.Option(metavar="LEVEL", help="Another instruction set than the best.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False,
) -> None:
    """Measure what this machine does at most: arithmetic on registers, and each cache level. Sweeps use it as 100 %."""
    import json
    from dataclasses import asdict

    from ..machine import ceilings
    from . import words

    found = [ceilings.measure(n, isa) for n in words.counts(threads)]
    if as_json:
        print(json.dumps({"schema": "tilework.peak", "version": 1, "ceilings": [asdict(c) for c in found]}, indent=2))
    else:
        for c in found:
            ceilings.show(c)


def run(
    spec: Annotated[str, typer.Argument(metavar="SPEC", help="A JSON file with arguments of bench.sweep.")],
    json_file: Json = None,
    html: Html = None,
    md: Markdown = None,
    csv: Csv = None,
    pictures: Png = None,
    heat: Heat = None,
    top: Top = 10,
) -> None:
    """Run sweeps that a file describes: {"sweeps": [{"kernel": .., "shapes": [..], "tiles": {..}, ..}, ..]}."""
    from . import words

    keep = None if json_file in (None, "-") else lambda found: found.to_json(json_file)
    result = words.run_spec(spec, keep)
    words.give(result, json_file, html, md, csv, pictures, heat, top)
    raise typer.Exit(_status(result))


def show(
    file: Annotated[str, typer.Argument(metavar="FILE", help="What `bench sweep --json` wrote.")],
    html: Html = None,
    md: Markdown = None,
    csv: Csv = None,
    pictures: Png = None,
    heat: Heat = None,
    top: Top = 10,
    json_file: Json = None,
) -> None:
    """Print a result again: tables, and pictures in the terminal or in files."""
    from . import words
    from .result import Result

    words.give(Result.load(file), json_file, html, md, csv, pictures, heat, top)


def compare(
    old: Annotated[str, typer.Argument(metavar="OLD", help="What `bench sweep --json` wrote before.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="And now.")],
    fail_over: Annotated[str, typer.Option("--fail-over", metavar="PERCENT", help="How much slower counts.")] = "2.5%",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False,
) -> None:
    """Hold two results together. Exits with status 1 if something became slower beyond the limit and the noise."""
    import json

    from . import words
    from .compare import compare, show_comparison
    from .result import Result

    found = compare(Result.load(old), Result.load(new), words.percent(fail_over))
    if as_json:
        print(json.dumps(found.to_dict(), indent=2))
    else:
        show_comparison(found)
    sys.stdout.flush()
    raise typer.Exit(1 if found.failed else 0)


def _status(result: Any) -> int:
    """130 after Ctrl-C, as a shell has it; 1 if a tile gave a wrong result."""
    if any(s.interrupted for s in result.sweeps):
        return 130
    return 1 if any(s.count("wrong") for s in result.sweeps) else 0


COMMANDS: dict[str, Any] = {"sweep": sweep, "peak": peak, "run": run, "show": show, "compare": compare}


def add_to(app: typer.Typer) -> None:
    """Add these commands to another."""
    for name, command in COMMANDS.items():
        app.command(name)(command)
