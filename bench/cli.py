"""The command line. Bodies import what they need when they run, so `tilework --help` loads no Numba."""

from __future__ import annotations

import json
import os
import sys
from typing import Annotated, Any

import typer

from .. import __version__
from .format_cli import bench_accuracy, bench_formats
from .llm.cli import generate, perplexity
from .quantize_cli import quantize
from .scheme_cli import scheme_app
from .tiles.cli import add_to

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
    scheme: Annotated[
        list[str] | None,
        typer.Option("--scheme", metavar="NAME", help="Add a shipped scheme, say nf4 or mxfp4; may be repeated."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Run a small network, quantized in several ways, on handwritten digits, and compare the results.

    Exits with status 1 if any executor gives other bytes than the first.
    """
    for blas in ("OPENBLAS", "MKL"):  # the float network, like every other, on one thread
        os.environ.setdefault(f"{blas}_NUM_THREADS", "1")
    from . import demo

    if image is not None:
        result = demo.classify_image(image)
        print_json(result) if as_json else demo.show_image(result)
        return
    result = demo.compare(scheme or ())
    print_json(result) if as_json else demo.show_table(result)
    raise typer.Exit(0 if result["same_bytes"] else 1)


Target = Annotated[str, typer.Argument(metavar="TARGET", help="A saved pipeline, a model.onnx, or file.py:name.")]
Executor = Annotated[str, typer.Option(metavar="NAME", help="reference, single, tiled, or an installed one.")]
Sizes = Annotated[
    list[str] | None, typer.Option("--size", metavar="NAME=N", help="Give a size that is known only at run time.")
]


@app.command()
def explain(
    target: Target,
    executor: Executor = "tiled",
    sizes: Sizes = None,
    mermaid: Annotated[bool, typer.Option("--mermaid", help="Print the graph as Mermaid text.")] = False,
    svg: Annotated[bool, typer.Option("--svg", help="Print the graph as an SVG picture.")] = False,
    lowered: Annotated[
        bool, typer.Option("--lowered", help="With --mermaid or --svg: the graph that runs, after fusion.")
    ] = False,
    device: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Show the CUDA graph instead: cuda:0 and so on, or interpreter, without a GPU."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show a pipeline: what comes in, its steps in order, its edges, and what runs each step."""
    from .. import CudaExecutor
    from . import targets

    pipe = targets.load(target)
    runs = None if device is None else CudaExecutor(device)
    if mermaid or svg:
        graph: Any = targets.lowered(pipe) if lowered else pipe
        if runs is not None:
            graph = targets.planned(pipe, runs, sizes or (), always=True)
        print(graph.mermaid() if mermaid else graph.svg())
    elif as_json:
        print_json(targets.describe(pipe))
    else:
        print(targets.explain(pipe, runs or targets.find_executor(executor)(), sizes or ()))


@app.command()
def run(
    target: Target,
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            metavar="NAME=FILE.npy",
            help="Give an input, a number, or a FILE.npz of several; others are random.",
        ),
    ] = None,
    sizes: Sizes = None,
    executor: Executor = "tiled",
    seed: Annotated[int, typer.Option(min=0, help="Of the random inputs.")] = 0,
    save: Annotated[
        str | None, typer.Option("--save", metavar="FOLDER", help="Write each output there as NAME.npy.")
    ] = None,
    profile: Annotated[
        bool, typer.Option("--profile", help="Add what the run and each kernel cost, against measured peaks.")
    ] = False,
    trace: Annotated[
        str | None, typer.Option("--trace", metavar="FILE", help="Profile, and write one run as a Chrome trace.")
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads of the tiled executor.")] = None,
    repeat: Annotated[
        int, typer.Option(min=1, metavar="N", help="Run so often more, and say how long a run takes.")
    ] = 1,
    as_json: Json = False,
) -> None:
    """Run a pipeline or an ONNX model and say what came out."""
    from . import targets

    result = targets.run(target, inputs or (), sizes or (), executor, seed, save, profile, trace, threads, repeat)
    print_json(result) if as_json else targets.show(result)


@app.command()
def compare(
    parent: Annotated[str, typer.Argument(metavar="A.onnx", help="The model to compare with, say in float.")],
    child: Annotated[str, typer.Argument(metavar="B.onnx", help="The model to judge, say quantized.")],
    data: Annotated[
        list[str] | None,
        typer.Option("--data", metavar="NAME=FILE.npy", help="Inputs, as for run; others are random."),
    ] = None,
    sizes: Sizes = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the random inputs.")] = 0,
    plot: Annotated[str | None, typer.Option(metavar="FILE", help="Draw the table as a picture too.")] = None,
    as_json: Json = False,
) -> None:
    """Compare two ONNX models tensor by tensor: the signal to noise ratio of each, worst first."""
    from . import layers

    result = layers.compare(parent, child, data or (), sizes or (), seed)
    if plot is not None:
        layers.draw(result, plot)
    print_json(result) if as_json else layers.show(result)


cache_app = typer.Typer(name="cache", help="The kernel cache: where compiled kernels are kept.", no_args_is_help=True)
app.add_typer(cache_app)


@cache_app.command("info")
def cache_info(as_json: Json = False) -> None:
    """Say where the cache is, how many kernels it holds, and whether it can be written."""
    from . import warm

    warm.show_cache(as_json)


@cache_app.command("clear")
def cache_clear(as_json: Json = False) -> None:
    """Remove every compiled kernel; they are compiled again when they are needed."""
    from . import warm

    warm.clear_cache(as_json)


@cache_app.command("bundle")
def cache_bundle(
    file: Annotated[str, typer.Argument(metavar="FILE", help="The bundle to write, or with --load to read.")],
    load: Annotated[
        bool, typer.Option("--load", help="Put a bundle's kernels into this cache. They are run as they are: trust it.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Write all compiled kernels to one file, or load such a file: a container that has it compiles nothing."""
    from . import warm

    warm.bundle_cache(file, load, as_json)


@app.command("warm")
def warm_up(
    targets: Annotated[
        list[str] | None,
        typer.Argument(metavar="TARGET...", help="Pipelines whose kernels to compile; none: the usual int8 kernels."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Compile kernels into the cache now, so that later processes start without compiling."""
    from . import warm

    warm.warm(targets or [], as_json)


@app.command()
def doctor(
    as_json: Json = False,
    selftest: Annotated[
        bool, typer.Option("--selftest", help="Compare random steps on every executor with the reference instead.")
    ] = False,
    minutes: Annotated[float, typer.Option(min=0, help="How long the self-test takes.")] = 2,
    seed: Annotated[int, typer.Option(help="Of the self-test: another one tries other configurations.")] = 0,
) -> None:
    """Say what this machine has: versions, CPU, caches, threads, extras, load. Or prove that results are right here:
    --selftest exits with status 1 where one byte differs, and prints a script that makes the case again."""
    if selftest:
        from .prove import table
        from .prove.__main__ import tried

        proof = tried(sys.maxsize, seed, minutes * 60)
        print_json(table.as_json(proof)) if as_json else table.show(proof)
        raise typer.Exit(1 if proof.failures else 0)
    from . import doctor

    facts = doctor.examine()
    print_json(facts) if as_json else doctor.show(facts)


app.command()(generate)
app.command()(quantize)
app.add_typer(scheme_app, name="scheme")

bench_app = typer.Typer(help="Time things, on the machine at hand.", no_args_is_help=True)
peers_app = typer.Typer(help="Against other libraries, on the same bytes.", no_args_is_help=True)
app.add_typer(bench_app, name="bench")
bench_app.add_typer(peers_app, name="peers")
add_to(bench_app)


@bench_app.command("scaling")
def bench_scaling(
    workers: Annotated[str, typer.Option(metavar="N,..", help="Numbers of local workers beside one.")] = "2",
    blocks: Annotated[int, typer.Option(min=1, help="Of the job.")] = 60,
    rows: Annotated[int, typer.Option(min=1, help="Of a block.")] = 32768,
    rounds: Annotated[int, typer.Option(min=1, help="In each, every number of workers does the job once.")] = 2,
    as_json: Json = False,
) -> None:
    """A batch job on local Dask workers (extra `dask`): the same bytes, and how near two workers come to twice one."""
    from . import scaling

    result = scaling.measure(_counts(workers), blocks, rows, rounds)
    print_json(result) if as_json else scaling.show(result)


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
    from .peers import steps

    raise typer.Exit(0 if steps.run(threads, size, step or [], blocks, as_json) else 1)


def _counts(threads: str) -> tuple[int, ...]:
    """The numbers of --threads."""
    from ..primitives.errors import ArgumentError

    if not all(n.isdigit() for n in threads.split(",")):
        raise ArgumentError(f"--threads {threads!r}: positive integers with commas between are needed, like 1,2")
    return tuple(map(int, threads.split(",")))


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
    from .cases import Shape
    from .peers import gemm, report

    result = gemm.measure(
        gemm.Options(
            threads=_counts(threads),
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


bench_app.command("accuracy")(bench_accuracy)
bench_app.command("formats")(bench_formats)
bench_app.command("perplexity")(perplexity)


@bench_app.command("schemes")
def bench_schemes(
    names: Annotated[list[str] | None, typer.Argument(metavar="SCHEME...", help="Shipped schemes; none: ten.")] = None,
    threads: Annotated[str, typer.Option(metavar="N,..", help="Numbers of threads, one after another.")] = "1",
    blocks: Annotated[int, typer.Option(min=1, help="Rounds; in each, every contender has a block.")] = 9,
    as_json: Json = False,
) -> None:
    """Encode and decode against moving the bytes, and how long an edited scheme takes to its figures."""
    from . import scheme_bars

    result = scheme_bars.measure(names or (), tuple(map(int, threads.split(","))), blocks)
    print_json(result) if as_json else scheme_bars.show(result)


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
    from ..primitives.errors import ArgumentError
    from .peers import linear, report

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
    from .cases import Shape
    from .peers import real

    options = real.Options(
        types=tuple(types.split(",")),
        shapes=tuple(Shape.parse(text) for given in shapes or () for text in given.split(",")),
        threads=_counts(threads),
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
    from .peers import epilogue

    result = epilogue.measure(epilogue.Options(depths=_counts(depths), threads=_counts(threads), rounds=blocks))
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
    from ..primitives.errors import ArgumentError
    from .peers import conv, conv_real, conv_report

    if kind not in ("u8", "f32"):
        raise ArgumentError(f"--type {kind!r}: u8 or f32 works")
    part = conv if kind == "u8" else conv_real
    result = part.measure(
        conv.Options(
            threads=_counts(threads),
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
    from ..primitives.errors import ArgumentError
    from .peers import executor

    counts = [text.split(",") for text in (tokens, threads)]
    if not all(n.isdigit() and int(n) for numbers in counts for n in numbers):
        raise ArgumentError(
            f"--tokens {tokens!r} --threads {threads!r}: positive integers with commas are needed, like 1,2"
        )
    executor.measure(parts or [], blocks, *(tuple(map(int, numbers)) for numbers in counts))


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
    from .peers import llm

    options = llm.Options(
        tuple(classes.split(",")), tuple(formats.upper().split(",")), _counts(threads), _counts(tokens), blocks
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
    from .peers import models

    options = models.Options(_counts(threads), _counts(batch), blocks, every, first)
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
    from .peers import recurrent

    records = recurrent.measure(_counts(threads), _counts(widths), batch, blocks)
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
    from ..primitives.errors import ArgumentError
    from .peers import conv_stack

    counts = threads.split(",")
    if not all(n.isdigit() for n in counts):
        raise ArgumentError(f"--threads {threads!r}: positive integers with commas between are needed, like 1,2")
    result = conv_stack.measure(tuple(map(int, counts)), tuple(layout.split(",")), blocks)
    print_json(result) if as_json else conv_stack.show(result)
    raise typer.Exit(1 if any(row["wrong"] for row in result["rows"]) else 0)


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
