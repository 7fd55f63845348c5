"""`tilework scheme ..`: the options; bench/schemes.py does the work."""

from __future__ import annotations

from typing import Annotated

import typer

scheme_app = typer.Typer(help="Quantization schemes: figures, proofs, comparisons.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="SCHEME", help="A shipped scheme, or file.py:name.")]
Tensors = Annotated[
    list[str] | None, typer.Option("--tensor", metavar="NAME", help="Take this matrix only; may be repeated.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]


@scheme_app.command("list")
def list_schemes(as_json: Json = False) -> None:
    """List the shipped schemes."""
    import tilework as tw

    from .cli import print_json

    names = tw.schemes.names()
    print_json({"schemes": [{"name": n, "scheme": repr(tw.schemes.get(n))} for n in names]}) if as_json else print(
        "\n".join(repr(tw.schemes.get(n)) for n in names)
    )


@scheme_app.command("report")
def report(
    scheme: Name,
    weights: Annotated[str, typer.Option("--weights", metavar="FILE", help="A .npz, .npy or .safetensors file.")],
    tensors: Tensors = None,
    activations: Annotated[
        str | None, typer.Option("--activations", metavar="FILE", help="Rows of activations (M, K); else random.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Error figures, memory and times of a scheme on the matrices of a file."""
    from . import schemes
    from .cli import print_json

    result = schemes.report(scheme, weights, tensors or (), activations)
    print_json(result) if as_json else schemes.show_report(result)


@scheme_app.command("check")
def check(
    scheme: Name,
    weights: Annotated[
        str | None, typer.Option("--weights", metavar="FILE", help="Check these too, beside planted ones.")
    ] = None,
    tensors: Tensors = None,
    levels: Annotated[
        str | None,
        typer.Option(
            "--levels", metavar="NAME,..", help="Instruction sets beside this machine's best; none for no other."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Prove that plain Python and every instruction set give the same bits. Exits with status 1 if they do not."""
    from . import schemes
    from .cli import print_json

    chosen = None if levels is None else [] if levels == "none" else levels.split(",")
    result = schemes.check(scheme, weights, tensors or (), chosen)
    print_json(result) if as_json else print("\n".join(row["text"] for row in result["rows"]))
    raise typer.Exit(1 if result["different"] else 0)


@scheme_app.command("compare")
def compare(
    names: Annotated[list[str], typer.Argument(metavar="SCHEME...", help="Shipped schemes, or file.py:name.")],
    weights: Annotated[str, typer.Option("--weights", metavar="FILE", help="A .npz, .npy or .safetensors file.")],
    tensors: Tensors = None,
    as_json: Json = False,
) -> None:
    """Several schemes on the matrices of one file, a row each."""
    from . import schemes
    from .cli import print_json

    result = schemes.compare(names, weights, tensors or ())
    print_json(result) if as_json else schemes.show_comparison(result)
