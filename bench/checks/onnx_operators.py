"""Random models of one operator of com.microsoft against ONNX Runtime: `python -m tilework.bench.checks.onnx_operators`.

Every draw chooses attributes, shapes, types and which optional operands are there. Integers have to be equal, real
numbers within a bound. What ONNX Runtime refuses itself is counted apart. Options: --count N draws of each operator,
--seed, --op NAME (several), --compiled to run compiled steps instead of their meaning.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...executors import SingleThreadExecutor
from ...frontends.onnx import load
from . import tallies
from .onnx_draws import OPERATORS, Array, Draw

DOMAIN = "com.microsoft"


def model(op: str, draw: Draw) -> tuple[Any, dict[str, Array]]:
    """The draw as a model, and its inputs."""
    from onnx import helper, numpy_helper

    names, given, held, feeds = [], [], [], {}
    for n, array in enumerate(draw.operands):
        names.append("" if array is None else f"x{n}")
        if array is None:
            continue
        if n in draw.constants:
            held.append(numpy_helper.from_array(np.asarray(array, order="C"), f"x{n}"))
            continue
        shape = [draw.free.get(n, {}).get(axis, size) for axis, size in enumerate(array.shape)]
        given.append(helper.make_tensor_value_info(f"x{n}", helper.np_dtype_to_tensor_dtype(array.dtype), shape))
        feeds[f"x{n}"] = array
    while names and not names[-1]:
        names.pop()
    results = [f"y{n}" for n in range(draw.outputs)]
    node = helper.make_node(op, names, results, domain=DOMAIN, **draw.attributes)
    graph = helper.make_graph([node], op, given, [helper.make_empty_tensor_value_info(y) for y in results], held)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10), feeds


def wanted(made: Any, feeds: dict[str, Array]) -> list[Array]:
    """What ONNX Runtime says, unoptimized."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])
    found: list[Array] = session.run(None, feeds)
    return found


def differs(found: Array, want: Array, within: float) -> str:
    """What is wrong with a result; empty if nothing is."""
    if found.shape != want.shape or found.dtype != want.dtype:
        return f"{found.dtype}{found.shape} where {want.dtype}{want.shape} is wanted"
    if want.dtype.kind != "f":
        off = int((found != want).sum())
        return f"{off} of {want.size} differ" if off else ""
    far = np.abs(found.astype(np.float64) - want)
    bound = within * max(1.0, float(np.abs(want).max(initial=0)))
    return "" if (far <= bound).all() else f"off by {far.max():.3g}"


def check(op: str, seed: int, compiled: bool = False) -> tuple[str, str]:
    """One draw: ("pass", "refused" by ONNX Runtime, "wrong" or "error", what about it)."""
    draw = OPERATORS[op](np.random.default_rng(seed))
    made, feeds = model(op, draw)
    try:
        want = wanted(made, feeds)
    except Exception as error:  # its exceptions have no common base
        return "refused", str(error).splitlines()[0][-120:]
    try:
        found = SingleThreadExecutor("cpu" if compiled else "reference").run(load(made), feeds)
    except Exception as error:
        return "error", f"{type(error).__name__}: {error}"
    reasons = [differs(a, b, draw.within) for a, b in zip(found.values(), want, strict=True)]
    reason = next((r for r in reasons if r), "")
    return ("wrong", reason) if reason else ("pass", "")


def main(arguments: list[str] | None = None) -> int:
    program, about = "python -m tilework.bench.checks.onnx_operators", (__doc__ or "").split("\n")[0]
    return tallies.run(program, about, OPERATORS, check, "ONNX Runtime refuses", arguments)


if __name__ == "__main__":
    raise SystemExit(main())
