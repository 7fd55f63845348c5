"""The same kind of run on ONNX Runtime: its quantized operators against what they mean here, on its own settings.

    python -m tilework.bench.prove.beside_onnxruntime --count 20000

Every draw is one operator with random sizes (0 among them), types, zero points and values, as in the proof of this
library; it runs with and without ONNX Runtime's optimizations, on one thread and on three. Codes of NaN and differences
of one code are counted apart: the ONNX text defines neither those nor in which order a product is scaled. The two runs
are not of one size: tilework's has layouts, tiles and instruction sets, which ONNX Runtime does not let a user choose.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter, defaultdict
from typing import Any

import numpy as np

from ...executors import SingleThreadExecutor
from ...frontends.onnx import load
from ..checks.onnx_draws import F32, OPERATORS, Array, Draw, codes
from .draw import SIZES

Rng = np.random.Generator
SETTINGS = [(level, threads) for level in ("as it is", "optimized") for threads in (1, 3)]
KINDS: tuple[Any, ...] = (np.uint8, np.int8)


def _size(rng: Rng, least: int = 0, most: int = 100) -> int:
    return max(least, min(int(rng.choice(SIZES)), most))


def _scale(rng: Rng, *shape: int) -> Array:
    return (2.0 ** rng.uniform(-8, 2, shape)).astype(F32)


def _values(rng: Rng, shape: Any) -> Array:
    x = (rng.standard_normal(shape) * 10.0 ** rng.integers(-2, 4)).astype(F32)
    special = np.array([0, -0.0, np.inf, -np.inf, np.nan, 0.5, 1e-40, 3e38], F32)
    at = rng.random(shape) < 0.05
    x[at] = special[rng.integers(0, len(special), int(at.sum()))]
    return x


def _quantize(rng: Rng) -> Draw:
    kind = (np.uint8, np.int8, np.uint16, np.int16)[int(rng.integers(4))]
    shape = [_size(rng) for _ in range(int(rng.integers(1, 4)))]
    many = (shape[-1],) if rng.random() < 0.5 else ()
    return Draw([_values(rng, shape), _scale(rng, *many), codes(rng, many, kind)], (1, 2), {"axis": -1})


def _dequantize(rng: Rng) -> Draw:
    kind = (np.uint8, np.int8, np.uint16, np.int16)[int(rng.integers(4))]
    shape = [_size(rng) for _ in range(int(rng.integers(1, 4)))]
    many = (shape[-1],) if rng.random() < 0.5 else ()
    return Draw([codes(rng, shape, kind), _scale(rng, *many), codes(rng, many, kind)], (1, 2), {"axis": -1}, within=0.0)


def _dynamic(rng: Rng) -> Draw:
    x = _values(rng, [_size(rng, 1) for _ in range(int(rng.integers(1, 4)))])
    return Draw([np.nan_to_num(x, nan=1, posinf=1, neginf=-1)], outputs=3, within=0.0)


def _factors(rng: Rng) -> tuple[Any, Any, Array, Array]:
    of_a, of_b = KINDS[int(rng.integers(2))], KINDS[int(rng.integers(2))]
    m, k, n = _size(rng), _size(rng), _size(rng)
    return of_a, of_b, codes(rng, (m, k), of_a), codes(rng, (k, n), of_b)


def _integer_product(rng: Rng) -> Draw:
    of_a, of_b, a, b = _factors(rng)
    many = (b.shape[1],) if rng.random() < 0.5 else ()
    return Draw([a, b, codes(rng, (), of_a), codes(rng, many, of_b)], (1, 2, 3) if rng.random() < 0.5 else (2, 3))


def _product(rng: Rng) -> Draw:
    of_a, of_b, a, b = _factors(rng)
    many = (b.shape[1],) if rng.random() < 0.5 else ()
    out = _scale(rng) * F32(max(1, a.shape[1]) * 64)
    operands = [a, _scale(rng), codes(rng, (), of_a), b, _scale(rng, *many), codes(rng, many, of_b), out]
    return Draw([*operands, codes(rng, (), of_a)], (1, 2, 3, 4, 5, 6, 7))


def _convolution(rng: Rng, scaled: bool) -> Draw:
    of_x, of_w = (np.uint8, KINDS[int(rng.integers(2))]) if rng.random() < 0.7 else (np.int8, np.int8)
    groups, inside, each = int(rng.choice([1, 1, 2, 3])), _size(rng, 1, 17), _size(rng, 1, 33)
    taps = [int(n) for n in rng.choice([1, 2, 3], 2)]
    x = codes(rng, (int(rng.choice([1, 1, 2])), groups * inside, _size(rng, 3, 12), _size(rng, 3, 12)), of_x)
    w = codes(rng, (groups * each, inside, *taps), of_w)
    attributes = {"group": groups, "pads": [int(rng.integers(0, t)) for t in (*taps, *taps)]}
    attributes |= {"strides": [int(n) for n in rng.choice([1, 2], 2)]}
    x_zero, w_zero = codes(rng, (), of_x), codes(rng, (), of_w)
    if not scaled:
        return Draw([x, w, x_zero, w_zero], (1, 2, 3), attributes)
    many = (groups * each,) if rng.random() < 0.5 else ()
    w_zero = np.zeros(many, of_w) if of_w == np.int8 else np.full(many, w_zero, of_w)
    out = _scale(rng) * F32(inside * taps[0] * taps[1] * 64)
    return Draw(
        [x, _scale(rng), x_zero, w, _scale(rng, *many), w_zero, out, codes(rng, (), of_x)],
        tuple(range(1, 8)),
        attributes,
    )


STANDARD = {
    "QuantizeLinear": _quantize,
    "DequantizeLinear": _dequantize,
    "DynamicQuantizeLinear": _dynamic,
    "MatMulInteger": _integer_product,
    "QLinearMatMul": _product,
    "ConvInteger": lambda rng: _convolution(rng, False),
    "QLinearConv": lambda rng: _convolution(rng, True),
}
CONTRIBUTED = ("QLinearAdd", "QLinearMul", "QLinearSigmoid", "QLinearLeakyRelu", "QLinearConcat", "QLinearAveragePool",
               "QLinearGlobalAveragePool", "QGemm")  # fmt: skip


def model(op: str, draw: Draw) -> tuple[Any, dict[str, Array]]:
    """The draw as a model, and its inputs."""
    from onnx import helper, numpy_helper

    domain = "" if op in STANDARD else "com.microsoft"
    fixed = [n for n in draw.constants if n < len(draw.operands) and draw.operands[n] is not None]
    held = [numpy_helper.from_array(np.array(draw.operands[n], order="C"), f"x{n}") for n in fixed]
    feeds = {f"x{n}": a for n, a in enumerate(draw.operands) if n not in fixed and a is not None}
    given = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for name, a in feeds.items()
    ]
    names = ["" if a is None else f"x{n}" for n, a in enumerate(draw.operands)]
    node = helper.make_node(op, names, [f"y{n}" for n in range(draw.outputs)], domain=domain, **draw.attributes)
    results = [helper.make_empty_tensor_value_info(f"y{n}") for n in range(draw.outputs)]
    graph = helper.make_graph([node], op, given, results, held)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10), feeds


def _ran(made: bytes, feeds: dict[str, Array], setting: tuple[str, int]) -> list[Array]:
    import onnxruntime

    levels = onnxruntime.GraphOptimizationLevel
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = setting[1], 4
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if setting[0] == "optimized" else levels.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(made, options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)  # type: ignore[no-any-return]


def verdict(found: list[Array], right: list[Array], given: list[Array]) -> str:
    """equal, only at NaN, one code apart, or different."""
    worst = "equal"
    for a, b in zip(found, right, strict=True):
        if a.shape != b.shape or a.dtype != b.dtype:
            return "different"
        if np.array_equal(a, b, equal_nan=b.dtype.kind == "f"):
            continue
        if given[0].shape == a.shape and not (a != b)[~np.isnan(given[0])].any():
            worst = "only at NaN"
        elif b.dtype.kind == "f" or np.abs(a.astype(np.int64) - b).max() > 1:
            return "different"
        else:
            worst = "one code apart"
    return worst


def run(count: int, seed: int) -> tuple[dict[str, Counter[str]], dict[str, str]]:
    """{operator: how often what}, and for each operator one difference in words."""
    tallies: dict[str, Counter[str]] = defaultdict(Counter)
    words: dict[str, str] = {}
    makers = {**STANDARD, **{op: OPERATORS[op] for op in CONTRIBUTED}}
    number = 0
    while sum(t.total() for t in tallies.values()) < count:
        op = list(makers)[number % len(makers)]
        rng = np.random.default_rng([seed, number])
        number += 1
        made, feeds = model(op, makers[op](rng))
        try:
            right = list(SingleThreadExecutor("reference").run(load(made), feeds).values())
        except Exception as error:
            tallies[op]["refused here"] += 1
            words.setdefault(f"{op}, refused here", f"{type(error).__name__}: {str(error)[:150]}")
            continue
        for setting in SETTINGS:
            try:
                said = verdict(_ran(made.SerializeToString(), feeds, setting), right, list(feeds.values()))
            except Exception as error:  # its exceptions have no common base
                said = "refused there"
                words.setdefault(f"{op}, refused there", str(error).splitlines()[0][-150:])
            tallies[op][said] += 1
            if said == "different":
                shapes = ", ".join(f"{a.dtype}{list(a.shape)}" for a in feeds.values())
                words.setdefault(f"{op}, different", f"seed {seed}, number {number - 1}, {setting}: {shapes}")
    return tallies, words


def main(given: list[str] | None = None) -> int:
    """Compare, and print a row for each operator."""
    from rich.table import Table

    from ..terminal import wide_console

    parser = argparse.ArgumentParser(prog="python -m tilework.bench.prove.beside_onnxruntime", description=__doc__)
    parser.add_argument("--count", type=int, default=20_000, help="configurations")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(given)
    tallies, words = run(options.count, options.seed)
    columns = ("equal", "only at NaN", "one code apart", "different", "refused there", "refused here")
    table = Table("operator", *columns, title="ONNX Runtime's quantized operators against their meaning here")
    for op in sorted(tallies):
        table.add_row(op, *(str(tallies[op][c]) for c in columns))
    total = sum(tallies.values(), Counter())
    table.add_row("all", *(str(total[c]) for c in columns))
    console = wide_console()
    console.print(table)
    for what, text in sorted(words.items()):
        console.print(f"{what}: {text}", markup=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
