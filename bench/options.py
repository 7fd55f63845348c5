"""Options that several commands have, how they are read, and how a result is printed."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]


def print_json(facts: Any) -> None:
    """Print one JSON object, the whole output of a command that was asked for --json."""
    print(json.dumps(facts, indent=2, allow_nan=False))


def counts(text: str, option: str = "threads") -> tuple[int, ...]:
    """Positive integers with commas between them, such as --threads 1,2; ArgumentError for anything else."""
    from ..primitives.errors import ArgumentError

    if not all(n.isdigit() and int(n) for n in text.split(",")):
        raise ArgumentError(f"--{option} {text!r}: positive integers with commas between are needed, like 1,2")
    return tuple(map(int, text.split(",")))
