"""What `run` and `explain` are pointed at: a saved pipeline, or `file.py:name`; and the data to run it on."""

from __future__ import annotations

import contextlib
import math
import runpy
import sys
import time
import traceback
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import tilework as tw
from tilework.executors import inputs as doors
from tilework.executors import registry
from tilework.primitives.errors import ArgumentError, FileFormatError, SizeError, TileworkError, Unsupported
from tilework.primitives.pipeline import Value
from tilework.primitives.sizes import evaluate_shape, names, solve

LARGEST = 1 << 35  # bytes of an input that is drawn


def load(target: str, trust: bool = False) -> tw.Pipeline:
    """Return the pipeline that a command-line word names.

    trust    whether functions that a saved pipeline holds are run: their text is code

    target   the path of a saved pipeline or of an ONNX model (.onnx), or `file.py:name`, where name is a Pipeline or
             makes one without arguments

    Raises ArgumentError where the file or the name is missing, FileFormatError where the file is something else.
    """
    path, colon, name = target.rpartition(":")
    if colon and path.endswith(".py"):
        return load_from_script(Path(path), name)
    if not Path(target).is_file():
        raise ArgumentError(f"there is no file {target!r}; name a saved pipeline, or file.py:name")
    if target.endswith(".py"):
        raise ArgumentError(f"which pipeline of {target}? write {target}:name")
    if target.endswith(".onnx"):
        return tw.onnx.load(target)
    try:
        return tw.Pipeline.load(target, functions="run" if trust else "refuse")
    except FileFormatError as error:
        if "functions='run'" in str(error):
            raise FileFormatError(f"{error}; on the command line: --trust") from None
        raise


def load_from_script(path: Path, name: str) -> tw.Pipeline:
    """Run a script, as if imported, and return the pipeline that a name in it holds or makes."""
    if not path.is_file():
        raise ArgumentError(f"there is no file {str(path)!r}")
    sys.path.insert(0, str(path.resolve().parent))
    try:
        with contextlib.redirect_stdout(sys.stderr):  # what the script prints is no part of our output
            scope = said(path, lambda: runpy.run_path(str(path), run_name=path.stem))
            found = scope.get(name)
            if callable(found):
                found = said(path, found)
    finally:
        sys.path.pop(0)
    if not isinstance(found, tw.Pipeline):
        known = ", ".join(key for key, value in scope.items() if isinstance(value, tw.Pipeline)) or "none"
        what = f"is {type(found).__name__}" if name in scope else "does not exist"
        raise ArgumentError(f"{name!r} in {path} {what}; a Pipeline or a function that makes one is needed ({known})")
    return found


def said(path: Path, run: Callable[[], Any]) -> Any:
    """Run a user's code; what it raises becomes one line that says where, unless the library raised it."""
    try:
        return run()
    except TileworkError:
        raise
    except (Exception, SystemExit) as error:
        lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)]
        where = f"{path}, line {lines[-1]}" if lines else str(path)
        if isinstance(error, SyntaxError):
            where = f"{path}, line {error.lineno}"
        raise ArgumentError(f"{where}: {type(error).__name__}: {error}") from error


def lowered(pipe: tw.Pipeline) -> Any:
    """Return the plan of the tiled executor, whose pictures show what runs."""
    return tw.TilingExecutor().compile(pipe)


def pairs(words: Sequence[str], what: str) -> dict[str, str]:
    """Split `name=value` words; raises ArgumentError for one without both."""
    found = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not (name and equals and value):
            raise ArgumentError(f"{what} {word!r} is not name=value")
        found[name] = value
    return found


def number(text: str) -> float | None:
    """Return the number that a text writes, or None."""
    try:
        return float(text)
    except ValueError:
        return None


def read_inputs(words: Sequence[str], names: Sequence[str] = ()) -> dict[str, Any]:
    """Read `name=file.npy`, `name=number`, `file.npy`, `file.npz` and `random` words; an error names the file.

    names   of the inputs that there are: a file without a name is for the only one that no other word gives

    Raises ArgumentError or FileFormatError.
    """
    arrays: dict[str, Any] = {}
    bare = [word for word in words if "=" not in word and word.endswith((".npz", ".npy"))]
    for name, path in pairs([word for word in words if word != "random" and word not in bare], "--input").items():
        value = number(path)
        arrays[name] = _array(path, f"--input {name}") if value is None else value
    for word in bare:
        if word.endswith(".npz"):
            arrays |= read_archive(word)
    for word in bare:
        if word.endswith(".npy"):
            left = [name for name in names if name not in arrays]
            if len(left) != 1:
                which = f"which of the inputs {', '.join(left)}? name={word} works" if left else "every input is given"
                raise ArgumentError(f"--input {word}: {which}")
            arrays[left[0]] = _array(word, f"--input {word}")
    return arrays


