"""Attention against torch's scaled_dot_product_attention: 12 heads of 64, float32 and int8, checked first."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...executors import TilingExecutor
from ...kernels import ops
from ...primitives.pipeline import Pipeline
from ..timing import paired
from . import _present, set_threads

TOKENS = (64, 128, 1024)
HEADS, DEPTH = 12, 64
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
    times = paired(calls, rounds, pause=threads > 1)
    return {
        "tokens": tokens,
        "threads": threads,
        "f32 us": times.median("f32") * 1e6,
        "int8 us": times.median("int8") * 1e6,
        "f32 of torch": times.ratio("f32", "torch").median if "torch" in calls else None,
        "int8 of f32": times.ratio("int8", "f32").median,
        "wrong": wrong,
    }


def show(records: list[dict[str, Any]]) -> None:
    """A table of them."""
    from rich.console import Console
    from rich.table import Table

    table = Table("attention, 12 x 64", "threads", "f32 us", "int8 us", "f32 of torch", "int8 of f32", "", box=None)
    for r in records:
        torch = f"{r['f32 of torch']:.2f} x" if r["f32 of torch"] else "not here"
        table.add_row(
            f"{r['tokens']} tokens",
            str(r["threads"]),
            f"{r['f32 us']:.0f}",
            f"{r['int8 us']:.0f}",
            torch,
            f"{r['int8 of f32']:.2f} x",
            r["wrong"],
        )
    Console().print(table)
