"""What GEMMs are held to, and whether they hold it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit

from ...executors.tiling import TilingExecutor
from ...kernels.cpu import isa
from .. import cases, timing
from ..cases import Case, Shape
from ..machine import load
from . import gemm
from .gemm import Options, Row

Bar = dict[str, Any]

PEAK_SHARE = 0.94
AVX2_SHARE, AVX2_RATIO = 0.85, 1.0
GENERIC_RATIO = 5.0
GENERIC_SHAPE = Shape(127, 511, 513)
BOUND_US, RUN_US = 0.8, 2.5
COLD_SECONDS, WARM_SECONDS = 1.2, 0.15


def bar(name: str, value: float, wanted: float, unit: str = "x", least: bool = True, note: str = "") -> Bar:
    """One bar: a value, and what it should be at least (or at most)."""
    met = value >= wanted if least else value <= wanted
    return {"bar": name, "value": value, "wanted": wanted, "unit": unit, "least": least, "met": met, "note": note}


def from_rows(rows: Sequence[Row]) -> list[Bar]:
    """The bars that the tables' rows decide."""
    bars = []
    groups: dict[tuple[str, str, str, str, int], list[Row]] = {}
    for row in rows:
        if row.ratio is not None:
            groups.setdefault((row.table, row.output, row.call, row.weights, row.threads), []).append(row)
    for (table, output, call, weights, threads), mine in groups.items():
        what = f"{table}, {output}, {call}, {weights}, {threads} thread{'s' * (threads > 1)}"
        judged = [row for row in mine if row.wanted is not None]
        if not judged:
            continue
        under = [f"{row.shape} {row.ratio:.2f}" for row in judged if not row.met]
        bars.append(bar(f"{what}: shapes under their bar", len(under), 0, "", least=False, note=", ".join(under)))
        if call == "bind":
            mean = float(np.exp(np.mean([np.log(row.ratio or np.nan) for row in mine])))
            bars.append(bar(f"{what}: geometric mean", mean, cases.GROUPS[table].mean[output]))
    for row in rows:
        if row.shape in map(str, cases.PEAK) and row.threads == 1 and row.peak_share is not None:
            bars.append(
                bar(f"{row.shape} {row.output}: share of the peak", 100 * row.peak_share, 100 * PEAK_SHARE, "%")
            )
        if row.shape == str(cases.TINY) and row.threads == 1 and row.us is not None:
            limit = BOUND_US if row.call == "bind" else RUN_US
            kernel = f"kernel {row.kernel_us:.3f} us" if row.kernel_us is not None else ""
            name = f"{row.shape} {row.output}: {'a bound call' if row.call == 'bind' else 'plan.run'}"
            bars.append(bar(name, row.us, limit, "us", least=False, note=kernel))
    return bars


# Lower instruction sets ----------------------------------------------------------------------------------------------


def levels(options: Options) -> list[Bar]:
    """avx2 against its own peak and against oneDNN held to AVX2; generic against the loop that anyone would write."""
    present = {level.name for level in isa.available()}
    bars = []
    if "avx2" in present:
        bars += _avx2(options)
    bars.append(_generic(options))
    return bars


def _avx2(options: Options) -> list[Bar]:
    """Two measurements: oneDNN's sums saturate at 16 bits there, so it is right only on weights of 7 bits."""
    bars = []
    for bits in (8, 7):
        apart = gemm.measure_apart(
            Options(
                tables=(),
                shapes=cases.PEAK,
                rounds=options.rounds,
                isa="avx2",
                only=("onednn", "int_mm"),
                patience=options.patience,
                weight_bits=bits,
            ),
            {"ONEDNN_MAX_CPU_ISA": "AVX2"},
        )
        for row in apart["rows"]:
            what, note = f"avx2, {row['shape']} {row['output']}", row["wrong"] or "; ".join(row["left_out"])
            if bits == 8:
                share = 100 * (row["peak_share"] or 0.0)
                bars.append(bar(f"{what}: share of the vpmaddwd peak", share, 100 * AVX2_SHARE, "%", note=note))
            elif row["ratio"] is not None or row["wrong"]:
                name = f"{what}: to {row['best']} held to AVX2, 7-bit weights"
                bars.append(bar(name, row["ratio"] or 0.0, AVX2_RATIO, note=note))
    return bars


@njit
def triple_loop(a, b, c):
    """The GEMM that anyone would write first."""
    for m in range(a.shape[0]):
        for n in range(b.shape[1]):
            total = np.int32(0)
            for k in range(a.shape[1]):
                total += np.int32(a[m, k]) * np.int32(b[k, n])
            c[m, n] = total


def _generic(options: Options) -> Bar:
    case = Case.make(GENERIC_SHAPE)
    ours = gemm.Ours.make(case, "s32", TilingExecutor(threads=1, isa="generic"))
    c = case.empty("s32")
    wrong = ours.check()
    load.wait_for_quiet(options.patience)
    contenders = {"tilework": ours.bind, "loop": lambda: triple_loop(case.a, case.b, c)}
    ratio = timing.paired(contenders, max(3, options.rounds // 3)).ratio("tilework", "loop")
    return bar(f"generic, {GENERIC_SHAPE} s32: to a plain triple loop", ratio.median, GENERIC_RATIO, note=wrong)


# First use -----------------------------------------------------------------------------------------------------------

_FIRST_USE = """
import json, sys, time
begun = time.perf_counter()
import numba
from numba.core.registry import cpu_target
cpu_target.target_context.refresh()
started = time.perf_counter()
from tilework.bench.cases import Case, Shape
from tilework import TilingExecutor
from tilework.kernels.forge import Counts
imported = time.perf_counter()
case = Case.make(Shape.parse(sys.argv[1]))
pipe, made = case.pipeline(sys.argv[2]), time.perf_counter()
plan = TilingExecutor(threads=1).compile(pipe)
y = plan.run({"a": case.a})["y"]
done = time.perf_counter()
assert (y == case.reference(sys.argv[2])).all()
print(json.dumps({
    "numba": started - begun, "imports": imported - started, "use": done - made,
    "compiled": Counts.compiled, "loaded": Counts.loaded,
}))
"""


def first_use(repeats: int = 3) -> list[Bar]:
    """In fresh processes: nothing in the cache, another specialisation in the cache, and the same one in the cache."""
    found: dict[str, list[dict[str, float]]] = {}
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            for how, shape, output in (
                ("empty cache", "64x64x64", "s32"),
                ("new specialisation", "64x64x64", "u8"),
                ("warm cache", "64x64x64", "u8"),
            ):
                found.setdefault(how, []).append(_use(folder, shape, output))
    best = {how: min(runs, key=lambda r: r["use"]) for how, runs in found.items()}
    bars = []
    for how, run in best.items():
        note = f"{run['compiled']} compiled, {run['loaded']} loaded, imports {run['imports']:.2f} s, Numba {run['numba']:.2f} s"
        if how == "warm cache":
            seconds = run["imports"] + run["use"]
            bars.append(bar(f"first use, {how}, imports included", seconds, WARM_SECONDS, "s", False, note))
            compiled = max(r["compiled"] for r in found[how])
            bars.append(bar(f"first use, {how}: compilations", compiled, 0, "", False))
        else:
            bars.append(bar(f"first use, {how}", run["use"], COLD_SECONDS, "s", False, note))
    return bars


def _use(folder: str, shape: str, output: str) -> dict[str, float]:
    environment = {**os.environ, "TILEWORK_CACHE_DIR": str(Path(folder) / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", _FIRST_USE, shape, output], env=environment, capture_output=True, text=True, check=True
    )
    return dict(json.loads(done.stdout))
