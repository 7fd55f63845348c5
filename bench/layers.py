"""Two models of one network, tensor by tensor: what quantization did, worst layers first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import tilework as tw
from tilework.executors import inputs as doors
from tilework.frontends.onnx.load import load_with_values
from tilework.frontends.onnx.reading import read
from tilework.frontends.onnx.tensors import to_array
from tilework.primitives.errors import ArgumentError

from .targets import learn_sizes, pairs, random_array, read_inputs

SUFFIXES = ("_DequantizeLinear_Output", "_DequantizeLinear", "_dequantized", "/DequantizeLinear")
REAL = ("f32", "f64", "f16", "bf16")
PARENTS = ("reference", "onnxruntime")
# Where an operator that writes codes has their scale; the zero point comes next.
SCALE_AT = {
    "QuantizeLinear": 1,
    "QLinearConv": 6,
    "QLinearMatMul": 6,
    "QLinearAdd": 6,
    "QLinearMul": 6,
    "QGemm": 7,
    "QLinearSigmoid": 3,
    "QLinearLeakyRelu": 3,
    "QLinearSoftmax": 3,
    "QLinearAveragePool": 3,
    "QLinearGlobalAveragePool": 3,
    "QLinearConcat": 0,
}


def compare(
    parent: str, child: str | None, data: Sequence[str], sizes: Sequence[str], seed: int, against: str = "reference"
) -> dict[str, Any]:
    """Return {"parent", "child", "tensors": [{"name", "sqnr_db", "max_error", "shape"}, ..]}, the worst first.

    child    None: the parent itself as the tiled executor runs it, against `against`: what the reference of every step
             gives, or ONNX Runtime without optimizations
    sqnr_db    999 where the tensors are equal, -999 where there is no signal, or where NaN or infinity is in one alone
    max_error  the largest float64 where it is not finite

    Tensors are matched by name, a dequantized one, and codes whose scale the file gives, by the name of what was
    quantized. Raises ArgumentError where the models have no input, or no tensor with elements, in common.
    """
    if child is None and against not in PARENTS:
        raise ArgumentError(f"--against {against!r}: {' and '.join(PARENTS)} work")
    arrays = _inputs(parent, data, sizes, seed)
    if child is None:
        names = f"{parent} by {against}", f"{parent} as it runs"
        one = _by_onnxruntime(parent, arrays) if against == "onnxruntime" else _tensors(parent, arrays, "reference")
    else:
        names = parent, child
        missing = doors.wanted(tw.onnx.load(child)).keys() ^ arrays.keys()
        if missing:
            raise ArgumentError(f"{parent} and {child} differ in their inputs {', '.join(sorted(missing))}")
        one = _tensors(parent, arrays)
    other = _tensors(child or parent, arrays)
    for name, clipped in ({} if child is None else _clipped(parent)).items():
        if name in other and clipped in one and clipped not in other:  # quantizers let the codes' range do the clipping
            other[clipped] = other.pop(name)
    common = [name for name in one if name in other and name not in arrays]
    alike = [name for name in common if one[name].shape == other[name].shape]
    rows = [_row(name, one[name], other[name]) for name in alike if one[name].size]
    if not rows:
        if alike:
            raise ArgumentError(f"the data have no elements: all {len(alike)} tensors that both models have are empty")
        shapes = (f"{n} is {one[n].shape} and {other[n].shape}" for n in common[:3])
        why = "; ".join(shapes) if common else f"{_some(one)} there, {_some(other)} here"
        raise ArgumentError(f"{names[0]} and {names[1]} have no real tensor of one name and shape: {why}")
    return {"parent": names[0], "child": names[1], "tensors": sorted(rows, key=lambda row: row["sqnr_db"])}


def _some(tensors: Mapping[str, Any]) -> str:
    return ", ".join([*list(tensors)[:4], *(["..."] if len(tensors) > 4 else [])]) or "none"


def _inputs(path: str, data: Sequence[str], sizes: Sequence[str], seed: int) -> dict[str, Any]:
    """What both models get: the data, and random numbers for inputs that it does not have."""
    pipe = tw.onnx.load(path)
    arrays = read_inputs(data, list(doors.wanted(pipe)))
    env = learn_sizes(pipe, arrays, pairs(sizes, "--size"))
    rng = np.random.default_rng(seed)
    for name, value in doors.wanted(pipe).items():
        if name not in arrays:
            arrays[name] = random_array(value, env, rng, places=True)
    return arrays


def _tensors(path: str, arrays: Mapping[str, Any], executor: str = "tiled") -> dict[str, Any]:
    """Every real tensor of a model by its plain name, also those of which there are only codes."""
    loaded, coded = load_with_values(path, inputs=arrays), _coded(path)
    pipe = loaded.pipeline
    names: dict[str, str] = {}
    for name, value in loaded.values.items():
        real = str(value.dtype) in REAL
        if value.kind == "result" and (real or name in coded):
            output = f"tensor {len(names)}"
            names[output] = name
            pipe.output(output, value)
    results = tw.executor(executor).run(pipe, dict(arrays))
    found = {_plain(name): _real(results[output], coded[name]) for output, name in names.items() if name in coded}
    return found | {_plain(name): results[output] for output, name in names.items() if name not in coded}


def _clipped(path: str) -> dict[str, str]:
    """{name: what it becomes} of the tensors that only a Relu or Clip reads."""
    nodes = read(path).proto.graph.node
    readers = {name: [n for n in nodes if name in n.input] for node in nodes for name in node.output}
    return {
        name: found[0].output[0]
        for name, found in readers.items()
        if len(found) == 1 and found[0].op_type in ("Relu", "Clip")
    }


def _plain(name: str) -> str:
    return next((name.removesuffix(s) for s in (*SUFFIXES, "_quantized") if name.endswith(s)), name)


def _real(codes: Any, scale: tuple[Any, Any]) -> Any:
    return (codes.astype(np.float64) - scale[1]) * scale[0]


def _coded(path: str) -> dict[str, tuple[Any, Any]]:
    """{name: (scale, zero point)} of the codes whose one scale and zero point are constants of the file."""
    model = read(path)
    constants = {t.name: t for t in model.proto.graph.initializer}
    found = {}
    for node in model.proto.graph.node:
        at = SCALE_AT.get(node.op_type)
        given = [] if at is None else [constants.get(name) for name in node.input[at : at + 2]]
        if len(given) == 2 and None not in given:
            scale, zero = (to_array(t, model.folder, model.name).astype(np.float64) for t in given)
            if scale.size == 1 == zero.size:
                found[node.output[0]] = scale.reshape(()), zero.reshape(())
    return found


def _by_onnxruntime(path: str, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Every real tensor of a model by its plain name, as ONNX Runtime computes it without optimizations."""
    try:
        import onnxruntime
    except ImportError as error:
        raise ArgumentError(f"--against onnxruntime needs it ({error}); pip install 'tilework[peers]'") from None
    model = read(path)
    given = {v.name for v in model.proto.graph.output}
    for node in model.proto.graph.node:
        for name in node.output:
            if name and name not in given:
                model.proto.graph.output.add().name = name
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(
            model.proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        names = [output.name for output in session.get_outputs()]
        results = dict(zip(names, session.run(None, dict(arrays)), strict=True))
    except Exception as error:  # it has its own kinds of error, which say what it does not take
        raise ArgumentError(f"{path}: ONNX Runtime does not run it: {error}") from None
    coded = _coded(path)
    found = {_plain(name): _real(x, coded[name]) for name, x in results.items() if name in coded}
    real = {n: x for n, x in results.items() if n not in coded and isinstance(x, np.ndarray) and x.dtype.kind == "f"}
    return found | {_plain(name): x for name, x in real.items()}


def _row(name: str, a: Any, b: Any) -> dict[str, Any]:
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

    child, parent = (Path(result[key]).name for key in ("child", "parent"))
    table = Table(title=f"{child} against {parent}, worst first", title_style="bold")
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
