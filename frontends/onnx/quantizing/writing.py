"""Quantized models as protobuf: pairs of QuantizeLinear and DequantizeLinear where ONNX can say a scheme, else nodes of
the domain "tilework" that only this package reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....executors.fitting import qparams
from ....executors.schemes import QuantizedTensor
from ....primitives.errors import Unsupported
from ..reading import DEFAULT, Model, package
from .layers import Array, Layer

DOMAIN = "tilework"


@dataclass(frozen=True)
class Affine:
    """Activations as codes of one scale and zero point: u8, or s8 with zero point 0."""

    signed: bool

    @property
    def dtype(self) -> Any:
        return np.int8 if self.signed else np.uint8

    def parameters(self, low: float, high: float) -> tuple[Array, Array]:
        scale, zero = qparams(low, high, bits=8, signed=self.signed, symmetric=self.signed)
        return np.asarray(scale, np.float32).reshape(()), np.asarray(zero).astype(self.dtype).reshape(())


@dataclass(frozen=True)
class Choice:
    """What a layer became: its quantized weights, and why ONNX has no words for them ("" where it has)."""

    layer: Layer
    weights: QuantizedTensor
    unsaid: str


def unsaid(layer: Layer, q: QuantizedTensor) -> str:
    """Why DequantizeLinear cannot say these weights; empty where it can."""
    found = q.linear_weights("f32")
    if found is None or found[0].kind != "affine":
        return f"{q.scheme.name} is no affine code: (code - zero point) * scale for each block"
    rows, columns = found[0].block
    if rows not in (1, None) or (rows is None and columns is not None):
        return f"{q.scheme.name} has blocks of {found[0].block}; whole tensors, rows, or pieces of a row work"
    if columns is not None and layer.op == "Conv":
        return f"{q.scheme.name} has blocks along what a convolution sums over, which lies on several axes"
    return ""


def version_needed(choices: Sequence[Choice]) -> int:
    """The oldest operator set that says these weights."""
    blocked = any(c.weights.linear_weights("f32")[0].block[1] is not None for c in choices)  # type: ignore[index]
    return 21 if blocked or any(c.weights.scheme.bits == 4 for c in choices) else 13


def at_version(model: Model, needed: int) -> Any:
    """A copy of the model in an operator set that is new enough."""
    onnx = package()
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    if model.opsets.get(DEFAULT, 1) >= needed:
        return proto
    try:
        return onnx.version_converter.convert_version(proto, needed)
    except Exception as error:  # it raises what its C++ raises
        raise Unsupported(
            f"{model.name}: its operator set {model.opsets.get(DEFAULT, 1)} has no words for these weights, and it cannot be "
            f"converted to {needed}: {str(error).splitlines()[0]}; a pipeline works (-o out.tw)"
        ) from None


def qdq(
    model: Model,
    choices: Sequence[Choice],
    constants: Mapping[str, Array],
    activations: Affine | None,
    ranges: Mapping[str, tuple[float, float]],
) -> Any:
    """The model with every layer's weights dequantized in front of it, and its input quantized where asked for."""
    onnx = package()
    proto = at_version(model, version_needed(choices))
    graph, held, made = proto.graph, {}, {}
    by_output = {c.layer.y: c for c in choices}

    def hold(name: str, array: Array, bits: int = 8) -> str:
        if name not in held:
            held[name] = _tensor(name, array, bits)
        return name

    nodes = []
    for node in graph.node:
        choice = by_output.get(node.output[0]) if node.output else None
        if choice is None:
            nodes.append(node)
            continue
        layer = choice.layer
        scale, zero = (None, None)
        if activations is not None:
            scale, zero = activations.parameters(*ranges[layer.x])
            if layer.x not in made:
                made[layer.x] = f"{layer.x}_dequantized"
                given = [hold(f"{layer.x}_scale", scale), hold(f"{layer.x}_zero_point", zero)]
                codes = f"{layer.x}_codes"
                nodes.append(onnx.helper.make_node("QuantizeLinear", [layer.x, *given], [codes]))
                nodes.append(onnx.helper.make_node("DequantizeLinear", [codes, *given], [made[layer.x]]))
            node.input[0] = made[layer.x]
        if layer.weight not in made:
            made[layer.weight] = f"{layer.weight}_dequantized"
            nodes.append(_weights(choice, made[layer.weight], hold))
        node.input[1] = made[layer.weight]
        bias = _bias(choice, scale, constants, hold)
        if bias is not None:
            nodes.append(bias)
            node.input[2] = bias.output[0]
        nodes.append(node)
    kept = [onnx.NodeProto.FromString(n.SerializeToString()) for n in nodes]
    del graph.node[:]
    graph.node.extend(kept)
    graph.initializer.extend(held.values())
    _drop_unread(graph)
    return proto


