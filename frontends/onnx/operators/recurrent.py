"""RNN, GRU and LSTM, one step of the sequence after another: the sequence has a constant length.

All of ONNX's layouts and options but clipping of peepholes: gates in ONNX's order (LSTM iofc, GRU zrh), both
directions, initial states, sequence lengths, peepholes, activations, linear_before_reset, input_forget.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ....kernels import ops
from ....primitives.pipeline import Value
from ..node import Node
from ..scope import operator

Activation = Callable[[Value], Value]
PLAIN: dict[str, Activation] = {
    "sigmoid": ops.sigmoid,
    "tanh": ops.tanh,
    "relu": ops.relu,
    "softsign": ops.softsign,
    "softplus": ops.softplus,
}
# Activations with numbers: the usual alpha and beta (None: it has none), and what it computes.
NUMBERED: dict[str, tuple[float, float | None, Callable[..., Value]]] = {
    "leakyrelu": (0.01, None, lambda x, alpha, beta: ops.leaky_relu(x, alpha)),
    "elu": (1.0, None, lambda x, alpha, beta: ops.elu(x, alpha=alpha)),
    "thresholdedrelu": (1.0, None, lambda x, alpha, beta: ops.thresholded_relu(x, alpha=alpha)),
    "hardsigmoid": (0.2, 0.5, lambda x, alpha, beta: ops.hard_sigmoid(x, alpha=alpha, beta=beta)),
    "affine": (1.0, 0.0, lambda x, alpha, beta: ops.add(ops.mul(x, alpha), beta)),
}
USUAL = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def activations(node: Node, directions: int) -> list[list[Activation]]:
    """The activations of each direction."""
    names = [n.lower() for n in node.attr("activations", USUAL[node.op] * directions)]
    alphas, betas = list(node.attr("activation_alpha", [])), list(node.attr("activation_beta", []))
    found: list[Activation] = []
    for name in names:
        if name in PLAIN:
            found.append(PLAIN[name])
            continue
        if name not in NUMBERED:
            raise node.unsupported(f"activation {name!r}; {', '.join([*PLAIN, *NUMBERED])} work")
        alpha, beta, make = NUMBERED[name]
        if alphas:
            alpha = float(alphas.pop(0))
        if beta is not None and betas:
            beta = float(betas.pop(0))
        found.append(partial(make, alpha=np.float32(alpha), beta=np.float32(beta or 0)))
    each = len(found) // directions
    return [found[d * each : (d + 1) * each] for d in range(directions)]


@operator("RNN", "GRU", "LSTM")
def recurrent(node: Node) -> Any:
    x = node.value(0)
    batch_first = bool(node.attr("layout", 0))
    if batch_first:
        x = ops.transpose(x, (1, 0, 2))
    length, width = x.shape[0], int(node.attr("hidden_size", node.value(2).shape[2]))
    if not isinstance(length, int):
        raise node.unsupported(
            f"a sequence of {length} elements, known only at run time; load with shapes= that fix it"
        )
    way = node.attr("direction", "forward")
    directions = 2 if way == "bidirectional" else 1
    chosen = activations(node, directions)
    outputs, finals, cells = [], [], []
    for d in range(directions):
        backward = way == "reverse" or d == 1
        steps, last, cell = direction(node, x, d, backward, width, chosen[d], batch_first)
        outputs.append(steps)
        finals.append(last)
        cells.append(cell)
    y = ops.concat([ops.unsqueeze(steps, [1]) for steps in outputs], 1)  # (length, directions, batch, width)
    h = ops.concat([ops.unsqueeze(last, [0]) for last in finals], 0)
    results = [y, h]
    if node.op == "LSTM":
        results.append(ops.concat([ops.unsqueeze(cell, [0]) for cell in cells], 0))
    if batch_first:
        results = [ops.transpose(y, (2, 0, 1, 3)), *(ops.transpose(r, (1, 0, 2)) for r in results[1:])]
    return results


def direction(
    node: Node, x: Value, d: int, backward: bool, width: int, act: list[Activation], batch_first: bool
) -> tuple[Value, Value, Any]:
    """One direction: (states of all steps (length, batch, width), last state, last cell)."""
    gates = GATES[node.op]
    length, batch = x.shape[0], x.shape[1]
    w, r = (ops.transpose(one(node.value(n), d)) for n in (1, 2))  # (inputs, gates * width), (width, gates * width)
    bias = one(node.value(3), d) if node.has(3) else None
    w_bias = r_bias = None
    if bias is not None:
        w_bias, r_bias = ops.split(bias, [gates * width] * 2, 0)
    lengths = node.optional(4)
    zeros = np.zeros((1, 1), np.float32)

    def start(n: int) -> Value:
        if not node.has(n):
            return ops.expand(x.pipeline.constant(zeros), (batch, width))
        given = node.value(n)
        return one(ops.transpose(given, (1, 0, 2)) if batch_first else given, d)

    h = start(5)
    c = start(6) if node.op == "LSTM" else None
    peepholes = ops.split(one(node.value(7), d), [width] * 3, 0) if node.op == "LSTM" and node.has(7) else None
    clip = node.attr("clip", None)
    inputs = ops.gemm(ops.reshape(x, (length * batch, x.shape[2])), w)
    if w_bias is not None:
        inputs = ops.add(inputs, w_bias)
    inputs = ops.reshape(inputs, (length, batch, gates * width))
    assert isinstance(length, int)
    states: list[Value] = [h] * length
    cell = Cell(node, width, act, r, r_bias, peepholes, clip)
    for n in range(length):
        t = length - 1 - n if backward else n
        given = ops.reshape(ops.slice(inputs, [t], [t + 1], [0]), (batch, gates * width))
        new_h, new_c = cell.step(given, h, c)
        if lengths is not None:
            alive = ops.unsqueeze(ops.greater(lengths, np.array(t, lengths.dtype.numpy)), [1])  # type: ignore[union-attr]
            states[t] = ops.where(alive, new_h, np.zeros((1, 1), np.float32))
            h = ops.where(alive, new_h, h)
            c = ops.where(alive, new_c, c) if c is not None else None
        else:
            states[t], h, c = new_h, new_h, new_c
    return ops.concat([ops.unsqueeze(s, [0]) for s in states], 0), h, c


def one(value: Value, d: int) -> Value:
    """Element d along the first axis, without that axis."""
    return ops.reshape(ops.slice(value, [d], [d + 1], [0]), value.shape[1:])


class Cell:
    """One step of a recurrence; formulas as in the ONNX operators' text."""

    def __init__(
        self, node: Node, width: int, act: list[Activation], r: Value, r_bias: Value | None, peepholes: Any, clip: Any
    ) -> None:
        self.node, self.width, self.act, self.r, self.r_bias = node, width, act, r, r_bias
        self.peepholes, self.clip = peepholes, None if clip is None else np.float32(clip)

    def step(self, given: Value, h: Value, c: Value | None) -> tuple[Value, Any]:
        if self.node.op == "GRU":
            return self.gru(given, h), None
        total = ops.add(given, self.recurrent(h))
        if self.node.op == "RNN":
            return self.act[0](self.bounded(total)), None
        assert c is not None
        return self.lstm(total, c)

    def recurrent(self, h: Value) -> Value:
        y = ops.gemm(h, self.r)
        return y if self.r_bias is None else ops.add(y, self.r_bias)

    def bounded(self, x: Value) -> Value:
        return x if self.clip is None else ops.clip(x, -self.clip, self.clip)

    def lstm(self, total: Value, c: Value) -> tuple[Value, Value]:
        i, o, f, g = ops.split(total, [self.width] * 4, 1)
        if self.peepholes is not None:
            i = ops.add(i, ops.mul(c, self.peepholes[0]))
            f = ops.add(f, ops.mul(c, self.peepholes[2]))
        i = self.act[0](self.bounded(i))
        if self.node.attr("input_forget", 0):
            f = ops.sub(np.ones((), np.float32), i)
        else:
            f = self.act[0](self.bounded(f))
        c = ops.add(ops.mul(f, c), ops.mul(i, self.act[1](self.bounded(g))))
        if self.peepholes is not None:
            o = ops.add(o, ops.mul(c, self.peepholes[1]))
        return ops.mul(self.act[0](self.bounded(o)), self.act[2](c)), c

    def gru(self, given: Value, h: Value) -> Value:
        parts = ops.split(given, [self.width] * 3, 1)
        linear = bool(self.node.attr("linear_before_reset", 0))
        if linear:
            z_h, r_h, h_h = ops.split(self.recurrent(h), [self.width] * 3, 1)
        else:
            weights = ops.split(self.r, [self.width] * 3, 1)
            biases = ops.split(self.r_bias, [self.width] * 3, 0) if self.r_bias is not None else (None,) * 3
            z_h, r_h = (self.biased(ops.gemm(h, weights[n]), biases[n]) for n in (0, 1))
        z = self.act[0](self.bounded(ops.add(parts[0], z_h)))
        r = self.act[0](self.bounded(ops.add(parts[1], r_h)))
        if linear:
            inner = ops.mul(r, h_h)
        else:
            inner = self.biased(ops.gemm(ops.mul(r, h), weights[2]), biases[2])
        new = self.act[1](self.bounded(ops.add(parts[2], inner)))
        return ops.add(ops.mul(ops.sub(np.ones((), np.float32), z), new), ops.mul(z, h))

    def biased(self, y: Value, bias: Value | None) -> Value:
        return y if bias is None else ops.add(y, bias)
