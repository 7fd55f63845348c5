"""RNN, GRU and LSTM, and ONNX Runtime's DynamicQuantizeLSTM: one recurrence for each direction."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....kernels import ops
from ....primitives.pipeline import Value
from ..node import Node
from ..scope import operator

# ONNX's names of activations: ours, and the usual alpha and beta; None: it has none
ACTIVATIONS: dict[str, tuple[str, float | None, float | None]] = {
    "sigmoid": ("sigmoid", None, None),
    "tanh": ("tanh", None, None),
    "relu": ("relu", None, None),
    "softsign": ("softsign", None, None),
    "softplus": ("softplus", None, None),
    "leakyrelu": ("leaky_relu", 0.01, None),
    "elu": ("elu", 1.0, None),
    "thresholdedrelu": ("thresholded_relu", 1.0, None),
    "hardsigmoid": ("hard_sigmoid", 0.2, 0.5),
    "scaledtanh": ("scaled_tanh", 1.0, 1.0),
    "affine": ("affine", 1.0, 0.0),
}
USUAL = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}
LAYERS = {"RNN": ops.rnn, "GRU": ops.gru, "LSTM": ops.lstm}


def activations(node: Node, cell: str, directions: int) -> list[list[Any]]:
    """The activations of each direction, with their numbers."""
    names = [n.lower() for n in node.attr("activations", USUAL[cell] * directions)]
    alphas, betas = list(node.attr("activation_alpha", [])), list(node.attr("activation_beta", []))
    found: list[Any] = []
    for name in names:
        if name not in ACTIVATIONS:
            raise node.unsupported(f"activation {name!r}; {', '.join(ACTIVATIONS)} work")
        ours, alpha, beta = ACTIVATIONS[name]
        if alpha is not None and alphas:
            alpha = float(alphas.pop(0))
        if beta is not None and betas:
            beta = float(betas.pop(0))
        found.append((ours, alpha or 0.0, beta or 0.0))
    if len(found) != directions * len(USUAL[cell]):
        raise node.malformed(f"{len(found)} activations; {len(USUAL[cell])} for each of {directions} directions work")
    each = len(found) // directions
    return [found[d * each : (d + 1) * each] for d in range(directions)]


def one(operand: Any, d: int) -> Any:
    """Element d along the first axis, without that axis."""
    if isinstance(operand, np.ndarray):
        return operand[d]
    return ops.reshape(ops.slice(operand, [d], [d + 1], [0]), operand.shape[1:])


@operator("RNN", "GRU", "LSTM")
def recurrent(node: Node) -> Any:
    return layer(node, node.op, node.value(1), node.value(2), lambda d: {})


@operator("DynamicQuantizeLSTM", domain="com.microsoft")
def dynamic_lstm(node: Node) -> Any:
    """Weights as codes, transposed: (directions, inputs, 4 * hidden); scales are one, or one a column."""
    w, r = (ops.transpose(node.value(n), (0, 2, 1)) for n in (1, 2))

    def codes(d: int) -> dict[str, Any]:
        scales, zeros = ([one(node.operand(n), d) for n in places] for places in ((8, 10), (9, 11)))
        known = all(isinstance(z, np.ndarray) and not z.any() for z in zeros)
        plain = known and str(w.dtype) == str(r.dtype) == "s8"
        return {"scales": tuple(scales), **({} if plain else {"zero_points": tuple(zeros)})}

    return layer(node, "LSTM", w, r, codes)


def layer(node: Node, cell: str, w: Value, r: Value, more: Any) -> Any:
    """The outputs of a layer of one or two directions. more: of a direction, further options of the op."""
    x = node.value(0)
    batch_first = bool(node.attr("layout", 0))
    if batch_first:
        x = ops.transpose(x, (1, 0, 2))
    way = node.attr("direction", "forward")
    if way not in ("forward", "reverse", "bidirectional"):
        raise node.malformed(f"direction {way!r}")
    directions = 2 if way == "bidirectional" else 1
    chosen = activations(node, cell, directions)
    states = [node.optional(5), *([node.optional(6)] if cell == "LSTM" else [])]
    if batch_first:
        states = [s if s is None else ops.transpose(s, (1, 0, 2)) for s in states]
    found = []
    for d in range(directions):
        options: dict[str, Any] = {
            "activations": chosen[d],
            "clip": node.attr("clip", 0.0),
            "reverse": way == "reverse" or d == 1,
            "lengths": node.optional(4),
            **more(d),
        }
        if cell == "GRU":
            options["linear_before_reset"] = bool(node.attr("linear_before_reset", 0))
        given = [one(node.value(3), d) if node.has(3) else None, *(s if s is None else one(s, d) for s in states)]
        if cell == "LSTM":
            options["input_forget"] = bool(node.attr("input_forget", 0))
            given.append(one(node.value(7), d) if node.has(7) else None)
        found.append(LAYERS[cell](x, one(w, d), one(r, d), *given, **options))
    results = [joined([of[n] for of in found], 1 if n == 0 else 0) for n in range(len(found[0]))]
    if batch_first:
        results = [ops.transpose(results[0], (2, 0, 1, 3)), *(ops.transpose(r, (1, 0, 2)) for r in results[1:])]
    return results


def joined(values: list[Value], axis: int) -> Value:
    """Values of each direction along a new axis."""
    apart = [ops.unsqueeze(v, [axis]) for v in values]
    return apart[0] if len(apart) == 1 else ops.concat(apart, axis)
