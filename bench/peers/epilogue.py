"""`tilework bench peers epilogue`: a user's function inside the product, against a plain requantization and two steps.

    u8 (M, K) times s8 (K, N), times a scale, x * sigmoid(1.702 x), to u8

plain         tilework's own product with its own requantization in the same place: what the function costs
onnxruntime   MatMulIntegerToFloat, QuickGelu and QuantizeLinear, which is as far as it fuses
onednn        qlinear_pointwise to f32 with prepacked weights, then torch's sigmoid, product and quantization

tilework is compared with its reference to the bit before anything is timed; the peers may be one code off.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from rich import box
from rich.table import Table

from ... import ops
from ...executors.single_thread import SingleThreadExecutor
from ...executors.tiling import TilingExecutor
from ...kernels.vectormath import sigmoid
from ...primitives.errors import ArgumentError
from ...primitives.pipeline import Pipeline
from .. import peers, timing
from ..machine import doctor
from ..terminal import wide_console
from . import gemm
from .report import machine_line

Array = np.ndarray[Any, Any]
A_POINT, Y_SCALE, Y_POINT = 121, 0.05, 20
CHECKED = 2  # rows that are compared with the reference
PLAIN = {256: 1.50, 1024: 1.15, 3072: 1.15}  # most times the plain requantization's time, by the least depth
PEER = 1.3  # least times as fast as the peers


def quick_gelu(acc: Any, scale: Any) -> Any:
    x = acc * scale
    return x * sigmoid(1.702 * x)


@dataclass(frozen=True)
class Options:
    """rows, columns: M and N; depths: values of K."""

    depths: tuple[int, ...] = (256, 1024, 3072)
    rows: int = 256
    columns: int = 768
    threads: tuple[int, ...] = (1,)
    rounds: int = 25
    isa: str | None = None


@dataclass
class Row:
    """One depth. cost: times the plain requantization's time; ratios: of the peers' time to ours."""

    shape: str
    threads: int
    us: float
    plain_us: float
    cost: float
    cost_wanted: float
    peers_us: Mapping[str, float]
    ratios: Mapping[str, float]
    wanted: float = PEER


def measure(options: Options) -> dict[str, Any]:
    """Everything that the options ask for, as one JSON-ready dictionary."""
    absent, before = peers.missing(), doctor.load()
    rows = []
    with gemm.progress(len(options.depths) * len(options.threads)) as step:
        for threads in options.threads:
            for K in options.depths:
                step(f"K = {K}, {threads} thread{'s' * (threads > 1)}")
                rows.append(_time(K, threads, options, absent))
    return {
        "machine": gemm.machine(options, before),  # type: ignore[arg-type]
        "peers": peers.versions(),
        "missing": absent,
        "rows": [asdict(row) for row in rows],
    }


def _time(K: int, threads: int, options: Options, absent: Mapping[str, str]) -> Row:
    rng = np.random.default_rng(K)
    a = rng.integers(0, 256, (options.rows, K), np.uint8)
    b = rng.integers(-128, 128, (K, options.columns), np.int8)
    scale = np.float32(3 / (74 * 74 * K**0.5))  # sums become real numbers with a deviation of 3
    calls: dict[str, Callable[[], Any]] = {
        "ours": _ours(a, b, scale, True, threads, options.isa),
        "plain": _ours(a, b, scale, False, threads, options.isa),
    }
    others: dict[str, Callable[[], Any]] = {}
    right = calls["ours"].__dict__["y"]
    for name, make in {"onnxruntime": _onnxruntime, "onednn": _onednn}.items():
        if name not in absent:
            others[name] = call = make(a, b, float(scale), threads)
            call()
            if np.abs(call.__dict__["y"]().astype(int) - right).max() > 1:
                raise ArgumentError(f"{name} differs from tilework by more than one code")
    times = timing.paired({**calls, **others}, options.rounds, pause=threads > 1)
    return Row(
        shape=f"{options.rows}x{K}x{options.columns}",
        threads=threads,
        us=times.median("ours") * 1e6,
        plain_us=times.median("plain") * 1e6,
        cost=times.ratio("plain", "ours").median,
        cost_wanted=PLAIN[max((k for k in PLAIN if k <= K), default=min(PLAIN))],
        peers_us={name: times.median(name) * 1e6 for name in others},
        ratios={name: times.ratio("ours", name).median for name in others},
    )


def _ours(a: Array, b: Array, scale: Any, user: bool, threads: int, isa: str | None) -> Callable[[], Any]:
    """A call of tilework, its result checked."""
    pipe = Pipeline("epilogue")
    acc = ops.gemm(pipe.input("a", "u8", ("M", a.shape[1])), pipe.constant("b", b), a_zero_point=np.uint8(A_POINT))
    if user:
        real = ops.map(quick_gelu, acc, scale=scale)
        pipe.output("y", ops.quantize(real, np.float32(Y_SCALE), zero_point=Y_POINT, dtype="u8"))
    else:
        pipe.output("y", ops.requantize(acc, multiplier=np.float32(scale / Y_SCALE), zero_point=Y_POINT, dtype="u8"))
    y = np.full((len(a), b.shape[1]), 77, np.uint8)
    call = TilingExecutor(threads, isa=isa).compile(pipe).bind({"a": a}, {"y": y})
    call()
    rows = slice(0, CHECKED)
    if not np.array_equal(SingleThreadExecutor("reference").run(pipe, {"a": a[rows]})["y"], y[rows]):
        raise ArgumentError("tilework differs from its reference: no figure of it means anything")
    call.__dict__["y"] = y
    return call


def _onnxruntime(a: Array, b: Array, scale: float, threads: int) -> Callable[[], Any]:
    from onnx import TensorProto, helper

    (M, K), N = a.shape, b.shape[1]

    def scalar(name: str, kind: int, value: float) -> Any:
        return helper.make_tensor(name, kind, [], [value])

    constants = [
        helper.make_tensor("b", TensorProto.INT8, [K, N], b.tobytes(), raw=True),
        scalar("sa", TensorProto.FLOAT, scale),
        scalar("sb", TensorProto.FLOAT, 1.0),
        scalar("za", TensorProto.UINT8, A_POINT),
        scalar("sy", TensorProto.FLOAT, Y_SCALE),
        scalar("zy", TensorProto.UINT8, Y_POINT),
    ]
    own = {"domain": "com.microsoft"}
    nodes = [
        helper.make_node("MatMulIntegerToFloat", ["a", "b", "sa", "sb", "za"], ["x"], **own),
        helper.make_node("QuickGelu", ["x"], ["h"], alpha=1.702, **own),
        helper.make_node("QuantizeLinear", ["h", "sy", "zy"], ["y"]),
    ]
    inputs = [helper.make_tensor_value_info("a", TensorProto.UINT8, [M, K])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.UINT8, [M, N])]
    y = np.zeros((M, N), np.uint8)
    graph = helper.make_graph(nodes, "epilogue", inputs, outputs, constants)
    call = peers.bind(peers.session(graph, threads), {"a": a}, {"y": y})
    call.__dict__["y"] = lambda: y
    return call


def _onednn(a: Array, b: Array, scale: float, threads: int) -> Callable[[], Any]:
    import torch

    peers.set_threads(threads)
    N = b.shape[1]
    weights = torch.ops.onednn.qlinear_prepack(torch.from_numpy(np.ascontiguousarray(b.T)), list(a.shape))
    given: tuple[Any, ...] = (
        *(torch.from_numpy(a), scale, A_POINT, weights, torch.ones(N), torch.zeros(N, dtype=torch.int32), None),
        *(1.0, 0, torch.float32, "none", [], ""),
    )

    def call() -> Any:
        x = torch.ops.onednn.qlinear_pointwise.default(*given)
        h = torch.sigmoid(x * 1.702).mul_(x)
        return torch.quantize_per_tensor(h, Y_SCALE, Y_POINT, torch.quint8)

    with warnings.catch_warnings():  # that this way of quantizing will go
        warnings.simplefilter("ignore")
        call()
    call.__dict__["y"] = lambda: call().int_repr().numpy()
    return call


def show(result: Mapping[str, Any]) -> None:
    """Print a result of `measure` for people."""
    out = wide_console()
    out.print(machine_line(result["machine"]))
    out.print("peers: " + (", ".join(f"{n} {v}" for n, v in result["peers"].items()) or "none"))
    for peer, absent in result["missing"].items():
        out.print(f"{peer} is left out: {absent} is not installed")
    table = Table(title="x * sigmoid(1.702 x) inside the product, to u8", box=box.SIMPLE_HEAD)
    columns = (
        "M x K x N",
        "threads",
        "us",
        "plain us",
        "cost of the function",
        "wanted",
        "peers, us",
        "times as fast",
        "wanted",
    )
    for column in columns:
        table.add_column(column, justify="left" if column in ("M x K x N", "peers, us", "times as fast") else "right")
    for row in result["rows"]:
        table.add_row(
            row["shape"],
            str(row["threads"]),
            f"{row['us']:.0f}",
            f"{row['plain_us']:.0f}",
            f"{row['cost'] - 1:+.0%}",
            f"{row['cost_wanted'] - 1:.0%}",
            ", ".join(f"{n} {us:.0f}" for n, us in row["peers_us"].items()),
            ", ".join(f"{n} {ratio:.2f}" for n, ratio in row["ratios"].items()),
            f"{row['wanted']}",
        )
    out.print(table)