def _array(path: str, where: str) -> Any:
    """The array of a .npy file, in this machine's byte order."""
    try:
        found = np.load(path, allow_pickle=False)
    except OSError as error:
        raise ArgumentError(f"{where}: {error}") from error
    except (ValueError, EOFError) as error:
        raise FileFormatError(f"{where}: {path} is no .npy file of plain numbers ({error})") from error
    if not isinstance(found, np.ndarray):
        raise FileFormatError(f"{where}: {path} holds several arrays, by name; --input {path} gives them all")
    return _native(found)


def _native(array: Any) -> Any:
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def read_archive(path: str) -> dict[str, Any]:
    """The arrays of an .npz file by name."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: _native(archive[name]) for name in archive.files}
    except OSError as error:
        raise ArgumentError(f"{path}: {error}") from error
    except (ValueError, EOFError, TypeError, zipfile.BadZipFile) as error:
        raise FileFormatError(f"{path} is no .npz file of plain numbers, as np.savez writes them") from error


def learn_sizes(pipe: tw.Pipeline, arrays: Mapping[str, Any], sizes: Mapping[str, str]) -> dict[str, int]:
    """Return the value of every run-time size, from `--size` and from the shapes of the arrays that were given."""
    env: dict[str, int] = {}
    for name, text in sizes.items():
        if not text.isdecimal():
            raise ArgumentError(f"--size {name}={text} is not a whole number")
        env[name] = int(text)
    wanted = doors.wanted(pipe)
    known = sorted({n for value in pipe.values.values() for size in value.shape for n in names(size)})
    for name in sizes:
        if name not in known:
            raise ArgumentError(f"--size {name}: there is no such size; there is {', '.join(known) or 'none'}")
    for name, array in arrays.items():
        if name not in wanted:
            raise ArgumentError(f"there is no input {name!r}; there is {', '.join(wanted) or 'none'}")
        solve(wanted[name].shape, np.shape(array), env, f"input {name!r}")
    unknown = {n for value in wanted.values() for size in value.shape for n in names(size)} - env.keys()
    if unknown:
        raise SizeError(f"give {' '.join(f'--size {n}=...' for n in sorted(unknown))}, or the inputs that say it")
    return env


def random_array(value: Value, env: Mapping[str, int], rng: np.random.Generator, places: bool = False) -> Any:
    """Return data for an input: integers over the type's whole range, floats from a normal distribution.

    places   integers of 32 and 64 bits are 0 and 1, which are places in any table and lengths of any axis
    """
    if value.dtype is None:
        raise Unsupported(f"argument {value.name!r} is a function, which a command line cannot give; use Python")
    if value.kind == "argument":
        raise ArgumentError(
            f"argument {value.name!r} ({value.dtype}) needs a value: --input {value.name}=NUMBER or =FILE.npy"
        )
    shape = doors.stored_shape(value.dtype, evaluate_shape(value.shape, env, value.name))
    dtype = value.dtype.numpy
    if math.prod(shape) * dtype.itemsize > LARGEST:
        raise SizeError(f"input {value.name!r} of {shape} has {math.prod(shape):.3g} elements: too many to draw")
    if dtype.kind in "iu":
        if places and dtype.itemsize >= 4:
            return rng.integers(0, 2, shape, dtype)
        limits = np.iinfo(dtype)
        return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    return rng.standard_normal(shape).astype(dtype)


def find_executor(name: str) -> Callable[[], Any]:
    """Return what makes an executor of that name; raises ArgumentError for another name."""
    return registry.find(name)


def planned(pipe: tw.Pipeline, executor: Any, sizes: Sequence[str], always: bool = False) -> Any:
    """Return the plan of an executor; with sizes (NAME=N), one that is ready for them. always: without, say what lacks."""
    shapes = None
    if sizes or always:
        env = learn_sizes(pipe, {}, pairs(sizes, "--size"))
        data = {name: value for name, value in doors.wanted(pipe).items() if value.dtype is not None}
        shapes = {name: evaluate_shape(value.shape, env, name) for name, value in data.items()}
    return executor.compile(pipe, shapes)


def explain(pipe: tw.Pipeline, executor: Any, sizes: Sequence[str]) -> str:
    """Return the graph, its edges, and the executor's plan; with sizes, also what it does at them."""
    edges = [f"  edge      {edge}" for edge in pipe.edges]
    return "\n".join([repr(pipe), *edges, "", planned(pipe, executor, sizes).explain()])


