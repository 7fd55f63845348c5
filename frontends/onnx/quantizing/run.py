"""`quantize`: a float ONNX model with quantized weights and activations, calibrated, measured, and ready to be saved."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....executors import TilingExecutor
from ....executors.fitting import allocate, calibrate, sensitivities
from ....executors.fitting.statistics import METHODS
from ....executors.schemes import Scheme, get
from ....primitives.errors import ArgumentError, Unsupported
from ....primitives.pipeline import Pipeline, Value
from ....primitives.placing import placed
from ..load import _translated
from ..reading import Model, read
from . import translating as translating
from .layers import Array, constants_of, layers_of
from .writing import Affine, Choice, own, qdq, unsaid

AFFINE = {
    "u8": False,
    "s8": True,
    "uint8": False,
    "int8": True,
    "int8_tensor": True,
    "int8_tensor_asym": False,
    "onnx_uint8_tensor": False,
    "torch_uint8_tensor": False,
}
Step = Callable[[str, int, int], None]  # what is done, and how far it is


@dataclass(frozen=True)
class Quantized:
    """A quantized model.

    pipeline  of the quantized network: integer products where weights and activations are codes of one scale each, else
              products that decode the weights as they go
    proto     the same as an ONNX model with DequantizeLinear and QuantizeLinear; None where ONNX cannot say it
    unsaid    why not
    layers    {"name", "op", "shape", "scheme", "bits", "weights_db", "output_db"} of each, in order: bits a weight with
              all parameters, signal to noise of the weights and of the layer's output on the calibration data
    outputs   {output: signal to noise in dB}
    """

    pipeline: Pipeline
    proto: Any
    unsaid: str
    layers: tuple[dict[str, Any], ...]
    outputs: Mapping[str, float]

    @property
    def bits(self) -> float:
        """Bits a weight over all quantized layers."""
        weights = sum(int(np.prod(row["shape"])) for row in self.layers)
        return sum(row["bits"] * int(np.prod(row["shape"])) for row in self.layers) / max(weights, 1)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a pipeline, or to a path that ends in .onnx a QDQ model. Raises Unsupported where ONNX cannot say it."""
        if not str(path).endswith(".onnx"):
            self.pipeline.save(path, functions="source")
            return
        if self.proto is None:
            raise Unsupported(f"{os.fspath(path)}: {self.unsaid}; a pipeline works, of any scheme (another ending)")
        data = self.proto.SerializeToString()
        with placed(path) as part:
            part.write_bytes(data)


