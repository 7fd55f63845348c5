"""Operators that move, reduce, normalize, resample and find, against ONNX Runtime: one graph, checked first, timed in turn.

Both run the same ONNX graph of one node with everything but `x` constant, and write into memory made ahead; where how much
there is depends on x, ours is the step whose results have room for all that there may be. torch makes its results anew.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from ...executors import TilingExecutor
from ...frontends.onnx import load
from ...kernels import ops
from ...primitives.pipeline import Pipeline
from ..timing import paired
from . import _present, _quietly, bind, session, set_threads

Array = np.ndarray[Any, Any]
F32 = np.float32
MATRIX, IMAGE = (512, 768), (1, 64, 56, 56)
_RNG = np.random.default_rng(3)
_C = np.ones(64, F32)
_ROWS = _RNG.integers(0, 512, 384)
_AXIS1 = np.array([1], np.int64)


@dataclass(frozen=True)
class Case:
    """One node.

    constants  what comes after x, in order; "" where an input is left out
    torch      a call, of (torch, x)
    ours       the results of a step instead of those of the node: of what is only known when it runs
    """

    name: str
    op: str
    shape: tuple[int, ...]
    constants: tuple[Array | str, ...] = ()
    attributes: dict[str, Any] = field(default_factory=dict)
    torch: Callable[[Any, Any], Callable[[], Any]] | None = None
    ours: Callable[[Any], tuple[Any, ...]] | None = None


def _grid() -> Array:
    ys, xs = np.meshgrid(np.linspace(-1, 1, 56), np.linspace(-1, 1, 56), indexing="ij")
    turned = np.stack([0.9 * xs + 0.3 * ys, 0.9 * ys - 0.3 * xs], -1)
    return turned[None].astype(F32)


def _scales(*scales: float) -> tuple[str, Array]:
    return "", np.array(scales, F32)


CASES = (
    Case("sum", "ReduceSum", MATRIX, (_AXIS1,), {"keepdims": 0}, lambda t, x: partial(t.sum, x, 1)),
    Case("sum of columns", "ReduceSum", MATRIX, (np.array([0]),), {"keepdims": 0}, lambda t, x: partial(t.sum, x, 0)),
    Case("max", "ReduceMax", MATRIX, (_AXIS1,), {"keepdims": 0}, lambda t, x: partial(t.amax, x, 1)),
    Case("mean of an image", "ReduceMean", IMAGE, (np.array([2, 3]),), {}, lambda t, x: partial(t.mean, x, (2, 3))),
    Case("log-sum-exp", "ReduceLogSumExp", MATRIX, (_AXIS1,), {}, lambda t, x: partial(t.logsumexp, x, 1)),
    Case("argmax", "ArgMax", MATRIX, (), {"axis": 1}, lambda t, x: partial(t.argmax, x, 1)),
    Case("group norm", "GroupNormalization", IMAGE, (_C, _C), {"num_groups": 8},
         lambda t, x: partial(t.nn.functional.group_norm, x, 8, t.ones(64), t.ones(64))),
    Case("instance norm", "InstanceNormalization", IMAGE, (_C, _C), {},
         lambda t, x: partial(t.nn.functional.instance_norm, x, None, None, t.ones(64), t.ones(64))),
    Case("LRN", "LRN", IMAGE, (), {"size": 5}, lambda t, x: partial(t.nn.functional.local_response_norm, x, 5)),
    Case("cumsum", "CumSum", MATRIX, (np.array(1),), {}, lambda t, x: partial(t.cumsum, x, 1)),
    Case("cumsum of columns", "CumSum", MATRIX, (np.array(0),), {}, lambda t, x: partial(t.cumsum, x, 0)),
    Case("top 8", "TopK", MATRIX, (np.array([8]),), {}, lambda t, x: partial(t.topk, x, 8)),
    Case("top 100", "TopK", MATRIX, (np.array([100]),), {}, lambda t, x: partial(t.topk, x, 100)),
    Case("gather rows", "Gather", MATRIX, (_ROWS,), {}, lambda t, x: partial(t.index_select, x, 0, t.from_numpy(_ROWS))),
    Case("gather columns", "Gather", MATRIX, (_ROWS,), {"axis": 1},
         lambda t, x: partial(t.index_select, x, 1, t.from_numpy(_ROWS))),
    Case("gather elements", "GatherElements", MATRIX, (_RNG.integers(0, 768, (512, 384)),), {"axis": 1}),
    Case("scatter elements", "ScatterElements", MATRIX, (_RNG.integers(0, 768, (512, 96)), np.ones((512, 96), F32)),
         {"axis": 1}),
    Case("scatter rows", "ScatterND", MATRIX, (_RNG.permutation(512)[:128, None], np.ones((128, 768), F32))),
    Case("concat", "Concat", MATRIX, ("x", "x"), {"axis": 1}, lambda t, x: partial(t.cat, [x, x, x], 1)),
    Case("pad", "Pad", IMAGE, (np.array([0, 0, 1, 1, 0, 0, 1, 1]),), {},
         lambda t, x: partial(t.nn.functional.pad, x, (1, 1, 1, 1))),
    Case("pad by reflection", "Pad", IMAGE, (np.array([0, 0, 3, 3, 0, 0, 3, 3]),), {"mode": "reflect"},
         lambda t, x: partial(t.nn.functional.pad, x, (3, 3, 3, 3), "reflect")),
    Case("slice", "Slice", MATRIX, (np.array([1, 700]), np.array([511, 3]), np.array([0, 1]), np.array([2, -1]))),
    Case("expand", "Expand", (512, 1), (np.array(MATRIX),)),
    Case("tile", "Tile", (512, 96), (np.array([1, 8]),)),
    Case("depth to space", "DepthToSpace", IMAGE, (), {"blocksize": 2}, lambda t, x: partial(t.pixel_shuffle, x, 2)),
    Case("resize, nearest", "Resize", IMAGE, _scales(1, 1, 2, 2), {"mode": "nearest"}),
    Case("resize, linear", "Resize", IMAGE, _scales(1, 1, 2, 2), {"mode": "linear"},
         lambda t, x: partial(t.nn.functional.interpolate, x, scale_factor=2, mode="bilinear")),
    Case("resize, cubic", "Resize", IMAGE, _scales(1, 1, 2, 2), {"mode": "cubic"},
         lambda t, x: partial(t.nn.functional.interpolate, x, scale_factor=2, mode="bicubic")),
    Case("grid sample", "GridSample", IMAGE, (_grid(),), {"align_corners": 0},
         lambda t, x: partial(t.nn.functional.grid_sample, x, t.from_numpy(_grid()), align_corners=False)),
    Case("trilu", "Trilu", (512, 512), (), {}, lambda t, x: partial(t.triu, x)),
    Case("less", "Less", MATRIX, (np.zeros((), F32),), {}, lambda t, x: partial(t.lt, x, 0.0)),
    Case("clip", "Clip", MATRIX, (np.array(-1, F32), np.array(1, F32)), {}, lambda t, x: partial(t.clamp, x, -1, 1)),
    Case("exp", "Exp", MATRIX, (), {}, lambda t, x: partial(t.exp, x)),
    Case("tanh", "Tanh", MATRIX, (), {}, lambda t, x: partial(t.tanh, x)),
    Case("sigmoid", "Sigmoid", MATRIX, (), {}, lambda t, x: partial(t.sigmoid, x)),
    Case("erf", "Erf", MATRIX, (), {}, lambda t, x: partial(t.erf, x)),
    Case("gelu", "Gelu", MATRIX, (), {}, lambda t, x: partial(t.nn.functional.gelu, x)),
    Case("non-zero", "NonZero", MATRIX, (), {}, lambda t, x: partial(t.nonzero, x), lambda x: ops.non_zero(x)[::-1]),
    Case("unique", "Unique", (16384,), (), {}, lambda t, x: partial(t.unique, x), lambda x: ops.unique(x)[1:2]),
)  # fmt: skip


def measure(threads: tuple[int, ...], only: tuple[str, ...], rounds: int) -> list[dict[str, Any]]:
    """One record for each operator and number of threads."""
    if not (_present("onnx") and _present("onnxruntime")):
        return []
    return [_measure(case, n, rounds) for n in threads for case in CASES if not only or case.name in only]


def _graph(case: Case, x: Array, results: list[tuple[Any, tuple[int, ...]]]) -> Any:
    from onnx import helper, numpy_helper

    names = ["x", *(f"c{n}" if isinstance(c, np.ndarray) else c for n, c in enumerate(case.constants))]
    node = helper.make_node(case.op, names, [f"y{n}" for n in range(len(results))], **case.attributes)
    held = [numpy_helper.from_array(c, f"c{n}") for n, c in enumerate(case.constants) if isinstance(c, np.ndarray)]
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)
        for name, (dtype, shape) in zip(
            ["x", *(f"y{n}" for n in range(len(results)))], [(x.dtype, x.shape), *results], strict=True
        )
    ]
    return helper.make_graph([node], "operator", infos[:1], infos[1:], held)


def _results(case: Case, x: Array) -> list[Array]:
    """What ONNX Runtime gives, which says how large the results are."""
    kinds: dict[str, list[Any]] = {
        "ArgMax": [np.int64],
        "TopK": [F32, np.int64],
        "NonZero": [np.int64],
        "Less": [np.bool_],
    }
    free: list[tuple[Any, Any]] = [(kind, None) for kind in kinds.get(case.op, [F32])]
    return list(session(_graph(case, x, free), 1).run(None, {"x": x}))


def _pipeline(case: Case, graph: Any) -> Pipeline:
    from onnx import helper

    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    if case.ours is None:
        return load(helper.make_model(graph, opset_imports=opsets, ir_version=10))
    pipe = Pipeline(case.name)
    for n, y in enumerate(case.ours(pipe.input("x", "f32", case.shape))):
        pipe.output(f"y{n}", y)
    return pipe


def _measure(case: Case, threads: int, rounds: int) -> dict[str, Any]:
    x = _RNG.standard_normal(case.shape).astype(F32)
    x = np.round(x, 1) if case.op in ("NonZero", "Unique") else x
    with _quietly():
        right = _results(case, x)
        graph = _graph(case, x, [(y.dtype, y.shape) for y in right])
        plan = TilingExecutor(threads=threads).compile(_pipeline(case, graph))
        found = plan.run({"x": x})
        ours = {name: np.zeros_like(y) for name, y in found.items()}
        theirs = {f"y{n}": np.zeros_like(y) for n, y in enumerate(right)}
        calls: dict[str, Callable[[], Any]] = {"tilework": plan.bind({"x": x}, ours)}
        calls["onnxruntime"] = bind(session(graph, threads), {"x": x}, theirs)
        first = found["y0"]
        first = first[..., : right[0].shape[-1]] if case.ours is not None else first  # what there is room for is zero
        off = _distance(first, right[0])
        if case.torch is not None and _present("torch"):
            import torch

            set_threads(threads)
            calls["torch"] = case.torch(torch, torch.from_numpy(x))
        times = paired(calls, rounds, pause=threads > 1)
    best = times.fastest([n for n in calls if n != "tilework"])
    return {
        "operator": case.name,
        "threads": threads,
        "us": times.median("tilework") * 1e6,
        "best_peer": best,
        "of_best": times.ratio("tilework", best).median,
        "python": "Python" in plan.explain(),
        "wrong": "" if off <= 1e-4 else f"off by {off:g}",
    }


def _distance(found: Array, right: Array) -> float:
    if found.shape != right.shape:
        return np.inf
    return float(np.abs(found.astype(np.float64) - right.astype(np.float64)).max(initial=0))


def show(records: list[dict[str, Any]]) -> None:
    """A table of them."""
    from rich.console import Console
    from rich.table import Table

    console = Console()
    if not records:
        console.print("onnx and onnxruntime are not installed: pip install 'tilework[peers]'")
        return
    table = Table("operator", "threads", "us", "of the best peer", "", box=None)
    for r in records:
        note = r["wrong"] or ("in Python" if r["python"] else "")
        table.add_row(
            r["operator"], str(r["threads"]), f"{r['us']:.1f}", f"{r['of_best']:.2f} x {r['best_peer']}", note
        )
    console.print(table)
    ratios = [r["of_best"] for r in records]
    console.print(
        f"{sum(q >= 1 for q in ratios)} of {len(ratios)} at least 1.0 x the best peer, "
        f"geometric mean {np.exp(np.mean(np.log(ratios))):.2f} x"
    )
