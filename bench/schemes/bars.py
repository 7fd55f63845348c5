"""`tilework bench schemes`: encode and decode of a matrix against moving its bytes, and what an edit costs.

The measure is a compiled copy of the same matrix by the same executor: its bytes over its time are the bandwidth. An
encode reads float32 and writes codes and parameters, a decode the other way round.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import tilework as tw

from .. import timing
from ..costs import fresh

N = K = 4096
SCHEMES = (
    "int8_channel",
    "int8_channel_asym",
    "int4_g32",
    "int4_g128",
    "int4_g128_asym",
    "int3_g64",
    "int2_g64",
    "ternary",
    "nf4",
    "mxfp4",
)

_SCRIPT = """\
import sys
import time
import numpy as np
import tilework as tw
sys.dont_write_bytecode = True  # byte code of a file edited twice in a second is not told apart
import {module} as scheme_of_the_bench
sys.dont_write_bytecode = False
w = np.random.default_rng(0).standard_normal((1024, 1024)).astype(np.float32)
tw.eager.relu(w[:2])  # Numba itself starts here
from tilework.kernels import forge
before, start = forge.Counts.compiled, time.perf_counter()
scheme_of_the_bench.scheme.report(w, timings=False)
print(time.perf_counter() - start, forge.Counts.compiled - before)
"""
_SCHEME = """\
import numpy as np
from tilework import Scheme


def fit(x):
    m = np.float32(0)
    for v in x:
        m = max(m, abs(v))
    return (m / {top} if m > 0.0 else np.float32(1),)


def encode(x, scale):
    return min(max(np.rint(x / scale), -{top}), {top})


def decode(q, scale):
    return q * scale


scheme = Scheme("edited", 4, 32, {{"scale": "f32"}}, fit, encode, decode, signed=True)
"""


def copied(x: Any) -> Any:
    """What the copy does to each number: nothing."""
    return x


def rates(names: Sequence[str] = SCHEMES, threads: int = 1, rounds: int = 9) -> list[dict[str, Any]]:
    """Time quantize and dequantize of a 4096 x 4096 matrix. Ratios are to the time that the bytes take in a copy."""
    executor = tw.TilingExecutor(threads=threads)
    w = (np.random.default_rng(0).standard_normal((N, K)) * 0.02).astype(np.float32)
    pipe = tw.Pipeline("copy")
    x = pipe.input("x", "f32", ("N", "K"))
    pipe.output("y", tw.ops.map(copied, x, dtype="f32"))
    out = np.empty_like(w)
    copy = executor.compile(pipe).bind({"x": w}, {"y": out})
    rows = []
    for name in names:
        scheme = tw.schemes.get(name)
        q = scheme.quantize(w, executor=executor)
        calls: dict[str, Callable[[], object]] = {
            "copy": copy,
            "encode": partial(scheme.quantize, w, executor=executor),
            "decode": partial(q.dequantize, out),
        }
        times = timing.paired(calls, rounds=rounds, block=0.02)
        bandwidth = 2 * w.nbytes / times.median("copy")
        least = (w.nbytes + q.nbytes) / bandwidth
        row = {"scheme": name, "threads": threads, "bandwidth_gb_s": bandwidth / 1e9, "least_ms": 1e3 * least}
        for what in ("encode", "decode"):
            row[f"{what}_ms"] = 1e3 * times.median(what)
            row[f"{what}_ratio"] = times.median(what) / least
        rows.append(row)
    return rows


def edits() -> dict[str, Any]:
    """Seconds until the figures of a scheme are there: never seen, edited, and unchanged in a new process."""
    with tempfile.TemporaryDirectory() as folder:
        found = {}
        unseen = time.time_ns() % 1_000_000 / 1e9  # so that no earlier run of this has compiled it
        for what, top in (("first", 7.0 + unseen), ("edited", 6.5 + unseen), ("unchanged", 6.5 + unseen)):
            Path(folder, "bench_scheme.py").write_text(_SCHEME.format(top=top), encoding="utf-8")
            script = Path(folder, "run.py")
            script.write_text(_SCRIPT.format(module="bench_scheme"), encoding="utf-8")
            seconds, compiled = fresh.python([str(script)], folder).split()[-2:]
            found[what] = {"seconds": float(seconds), "compiled": int(compiled)}
    return found


def measure(names: Sequence[str], threads: Sequence[int], rounds: int) -> dict[str, Any]:
    """Everything, ready for JSON."""
    return {"rates": [row for n in threads for row in rates(names or SCHEMES, n, rounds)], "edits": edits()}


def show(result: dict[str, Any]) -> None:
    """Print what `measure` found."""
    print(f"{N} x {K} float32: milliseconds, and times what the bytes take in a copy by the same threads")
    print(f"{'scheme':20} {'threads':>7} {'GB/s':>6} {'encode':>16} {'decode':>16}")
    for row in result["rates"]:
        encode, decode = (f"{row[f'{w}_ms']:7.2f} {row[f'{w}_ratio']:6.2f} x" for w in ("encode", "decode"))
        print(f"{row['scheme']:20} {row['threads']:7} {row['bandwidth_gb_s']:6.1f} {encode:>16} {decode:>16}")
    for what, found in result["edits"].items():
        print(f"report of a scheme, {what}: {found['seconds']:.3f} s, {found['compiled']} compiled")
