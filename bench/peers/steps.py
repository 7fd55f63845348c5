"""Memory-bound steps against ONNX Runtime and torch, and against a copy: checked first, then timed in the same rounds.

Every contender reads the same array and writes into memory made ahead. The copy is a loop of vector loads and stores over
as many bytes as the step reads and writes, on as many threads, with the kind of stores that the step has: past the caches
where it streams its result (kernels/cpu/stores.py), else ordinary ones.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numba import njit

from ...executors import TilingExecutor
from ...kernels import ops
from ...kernels.cpu.peak import _together
from ...kernels.cpu.stores import least_bytes, stream, streamed
from ...primitives.pipeline import Pipeline
from ..timing import paired
from . import _present, _quietly, attention, bind, session, set_threads

Array = np.ndarray[Any, Any]
SIZES = {"L2": (128, 768), "memory": (24576, 768)}  # 384 KiB and 72 MiB of float32
F32 = np.float32
SCALE, ZERO = F32(0.05), 128


@dataclass(frozen=True)
class Case:
    """A step: how it is written here, as an ONNX graph, and in torch; None where a peer has nothing like it.

    build    (pipe, x) -> values
    graph    (op type, inputs after x: {name: array}, attributes, opset domain)
    torch    (torch, x, out) -> a call that leaves its result in `out` or returns it
    within   how far a peer's result may be off: a code of integers, this of reals
    streams  whether a large result is stored past the caches
    """

    name: str
    source: str
    build: Callable[[Pipeline, Any], Any]
    graph: tuple[str, dict[str, Array], dict[str, Any], str] | None
    torch: Callable[[Any, Any, list[Any]], Callable[[], Any]] | None
    within: float = 1e-4
    streams: bool = True


def _torch_quantize(torch: Any, x: Any, out: list[Any]) -> Callable[[], Any]:
    return partial(torch.quantize_per_tensor, x, float(SCALE), ZERO, torch.quint8)


def _torch_dequantize(torch: Any, x: Any, out: list[Any]) -> Callable[[], Any]:
    q = torch._make_per_tensor_quantized_tensor(x, float(SCALE), ZERO)
    return partial(torch.dequantize, q)


def _layer(torch: Any, x: Any, out: list[Any], name: str) -> Callable[[], Any]:
    functional, n = torch.nn.functional, x.shape[-1]
    ones = torch.ones(n)
    if name == "rms":
        return partial(functional.rms_norm, x, (n,), ones, 1e-5)
    return partial(functional.layer_norm, x, (n,), ones, ones, 1e-5)


_ONES = np.ones(768, F32)
_TABLE = ((np.arange(256) * 7 + 3) % 256).astype(np.uint8)
_QUANT = {"scale": np.asarray(SCALE), "zero": np.asarray(ZERO, np.uint8)}
_SIGMOID = {**_QUANT, "s": np.asarray(F32(1 / 255)), "z": np.asarray(0, np.uint8)}
CASES = (
    Case(
        "quantize", "f32", lambda p, x: ops.quantize(x, SCALE, ZERO), ("QuantizeLinear", _QUANT, {}, ""), _torch_quantize, 1
    ),
    Case(
        "dequantize", "u8", lambda p, x: ops.dequantize(x, SCALE, ZERO), ("DequantizeLinear", _QUANT, {}, ""), _torch_dequantize
    ),
    Case("dynamic quantize", "f32", lambda p, x: ops.dynamic_quantize(x), ("DynamicQuantizeLinear", {}, {}, ""), None, 1),
    Case(
        "dynamic quantize, rows", "f32", lambda p, x: ops.dynamic_quantize(x, granularity="row"), None, None
    ),
    Case(
        "add", "f32", lambda p, x: ops.add(x, x), ("Add", {"x": np.zeros(0, F32)}, {}, ""),
        lambda torch, x, out: partial(torch.add, x, x, out=out[0]),
    ),
    Case(
        "look-up", "u8", lambda p, x: ops.lookup(x, _TABLE), ("QLinearSigmoid", _SIGMOID, {}, "com.microsoft"), None, 255
    ),
    Case(
        "cast to f16", "f32", lambda p, x: ops.cast(x, "f16"), ("Cast", {}, {"to": 10}, ""),
        lambda torch, x, out: partial(out[0].copy_, x), 1e-2,
    ),
    Case("softmax", "f32", lambda p, x: ops.softmax(x), ("Softmax", {}, {"axis": -1}, ""),
         lambda torch, x, out: partial(torch.softmax, x, -1, out=out[0]), streams=False),
    Case("layer norm", "f32", lambda p, x: ops.layer_norm(x, _ONES, _ONES),
         ("LayerNormalization", {"g": _ONES, "b": _ONES}, {"epsilon": 1e-5}, ""), partial(_layer, name="layer"), streams=False),
    Case("rms norm", "f32", lambda p, x: ops.rms_norm(x, _ONES),
         ("SimplifiedLayerNormalization", {"g": _ONES}, {"epsilon": 1e-5}, ""), partial(_layer, name="rms")),
    Case("transpose", "f32", lambda p, x: ops.transpose(x, (1, 0)), ("Transpose", {}, {"perm": [1, 0]}, ""),
         lambda torch, x, out: partial(out[0].copy_, x.T)),
)  # fmt: skip


def measure(
    threads: tuple[int, ...] = (1, 2),
    sizes: tuple[str, ...] = tuple(SIZES),
    only: tuple[str, ...] = (),
    rounds: int = 15,
) -> list[dict[str, Any]]:
    """One record for each step, size and number of threads."""
    return [
        _measure(case, size, n, rounds)
        for n in threads
        for size in sizes
        for case in CASES
        if not only or case.name in only
    ]


def _measure(case: Case, size: str, threads: int, rounds: int) -> dict[str, Any]:
    shape = SIZES[size]
    rng = np.random.default_rng(0)
    x = rng.standard_normal(shape).astype(F32) if case.source == "f32" else rng.integers(0, 256, shape).astype(np.uint8)
    pipe = Pipeline(case.name)
    made = case.build(pipe, pipe.input("x", case.source, shape))
    values = made if isinstance(made, tuple) else (made,)
    for n, value in enumerate(values):
        pipe.output(f"y{n}", value)
    plan = TilingExecutor(threads=threads).compile(pipe)
    results = plan.run({"x": x})
    out = {name: np.zeros_like(a) for name, a in results.items()}
    calls: dict[str, Callable[[], Any]] = {"tilework": plan.bind({"x": x}, out)}
    moved = x.nbytes + sum(a.nbytes for a in out.values())
    calls["copy"] = _copy(moved, threads, case.streams and moved >= least_bytes())
    wrong = []
    for name, make in (("onnxruntime", _onnxruntime), ("torch", _torch)):
        peer = make(case, x, list(results.values()), threads)
        if peer is not None:
            call, result = peer
            call()
            off = np.abs(
                result().astype(np.float64).reshape(shape if case.name != "transpose" else shape[::-1]) - results["y0"]
            ).max()
            if off > case.within:
                wrong.append(f"{name} is off by {off:g}")
            calls[name] = call
    times = paired(calls, rounds, pause=threads > 1)
    peers = [n for n in calls if n not in ("tilework", "copy")]
    best = times.fastest(peers) if peers else ""
    return {
        "step": case.name,
        "size": size,
        "threads": threads,
        "us": times.median("tilework") * 1e6,
        "GB/s": moved / times.median("tilework") / 1e9,
        "of_copy": times.ratio("tilework", "copy").median,
        "best_peer": best,
        "of_best": times.ratio("tilework", best).median if best else None,
        "wrong": "; ".join(wrong),
    }


def _onnxruntime(case: Case, x: Array, results: list[Array], threads: int) -> Any:
    if case.graph is None or not (_present("onnxruntime") and _present("onnx")):
        return None
    from onnx import helper, numpy_helper

    op, constants, attributes, domain = case.graph
    names = ["x", *("x" if a.size == 0 else n for n, a in constants.items())]
    outputs = [f"y{n}" for n in range(len(results))]
    node = helper.make_node(op, names, outputs, domain=domain, **attributes)
    initial = [numpy_helper.from_array(a, n) for n, a in constants.items() if a.size]
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in zip(["x", *outputs], [x, *results], strict=True)
    ]
    made = [np.zeros_like(a) for a in results]
    with _quietly():
        runs = session(helper.make_graph([node], "step", infos[:1], infos[1:], initial), threads)
        return bind(runs, {"x": x}, dict(zip(outputs, made, strict=True))), lambda: made[0]


def _torch(case: Case, x: Array, results: list[Array], threads: int) -> Any:
    if case.torch is None or not _present("torch"):
        return None
    import torch

    set_threads(threads)
    made = [torch.from_numpy(np.zeros_like(a)) for a in results]
    with _quietly():
        call = case.torch(torch, torch.from_numpy(x), made)

        def result() -> Array:
            found = call()
            found = found.int_repr() if getattr(found, "is_quantized", False) else found
            return found.numpy()

        return call, result


def _copy(moved: int, threads: int, past: bool) -> Callable[[], Any]:
    """A loop that reads and writes `moved` bytes together, split between the threads."""
    source, target = np.ones(moved // 16, np.int64), np.zeros(moved // 16, np.int64)
    parts = zip(np.array_split(source, threads), np.array_split(target, threads), strict=True)
    loop = _copy_streamed if past else _copy_loop
    return _together([partial(loop, a, b) for a, b in parts])


@njit("void(int64[::1], int64[::1])", nogil=True, error_model="numpy")
def _copy_streamed(source: Array, target: Array) -> None:
    stream(target.ctypes.data, source.ctypes.data, 8 * source.size)
    streamed()


@njit("void(int64[::1], int64[::1])", nogil=True, error_model="numpy")
def _copy_loop(source: Array, target: Array) -> None:
    for i in range(source.size):
        target[i] = source[i]


def show(records: list[dict[str, Any]]) -> None:
    """A table, and how far the bars are met."""
    from rich.console import Console
    from rich.table import Table

    table = Table("step", "size", "threads", "us", "GB/s", "of a copy", "of the best peer", "", box=None)
    for r in records:
        peer = f"{r['of_best']:.2f} x {r['best_peer']}" if r["best_peer"] else "none has it"
        table.add_row(
            r["step"],
            r["size"],
            str(r["threads"]),
            f"{r['us']:.1f}",
            f"{r['GB/s']:.1f}",
            f"{r['of_copy']:.0%}",
            peer,
            r["wrong"],
        )
    console = Console()
    console.print(table)
    for size in dict.fromkeys(r["size"] for r in records):
        ratios = [r["of_best"] for r in records if r["size"] == size and r["of_best"]]
        if ratios:
            console.print(
                f"{size}: {sum(q >= 1 for q in ratios)} of {len(ratios)} at least 1.0 x the best peer, "
                f"geometric mean {np.exp(np.mean(np.log(ratios))):.2f} x"
            )


def run(threads: str, size: str | None, steps: list[str], blocks: int, as_json: bool) -> bool:
    """Measure and show; whether every result was right. The step "attention" has a table of its own."""
    counts = tuple(map(int, threads.split(",")))
    records = measure(counts, (size,) if size else tuple(SIZES), tuple(steps), blocks)
    wanted = not steps or "attention" in steps
    more = attention.measure(counts, blocks) if wanted and not size else []
    if as_json:
        print(json.dumps([*records, *more], indent=2))
        return not any(r["wrong"] for r in [*records, *more])
    if records:
        show(records)
    if more:
        attention.show(more)
    return not any(r["wrong"] for r in [*records, *more])
