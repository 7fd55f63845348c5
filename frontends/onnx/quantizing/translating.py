"""Layers of the domain "tilework": their weights are quantized tensors that the model holds beside its graph."""

from __future__ import annotations

from typing import Any

from ....kernels import ops
from ....primitives import dtypes
from ....primitives.pipeline import Value
from ..node import Node
from ..scope import TABLE, operator
from .writing import DOMAIN


def _input(node: Node) -> tuple[Value, Any]:
    """The layer's input, quantized where a scheme says how, and the layer."""
    choice, activations = node.scope.model.layers[node.attr("layer")]
    x = node.value(0)
    if isinstance(activations, tuple):
        scale, zero = activations
        codes = ops.quantize(x, scale, zero, dtype=dtypes.get(zero.dtype).name)
        return ops.dequantize(codes, scale, zero), choice
    return (x if activations is None else ops.fake_quantize(x, activations)), choice


@operator("MatMul", "Gemm", domain=DOMAIN)
def linear(node: Node) -> Any:
    x, choice = _input(node)
    lead = x.shape[:-1]
    y = ops.linear(x if x.ndim > 1 else ops.reshape(x, (1, x.shape[0])), choice.weights)
    if not lead:
        y = ops.reshape(y, (y.shape[-1],))
    return ops.add(y, node.value(2)) if node.has(2) else y


@operator("Conv", domain=DOMAIN)
def conv(node: Node) -> Any:
    x, choice = _input(node)
    weights = choice.layer.unfolded(choice.weights.dequantize())
    return TABLE["", "Conv"](node.on(node.scope, [x, weights, node.operand(2)], node.scope.opsets.get("", 1)))
