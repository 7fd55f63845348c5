"""Attention against torch's scaled_dot_product_attention and ONNX Runtime's MultiHeadAttention, checked first.

12 heads of 64, float32 and int8. Each has q, k and v as it likes them best: ONNX Runtime with heads side by side.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...executors import TilingExecutor
from ...kernels import ops
from ...primitives.pipeline import Pipeline
from ..timing import paired
from . import _present, bind, session, set_threads

TOKENS = (64, 128, 1024)
HEADS, DEPTH = 12, 64
PEERS = ("torch", "onnxruntime")
F32 = np.float32


def measure(threads: tuple[int, ...], rounds: int) -> list[dict[str, Any]]:
    """One record for each number of tokens and of threads."""
    return [_measure(tokens, n, rounds) for n in threads for tokens in TOKENS]


def _call(compute: str, data: dict[str, Any], threads: int) -> tuple[Any, Any]:
    pipe = Pipeline(compute)
    pipe.output("y", ops.attention(*(pipe.input(n, "f32", x.shape) for n, x in data.items()), compute=compute))
    plan = TilingExecutor(threads=threads).compile(pipe)
    out = {"y": np.zeros_like(data["q"])}
    return plan.bind(data, out), out["y"]


def _onnxruntime(data: dict[str, Any], threads: int) -> tuple[Any, Any]:
    """A call, and where its result lies: (1, tokens, heads * depth)."""
    from onnx import TensorProto, helper

    given = {n: np.ascontiguousarray(x.transpose(0, 2, 1, 3)).reshape(1, x.shape[2], -1) for n, x in data.items()}
    node = helper.make_node("MultiHeadAttention", list(given), ["y"], domain="com.microsoft", num_heads=HEADS)
    infos = {n: helper.make_tensor_value_info(n, TensorProto.FLOAT, given["q"].shape) for n in (*given, "y")}
    made = session(helper.make_graph([node], "attention", [infos[n] for n in given], [infos["y"]]), threads)
    y = np.zeros_like(given["q"])
    return bind(made, given, {"y": y}), y


def _measure(tokens: int, threads: int, rounds: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    data = {n: rng.standard_normal((1, HEADS, tokens, DEPTH)).astype(F32) for n in "qkv"}
    calls, results = {}, {}
    for compute in ("f32", "int8"):
        calls[compute], results[compute] = _call(compute, data, threads)
        calls[compute]()
    wrong = ""
    if np.abs(results["int8"] - results["f32"]).max() > 0.05:
        wrong = "int8 is far from f32"
    if _present("torch"):
        import torch

        set_threads(threads)
        given = [torch.from_numpy(x) for x in data.values()]

        def peer() -> Any:
            return torch.nn.functional.scaled_dot_product_attention(*given)

        calls["torch"] = peer
        if np.abs(peer().numpy() - results["f32"]).max() > 1e-4:
            wrong = "torch and f32 differ"
    if _present("onnxruntime") and _present("onnx"):
        calls["onnxruntime"], found = _onnxruntime(data, threads)
        calls["onnxruntime"]()
        if np.abs(found.reshape(1, tokens, HEADS, DEPTH).transpose(0, 2, 1, 3) - results["f32"]).max() > 1e-4:
            wrong = "onnxruntime and f32 differ"
    times = paired(calls, rounds, pause=threads > 1)
    return {
        "tokens": tokens,
        "threads": threads,
        "f32 us": times.median("f32") * 1e6,
        "int8 us": times.median("int8") * 1e6,
        **{f"f32 of {n}": times.ratio("f32", n).median if n in calls else None for n in PEERS},
        "int8 of f32": times.ratio("int8", "f32").median,
        "wrong": wrong,
    }


def show(records: list[dict[str, Any]]) -> None:
    """A table of them."""
    from rich.console import Console
    from rich.table import Table

    table = Table(
        "attention, 12 x 64",
        "threads",
        "f32 us",
        "int8 us",
        *(f"f32 of {n}" for n in PEERS),
        "int8 of f32",
        "",
        box=None,
    )
    for r in records:
        peers = [r[f"f32 of {n}"] for n in PEERS]
        table.add_row(
            f"{r['tokens']} tokens",
            str(r["threads"]),
            f"{r['f32 us']:.0f}",
            f"{r['int8 us']:.0f}",
            *("not here" if ratio is None else f"{ratio:.2f} x" for ratio in peers),
            f"{r['int8 of f32']:.2f} x",
            r["wrong"],
        )
    Console().print(table)
