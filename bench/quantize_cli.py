"""`tilework quantize`: a float ONNX model, a scheme and data to calibrate on in; a quantized network and a table out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer


def quantize(
    model: Annotated[str, typer.Argument(metavar="MODEL.onnx", help="A float model.")],
    scheme: Annotated[
        list[str],
        typer.Option(
            "--scheme", metavar="NAME", help="Of the weights: shipped, or file.py:name; several with --budget."
        ),
    ],
    data: Annotated[str, typer.Option("--calibrate", metavar="FILE.npz", help="Samples of every input, by its name.")],
    output: Annotated[
        str, typer.Option("-o", "--output", metavar="FILE", help="A pipeline, or with the ending .onnx a QDQ model.")
    ],
    activations: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="u8 or s8 with calibrated ranges, or a scheme; left out: they stay float."),
    ] = None,
    budget: Annotated[float | None, typer.Option(metavar="BITS", help="Bits a weight over all layers.")] = None,
    method: Annotated[
        str, typer.Option(metavar="NAME", help="Of the ranges: minmax, running, percentile, mse or kl.")
    ] = "minmax",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False,
) -> None:
    """Quantize a float ONNX model after training, and say layer by layer what that did, worst first."""
    import json

    from ..frontends.onnx import quantize as run
    from .schemes.figures import find
    from .targets import read_archive

    folder = Path(output).resolve().parent
    if not folder.is_dir():
        from ..primitives.errors import ArgumentError

        raise ArgumentError(f"there is no folder {str(folder)!r} to write {Path(output).name} to")
    chosen: Any = activations
    if activations is not None and ".py:" in activations:
        chosen = find(activations)
    schemes = [find(name) for name in scheme]
    arrays = read_archive(data)
    with _Bar() as step:
        found = run(model, schemes, arrays, activations=chosen, budget=budget, method=method, step=step)
    found.save(output)
    facts = {
        "model": model,
        "output": output,
        "bytes": Path(output).stat().st_size,
        "float_bytes": Path(model).stat().st_size,
        "bits": found.bits,
        "outputs": dict(found.outputs),
        "layers": sorted(found.layers, key=lambda row: row["output_db"]),
        "onnx": found.unsaid or "can say it",
    }
    if as_json:
        print(json.dumps(facts, indent=2, allow_nan=False))
        return
    show(facts)


class _Bar:
    """A bar on a terminal, gone when the work is done."""

    def __enter__(self) -> Any:
        from rich.console import Console
        from rich.progress import Progress

        console = Console(stderr=True)
        self.progress = Progress(console=console, transient=True, disable=not console.is_terminal)
        self.progress.start()
        task = self.progress.add_task("")

        def step(what: str, at: int, of: int) -> None:
            self.progress.update(task, description=what, completed=at, total=of)

        return step

    def __exit__(self, *_: Any) -> None:
        self.progress.stop()


def _db(value: float) -> str:
    return "equal" if value == 999.0 else "no signal" if value == -999.0 else f"{value:.1f}"


def show(facts: dict[str, Any]) -> None:
    """The table for people."""
    from rich.table import Table

    from .terminal import wide_console

    table = Table(title=f"{facts['model']}: layers, worst first", title_style="bold")
    for heading in ("layer", "op", "weights", "scheme", "bits", "weights dB", "output dB"):
        table.add_column(heading, justify="left" if heading in ("layer", "op", "scheme") else "right")
    for row in facts["layers"]:
        size = " x ".join(map(str, row["shape"]))
        table.add_row(
            row["name"],
            row["op"],
            size,
            row["scheme"],
            f"{row['bits']:.2f}",
            _db(row["weights_db"]),
            _db(row["output_db"]),
        )
    wide_console().print(table)
    for name, value in facts["outputs"].items():
        print(f"output {name}: {_db(value)}" + (" dB of signal to noise" if abs(value) < 999 else ""))
    print(
        f"{facts['output']}: {facts['bits']:.2f} bits a weight, {facts['bytes']} bytes; {facts['float_bytes']} before"
    )