def describe(pipe: tw.Pipeline) -> dict[str, Any]:
    """Return the graph as plain data: what comes in, the steps in order, the edges, what goes out."""

    def typed(value: Value) -> dict[str, Any]:
        dtype = "function" if value.dtype is None else value.dtype.name
        shape = [size if isinstance(size, int) else str(size) for size in value.shape]
        return {"name": value.name, "dtype": dtype, "shape": shape, "axes": value.axes}

    return {
        "pipeline": pipe.name,
        "inputs": [typed(v) for v in doors.wanted(pipe).values()],
        "constants": [typed(v) for v in pipe.of_kind("constant").values()],
        "states": [typed(v) for v in pipe.of_kind("state").values()],
        "steps": [
            {
                "name": step.name,
                "kernel": step.kernel.name,
                "reads": {slot: value.name for slot, value in step.inputs.items()},
                "writes": {slot: typed(value) for slot, value in step.outputs.items()},
            }
            for step in pipe.order()
        ],
        "edges": [str(edge) for edge in pipe.edges],
        "outputs": {name: typed(value) for name, value in pipe.outputs.items()},
    }


def summarize(given: Any) -> dict[str, Any]:
    """Return what a line can say of an array; equal crc32 means equal bytes, for all that one can tell."""
    array = np.asarray(given)
    numbers = array.astype(np.float64) if array.size else np.zeros(0)
    finite = numbers[np.isfinite(numbers)]
    return {
        "dtype": str(array.dtype),
        "shape": list(array.shape),
        "min": float(finite.min()) if finite.size else None,
        "max": float(finite.max()) if finite.size else None,
        "mean": float(finite.mean()) if finite.size else None,
        "crc32": f"{zlib.crc32(np.ascontiguousarray(array).tobytes()):08x}",
    }


def run(
    target: str,
    inputs: Sequence[str],
    sizes: Sequence[str],
    executor: str,
    seed: int,
    save: str | None,
    profile: bool,
    trace: str | None = None,
    threads: int | None = None,
    repeat: int = 1,
    trust: bool = False,
) -> dict[str, Any]:
    """Run a pipeline; see `tilework run --help`. Returns what came in and out, ready for JSON."""
    make_executor = find_executor(executor)
    if threads is not None:
        if executor != "tiled":
            raise ArgumentError(f"--threads goes with --executor tiled, not {executor}")
        make_executor = partial(tw.TilingExecutor, threads=threads)
    pipe = load(target, trust)
    arrays: dict[str, Any] = read_inputs(inputs, list(doors.wanted(pipe)))
    env = learn_sizes(pipe, arrays, pairs(sizes, "--size"))
    rng = np.random.default_rng(seed)
    drawn = [name for name in doors.wanted(pipe) if name not in arrays]
    for name in drawn:
        arrays[name] = random_array(doors.wanted(pipe)[name], env, rng, places=target.endswith(".onnx"))
    plan = make_executor().compile(pipe.for_inputs(arrays))
    outputs = plan.run(arrays)
    times = [_timed(plan, arrays) for _ in range(repeat)] if repeat > 1 else []
    if save is not None:
        Path(save).mkdir(parents=True, exist_ok=True)
        for name, array in outputs.items():
            np.save(Path(save) / f"{name}.npy", array)
    measured = plan.profile(arrays) if profile or trace is not None else None
    if measured is not None and trace is not None:
        measured.save_trace(trace)
    return {
        "pipeline": pipe.name,
        "executor": executor,
        "inputs": {name: {**summarize(array), "random": name in drawn} for name, array in arrays.items()},
        "outputs": {name: summarize(array) for name, array in outputs.items()},
        "runs": {"count": repeat, "median_s": float(np.median(times)), "best_s": min(times)} if times else None,
        "profile": None if measured is None else {**measured.to_dict(), "text": str(measured)},
    }


def _timed(plan: Any, arrays: Mapping[str, Any]) -> float:
    start = time.perf_counter()
    plan.run(arrays)
    return time.perf_counter() - start


def show(result: Mapping[str, Any]) -> None:
    """Print the result of `run` for people."""
    from rich.table import Table

    from .terminal import wide_console

    table = Table(title=f"{result['pipeline']} on {result['executor']}", title_style="bold")
    for heading in ("", "name", "type", "shape", "min", "max", "mean", "crc32"):
        table.add_column(heading, justify="right" if heading in ("min", "max", "mean") else "left")
    for kind in ("inputs", "outputs"):
        for name, facts in result[kind].items():
            what = "random" if facts.get("random") else kind.removesuffix("s")
            numbers = ("-" if facts[key] is None else f"{facts[key]:.6g}" for key in ("min", "max", "mean"))
            shape = " x ".join(map(str, facts["shape"])) or "scalar"
            table.add_row(what, name, facts["dtype"], shape, *numbers, facts["crc32"])
        table.add_section()
    console = wide_console()
    console.print(table)
    if result["runs"]:
        runs = result["runs"]
        console.print(
            f"{runs['count']} runs: median {runs['median_s'] * 1e3:.3f} ms, best {runs['best_s'] * 1e3:.3f} ms"
        )
    if result["profile"]:
        console.print(result["profile"]["text"], highlight=False, soft_wrap=True)
