"""`tilework bench peers real`: float32 and bfloat16 products against NumPy, torch and ONNX Runtime, on the same bytes.

Every result is compared before anything is timed: tilework's float32 with its reference to the bit on some rows, its
bfloat16 within the stated bound, the peers with tilework within what another order of addition may change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from rich import box
from rich.table import Table

from ... import ops
from ...executors.tiling import TilingExecutor
from ...kernels.cpu import isa
from ...kernels.reference import gemm as reference
from ...primitives.errors import ArgumentError
from ...primitives.pipeline import Pipeline
from .. import cases, peers, timing
from ..cases import Shape
from ..machine import doctor, peak
from ..terminal import wide_console
from . import gemm
from .report import machine_line

Array = np.ndarray[Any, Any]
TYPES = ("f32", "bf16")
CHECKED = 4  # rows that are compared with the reference
LARGE = 2 * 512**3  # operations from which the share of the fused multiply-add peak is a bar
WANTED = {"f32": 1.0, "bf16": 1.0}  # of the best peer
FASTER = 1.6  # what bf16 should be of f32
SHARE = 0.85  # of the peak


@dataclass(frozen=True)
class Options:
    """shapes: as in cases.py; none: those of its group `compute`."""

    types: tuple[str, ...] = TYPES
    shapes: tuple[Shape, ...] = ()
    threads: tuple[int, ...] = (1,)
    rounds: int = 9
    isa: str | None = None


@dataclass
class Row:
    """One type at one shape. peers: microseconds of each; share: of the float32 peak of the registers."""

    dtype: str
    shape: str
    threads: int
    us: float
    gflops: float
    share: float
    peers: Mapping[str, float]
    best: str
    ratio: float
    low: float
    high: float
    over_f32: float | None


def measure(options: Options) -> dict[str, Any]:
    """Everything that the options ask for, as one JSON-ready dictionary."""
    absent, before = peers.missing(), doctor.load()
    shapes = options.shapes or cases.GROUPS["compute"].shapes
    rows: list[Row] = []
    with gemm.progress(len(shapes) * len(options.threads)) as step:
        for threads in options.threads:
            for shape in shapes:
                step(f"{shape}, {threads} thread{'s' * (threads > 1)}")
                rows += _time(shape, threads, options, absent)
    return {
        "machine": gemm.machine(options, before),  # type: ignore[arg-type]
        "peers": {"numpy": np.__version__, **peers.versions()},
        "missing": absent,
        "rows": [asdict(row) for row in rows],
        "bars": _bars(rows),
    }


def _time(shape: Shape, threads: int, options: Options, absent: Mapping[str, str]) -> list[Row]:
    rng = np.random.default_rng(0)
    a = rng.standard_normal((shape.M, shape.K)).astype(np.float32)
    b = rng.standard_normal((shape.K, shape.N)).astype(np.float32)
    calls: dict[str, Callable[[], Any]] = {}
    against: dict[str, list[str]] = {}
    for dtype in options.types:
        calls[dtype] = _ours(dtype, a, b, threads, options.isa)
        others = _peers(dtype, a, b, threads, absent, calls[dtype].y)  # type: ignore[attr-defined]
        calls |= others
        against[dtype] = list(others)
    probe = peak.fma(isa.select(options.isa).name, threads)
    contenders = {**calls, **({"peak": probe.call} if probe else {})}
    times = timing.paired(contenders, options.rounds, pause=threads > 1)
    top = probe.work / times.median("peak") if probe else np.inf
    rows = []
    for dtype in options.types:
        best = times.fastest(against[dtype]) if against[dtype] else ""
        ratio = times.ratio(dtype, best) if best else timing.Ratio(np.nan, np.nan, np.nan)
        rate = shape.operations / times.median(dtype)
        rows.append(
            Row(
                dtype,
                str(shape),
                threads,
                times.median(dtype) * 1e6,
                rate / 1e9,
                rate / top,
                {name.partition(" ")[0]: times.median(name) * 1e6 for name in against[dtype]},
                best.partition(" ")[0],
                ratio.median,
                ratio.low,
                ratio.high,
                times.ratio(dtype, "f32").median if dtype != "f32" and "f32" in options.types else None,
            )
        )
    return rows


def _ours(dtype: str, a: Array, b: Array, threads: int, isa: str | None) -> Callable[[], Any]:
    """A call of tilework, its result checked."""
    x, w = (_stored(dtype, matrix) for matrix in (a, b))
    pipe = Pipeline(f"gemm_{dtype}")
    pipe.output("y", ops.gemm(pipe.input("a", dtype, ("M", a.shape[1])), pipe.constant("b", w)))
    y = np.full((len(a), b.shape[1]), np.nan, np.float32)
    call = TilingExecutor(threads, isa=isa).compile(pipe).bind({"a": x}, {"y": y})
    call()
    if dtype == "f32":
        right = np.array_equal(y[:CHECKED], reference.gemm_f32(x[:CHECKED], w))
    else:
        off = np.abs(y - x.astype(np.float64) @ w.astype(np.float64))
        right = bool((off <= reference.bf16_bound(x, w)).all())
    if not right:
        raise ArgumentError(f"tilework {dtype} differs from its reference: no figure of it means anything")
    call.__dict__["y"] = y
    return call


def _stored(dtype: str, x: Array) -> Array:
    if dtype == "f32":
        return x
    import ml_dtypes

    return x.astype(ml_dtypes.bfloat16)


def _peers(
    dtype: str, a: Array, b: Array, threads: int, absent: Mapping[str, str], y: Array
) -> dict[str, Callable[[], Any]]:
    """Calls of the peers that are there, their results compared with `y`."""
    found: dict[str, tuple[Callable[[], Any], Array | Callable[[], Array]]] = {}
    shape = (len(a), b.shape[1])
    if dtype == "f32":
        out = np.empty(shape, np.float32)
        found["numpy"] = (_limited(threads, lambda: np.matmul(a, b, out=out)), out)
    if "int_mm" not in absent:
        import torch

        peers.set_threads(threads)
        kind = torch.float32 if dtype == "f32" else torch.bfloat16
        x, w = (torch.from_numpy(m).to(kind) for m in (a, b))
        product = torch.empty(shape, dtype=kind)
        found["torch"] = (lambda: torch.mm(x, w, out=product), lambda: product.float().numpy())
    if dtype == "f32" and "onnxruntime" not in absent:
        found["onnxruntime"] = _onnxruntime(a, b, threads)
    most = len(b) * 2.0**-23 * float((np.abs(a) @ np.abs(b)).max())  # whatever the order of the sum
    if dtype == "bf16":
        most += 2.0**-8 * float(np.abs(y).max())  # torch rounds the result too
    for name, (call, result) in found.items():
        call()
        if np.abs((result() if callable(result) else result) - y).max() > most:
            raise ArgumentError(f"{name} {dtype} differs from tilework by more than rounding")
    return {f"{name} {dtype}": call for name, (call, _) in found.items()}


def _limited(threads: int, call: Callable[[], Any]) -> Callable[[], Any]:
    """NumPy's BLAS on so many threads, from now on."""
    from threadpoolctl import threadpool_limits

    threadpool_limits(limits=threads, user_api="blas")
    return call


