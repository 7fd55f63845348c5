"""`tilework bench peers ..`: the options; the modules beside this one do the work."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from ..options import Json, counts, print_json

peers_app = typer.Typer(help="Against other libraries, on the same bytes.", no_args_is_help=True)


@peers_app.command("steps")
def peers_steps(
    threads: Annotated[str, typer.Option(metavar="N,..", help="Numbers of threads, one after another.")] = "1,2",
    size: Annotated[str | None, typer.Option(help="L2 or memory; both if left out.")] = None,
    step: Annotated[
        list[str] | None, typer.Option("--step", metavar="NAME", help="Only this; may be repeated.")
    ] = None,
    blocks: Annotated[int, typer.Option(min=1, help="Rounds; in each, every contender has a block.")] = 15,
    as_json: Json = False,
) -> None:
    """Memory-bound steps and attention against ONNX Runtime, torch and a copy; status 1 if a result is wrong."""
    from . import steps

    raise typer.Exit(0 if steps.run(threads, size, step or [], blocks, as_json) else 1)


@peers_app.command("operators")
def peers_operators(
    threads: Annotated[str, typer.Option(metavar="N,..", help="Numbers of threads, one after another.")] = "1",
    operator: Annotated[
        list[str] | None, typer.Option("--operator", metavar="NAME", help="Only this; may be repeated.")
    ] = None,
    blocks: Annotated[int, typer.Option(min=1, help="Rounds; in each, every contender has a block.")] = 9,
    as_json: Json = False,
) -> None:
    """Operators that move, reduce, normalize, resample and find, against ONNX Runtime and torch; status 1 if one is wrong."""
    from . import operators

    records = operators.measure(counts(threads), tuple(operator or ()), blocks)
    print_json(records) if as_json else operators.show(records)
    raise typer.Exit(1 if any(r["wrong"] for r in records) else 0)


@peers_app.command("gemm")
def peers_gemm(
    threads: Annotated[str, typer.Option(metavar="N,..", help="Numbers of threads, one after another.")] = "1",
    table: Annotated[
        str, typer.Option(metavar="NAME,..", help="compute, overhead, memory, levels, start, or all.")
    ] = "compute,overhead,memory",
    shapes: Annotated[
        list[str] | None, typer.Option("--shapes", metavar="MxKxN", help="Time these instead; may be repeated.")
    ] = None,
    blocks: Annotated[int, typer.Option(min=1, help="Rounds; in each, every contender has a block.")] = 25,
    isa: Annotated[str | None, typer.Option(metavar="LEVEL", help="Hold tilework to this instruction set.")] = None,
    peer: Annotated[
        list[str] | None, typer.Option("--peer", metavar="NAME", help="onednn, int_mm or onnxruntime; may be repeated.")
    ] = None,
    patience: Annotated[
        float, typer.Option(metavar="SECONDS", help="Wait so long before each GEMM for other programs to be idle.")
    ] = 0.0,
    json_file: Annotated[
        str | None, typer.Option("--json", metavar="FILE", help="Write everything there too; - prints it instead.")
    ] = None,
) -> None:
    """Quantized GEMMs against oneDNN (through torch) and ONNX Runtime: checked first, then timed in the same rounds.

    Exits with status 1 if a result is wrong. A peer that is not installed is left out, unless TILEWORK_REQUIRE_PEERS=1.
    """
    from ..cases import Shape
    from . import gemm, report

    result = gemm.measure(
        gemm.Options(
            threads=counts(threads),
            tables=gemm.TABLES if table == "all" else tuple(table.split(",")),
            shapes=tuple(Shape.parse(text) for given in shapes or () for text in given.split(",")),
            rounds=blocks,
            isa=isa,
            only=tuple(peer or ()),
            patience=patience,
        )
    )
    if json_file == "-":
        print_json(result)
    else:
        report.show(result)
    if json_file not in (None, "-"):
        with open(json_file, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=2)
    raise typer.Exit(1 if gemm.failed(result) else 0)


@peers_app.command("linear")
def peers_linear(
    table: Annotated[
        str, typer.Option(metavar="NAME,..", help="int8, float, blocks, offset, or all.")
    ] = "int8,float,blocks",
    rows: Annotated[str, typer.Option(metavar="M,..", help="Numbers of rows of x.")] = "1,8,64,256,1024",
    sizes: Annotated[str, typer.Option(metavar="KxN,..", help="Sizes of the weights.")] = "4096x4096",
    groups: Annotated[str, typer.Option(metavar="G,..", help="Codes that share a scale.")] = "32,128",
    weights: Annotated[str, typer.Option(metavar="NAME,..", help="hot, or rotated past the last cache.")] = "hot",
    threads: Annotated[str, typer.Option(metavar="N,..", help="Numbers of threads, one after another.")] = "1",
    blocks: Annotated[int, typer.Option(min=1, help="Rounds; in each, every contender has a block.")] = 9,
    isa: Annotated[str | None, typer.Option(metavar="LEVEL", help="Hold tilework to this instruction set.")] = None,
    as_json: Json = False,
) -> None:
    """Weights of 4 bits against ONNX Runtime's MatMulNBits: checked first, then timed in the same rounds."""
    from ...primitives.errors import ArgumentError
    from . import linear, report

    def numbers(text: str, what: str) -> tuple[int, ...]:
        if not all(n.isdigit() for n in text.split(",")):
            raise ArgumentError(f"--{what} {text!r}: positive integers with commas between are needed, like 1,8")
        return tuple(map(int, text.split(",")))

    pairs = [numbers(size.replace("x", ","), "sizes") for size in sizes.split(",")]
    if any(len(pair) != 2 for pair in pairs):
        raise ArgumentError(f"--sizes {sizes!r}: KxN is needed, like 4096x14336")
    result = linear.measure(
        linear.Options(
            tables=linear.TABLES if table == "all" else tuple(table.split(",")),
            rows=numbers(rows, "rows"),
            sizes=tuple((pair[0], pair[1]) for pair in pairs),
            groups=numbers(groups, "groups"),
            weights=tuple(weights.split(",")),
            threads=numbers(threads, "threads"),
            rounds=blocks,
            isa=isa,
        )
    )
    print_json(result) if as_json else report.show_linear(result)


