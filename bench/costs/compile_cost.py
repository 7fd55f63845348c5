"""What compiling costs when there is much of it: `python -m tilework.bench.costs.compile_cost`.

Many different epilogues (user functions between dequantize and quantize behind a product of u8 x s8), each with several
register tiles, are compiled into an empty cache, then loaded from it by a new process. Printed: seconds a specialisation
for each tenth of them, which should stay level; what the cache holds; what loading takes.

    python -m tilework.bench.costs.compile_cost --epilogues 100
    python -m tilework.bench.costs.compile_cost --tests tests/kernels/test_map_compiled.py tests/executors/test_user_epilogue.py

    python -m tilework.bench.costs.compile_cost --edit

With --tests it counts instead how many different entries the named tests compile, in an empty cache. With --edit it times
a script with a user's function behind a product: edited and run again in the same session, edited and run by a new
process, and run unchanged by a new process; beside the start of Numba, which is importing it and loading what it compiles
with. A process that finds everything compiled does without the latter.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track

import tilework as tw

from ...kernels import bundle, forge
from ...kernels.cpu import isa
from . import fresh

K, N = 256, 128
HEAD = "import numpy as np\nfrom tilework.kernels.vectormath import gelu_tanh, sigmoid, silu\n"
FORMS = (  # lines of an epilogue; x comes in, y goes from line to line
    "y = y * {a} + {b}",
    "y = y * sigmoid({a} * y)",
    "y = y if y > {b} else y * {a}",
    "y = np.tanh(y * {a}) + x * {b}",
    "y = min(max(y, {b} - 2.0), {a} + 2.0)",
    "y = gelu_tanh(y - {b})",
    "y = np.exp(-abs(y)) * {a} + y",
    "y = np.sqrt(abs(y) + {a}) - {b}",
    "y = silu(y) / ({a} + abs(x))",
    "y = np.rint(y * {a}) * {b}",
)


def write_epilogues(path: Path, count: int) -> None:
    """A module of `count` functions f0, f1, ..: one to four lines each, no two alike."""
    rng = random.Random(0)
    parts = [HEAD]
    for n in range(count):
        lines = [
            line.format(a=round(rng.uniform(0.1, 2.0), 3), b=round(rng.uniform(-1.0, 1.0), 3))
            for line in rng.choices(FORMS, k=1 + n % 4)
        ]
        parts.append("\n    ".join([f"def f{n}(x):", "y = x", *lines, "return y"]))
    path.write_text("\n\n\n".join(parts) + "\n", encoding="utf-8")


def load_epilogues(path: Path, count: int) -> list[Callable[..., Any]]:
    spec = importlib.util.spec_from_file_location("epilogues", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["epilogues"] = module
    spec.loader.exec_module(module)
    return [getattr(module, f"f{n}") for n in range(count)]


def tiles() -> list[dict[str, int]]:
    """Register tiles: the usual one, and two others."""
    lanes = isa.select().lanes
    return [{}, {"mr": 4, "nr": 2 * lanes}, {"mr": 3, "nr": lanes}]


def run_all(path: Path, count: int, show: bool) -> list[dict[str, float]]:
    """Plan and run every epilogue with every tile once: seconds, and entries compiled and loaded, of each."""
    rng = np.random.default_rng(0)
    b = rng.integers(-128, 128, (K, N)).astype(np.int8)
    scale = rng.uniform(1e-4, 1e-3, N).astype(np.float32)
    x = rng.integers(0, 256, (13, K)).astype(np.uint8)
    work = [(fn, tile) for fn in load_epilogues(path, count) for tile in tiles()]
    console = Console(stderr=True)
    found = []
    for fn, tile in track(
        work, "compiling", console=console, transient=True, disable=not (show and console.is_terminal)
    ):
        start, before = time.perf_counter(), (forge.Counts.compiled, forge.Counts.loaded)
        pipe = tw.Pipeline("epilogue")
        acc = tw.ops.gemm(pipe.input("x", "u8", ("M", K)), b, a_zero_point=3)
        real = tw.ops.map(fn, tw.ops.dequantize(acc, scale=scale))
        pipe.output("y", tw.ops.quantize(real, np.float32(0.05), zero_point=9, dtype="u8"))
        given = {pipe.steps[0].name: tile} if tile else None
        tw.TilingExecutor(1, tile=given).run(pipe, {"x": x})
        found.append(
            {
                "seconds": time.perf_counter() - start,
                "compiled": forge.Counts.compiled - before[0],
                "loaded": forge.Counts.loaded - before[1],
            }
        )
    return found


def measure(count: int) -> int:
    """Compile all in an empty cache, load all in a new process, and print both."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TILEWORK_CACHE_DIR"] = str(Path(folder, "cache"))
        path = Path(folder, "epilogues.py")
        write_epilogues(path, count)
        found = run_all(path, count, show=True)
        import resource

        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        size = bundle.info()
        command = [
            sys.executable,
            "-m",
            "tilework.bench.costs.compile_cost",
            "--load",
            str(path),
            "--epilogues",
            str(count),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        again = json.loads(done.stdout)
    print(f"{len(found)} specialisations: {count} epilogues x {len(tiles())} tiles\n")
    print("  tenth  s each  entries compiled")
    tenths = [part for part in np.array_split(np.arange(len(found)), 10) if part.size]
    means = []
    for n, part in enumerate(tenths):
        rows = [found[i] for i in part]
        means.append(float(np.mean([row["seconds"] for row in rows])))
        print(f"  {n + 1:5}  {means[-1]:6.3f}  {sum(row['compiled'] for row in rows):16.0f}")
    later = np.mean(means[len(means) // 2 :]) / np.mean(means[1 : len(means) // 2] or means)
    loading = float(np.median([row["seconds"] for row in again]))
    print(
        f"\nsecond half against the first, without its first tenth: {later:.2f} x\n"
        f"cache: {size['entries']} entries, {size['bytes'] / 2**20:.1f} MiB, "
        f"{size['bytes'] / size['entries'] / 1024:.0f} KiB each; memory of the process {memory:.0f} MiB\n"
        f"new process: {sum(row['compiled'] for row in again):.0f} compiled, {sum(row['loaded'] for row in again):.0f} "
        f"loaded, {1e3 * loading:.1f} ms a specialisation in the median"
    )
    return 0


def count_tests(tests: list[str]) -> int:
    """Run tests with an empty cache, and print how many entries there are afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TILEWORK_CACHE_DIR"] = folder
        status = subprocess.run([sys.executable, "-m", "pytest", "-q", *tests], check=False).returncode
        print(f"{bundle.info()['entries']} different entries compiled by {', '.join(tests)}")
    return status


_FUNCTION = """import numpy as np
from tilework.kernels.vectormath import sigmoid


def activation(x):
    y = x * sigmoid({a} * x)
    return y if y > -0.25 else y * 0.5 - 0.125
"""
_NUMBA = """
import json, time
started = time.perf_counter()
import numpy as np, numba
from numba.core.registry import cpu_target
cpu_target.target_context.refresh()
print(json.dumps({"seconds": time.perf_counter() - started}))
"""
_SCRIPT = """
import json, sys, time
started = time.perf_counter()
import numpy as np
import tilework as tw
from tilework.kernels.forge import Counts
sys.dont_write_bytecode = True  # byte code of a file edited twice in a second is not told apart
import edited
sys.dont_write_bytecode = False

def run():
    pipe = tw.Pipeline("edited")
    acc = tw.ops.gemm(pipe.input("x", "u8", ("M", 256)), np.ones((256, 128), np.int8))
    real = tw.ops.map(edited.activation, tw.ops.dequantize(acc, scale=np.float32(1e-3)))
    pipe.output("y", tw.ops.quantize(real, np.float32(0.05), zero_point=9, dtype="u8"))
    return tw.TilingExecutor(1).run(pipe, {"x": np.ones((13, 256), np.uint8)})["y"]

run()
found = {"seconds": time.perf_counter() - started, "compiled": Counts.compiled, "loaded": Counts.loaded}
if len(sys.argv) > 1:
    import importlib, pathlib
    file, before = pathlib.Path(edited.__file__), Counts.compiled
    file.write_text(file.read_text().replace(sys.argv[1], sys.argv[2]))
    started = time.perf_counter()
    importlib.reload(edited)
    run()
    found = {"seconds": time.perf_counter() - started, "compiled": Counts.compiled - before, "loaded": 0}
print(json.dumps(found))
"""


def edit(rounds: int = 3) -> int:
    """Time a script whose function is edited; the best of some rounds."""
    best: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "run.py").write_text(_SCRIPT, encoding="utf-8")
        numba = min(json.loads(fresh.python(["-c", _NUMBA]))["seconds"] for _ in range(2 * rounds))
        for turn in range(rounds):
            for what, a, given in (
                ("never seen, in a new process", f"1.{2 * turn + 1:02}", []),
                (
                    "edited, in the same session",
                    f"1.{2 * turn + 1:02}",
                    [f"1.{2 * turn + 1:02}", f"1.{2 * turn + 2:02}"],
                ),
                ("edited, in a new process", f"2.{turn:02}", []),
                ("unchanged, in a new process", f"2.{turn:02}", []),
            ):
                Path(folder, "edited.py").write_text(_FUNCTION.format(a=a), encoding="utf-8")
                script = str(Path(folder, "run.py"))
                found = json.loads(
                    fresh.python([script, *given], folder, TILEWORK_CACHE_DIR=str(Path(folder, "cache")))
                )
                if what not in best or found["seconds"] < best[what]["seconds"]:
                    best[what] = found
    print(f"{'the start of Numba':30} {numba:.3f} s")
    for what, found in best.items():
        beyond = "" if "session" in what else f", {found['seconds'] - numba:+.3f} beyond it"
        print(f"{what:30} {found['seconds']:.3f} s{beyond}, {found['compiled']} compiled, {found['loaded']} loaded")
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Measure, or count what tests compile."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--epilogues", type=int, default=100)
    parser.add_argument("--tests", nargs="+", default=[], help="count what these compile")
    parser.add_argument("--edit", action="store_true", help="time an edit")
    parser.add_argument("--load", help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.tests:
        return count_tests(asked.tests)
    if asked.edit:
        return edit()
    if asked.load:
        print(json.dumps(run_all(Path(asked.load), asked.epilogues, show=False)))
        return 0
    return measure(asked.epilogues)


if __name__ == "__main__":
    sys.exit(main())
