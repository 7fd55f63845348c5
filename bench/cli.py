"""The command line. Bodies import what they need when they run, so `tilework --help` loads no Numba."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

import typer

from .. import __version__
from .formats.cli import bench_accuracy, bench_formats
from .llm.cli import generate, perplexity
from .options import Json, counts, print_json
from .peers.cli import peers_app
from .quantize_cli import quantize
from .schemes.cli import scheme_app
from .tiles.cli import add_to

app = typer.Typer(
    name="tilework",
    help="Quantized pipelines on Numba: one definition, the same bits everywhere, at hardware speed.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


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

Trust = Annotated[bool, typer.Option("--trust", help="Run the functions that a saved pipeline holds as text.")]


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
    trust: Trust = False,
    as_json: Json = False,
) -> None:
    """Show a pipeline: what comes in, its steps in order, its edges, and what runs each step."""
    from .. import CudaExecutor
    from . import targets

    pipe = targets.load(target, trust)
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
            metavar="[NAME=]FILE.npy",
            help="Give an input, or NAME=NUMBER, or a FILE.npz of several; others are random.",
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
    trust: Trust = False,
    as_json: Json = False,
) -> None:
    """Run a pipeline or an ONNX model and say what came out."""
    from . import targets

    result = targets.run(
        target, inputs or (), sizes or (), executor, seed, save, profile, trace, threads, repeat, trust
    )
    print_json(result) if as_json else targets.show(result)


@app.command()
def compare(
    parent: Annotated[str, typer.Argument(metavar="A.onnx", help="The model to compare with, say in float.")],
    child: Annotated[
        str | None,
        typer.Argument(metavar="[B.onnx]", help="The model to judge, say quantized; left out: A as it runs here."),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option("--data", metavar="NAME=FILE.npy", help="Inputs, as for run; others are random."),
    ] = None,
    sizes: Sizes = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the random inputs.")] = 0,
    plot: Annotated[str | None, typer.Option(metavar="FILE", help="Draw the table as a picture too.")] = None,
    against: Annotated[
        str, typer.Option(metavar="NAME", help="Without B: reference, or onnxruntime without optimizations.")
    ] = "reference",
    as_json: Json = False,
) -> None:
    """Compare two ONNX models, or one with its reference, tensor by tensor: signal to noise ratios, the worst first."""
    from . import layers

    result = layers.compare(parent, child, data or (), sizes or (), seed, against)
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
    from .machine import doctor

    facts = doctor.examine()
    print_json(facts) if as_json else doctor.show(facts)


app.command()(generate)
app.command()(quantize)
app.add_typer(scheme_app, name="scheme")

bench_app = typer.Typer(help="Time things, on the machine at hand.", no_args_is_help=True)
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
    from .costs import scaling

    result = scaling.measure(counts(workers), blocks, rows, rounds)
    print_json(result) if as_json else scaling.show(result)


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
    from .schemes import bars as scheme_bars

    result = scheme_bars.measure(names or (), tuple(map(int, threads.split(","))), blocks)
    print_json(result) if as_json else scheme_bars.show(result)


def main(args: list[str] | None = None) -> None:
    """Entry point of the console script. An error of the library, or of files, is one line on stderr and exit status 2."""
    try:
        app(args, prog_name="tilework")
    except Exception as error:
        from ..primitives.errors import TileworkError

        if not isinstance(error, (TileworkError, OSError, MemoryError)):
            raise
        what = "not enough memory: " if isinstance(error, MemoryError) else ""
        print(f"error: {what}{error}", file=sys.stderr)
        sys.exit(2)