def _onnxruntime(a: Array, b: Array, threads: int) -> tuple[Callable[[], Any], Array]:
    from onnx import TensorProto, helper

    (M, K), N = a.shape, b.shape[1]
    weights = helper.make_tensor("b", TensorProto.FLOAT, [K, N], b.tobytes(), raw=True)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["a", "b"], ["y"])],
        "gemm",
        [helper.make_tensor_value_info("a", TensorProto.FLOAT, [M, K])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [M, N])],
        [weights],
    )
    y = np.zeros((M, N), np.float32)
    return peers.bind(peers.session(graph, threads), {"a": a}, {"y": y}), y


def _bars(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """What is wanted of the whole: {what, found, wanted, met}."""
    bars = []

    def bar(what: str, figures: list[float], wanted: float) -> None:
        if figures:
            worst = min(figures)
            mean = float(np.exp(np.mean(np.log(figures))))
            bars.append(
                {"what": what, "least": worst, "mean": mean, "wanted": wanted, "met": sum(f >= wanted for f in figures)}
                | {"of": len(figures)}
            )

    for threads in dict.fromkeys(row.threads for row in rows):
        mine = [row for row in rows if row.threads == threads]
        for dtype, wanted in WANTED.items():
            ratios = [row.ratio for row in mine if row.dtype == dtype and row.best]
            bar(f"{dtype} against the best peer, {threads} thread{'s' * (threads > 1)}", ratios, wanted)
        large = [r.share for r in mine if r.dtype == "f32" and Shape.parse(r.shape).operations >= LARGE]
        bar(f"f32 share of the peak, large shapes, {threads} thread{'s' * (threads > 1)}", large, SHARE)
        over = [r.over_f32 for r in mine if r.over_f32 is not None]
        bar(f"bf16 against our f32, {threads} thread{'s' * (threads > 1)}", over, FASTER)
    return bars


def show(result: Mapping[str, Any]) -> None:
    """Print a result of `measure` for people."""
    out = wide_console()
    out.print(machine_line(result["machine"]))
    out.print("peers: " + ", ".join(f"{n} {v}" for n, v in result["peers"].items()))
    for peer, absent in result["missing"].items():
        out.print(f"{peer} is left out: {absent} is not installed")
    table = Table(title="products of real numbers", box=box.SIMPLE_HEAD)
    for column in (
        "type",
        "M x K x N",
        "threads",
        "us",
        "Gflop/s",
        "% fma peak",
        "peers, us",
        "ratio to the best",
        "x f32",
    ):
        table.add_column(column, justify="left" if column in ("type", "M x K x N", "peers, us") else "right")
    for row in result["rows"]:
        others = ", ".join(f"{n} {us:.0f}" for n, us in row["peers"].items())
        ratio = f"{row['ratio']:.2f} ({row['low']:.2f}-{row['high']:.2f})" if row["best"] else "-"
        over = f"{row['over_f32']:.2f}" if row["over_f32"] else "-"
        figures = (f"{row['us']:.0f}", f"{row['gflops']:.0f}", f"{row['share']:.0%}")
        table.add_row(row["dtype"], row["shape"], str(row["threads"]), *figures, others, ratio, over)
    out.print(table)
    for bar in result["bars"]:
        out.print(
            f"{bar['what']}: least {bar['least']:.2f}, geometric mean {bar['mean']:.2f}; wanted {bar['wanted']}: "
            f"{bar['met']} of {bar['of']}"
        )
