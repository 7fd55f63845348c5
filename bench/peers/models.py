"""Quantized ONNX models against ONNX Runtime in its best mode, on the same inputs: what a user of the file would see.

A file's inputs are those of NAME.io.npz beside it (arrays `INPUT` or `in0:INPUT`), or random. ONNX Runtime has all optimizations
on. Its default treatment of some quantized forms (signed activations) is slower than its float one, so beating that
means little: beside the ratio on the same file stands the one against the fastest form of the network that lies in the
same folder (NAME.onnx, NAME.qdq_u8s8.onnx, ..), float ones included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import tilework as tw

from ...primitives.errors import ArgumentError, TileworkError
from .. import timing
from ..costs import fresh
from ..machine import doctor
from . import missing, versions

Array = np.ndarray[Any, Any]
QUANTIZED = (
    "QuantizeLinear",
    "DequantizeLinear",
    "QLinear",
    "Integer",
    "DynamicQuantize",
    "QGemm",
    "QAttention",
    "NBits",
)
SIZE = 1  # of an axis that only a run knows, where nothing says more


@dataclass(frozen=True)
class Options:
    """threads, batches: one after another. rounds: of paired blocks. every: float models too. first: time to a first
    answer, each in a process of its own."""

    threads: tuple[int, ...] = (1,)
    batches: tuple[int, ...] = (1,)
    rounds: int = 9
    every: bool = False
    first: bool = False


def files(targets: Iterable[str]) -> list[Path]:
    """The .onnx files among files and folders."""
    found: list[Path] = []
    for target in map(Path, targets):
        found += sorted(target.glob("*.onnx")) if target.is_dir() else [target]
    if not found or not all(path.is_file() for path in found):
        raise ArgumentError(f"no ONNX file at {', '.join(targets)}; name .onnx files or folders that hold some")
    return found


def measure(targets: Iterable[str], options: Options) -> dict[str, Any]:
    """Rows of figures for each file, number of threads and batch; a file that cannot be run has its reason in `wrong`."""
    lacking = missing().get("onnxruntime")
    if lacking:
        raise ArgumentError(f"{lacking} cannot be imported: pip install 'tilework[peers]'")
    before = doctor.load()
    rows: list[dict[str, Any]] = []
    networks: dict[tuple[Path, int, int], float] = {}
    paths = files(targets)
    for path in paths:
        model = _read(path)
        quantized = any(q in node.op_type for node in model.graph.node for q in QUANTIZED)
        for batch in options.batches:
            feeds = _feeds(path, model, batch)
            if feeds is None:
                continue
            for threads in options.threads:
                session = _session(path, threads)
                key = (path.with_name(path.name.split(".")[0]), threads, batch)
                if not quantized and not options.every:  # a float form counts as ONNX Runtime's best mode all the same
                    calls = {"onnxruntime": partial(session.run, None, feeds)}
                    took = timing.paired(calls, options.rounds, pause=threads > 1).median("onnxruntime")
                    networks[key] = min(networks.get(key, np.inf), took)
                    continue
                row: dict[str, Any] = {
                    "model": path.stem,
                    "threads": threads,
                    "batch": batch,
                    "quantized": quantized,
                    "network": str(key[0]),
                }
                rows.append(row | _row(path, session, feeds, threads, options.rounds))
                networks[key] = min(networks.get(key, np.inf), rows[-1].get("onnxruntime_s", np.inf))
        if options.first and (quantized or options.every):
            rows.append({"model": path.stem, **_first(path)})
    for row in rows:
        if "ours_s" in row:
            best = networks[Path(row["network"]), row["threads"], row["batch"]]
            row["ratio_best"] = best / row["ours_s"]
    load = {"before": before, "after": doctor.load()}
    return {"machine": doctor.cpu() | load, "versions": versions(), "rows": rows, "means": _means(rows)}


def _read(path: Path) -> Any:
    import onnx

    return onnx.load(str(path))


def _inputs(model: Any) -> list[Any]:
    initialized = {t.name for t in model.graph.initializer}
    return [v for v in model.graph.input if v.name not in initialized]


def _feeds(path: Path, model: Any, batch: int) -> dict[str, Array] | None:
    """Inputs of the model; None for a batch that it does not take."""
    import onnx

    beside = path.with_suffix(".io.npz")
    held = np.load(beside) if beside.is_file() else {}
    rng = np.random.default_rng(0)
    found: dict[str, Array] = {}
    for v in _inputs(model):
        tensor = v.type.tensor_type
        shape = [d.dim_value or SIZE for d in tensor.shape.dim]
        if named := {v.name, f"in0:{v.name}"} & set(held):
            found[v.name] = held[named.pop()]
        else:
            dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
            x = rng.normal(size=shape) if dtype.kind == "f" else rng.integers(0, 2, shape)
            found[v.name] = x.astype(dtype)
        if batch > 1:
            free = len(tensor.shape.dim) > 1 and not tensor.shape.dim[0].HasField("dim_value")
            if not free or found[v.name].shape[0] != 1:
                return None
            found[v.name] = np.repeat(found[v.name], batch, axis=0)
    return found


def _session(path: Path, threads: int, optimized: bool = True) -> Any:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads, options.log_severity_level = threads, 1, 3
    level = ort.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if optimized else level.ORT_DISABLE_ALL
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def _row(path: Path, session: Any, feeds: Mapping[str, Array], threads: int, rounds: int) -> dict[str, Any]:
    names = [output.name for output in session.get_outputs()]
    try:
        want = _session(path, threads, optimized=False).run(None, dict(feeds))
        executor = tw.TilingExecutor(threads=threads)
        pipe = tw.onnx.load(str(path), values={})
        found = executor.run(pipe, dict(feeds))
        call = _bound(executor, pipe, feeds, found)
    except (TileworkError, RuntimeError, ValueError) as error:
        return {"wrong": f"{type(error).__name__}: {error}"}
    contenders: dict[str, Callable[[], Any]] = {"ours": call, "onnxruntime": partial(session.run, None, dict(feeds))}
    times = timing.paired(contenders, rounds, block=0.01, pause=threads > 1)
    ratio = times.ratio("ours", "onnxruntime")
    return {
        "ours_s": times.median("ours"),
        "onnxruntime_s": times.median("onnxruntime"),
        "ratio": ratio.median,
        "low": ratio.low,
        "high": ratio.high,
        "sqnr_db": min(_sqnr(found[name], y) for name, y in zip(names, want, strict=True)),
    }


def _bound(executor: Any, pipe: Any, feeds: Mapping[str, Array], found: Mapping[str, Array]) -> Callable[[], Any]:
    """A call with everything bound ahead, of the structure that these inputs have."""
    made = pipe.for_inputs(feeds) if hasattr(pipe, "for_inputs") else pipe
    plan = executor.compile(made, {name: x.shape for name, x in feeds.items()})
    call: Callable[[], Any] = plan.bind(dict(feeds), out={name: np.empty_like(y) for name, y in found.items()})
    return call


def _sqnr(y: Array, want: Array) -> float:
    """Signal to error in dB, 200 where they are equal."""
    a, b = np.asarray(y, np.float64), np.asarray(want, np.float64)
    error = float(((a - b) ** 2).sum())
    return 200.0 if error == 0 else float(10 * np.log10(max(float((b**2).sum()), 1e-30) / error))


_OURS = """
import sys, time, numpy as np, tilework as tw
import numba
tw.onnx.load; executor = tw.TilingExecutor(threads=1)
feeds = dict(np.load(sys.argv[2]))
start = time.perf_counter()
executor.run(tw.onnx.load(sys.argv[1]), feeds)
print(time.perf_counter() - start)
"""
_THEIRS = """
import sys, time, numpy as np, onnxruntime as ort
feeds = dict(np.load(sys.argv[2]))
start = time.perf_counter()
options = ort.SessionOptions()
options.intra_op_num_threads, options.log_severity_level = 1, 3
ort.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"]).run(None, feeds)
print(time.perf_counter() - start)
"""


def _first(path: Path) -> dict[str, Any]:
    """Seconds from the imports to the first answer, in fresh processes, with what is compiled kept from a run before."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        feeds = Path(folder) / "feeds.npz"
        np.savez(feeds, **(_feeds(path, _read(path), 1) or {}))  # type: ignore[arg-type]

        def once(text: str) -> float:
            return float(fresh.python(["-c", text, str(path), str(feeds)]).split()[-1])

        once(_OURS)
        return {
            "first_s": min(once(_OURS) for _ in range(3)),
            "onnxruntime_first_s": min(once(_THEIRS) for _ in range(3)),
        }


