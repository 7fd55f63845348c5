"""`tilework generate` and `tilework bench perplexity`: the options; the modules beside this one do the work."""

from __future__ import annotations

from typing import Annotated

import typer

from ..options import Json, print_json

File = Annotated[str, typer.Argument(metavar="FILE.gguf", help="A model of the architecture llama, qwen2 or qwen3.")]
Compute = Annotated[
    str, typer.Option(metavar="NAME", help="Products with codes: int8 (fast), or f32 (weights decoded).")
]
Threads = Annotated[int | None, typer.Option(min=1, help="Left out: all.")]


def generate(
    file: File,
    prompt: Annotated[str, typer.Option("--prompt", "-p", help="What the text begins with.")] = "",
    tokens: Annotated[int, typer.Option("--tokens", "-n", min=1, help="Most tokens to add.")] = 64,
    temperature: Annotated[float, typer.Option(min=0, help="0: always the most likely token.")] = 0.0,
    top_k: Annotated[int, typer.Option(min=0, help="Draw from the K most likely; 0: all.")] = 0,
    top_p: Annotated[float, typer.Option(help="Draw from the most likely that have this probability together.")] = 1.0,
    seed: Annotated[int, typer.Option(min=0, help="Of what is drawn.")] = 0,
    threads: Threads = None,
    scheme: Annotated[
        str | None, typer.Option("--scheme", metavar="NAME", help="Quantize the weights anew; tilework scheme list.")
    ] = None,
    kv_scheme: Annotated[
        str | None, typer.Option("--kv-scheme", metavar="NAME", help="Keep keys and values in a scheme's codes.")
    ] = None,
    compute: Compute = "int8",
    as_json: Json = False,
) -> None:
    """Run a language model from its file: text as it comes, then tokens a second."""
    from . import generate as command

    options = command.Options(tokens, temperature, top_k, top_p, seed, threads, scheme, kv_scheme, compute)
    result = command.run(file, prompt, options, show=not as_json)
    print_json(result) if as_json else command.show(result)


def perplexity(
    file: Annotated[
        str | None,
        typer.Argument(metavar="[FILE.gguf]", help="A model; none: the small one, trained at the first use."),
    ] = None,
    formats: Annotated[
        list[str] | None,
        typer.Option("--format", metavar="NAME", help="GGUF types or schemes of the weights; may be repeated."),
    ] = None,
    caches: Annotated[
        list[str] | None,
        typer.Option("--kv-scheme", metavar="NAME", help="Schemes of keys and values; may be repeated."),
    ] = None,
    text: Annotated[
        str | None, typer.Option(metavar="FILE", help="What to judge by; none: held-out reference.")
    ] = None,
    tokens: Annotated[int, typer.Option(min=2, help="Most tokens of the text.")] = 4096,
    compute: Compute = "int8",
    threads: Threads = None,
    picture: Annotated[str | None, typer.Option("--picture", metavar="FILE", help="Draw it: .png, .svg, .pdf.")] = None,
    as_json: Json = False,
) -> None:
    """What formats of weights and of the cache cost a language model: perplexity of each, beside float64."""
    from . import perplexity as command

    options = command.Options(tuple(formats or ()), tuple(caches or ()), text, tokens, compute, threads)
    result = command.measure(file, options)
    print_json(result) if as_json else command.show(result)
    if picture is not None:
        command.draw(result, picture)
