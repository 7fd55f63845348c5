"""Random models of ONNX's own operators: `python -m tilework.bench.checks.onnx_random --count 100 --seed 0`.

Every draw chooses an opset that has the operator (10 to 28), types, shapes, attributes, optional operands, and what of
them is a constant or has an open size. A result passes where it equals what ONNX Runtime (unoptimized) or ONNX's own
reference gives: the two differ now and then, and each refuses what the other runs. Integers have to be equal, real
numbers within a bound. Options: --op NAME (several), --compiled to run compiled steps instead of their meaning.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from ....executors import SingleThreadExecutor
from ....frontends.onnx import load
from .. import tallies
from . import elementwise, moving, products, windows
from .drawing import OPERATORS, Array, Draw, Rng

FIRST, LAST = 10, 28  # opsets
NARROW, WIDE = 2e-2, 1e-4  # how far real numbers of less than 32 bits, and others, may be off, relative
FAMILIES = (elementwise, moving, products, windows)


def model(op: str, opset: int, draw: Draw, rng: Rng) -> tuple[Any, dict[str, Array]]:
    """The draw as a model, and its inputs."""
    from onnx import helper, numpy_helper

    names, given, held, feeds = [], [], [], {}
    for n, operand in enumerate(draw.operands):
        names.append("" if operand is None else f"x{n}")
        if operand is None:
            continue
        array = np.asarray(operand, order="C")
        if rng.random() < (0.7 if n in draw.constants else 0.2 if n else 0.0):
            held.append(numpy_helper.from_array(array, f"x{n}"))
            continue
        sizes = list(array.shape) if rng.random() < 0.8 else [f"s{n}_{axis}" for axis in range(array.ndim)]
        given.append(helper.make_tensor_value_info(f"x{n}", helper.np_dtype_to_tensor_dtype(array.dtype), sizes))
        feeds[f"x{n}"] = array
    while names and not names[-1]:
        names.pop()
    results = [f"y{n}" for n in range(draw.outputs)]
    node = helper.make_node(op, names, results, **draw.attributes)
    graph = helper.make_graph([node], op, given, [helper.make_empty_tensor_value_info(y) for y in results], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10), feeds


def wanted(made: Any, feeds: dict[str, Array]) -> dict[str, list[Array]]:
    """What each of the references says, as far as it runs the model."""
    import onnxruntime
    from onnx.reference import ReferenceEvaluator

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL

    def runtime() -> Any:
        providers = ["CPUExecutionProvider"]
        return onnxruntime.InferenceSession(made.SerializeToString(), options, providers=providers).run(None, feeds)

    found = {}
    for name, run in (("ONNX Runtime", runtime), ("ONNX", lambda: ReferenceEvaluator(made).run(None, feeds))):
        try:
            found[name] = list(run())
        except Exception:  # their exceptions have no common base
            continue
    return found


def differs(found: Array, want: Any) -> str:
    """What is wrong with a result; empty if nothing is."""
    want = np.asarray(want)
    if found.shape != want.shape or found.dtype != want.dtype:
        return f"{found.dtype}{found.shape} where {want.dtype}{want.shape} is wanted"
    if want.dtype.kind in "iub":
        off = int((found != want).sum())
        return f"{off} of {want.size} differ" if off else ""
    x, y = found.astype(np.float64), want.astype(np.float64)
    within = NARROW if want.dtype.itemsize < 4 else WIDE
    largest = min(float(np.abs(y[np.isfinite(y)]).max(initial=0)), 10.0)
    with np.errstate(invalid="ignore"):
        near = np.abs(x - y) <= within * np.abs(y) + 0.01 * within * largest + 1e-6
    good = (x == y) | (np.isnan(x) & np.isnan(y)) | (near & np.isfinite(x) & np.isfinite(y))
    return "" if good.all() else f"{int((~good).sum())} of {good.size} are off: {x[~good][:3]} where {y[~good][:3]}"


def first_opset(op: str) -> int:
    """The first opset that is drawn which has the operator."""
    from onnx import defs

    history = defs.get_all_schemas_with_history()
    return max(FIRST, min(s.since_version for s in history if s.name == op and not s.domain and not s.deprecated))


def check(op: str, seed: int, compiled: bool = False) -> tuple[str, str]:
    """One draw: ("pass", "refused" by both references, "wrong" or "error", what about it)."""
    rng = np.random.default_rng([seed, sum(op.encode())])
    opset = int(rng.integers(first_opset(op), LAST + 1))
    draw = OPERATORS[op](rng, opset)
    made, feeds = model(op, opset, draw, rng)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        want = wanted(made, feeds)
    if not want:
        return "refused", ""
    try:
        found = SingleThreadExecutor("cpu" if compiled else "reference").run(load(made), feeds)
    except Exception as error:
        return "error", f"opset {opset}: {type(error).__name__}: {error}"
    reasons = []
    for name, results in want.items():
        wrong = next((r for a, b in zip(found.values(), results, strict=False) if (r := differs(a, b))), "")
        if not wrong:
            return "pass", ""
        reasons.append(f"{name}: {wrong}")
    return "wrong", f"opset {opset}: {'; '.join(reasons)}"


def main(arguments: list[str] | None = None) -> int:
    program, about = "python -m tilework.bench.checks.onnx_random", (__doc__ or "").split("\n")[0]
    return tallies.run(program, about, OPERATORS, check, "both references refuse", arguments)


if __name__ == "__main__":
    raise SystemExit(main())