def _means(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Geometric means over the quantized models, for each number of threads and batch."""
    found = []
    for threads, batch in sorted({(r["threads"], r["batch"]) for r in rows if "ratio" in r}):
        these = [r for r in rows if r.get("threads") == threads and r.get("batch") == batch]
        these = [r for r in these if "ratio" in r and r["quantized"]]
        if these:
            mean = {key: float(np.exp(np.mean([np.log(r[key]) for r in these]))) for key in ("ratio", "ratio_best")}
            least = min(r["ratio"] for r in these)
            found.append({"threads": threads, "batch": batch, "models": len(these), "least": least, **mean})
    return found


def show(result: Mapping[str, Any]) -> None:
    print(f"{'model':32} threads batch {'ours':>10} {'ONNX R.':>10}  ratio (range)        best form   SQNR")
    for row in result["rows"]:
        if "wrong" in row:
            print(f"{row['model']:32} {row['threads']:7} {row['batch']:5} {row['wrong']}")
        elif "first_s" in row:
            first, theirs = row["first_s"], row["onnxruntime_first_s"]
            print(f"{row['model']:32} first answer {first:.2f} s, ONNX Runtime {theirs:.2f} s")
        else:
            spread = f"{row['ratio']:5.2f} ({row['low']:.2f}-{row['high']:.2f})"
            print(
                f"{row['model']:32} {row['threads']:7} {row['batch']:5} {row['ours_s'] * 1e6:8.1f}us "
                f"{row['onnxruntime_s'] * 1e6:8.1f}us  {spread:20} {row['ratio_best']:9.2f} {row['sqnr_db']:6.1f} dB"
            )
    for mean in result["means"]:
        print(
            f"{mean['models']} quantized models, {mean['threads']} threads, batch {mean['batch']}: least {mean['least']:.2f}, "
            f"geometric mean {mean['ratio']:.2f}; against the best form {mean['ratio_best']:.2f}"
        )