@peers_app.command("real")
def peers_real(
    types: Annotated[str, typer.Option(metavar="NAME,..", help="f32, bf16 or both.")] = "f32,bf16",
    shapes: Annotated[
        list[str] | None, typer.Option("--shape", metavar="MxKxN,..", help="Time these; may be repeated.")
    ] = None,
    threads: Annotated[str, typer.Option(metavar="N,..", help="Numbers of threads, one after another.")] = "1",
    blocks: Annotated[int, typer.Option(min=1, help="Rounds; in each, every contender has a block.")] = 9,
    isa: Annotated[str | None, typer.Option(metavar="LEVEL", help="Hold tilework to this instruction set.")] = None,
    as_json: Json = False,
) -> None:
    """Products of float32 and bfloat16 against NumPy, torch and ONNX Runtime: checked first, then timed in turn."""
    from ..cases import Shape
    from . import real

    options = real.Options(
        types=tuple(types.split(",")),
        shapes=tuple(Shape.parse(text) for given in shapes or () for text in given.split(",")),
        threads=counts(threads),
        rounds=blocks,
        isa=isa,
    )
    result = real.measure(options)
    print_json(result) if as_json else real.show(result)


@peers_app.command("epilogue")
def peers_epilogue(
    depths: Annotated[str, typer.Option(metavar="K,..", help="Depths of the product.")] = "256,1024,3072",
    threads: Annotated[str, typer.Option(metavar="N,..", help="Numbers of threads, one after another.")] = "1",
    blocks: Annotated[int, typer.Option(min=1, help="Rounds; in each, every contender has a block.")] = 25,
    as_json: Json = False,
) -> None:
    """A user's function inside the product, against a plain requantization and against the peers' two steps."""
    from . import epilogue

    result = epilogue.measure(epilogue.Options(depths=counts(depths), threads=counts(threads), rounds=blocks))
    print_json(result) if as_json else epilogue.show(result)


@peers_app.command("conv")
def peers_conv(
    threads: Annotated[str, typer.Option(metavar="N,..", help="Numbers of threads, one after another.")] = "1",
    layout: Annotated[str, typer.Option(metavar="NAME,..", help="Of images: NHWC, NCHW or both.")] = "NHWC,NCHW",
    shapes: Annotated[
        list[str] | None, typer.Option("--shape", metavar="N,C,H,O,k,s,p,g", help="Time this; may be repeated.")
    ] = None,
    blocks: Annotated[int, typer.Option(min=1, help="Rounds; in each, every contender has a block.")] = 25,
    isa: Annotated[str | None, typer.Option(metavar="LEVEL", help="Hold tilework to this instruction set.")] = None,
    peer: Annotated[
        list[str] | None, typer.Option("--peer", metavar="NAME", help="onednn, ort_nchw or ort_nhwc; may be repeated.")
    ] = None,
    patience: Annotated[
        float, typer.Option(metavar="SECONDS", help="Wait so long before each for other programs to be idle.")
    ] = 0.0,
    kind: Annotated[str, typer.Option("--type", help="u8, or f32: with shapes of its own.")] = "u8",
    as_json: Json = False,
) -> None:
    """Convolutions against oneDNN (through torch) and ONNX Runtime, checked first; status 1 if one is wrong."""
    from ...primitives.errors import ArgumentError
    from . import conv, conv_real, conv_report

    if kind not in ("u8", "f32"):
        raise ArgumentError(f"--type {kind!r}: u8 or f32 works")
    part = conv if kind == "u8" else conv_real
    result = part.measure(
        conv.Options(
            threads=counts(threads),
            layouts=tuple(layout.split(",")),
            shapes=tuple(map(conv.Shape.parse, shapes)) if shapes else part.SHAPES,
            rounds=blocks,
            isa=isa,
            only=tuple(peer or ()),
            patience=patience,
        )
    )
    print_json(result) if as_json else conv_report.show(result)
    raise typer.Exit(1 if conv.failed(result) else 0)


