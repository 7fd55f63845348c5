"""The command line. Bodies import what they need when they run, so `tilework --help` loads no Numba."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer

from .. import __version__

app = typer.Typer(
    name="tilework",
    help="Quantized pipelines on Numba: one definition, the same bits everywhere, at hardware speed.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]


def print_json(facts: Any) -> None:
    """Print one JSON object, the whole output of a command that was asked for --json."""
    print(json.dumps(facts, indent=2, allow_nan=False))


@app.callback(invoke_without_command=True)
def face(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        print(f"tilework {__version__}")
        raise typer.Exit


@app.command()
def demo(
    image: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Show test image N and its scores instead.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Run a small network, quantized in several ways, on handwritten digits, and compare the results.

    Exits with status 1 if any executor gives other bytes than the first.
    """
    from . import demo

    if image is not None:
        result = demo.classify(image)
        print_json(result) if as_json else demo.show_image(result)
        return
    result = demo.compare()
    print_json(result) if as_json else demo.show_table(result)
    raise typer.Exit(0 if result["same_bytes"] else 1)


@app.command()
def doctor(as_json: Json = False) -> None:
    """Say what this machine has: versions, CPU, caches, threads, extras, load."""
    from . import doctor

    facts = doctor.examine()
    print_json(facts) if as_json else doctor.show(facts)


def main(args: list[str] | None = None) -> None:
    """Entry point of the console script. An error of the library is one line on stderr and exit status 2."""
    try:
        app(args, prog_name="tilework")
    except Exception as error:
        from ..primitives.errors import TileworkError

        if not isinstance(error, TileworkError):
            raise
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
