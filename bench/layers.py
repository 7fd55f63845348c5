"""Two models of one network, tensor by tensor: what quantization did, worst layers first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import tilework as tw
from tilework.executors import inputs as doors
from tilework.frontends.onnx.load import load_with_values
from tilework.primitives.errors import ArgumentError

from .targets import learn_sizes, pairs, random_array, read_inputs

SUFFIXES = ("_DequantizeLinear_Output", "_DequantizeLinear", "_dequantized", "/DequantizeLinear")


def compare(parent: str, child: str, data: Sequence[str], sizes: Sequence[str], seed: int) -> dict[str, Any]:
    """Return {"tensors": [{"name", "sqnr_db", "max_error", "shape"}, ..]}, the worst first.

    sqnr_db    999 where the tensors are equal, -999 where there is no signal, or where NaN or infinity is in one alone
    max_error  the largest float64 where it is not finite

    Tensors are matched by name, a dequantized one by the name of what was quantized. Raises ArgumentError where the
    models have no input, or no tensor, in common.
    """
    loaded = [load_with_values(path) for path in (parent, child)]
    first = loaded[0].pipeline
    arrays = dict(read_inputs(data))
    env = learn_sizes(first, arrays, pairs(sizes, "--size"))
    rng = np.random.default_rng(seed)
    for name, value in doors.wanted(first).items():
        if name not in arrays:
            arrays[name] = random_array(value, env, rng)
    missing = doors.wanted(loaded[1].pipeline).keys() ^ arrays.keys()
    if missing:
        raise ArgumentError(f"{parent} and {child} differ in their inputs {', '.join(sorted(missing))}")
    found = [_tensors(model, arrays) for model in loaded]
    rows = [_row(name, found[0][name], found[1][name]) for name in found[0] if name in found[1]]
    rows = [row for row in rows if row is not None and row["name"] not in arrays]
    if not rows:
        raise ArgumentError(f"{parent} and {child} have no tensor of one name, type and shape")
    return {"parent": parent, "child": child, "tensors": sorted(rows, key=lambda row: row["sqnr_db"])}


def _tensors(loaded: Any, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Every real tensor of a model by its plain name."""
    pipe = loaded.pipeline
    names: dict[str, str] = {}
    for name, value in loaded.values.items():
        if value.dtype == "f32" and value.kind == "result":
            plain = next((name.removesuffix(s) for s in SUFFIXES if name.endswith(s)), name)
            output = f"tensor {len(names)}"
            names[output] = plain
            pipe.output(output, value)
    results = tw.TilingExecutor().run(pipe, arrays)
    return {plain: results[output] for output, plain in names.items()}


def _row(name: str, a: Any, b: Any) -> dict[str, Any] | None:
    if a.shape != b.shape or not a.size:
        return None
    x, y = a.astype(np.float64), b.astype(np.float64)
    apart = ~((x == y) | (np.isnan(x) & np.isnan(y)))
    with np.errstate(all="ignore"):
        error = np.abs(x - y)[apart]
        signal, noise = float((x[np.isfinite(x)] ** 2).sum()), float((error**2).sum())
    if not error.size:
        return {"name": name, "sqnr_db": 999.0, "max_error": 0.0, "shape": list(a.shape)}
    known = np.isfinite(noise) and noise > 0 and signal > 0
    ratio = 10 * np.log10(signal / noise) if known else -999.0
    largest = float(error.max()) if np.isfinite(error).all() else np.finfo(np.float64).max
    return {"name": name, "sqnr_db": float(ratio), "max_error": largest, "shape": list(a.shape)}


def show(result: Mapping[str, Any]) -> None:
    """Print the table for people."""
    from rich.table import Table

    from .terminal import wide_console

    table = Table(title=f"{result['child']} against {result['parent']}, worst first", title_style="bold")
    for heading in ("tensor", "shape", "SQNR dB", "largest error"):
        table.add_column(heading, justify="left" if heading == "tensor" else "right")
    for row in result["tensors"]:
        shown = {999.0: "equal", -999.0: "no signal"}.get(row["sqnr_db"], f"{row['sqnr_db']:.1f}")
        table.add_row(row["name"], " x ".join(map(str, row["shape"])), shown, f"{row['max_error']:.4g}")
    wide_console().print(table)


def draw(result: Mapping[str, Any], path: str) -> None:
    """Draw the ratios of all tensors as bars, in the order of the table."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ArgumentError(f"a picture needs matplotlib ({error}); pip install 'tilework[plot]'") from None
    rows = result["tensors"]
    figure = Figure(figsize=(8, 1 + 0.22 * len(rows)), layout="constrained")
    axes = figure.add_subplot()
    axes.barh([row["name"] for row in rows], [min(row["sqnr_db"], 120.0) for row in rows])
    axes.invert_yaxis()
    axes.set_xlabel("signal to quantization noise, dB")
    axes.tick_params(axis="y", labelsize=6)
    figure.savefig(path)