@peers_app.command("executor")
def peers_executor(
    parts: Annotated[
        list[str] | None, typer.Argument(metavar="[PART...]", help="small, dispatch, growth, mlp; all by default.")
    ] = None,
    tokens: Annotated[str, typer.Option(metavar="N,..", help="Rows of the MLP block.")] = "1024,16384",
    threads: Annotated[str, typer.Option(metavar="N,..", help="Numbers of threads of the MLP block.")] = "1,2",
    blocks: Annotated[int, typer.Option(min=1, help="Rounds; in each, every contender has a block.")] = 25,
) -> None:
    """Whole pipelines: small networks, dispatch, growth with steps and batch, and an MLP block fused and tiled."""
    from . import executor

    executor.measure(parts or [], blocks, counts(tokens, "tokens"), counts(threads))


@peers_app.command("llm")
def peers_llm(
    classes: Annotated[str, typer.Option("--class", metavar="NAME,..", help="Sizes of a model: 1b, 8b.")] = "1b,8b",
    formats: Annotated[
        str, typer.Option("--format", metavar="TYPE,..", help="GGUF types of the weights.")
    ] = "Q4_0,Q8_0,Q4_K,MXFP4",
    tokens: Annotated[str, typer.Option(metavar="N,..", help="1: decode; more: prefill.")] = "1,256",
    threads: Annotated[str, typer.Option(metavar="N,..", help="Numbers of threads, one after another.")] = "1",
    blocks: Annotated[int, typer.Option(min=1, help="Rounds; in each, every contender has a block.")] = 9,
    as_json: Json = False,
) -> None:
    """A layer of a language model, random weights: decode against memory's bandwidth, prefill against the peak, and both
    against ggml (pip install ggml-python), whose results are compared first."""
    from . import llm

    options = llm.Options(
        tuple(classes.split(",")), tuple(formats.upper().split(",")), counts(threads), counts(tokens), blocks
    )
    result = llm.measure(options)
    print_json(result) if as_json else llm.show(result)


@peers_app.command("models")
def peers_models(
    targets: Annotated[
        list[str], typer.Argument(metavar="FILE|FOLDER...", help="ONNX files, or folders that hold some.")
    ],
    threads: Annotated[str, typer.Option(metavar="N,..", help="Numbers of threads, one after another.")] = "1",
    batch: Annotated[
        str, typer.Option(metavar="N,..", help="Batches, where the first axis of every input is free.")
    ] = "1",
    blocks: Annotated[int, typer.Option(min=1, help="Rounds; in each, every contender has a block.")] = 9,
    every: Annotated[bool, typer.Option("--all", help="Float models too.")] = False,
    first: Annotated[bool, typer.Option("--first", help="Also the time from the imports to a first answer.")] = False,
    as_json: Json = False,
) -> None:
    """Quantized ONNX models against ONNX Runtime's best mode; status 1 if one cannot be run."""
    from . import models

    options = models.Options(counts(threads), counts(batch), blocks, every, first)
    result = models.measure(targets, options)
    print_json(result) if as_json else models.show(result)
    raise typer.Exit(1 if any("wrong" in row for row in result["rows"]) else 0)


@peers_app.command("recurrent")
def peers_recurrent(
    threads: Annotated[str, typer.Option(metavar="N,..", help="Numbers of threads, one after another.")] = "1",
    widths: Annotated[str, typer.Option(metavar="H,..", help="Units of the state, as many as inputs.")] = "128,256,512",
    batch: Annotated[int, typer.Option(min=1, help="Sequences at once.")] = 1,
    blocks: Annotated[int, typer.Option(min=1, help="Rounds; in each, every contender has a block.")] = 9,
    as_json: Json = False,
) -> None:
    """LSTM and GRU layers, float32 and int8, against ONNX Runtime; status 1 if a result is wrong."""
    from . import recurrent

    records = recurrent.measure(counts(threads), counts(widths), batch, blocks)
    print_json(records) if as_json else recurrent.show(records)
    raise typer.Exit(1 if any(r["wrong"] for r in records) else 0)


@peers_app.command("stack")
def peers_stack(
    threads: Annotated[str, typer.Option(metavar="N,..", help="Numbers of threads, one after another.")] = "1",
    layout: Annotated[str, typer.Option(metavar="NAME,..", help="Of images: NHWC, NCHW or both.")] = "NHWC",
    blocks: Annotated[int, typer.Option(min=1, help="Rounds; in each, every contender has a block.")] = 15,
    as_json: Json = False,
) -> None:
    """Two networks of convolutions against ONNX Runtime, end to end, with fusion and stage tiling shown apart."""
    from . import conv_stack

    result = conv_stack.measure(counts(threads), tuple(layout.split(",")), blocks)
    print_json(result) if as_json else conv_stack.show(result)
    raise typer.Exit(1 if any(row["wrong"] for row in result["rows"]) else 0)