def quantize(
    source: Any,
    scheme: Scheme | str | Sequence[Scheme | str],
    data: Mapping[str, Any],
    *,
    activations: Scheme | str | None = None,
    budget: float | None = None,
    method: str = "minmax",
    shapes: Mapping[str, Iterable[Any]] | None = None,
    step: Step | None = None,
) -> Quantized:
    """Quantize the weights of a model's convolutions, Gemms and matrix products after training.

    source       a float model: a path, bytes or a ModelProto
    scheme       of the weights, as a matrix (outputs, what is summed over); several: each layer takes the one with the
                 least loss that `budget` leaves
    data         {input: array}: what to calibrate on and to measure with. An input whose first axis is fixed may have
                 more samples along it: they are run one after another
    activations  of the layers' inputs. "u8" or "s8" (or int8_tensor, ..): one calibrated scale each. Another scheme: as
                 it fits itself to each tensor when it runs. Left out: they stay float
    budget       bits a weight, parameters included, over all layers
    method       of the ranges: minmax, running, percentile, mse or kl
    shapes       {input: shape} for sizes that the file leaves open
    step         called as the work goes on

    Raises ArgumentError for a model without such layers and for data that do not fit; QuantizationError for activations
    that are never finite.
    """
    model = read(source)
    schemes = [
        s if isinstance(s, Scheme) else get(s) for s in ([scheme] if isinstance(scheme, (str, Scheme)) else scheme)
    ]
    if not schemes or (budget is None and len(schemes) > 1):
        raise ArgumentError(f"quantize: {len(schemes)} schemes; one works, and several with a budget to choose by")
    if method not in METHODS:
        raise ArgumentError(f"quantize: there is no method {method!r}; there is {', '.join(METHODS)}")
    how, affine = _activations(activations)
    constants = constants_of(model)
    layers = layers_of(model, constants)
    if not layers:
        raise ArgumentError(f"{model.name} has no Conv, Gemm or MatMul with constant float32 weights to quantize")
    tell = step or (lambda what, at, of: None)
    batches = list(_batches(model, data, dict(shapes or {})))
    watch = _Watched(model, dict(shapes or {}), [layer.y for layer in layers])
    inside = _Watched(model, dict(shapes or {}), list(dict.fromkeys(layer.x for layer in layers)))
    ranges: dict[str, tuple[float, float]] = {}
    if affine is not None:
        ranges = calibrate(_told(inside, batches, tell), method, symmetric=affine.signed)
    matrices = {layer.name: layer.matrix(constants[layer.weight]) for layer in layers}
    chosen = _chosen(schemes, matrices, budget)
    choices = []
    for n, layer in enumerate(layers):
        tell(f"quantize {layer.name}", n, len(layers))
        q = chosen[layer.name].quantize(matrices[layer.name])
        choices.append(Choice(layer, q, unsaid(layer, q)))
    reason = next((f"{c.layer.name}: {c.unsaid}" for c in choices if c.unsaid), "")
    if how is not None:
        reason = reason or f"activations of {how.name}, which are fitted when they run; u8 and s8 work"
    proto = None
    if not reason:
        try:
            proto = qdq(model, choices, constants, affine, ranges)
        except Unsupported as error:
            reason = str(error)
    if proto is not None and affine is not None:  # integer products
        made = Model(proto, {**model.opsets, "": _version(proto)}, model.folder, model.name)
    else:
        static = {name: affine.parameters(*found) for name, found in ranges.items()} if affine is not None else {}
        held = tuple((c, static.get(c.layer.x, how)) for c in choices)
        made = dataclasses.replace(model, proto=own(model, choices), layers=held)
    judged = _Watched(made, dict(shapes or {}), [layer.y for layer in layers])
    noise = _noise(watch, judged, batches, tell)
    rows = tuple(_row(c, matrices[c.layer.name], noise[c.layer.y]) for c in choices)
    pipeline = _translated(made, dict(shapes or {}), {}).pipeline
    return Quantized(pipeline, proto, reason, rows, {name: noise[name] for name in pipeline.outputs})


def _version(proto: Any) -> int:
    return max(int(e.version) for e in proto.opset_import if e.domain in ("", "ai.onnx"))


def _activations(given: Scheme | str | None) -> tuple[Scheme | None, Affine | None]:
    """A scheme that fits itself, or one calibrated scale for each tensor."""
    name = given if isinstance(given, str) else getattr(given, "name", "")
    if name in AFFINE:
        return None, Affine(AFFINE[name])
    return (get(given) if isinstance(given, str) else given), None


def _chosen(schemes: list[Scheme], matrices: Mapping[str, Array], budget: float | None) -> dict[str, Scheme]:
    """The scheme of each layer; by a budget, the one whose noise is least, each measured against its layer's weights."""
    if budget is None:
        return dict.fromkeys(matrices, schemes[0])
    costs = sensitivities(matrices, schemes)
    for name, found in costs.items():
        power = float(np.square(matrices[name].astype(np.float64)).sum()) or 1.0
        costs[name] = {scheme: (bits, error / power) for scheme, (bits, error) in found.items()}
    picked = allocate(costs, budget * sum(w.size for w in matrices.values()))
    by_name = {s.name: s for s in schemes}
    return {layer: by_name[name] for layer, name in picked.items()}


def _row(choice: Choice, matrix: Array, output_db: float) -> dict[str, Any]:
    error = choice.weights.dequantize().astype(np.float64) - matrix
    return {
        "name": choice.layer.name,
        "op": choice.layer.op,
        "shape": list(choice.layer.shape),
        "scheme": choice.weights.scheme.name,
        "bits": choice.weights.bits_per_weight,
        "weights_db": decibels(float(np.square(matrix.astype(np.float64)).sum()), float(np.square(error).sum())),
        "output_db": output_db,
    }