def _tensor(name: str, array: Array, bits: int) -> Any:
    """A tensor; codes of 4 bits two to a byte, the first one low."""
    onnx = package()
    if bits != 4:
        return onnx.numpy_helper.from_array(np.asarray(array, order="C"), name)
    kind = onnx.TensorProto.INT4 if array.dtype == np.int8 else onnx.TensorProto.UINT4
    flat = np.append(array.reshape(-1).view(np.uint8) & 15, np.zeros(array.size % 2, np.uint8))
    return onnx.helper.make_tensor(name, kind, array.shape, (flat[::2] | flat[1::2] << 4).tobytes(), raw=True)


def _weights(choice: Choice, name: str, hold: Any) -> Any:
    """A DequantizeLinear of a layer's weights."""
    onnx = package()
    layer, q = choice.layer, choice.weights
    found = q.linear_weights("f32")
    assert found is not None
    form, operands = found
    kind = np.int8 if form.signed else np.uint8
    codes = q.integer_codes().astype(kind)
    rows, columns = form.block
    scale = np.asarray(operands["scale"], np.float32)
    zero = np.asarray(operands["zero_point"]).astype(np.int32) if form.zero_point else np.zeros(scale.shape, np.int32)
    attributes: dict[str, Any] = {}
    if rows is None:
        scale, zero = scale.reshape(()), zero.reshape(())
    elif columns is None or columns >= q.shape[1]:
        scale, zero, attributes = scale.reshape(-1), zero.reshape(-1), {"axis": 1 if layer.turned else 0}
    else:
        if layer.turned:
            scale, zero = np.ascontiguousarray(scale.T), np.ascontiguousarray(zero.T)
        attributes = {"axis": 0 if layer.turned else 1, "block_size": columns}
    names = [
        hold(f"{layer.weight}_codes", layer.unfolded(codes), form.bits),
        hold(f"{layer.weight}_scale", scale),
        hold(f"{layer.weight}_zero_point", zero.astype(kind), form.bits),
    ]
    return onnx.helper.make_node("DequantizeLinear", names, [name], **attributes)


def _bias(choice: Choice, x_scale: Any, constants: Mapping[str, Array], hold: Any) -> Any:
    """A DequantizeLinear of a bias in units of the integer sums; None where it stays a float."""
    layer = choice.layer
    found = choice.weights.linear_weights("f32")
    assert found is not None
    form, operands = found
    if x_scale is None or not layer.bias or form.block[1] is not None or form.bits != 8:
        return None
    scale = np.asarray(operands["scale"], np.float32).reshape(-1) * x_scale
    scale = scale if len(scale) > 1 else scale.reshape(())
    codes = np.rint(constants[layer.bias].astype(np.float64) / scale)
    if not (np.abs(codes) < 2**31).all() or not (scale > 0).all():
        return None
    name = f"{layer.y}_bias"
    zero = np.zeros(np.shape(scale), np.int32)
    given = [
        hold(f"{name}_codes", codes.astype(np.int32)),
        hold(f"{name}_scale", np.asarray(scale, np.float32)),
        hold(f"{name}_zero_point", zero),
    ]
    attributes = {"axis": 0} if np.ndim(scale) else {}
    return package().helper.make_node("DequantizeLinear", given, [f"{name}_dequantized"], **attributes)


def own(model: Model, choices: Sequence[Choice]) -> Any:
    """The model with its layers as nodes of the domain "tilework", whose weights are read beside it (translating.py)."""
    onnx = package()
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    for n, choice in enumerate(choices):
        node = proto.graph.node[choice.layer.node]
        node.domain = DOMAIN
        node.attribute.append(onnx.helper.make_attribute("layer", n))
        node.input[1] = ""
    proto.opset_import.append(onnx.helper.make_opsetid(DOMAIN, 1))
    _drop_unread(proto.graph)
    return proto


def _drop_unread(graph: Any) -> None:
    """Take out the initializers that nothing reads."""
    read = {name for node in graph.node for name in node.input} | {v.name for v in graph.output}
    for node in graph.node:
        for attribute in node.attribute:  # subgraphs see the names around them
            for inner in [attribute.g] if attribute.HasField("g") else list(attribute.graphs):
                read |= {name for n in inner.node for name in n.input} | {v.name for v in inner.output}
    kept = [type(t).FromString(t.SerializeToString()) for t in graph.initializer if t.name in read]
    unread = {t.name for t in graph.initializer} - read
    inputs = [type(v).FromString(v.SerializeToString()) for v in graph.input if v.name not in unread]
    del graph.initializer[:]
    graph.initializer.extend(kept)
    del graph.input[:]
    graph.input.extend(inputs)
