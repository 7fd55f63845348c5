"""The gates of recurrent cells, written once: float32 in, float32 out, for arrays and for vectors of compiled code.

Sums are those of the product with the state, `given` what the input gives: its product and all biases that are only
added. Gates have ONNX's order: lstm input, output, forget, cell; gru update, reset, hidden.
Source: the ONNX operators LSTM, GRU and RNN.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .activations import elu, hard_sigmoid, leaky_relu, multiply_add, softplus, softsign, thresholded_relu
from .floatops import f32, select, to_float, to_int
from .scalarops import maximum
from .vectormath import sigmoid, tanh

GATES = {"rnn": 1, "gru": 3, "lstm": 4}
NEEDED = {"rnn": 1, "gru": 2, "lstm": 3}  # activations of a cell
ONE = f32(1.0)

# (x, alpha, beta): those that have none of them do not read them
ACTIVATIONS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "sigmoid": lambda x, alpha, beta: sigmoid(x),
    "tanh": lambda x, alpha, beta: tanh(x),
    "relu": lambda x, alpha, beta: maximum(x, f32(0.0)),
    "softsign": lambda x, alpha, beta: softsign(x),
    "softplus": lambda x, alpha, beta: softplus(x),
    "leaky_relu": lambda x, alpha, beta: leaky_relu(x, alpha),
    "thresholded_relu": lambda x, alpha, beta: thresholded_relu(x, alpha),
    "elu": lambda x, alpha, beta: elu(x, alpha),
    "hard_sigmoid": lambda x, alpha, beta: hard_sigmoid(x, alpha, beta),
    "scaled_tanh": lambda x, alpha, beta: alpha * tanh(beta * x),
    "affine": lambda x, alpha, beta: multiply_add(x, alpha, beta),
}


def activation(name: str, alpha: float, beta: float, clip: float = 0.0) -> Callable[[Any], Any]:
    """The function of one activation, of what lies within -clip .. clip; NaN stays."""
    function, a, b, bound = ACTIVATIONS[name], f32(alpha), f32(beta), f32(clip)
    if clip == 0.0:
        return lambda x: function(x, a, b)
    return lambda x: function(select(x < -bound, -bound, select(x > bound, bound, x)), a, b)


def activations(names: Sequence[str], numbers: Sequence[float], clip: float) -> list[Callable[[Any], Any]]:
    """Those of a cell; the last one of an lstm, of the cell, is never clipped."""
    clips = [clip, clip, 0.0]
    return [activation(n, numbers[2 * i], numbers[2 * i + 1], clips[i]) for i, n in enumerate(names)]


def rnn(names: Sequence[str], numbers: Sequence[float], clip: float) -> Callable[..., Any]:
    """h = f(sum + given)"""
    (f,) = activations(names, numbers, clip)
    return lambda total, given: f(total + given)


def lstm(
    names: Sequence[str], numbers: Sequence[float], clip: float, peepholes: bool, input_forget: bool
) -> Callable[..., Any]:
    """c', h of sums, given and cell: c' = f c + i g, h = o act(c'); a gate sees the cell times its peephole."""
    f_gate, f_cell, f_out = activations(names, numbers, clip)

    def gates(s_i, s_o, s_f, s_g, i, o, f, g, c, p_i=None, p_o=None, p_f=None):
        i, o, f, g = s_i + i, s_o + o, s_f + f, s_g + g
        if peepholes:
            i, f = i + c * p_i, f + c * p_f
        i = f_gate(i)
        f = ONE - i if input_forget else f_gate(f)
        c = f * c + i * f_cell(g)
        if peepholes:
            o = o + c * p_o
        return c, f_gate(o) * f_out(c)

    return gates


def gru_linear(names: Sequence[str], numbers: Sequence[float], clip: float) -> Callable[..., Any]:
    """h' = (1 - z) n + z h with n = act(given + r (sum + bias))"""
    f_gate, f_new = activations(names, numbers, clip)

    def gates(s_z, s_r, s_n, z, r, n, bias, h):
        z, r = f_gate(s_z + z), f_gate(s_r + r)
        new = f_new(n + r * (s_n + bias))
        return (ONE - z) * new + z * h

    return gates


def gru_reset(names: Sequence[str], numbers: Sequence[float], clip: float) -> Callable[..., Any]:
    """z, and r h, of which the last product is taken."""
    f_gate = activations(names, numbers, clip)[0]
    return lambda s_z, s_r, z, r, h: (f_gate(s_z + z), f_gate(s_r + r) * h)


def gru_new(names: Sequence[str], numbers: Sequence[float], clip: float) -> Callable[..., Any]:
    """h' = (1 - z) n + z h with n = act(given + sum)"""
    f_new = activations(names, numbers, clip)[1]
    return lambda s_n, n, z, h: (ONE - z) * f_new(n + s_n) + z * h


def real_sums(total, sums, scale, zero, step):
    """Sums of codes as real numbers. zero, step: zero point and scale of the state's codes."""
    return to_float(total - to_int(zero) * sums) * (step * scale)


def real_sums_shifted(total, sums, scale, zeros, zero, step, row):
    """As real_sums, where weights have zero points. row: the sum of the state's codes."""
    return to_float(total - to_int(zero) * sums - to_int(row) * zeros) * (step * scale)


def of_codes(gates: Callable[..., Any], count: int, shifted: bool) -> Callable[..., Any]:
    """Gates that take for each of `count` sums what real_sums takes; the state's scale and zero point come last."""
    columns, numbers, real = (4, 3, real_sums_shifted) if shifted else (3, 2, real_sums)

    def decoded(*given):
        state = given[-numbers:]
        sums = [real(*given[g : columns * count : count], *state) for g in range(count)]
        return gates(*sums, *given[columns * count : -numbers])

    return decoded


def as_number(code):
    """A code as float32."""
    return to_float(code)
