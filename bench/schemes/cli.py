"""`tilework scheme ..`: the options; bench/schemes/figures.py does the work."""

from __future__ import annotations

from typing import Annotated

import typer

from ..options import Json, print_json

scheme_app = typer.Typer(help="Quantization schemes: figures, proofs, comparisons.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="SCHEME", help="A shipped scheme, or file.py:name.")]
Tensors = Annotated[
    list[str] | None, typer.Option("--tensor", metavar="NAME", help="Take this matrix only; may be repeated.")
]


@scheme_app.command("list")
def list_schemes(as_json: Json = False) -> None:
    """List the shipped schemes."""
    import tilework as tw

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
    from . import figures as schemes

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
    from . import figures as schemes

    chosen = None if levels is None else [] if levels == "none" else levels.split(",")
    result = schemes.check(scheme, weights, tensors or (), chosen)
    print_json(result) if as_json else print("\n".join(row["text"] for row in result["rows"]))
    raise typer.Exit(1 if result["different"] else 0)


@scheme_app.command("compare")
def compare(
    names: Annotated[list[str], typer.Argument(metavar="SCHEME...", help="Shipped schemes, or file.py:name.")],
    weights: Annotated[str, typer.Option("--weights", metavar="FILE", help="A .npz, .npy or .safetensors file.")],
    tensors: Tensors = None,
    picture: Annotated[
        str | None, typer.Option("--picture", metavar="FILE", help="Draw SQNR against bits: .png, .svg or .pdf.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Several schemes on the matrices of one file, a row each."""
    from . import figures as schemes

    result = schemes.compare(names, weights, tensors or ())
    print_json(result) if as_json else schemes.show_comparison(result)
    if picture is not None:
        from ..pictures.schemes import draw_comparison

        draw_comparison(result, picture)


@scheme_app.command("certify")
def certify(
    scheme: Name,
    against: Annotated[
        str, typer.Option("--against", metavar="exact|ml_dtypes", help="What gives the codes.")
    ] = "exact",
    quick: Annotated[bool, typer.Option("--quick", help="Only inputs near thresholds, instead of all 2**32.")] = False,
    as_json: Json = False,
) -> None:
    """Every float32 input through a format of single numbers. Exits with status 1 if a code differs."""
    from . import certificate
    from . import figures as schemes

    found = certificate.certify(schemes.find(scheme), against, quick=quick)
    print_json(found.as_dict()) if as_json else print(found)
    raise typer.Exit(0 if found else 1)


@scheme_app.command("passport")
def passport(
    scheme: Name,
    out: Annotated[str, typer.Option("--out", "-o", metavar="FILE", help="A .html or .md file.")],
    weights: Annotated[
        str | None, typer.Option("--weights", metavar="FILE", help="Show figures on these too, beside made-up ones.")
    ] = None,
    tensors: Tensors = None,
    levels: Annotated[bool, typer.Option(help="Prove every instruction set, and not only the best.")] = True,
    as_json: Json = False,
) -> None:
    """One page about a scheme: definition, figures, proof, times, pictures."""
    from . import passport as page

    found = page.write(scheme, out, weights, tensors or (), levels)
    print_json(found) if as_json else print(f"{found['scheme']}: {out}")
