"""`tilework warm` and `tilework cache`: compiled kernels, before they are needed and after."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track

from .. import ops
from ..executors import SingleThreadExecutor, TilingExecutor
from ..executors import inputs as doors
from ..executors.kept import files
from ..kernels import bundle, cache, forge
from ..primitives import sizes
from ..primitives.errors import Unsupported
from ..primitives.pipeline import Pipeline

# Widths that between them need every number of vectors in the last panel, for 16 and 8 lanes.
_WIDTHS = (8, 16, 24, 32, 48, 64, 72, 80, 96, 112)


def _say(facts: dict[str, Any], text: str, as_json: bool) -> None:
    print(json.dumps(facts, indent=2)) if as_json else Console().print(text, highlight=False)


def show_cache(as_json: bool) -> None:
    """Print where the cache is and what it holds."""
    facts = bundle.info()
    plans = [stat.st_size for path, stat in files.entries() if path.suffix == ".run"]
    facts |= {"plans": len(plans), "plans_bytes": sum(plans)}
    state = "writable" if facts["writable"] else "not writable: kernels are compiled in each process"
    held = f"{facts['entries']} kernels, {facts['bytes'] / 2**20:.1f} MiB; {len(plans)} plans of models, "
    _say(facts, f"{facts['folder']}\n{held}{sum(plans) / 2**20:.1f} MiB; {state}", as_json)


def clear_cache(as_json: bool) -> None:
    """Remove every entry of the cache, and every plan."""
    removed, plans = cache.clear(), files.clear()
    text = f"removed {removed} kernels and {plans} files of plans from {cache.folder()}"
    _say({"removed": removed, "plans_removed": plans}, text, as_json)


def bundle_cache(file: str, load: bool, as_json: bool) -> None:
    """Write the cache to a file, or a file to the cache."""
    count = bundle.load(file) if load else bundle.write(file)
    _say({"kernels": count, "file": file}, f"{count} kernels {'loaded from' if load else 'written to'} {file}", as_json)


def warm(targets: list[str], as_json: bool) -> None:
    """Compile the kernels of pipelines, or the usual int8 GEMMs, into the cache."""
    start = time.perf_counter()
    work: list[tuple[str, Callable[[], Any]]] = []
    if targets:
        for name in targets:
            work.append((name, partial(_compile_target, name)))
    else:
        for a in ("u8", "s8"):
            for out in ("s32", "u8", "s8"):
                for n in _WIDTHS:
                    work.append((f"gemm {a} x s8 to {out}, {n} columns", partial(_gemm, a, out, n)))
    for _, compile_one in track(
        work, "compiling", console=Console(stderr=True), disable=as_json or not Console().is_terminal
    ):
        compile_one()
    facts = {
        "compiled": forge.Counts.compiled,
        "from_cache": forge.Counts.loaded,
        "seconds": round(time.perf_counter() - start, 2),
        "folder": str(cache.folder()),
    }
    text = f"{facts['compiled']} kernels compiled, {facts['from_cache']} were there, {facts['seconds']} s: {facts['folder']}"
    _say(facts, text, as_json)


def _compile_target(target: str) -> None:
    from . import targets as loading

    _compile(loading.load(target))


def _compile(pipe: Pipeline) -> None:
    """Make plans for a pipeline and run them once, with ones for data and 32 for every run-time size."""
    wanted = doors.wanted(pipe)
    env = {name: 32 for value in wanted.values() for x in value.shape for name in sizes.names(x)}
    inputs = {}
    for name, value in wanted.items():
        if value.dtype is None:
            raise Unsupported(f"argument {name!r} is a function; warm the pipeline from Python by running it once")
        shape = doors.stored_shape(value.dtype, sizes.evaluate_shape(value.shape, env, name))
        inputs[name] = np.ones(shape, value.dtype.numpy)
    for executor in (SingleThreadExecutor(), TilingExecutor()):
        executor.run(pipe, inputs)


def _gemm(a: str, out: str, n: int) -> None:
    pipe = Pipeline("warm")
    x = pipe.input("x", a, ("M", 64))
    y = ops.gemm(x, np.ones((64, n), np.int8), a_zero_point=3)
    if out != "s32":
        y = ops.requantize(y, multiplier=np.full(n, 0.01, np.float32), zero_point=0, dtype=out)
    pipe.output("y", y)
    TilingExecutor(2).run(pipe, {"x": np.zeros((8, 64), np.uint8 if a == "u8" else np.int8)})