def decibels(signal: float, noise: float) -> float:
    """Signal to noise; 999 where there is no noise, -999 where there is no signal."""
    if not noise:
        return 999.0
    return 10 * float(np.log10(signal / noise)) if signal and np.isfinite(noise) else -999.0


# Running on data -----------------------------------------------------------------------------------------------------


class _Watched:
    """A model whose tensors of some names are results of a run too."""

    def __init__(self, model: Model, shapes: Mapping[str, Iterable[Any]], names: Sequence[str]) -> None:
        found = _translated(model, shapes, {}, everything=True)
        self.pipe, self.results = found.pipeline, {name: name for name in found.pipeline.outputs}
        for n, name in enumerate(names):
            value = found.values.get(name)
            if isinstance(value, Value) and name not in self.results:
                if value.kind == "input":
                    continue
                self.pipe.output(f"watched {n}", value)
                self.results[name] = f"watched {n}"
        self.inputs = [name for name in names if name in found.pipeline.values and name not in self.results]
        self.executor = TilingExecutor()

    def run(self, batch: Mapping[str, Array]) -> dict[str, Array]:
        found = self.executor.run(self.pipe, dict(batch))
        results = {name: found[output] for name, output in self.results.items()}
        return results | {name: batch[name] for name in self.inputs if name in batch}


def _batches(model: Model, data: Mapping[str, Any], shapes: Mapping[str, Iterable[Any]]) -> Iterator[dict[str, Array]]:
    """What each run takes: the data whole, or piece by piece where inputs have a fixed first size that divides theirs."""
    known = _translated(model, shapes, {}).pipeline.values
    inputs = {name: value for name, value in known.items() if value.kind == "input"}
    for name in data:
        if name not in inputs:
            raise ArgumentError(f"quantize: the data names {name!r}, which is no input; there is {', '.join(inputs)}")
    pieces = set()
    for name, value in inputs.items():
        if name not in data:
            raise ArgumentError(f"quantize: the data has no {name!r}; it has {', '.join(data) or 'nothing'}")
        array = np.asarray(data[name])
        if array.ndim != value.ndim:
            raise ArgumentError(f"quantize: {name} has {array.ndim} dimensions; {value.ndim} work: {value.shape}")
        first = value.shape[0] if value.ndim else 1
        if isinstance(first, int) and value.ndim and first > 0 and array.shape[0] != first:
            if array.shape[0] % first:
                raise ArgumentError(f"quantize: {name} has {array.shape[0]} samples; a multiple of {first} works")
            pieces.add(array.shape[0] // first)
    if len(pieces) > 1:
        raise ArgumentError(
            f"quantize: inputs have {sorted(pieces)} times as many samples as the model; one number works"
        )
    count = pieces.pop() if pieces else 1
    for n in range(count):
        batch = {}
        for name in inputs:
            array = np.asarray(data[name])
            size = array.shape[0] // count if count > 1 else None
            batch[name] = np.ascontiguousarray(array if size is None else array[n * size : (n + 1) * size])
        yield batch


def _told(watched: _Watched, batches: Sequence[Mapping[str, Array]], tell: Step) -> Iterator[dict[str, Array]]:
    for n, batch in enumerate(batches):
        tell("calibrate", n, len(batches))
        yield watched.run(batch)


def _noise(a: _Watched, b: _Watched, batches: Sequence[Mapping[str, Array]], tell: Step) -> dict[str, float]:
    """Signal to noise of every tensor that both models have, over all batches."""
    signal: dict[str, float] = {}
    noise: dict[str, float] = {}
    for n, batch in enumerate(batches):
        tell("compare", n, len(batches))
        right, found = a.run(batch), b.run(batch)
        for name, array in right.items():
            if name in found and array.dtype.kind == "f" and array.shape == found[name].shape:
                x = array.astype(np.float64)
                signal[name] = signal.get(name, 0.0) + float(np.square(x).sum())
                noise[name] = noise.get(name, 0.0) + float(np.square(x - found[name]).sum())
    return {name: decibels(signal[name], noise[name]) for name in signal} | {
        name: 999.0 for name in a.results if name not in signal
    }
