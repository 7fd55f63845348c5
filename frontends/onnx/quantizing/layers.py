"""The layers of a model whose weights can be quantized, and their weights as matrices (N, K)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..reading import DEFAULT, Model
from ..tensors import to_array

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Layer:
    """A node with constant weights.

    node     its place in the graph
    name     of the node, or of its first output
    op       Conv, Gemm or MatMul
    x, y     names of the tensors that it reads and writes
    weight   name of its weights
    bias     name of its constant bias, or ""
    shape    of the weights in the file
    turned   whether they lie as (K, N) there
    """

    node: int
    name: str
    op: str
    x: str
    y: str
    weight: str
    bias: str
    shape: tuple[int, ...]
    turned: bool

    def matrix(self, weights: Array) -> Array:
        """Weights as they lie in the file as a matrix: rows are outputs, columns what is summed over."""
        return np.ascontiguousarray(weights.T if self.turned else weights.reshape(weights.shape[0], -1))

    def unfolded(self, matrix: Array) -> Array:
        """The inverse of `matrix`."""
        return np.ascontiguousarray(matrix.T if self.turned else matrix.reshape(self.shape))


def constants_of(model: Model) -> dict[str, Array]:
    """The float32 initializers and Constant nodes of the graph, by name."""
    found = {}
    for tensor in model.proto.graph.initializer:
        if tensor.data_type == tensor.FLOAT:
            found[tensor.name] = to_array(tensor, model.folder, model.name, model.states)
    for node in model.proto.graph.node:
        if node.op_type == "Constant" and node.domain in (DEFAULT, "ai.onnx"):
            for attribute in node.attribute:
                if attribute.name == "value" and attribute.t.data_type == attribute.t.FLOAT:
                    found[node.output[0]] = to_array(attribute.t, model.folder, model.name, model.states)
    return found


def layers_of(model: Model, constants: dict[str, Array]) -> list[Layer]:
    """Convolutions, Gemms and matrix products with weights known while the file is read, in the file's order."""
    found = []
    for place, node in enumerate(model.proto.graph.node):
        if node.domain not in (DEFAULT, "ai.onnx") or node.op_type not in ("Conv", "Gemm", "MatMul"):
            continue
        weights = constants.get(node.input[1]) if len(node.input) > 1 else None
        if weights is None or node.input[0] in constants or weights.size == 0:
            continue
        given = {a.name: a for a in node.attribute}
        if node.op_type != "Conv" and weights.ndim != 2:
            continue
        turned = node.op_type == "MatMul" or (
            node.op_type == "Gemm" and not (given.get("transB") and given["transB"].i)
        )
        if node.op_type == "Gemm" and any(
            (given[name].i if name == "transA" else given[name].f != 1.0)
            for name in ("alpha", "beta", "transA")
            if name in given
        ):
            continue  # scaled or transposed products stay as they are
        bias = node.input[2] if len(node.input) > 2 and node.input[2] in constants else ""
        if bias and constants[bias].shape != (weights.shape[1] if turned else weights.shape[0],):
            bias = ""
        name = node.name or node.output[0]
        found.append(
            Layer(place, name, node.op_type, node.input[0], node.output[0], node.input[1], bias, weights.shape, turned)
        )
    return found
