"""Recurrent layers: the input of all steps in one product, then the recurrence as one step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...primitives import dtypes, sizes
from ...primitives.errors import ArgumentError, DTypeMismatch, ShapeMismatch
from ...primitives.pipeline import Value
from ..recurrent import LANES, Group, Recurrence
from ..recurrent_gates import GATES, NEEDED
from .arithmetic import mul, sub
from .elementwise import add, map
from .gemm import gemm
from .given import Operand, dtype_of, pipeline_of, reals, value_of
from .moving import cast, concat, expand, pad, reshape, transpose
from .moving import slice as cut
from .reductions import dynamic_quantize, reduce

USUAL = {"rnn": ("tanh",), "gru": ("sigmoid", "tanh"), "lstm": ("sigmoid", "tanh", "tanh")}
Activation = str | tuple[Any, ...]


def rnn(x: Operand, w: Operand, r: Operand, bias: Operand = None, h: Operand = None, **options: Any) -> Any:
    """A plain recurrent layer in one direction: h = act(x w^T + h r^T + bias). Returns (y, h); options as of lstm."""
    return _layer("rnn", x, w, r, bias, h, None, None, options)


def gru(x: Operand, w: Operand, r: Operand, bias: Operand = None, h: Operand = None, **options: Any) -> Any:
    """A gated recurrent layer in one direction, gates in ONNX's order z r h. Returns (y, h); options as of lstm, and

    linear_before_reset  the reset gate multiplies h r^T + bias, not h
    """
    return _layer("gru", x, w, r, bias, h, None, None, options)


def lstm(
    x: Operand,
    w: Operand,
    r: Operand,
    bias: Operand = None,
    h: Operand = None,
    c: Operand = None,
    peepholes: Operand = None,
    **options: Any,
) -> Any:
    """A long short-term memory layer in one direction, gates in ONNX's order i o f c. Returns (y, h, c).

    x          f32 (T, B, I);  w: (G H, I) and r: (G H, H) for the G gates of H units
    bias       f32 (2 G H): that of x, then that of h; left out: 0
    h, c       f32 (B, H), the state before the first step; left out: 0
    peepholes  f32 (3 H): of i, o and f
    y          f32 (T, B, H), the state after each step; h, c: after the last

    Options:
    lengths      s32 (B,): how many steps each batch has; y is 0 behind them
    reverse      read the sequence from its end
    activations  names (sigmoid tanh relu ..), or (name, alpha, beta)
    clip         bound of what is activated
    input_forget the forget gate is 1 - the input gate
    scales       (of w, of r), one number or (G H,): w and r are codes s8 or u8, and x and h are quantized to u8 as they
                 come, each product with one scale for all its rows (ONNX Runtime's DynamicQuantizeLSTM)
    zero_points  (of w, of r), of the codes' type, one number or (G H,)
    """
    return _layer("lstm", x, w, r, bias, h, c, peepholes, options)


_OPTIONS = ("lengths", "reverse", "activations", "clip", "scales", "zero_points")
_OWN = {"rnn": (), "gru": ("linear_before_reset",), "lstm": ("input_forget",)}


def _layer(
    op: str, x: Any, w: Any, r: Any, bias: Any, h: Any, c: Any, peepholes: Any, options: dict[str, Any]
) -> tuple[Value, ...]:
    known = (*_OPTIONS, *_OWN[op])
    for name in options:
        if name not in known:
            raise TypeError(f"{op}: there is no option {name!r}; there is {', '.join(known)}")
    pipe = pipeline_of(op, x, w, r, bias, h, c, peepholes)
    x, w, r = (value_of(pipe, v, op, name) for v, name in ((x, "x"), (w, "w"), (r, "r")))
    gates, scales = GATES[op], options.get("scales")
    if scales is not None:
        scales = [s if isinstance(s, Value) else reals(s, f"{op}: scales") for s in scales]
    if dtype_of(x) != "f32" or len(x.shape) != 3:
        raise DTypeMismatch(f"{op}: x is {dtype_of(x)} {sizes.show(x.shape)}; f32 (T, B, I) works")
    hidden = r.shape[-1] if r.shape else 0
    if not isinstance(hidden, int) or tuple(r.shape) != (gates * hidden, hidden):
        raise ShapeMismatch(
            f"{op}: r has shape {sizes.show(r.shape)}; ({gates} H, H) of known sizes works, {gates} gates of H units"
        )
    if tuple(w.shape) != (gates * hidden, x.shape[2]):
        raise ShapeMismatch(
            f"{op}: w has shape {sizes.show(w.shape)}; ({gates * hidden}, {x.shape[2]}) goes with x and r"
        )
    kinds = ("s8", "u8") if scales is not None else ("f32",)
    for name, given in (("w", w), ("r", r)):
        if dtype_of(given) not in kinds:
            raise DTypeMismatch(f"{op}: {name} is {dtype_of(given)}; f32 works, and s8 or u8 with scales=")
    names, numbers = _activations(op, options.get("activations"))
    kernel = Recurrence(
        op,
        hidden,
        names,
        numbers,
        float(options.get("clip") or 0.0),
        bool(options.get("reverse", False)),
        peepholes is not None,
        bool(options.get("input_forget", False)),
        bool(options.get("linear_before_reset", False)),
        options.get("lengths") is not None,
        scales is not None,
        (scales is not None and options.get("zero_points") is not None) or dtype_of(r) == "u8",
    )
    operands: dict[str, Any] = {}
    length, batch = x.shape[0], x.shape[1]
    rows = reshape(x, (length * batch, x.shape[2]))
    added, own = _biases(kernel, pipe, bias)
    if scales is None:
        given = gemm(rows, transpose(w, (1, 0)))
        given = given if added is None else add(given, added)
    else:
        zero_points = options.get("zero_points") or (None, None)
        given = _coded_input(rows, w, scales[0], zero_points[0], added)
        operands |= _columns(kernel, pipe, r, scales[1], zero_points[1])
    if own is not None:
        operands["bias"] = own
    operands |= {"like": x, "given": given}
    states = [("h0", h), ("c0", c)] if op == "lstm" else [("h0", h)]
    for slot, state in states:
        zeros = np.zeros((1, 1), np.float32)
        operands[slot] = (
            value_of(pipe, state, op, slot) if state is not None else expand(pipe.constant(zeros), (batch, hidden))
        )
    centred = r if dtype_of(r) != "u8" else cast(sub(cast(r, "s16"), np.int16(128)), "s8")
    for n, group in enumerate(kernel.groups):
        operands[f"r{n}"] = _panels(kernel, group, centred)
    if peepholes is not None:
        operands["peepholes"] = reshape(value_of(pipe, peepholes, op, "peepholes"), (3, hidden))
    if kernel.lengths:
        lengths = value_of(pipe, options["lengths"], op, "lengths")
        operands["lengths"] = lengths if dtype_of(lengths) == "s32" else cast(lengths, "s32")
    found = pipe.add(kernel, **operands)
    assert isinstance(found, tuple)
    return found


def _activations(op: str, given: Sequence[Activation] | None) -> tuple[tuple[str, ...], tuple[float, ...]]:
    found = [(a, 0.0, 0.0) if isinstance(a, str) else (*a, 0.0, 0.0)[:3] for a in given or USUAL[op]]
    if len(found) != NEEDED[op]:
        raise ArgumentError(f"{op}: {len(found)} activations; {NEEDED[op]} work")
    numbers = [float(n) for _, alpha, beta in found for n in (alpha, beta)]
    return tuple(str(name) for name, _, _ in found), tuple(numbers)


def _biases(kernel: Recurrence, pipe: Any, bias: Any) -> tuple[Value | None, Value | None]:
    """What is added to every step's input, and the bias that a linear gru's reset gate multiplies."""
    size, hidden = kernel.gates * kernel.hidden, kernel.hidden
    if bias is None:
        return None, pipe.constant(np.zeros(hidden, np.float32)) if kernel.linear else None
    bias = value_of(pipe, bias, kernel.cell, "bias")
    if tuple(bias.shape) != (2 * size,):
        raise ShapeMismatch(f"{kernel.cell}: bias has shape {sizes.show(bias.shape)}; ({2 * size},) works")
    of_x, of_h = cut(bias, [0], [size], [0]), cut(bias, [size], [2 * size], [0])
    if not kernel.linear:
        return add(of_x, of_h), None
    both = add(cut(of_x, [0], [2 * hidden], [0]), cut(of_h, [0], [2 * hidden], [0]))
    return concat([both, cut(of_x, [2 * hidden], [size], [0])], 0), cut(of_h, [2 * hidden], [size], [0])


def _panels(kernel: Recurrence, group: Group, r: Value) -> Value:
    """Weights (gates * hidden, hidden) of a group of gates as panels (Recurrence.panels)."""
    hidden, units, width = kernel.hidden, kernel.units, group.blocks * LANES
    rows = cut(r, [group.first * hidden], [(group.first + group.gates) * hidden], [0])
    deep = kernel.depth * (4 if kernel.codes else 1)
    split = reshape(rows, (group.gates, hidden, hidden))
    zero = np.zeros((), np.int8 if kernel.codes else np.float32)
    padded = pad(split, ((0, 0), (0, units - hidden), (0, deep - hidden)), value=zero)
    if kernel.codes:
        blocked = reshape(padded, (group.gates, units // width, width, kernel.depth, 4))
        return reshape(transpose(blocked, (1, 3, 0, 2, 4)), kernel.panels(group))
    blocked = reshape(padded, (group.gates, units // width, width, hidden))
    return reshape(transpose(blocked, (1, 3, 0, 2)), kernel.panels(group))


def _spread(kernel: Recurrence, pipe: Any, given: Any, name: str) -> Value:
    """One number, or one for each column, as one for each column of each panel (gates * units,)."""
    value = value_of(pipe, given, kernel.cell, name)
    shape = (kernel.gates, kernel.hidden)
    if all(n == 1 for n in value.shape):
        value = expand(reshape(value, (1, 1)), shape)
    else:
        value = reshape(value, shape)
    padded = pad(
        value, ((0, 0), (0, kernel.units - kernel.hidden)), value=np.zeros((), dtypes.get(dtype_of(value)).numpy)
    )
    parts = []
    for group in kernel.groups:
        own = cut(padded, [group.first], [group.first + group.gates], [0])
        width = group.blocks * LANES
        split = reshape(own, (group.gates, kernel.units // width, width))
        parts.append(reshape(transpose(split, (1, 0, 2)), (group.gates * kernel.units,)))
    return parts[0] if len(parts) == 1 else concat(parts, 0)


def _columns(kernel: Recurrence, pipe: Any, r: Value, scale: Any, zero_point: Any) -> dict[str, Value]:
    """The corrections of products of codes: sums of each column, scales, zero points of the codes as s8."""
    wide = cast(r, "s32")
    zero = (
        np.zeros((), np.int32)
        if zero_point is None
        else cast(value_of(pipe, zero_point, kernel.cell, "zero point"), "s32")
    )
    if isinstance(zero, Value):
        column = reshape(zero, (-1, 1) if any(n != 1 for n in zero.shape) else (1, 1))
        sums = reduce("sum", sub(wide, column), [1])
    else:
        sums = reduce("sum", wide, [1])
    found = {
        "sums": _spread(kernel, pipe, sums, "sums"),
        "scale": _spread(kernel, pipe, scale, "scale of r"),
    }
    if kernel.zero_points:
        moved = sub(zero, np.int32(128)) if isinstance(zero, Value) and dtype_of(r) == "u8" else zero
        if not isinstance(moved, Value):
            moved = np.int32(-128 if dtype_of(r) == "u8" else 0)
        found["zeros"] = _spread(kernel, pipe, moved, "zero point of r")
    return found


def _real(acc: Any, factor: Any, term: Any) -> Any:
    return np.float32(acc) * factor + term


def _coded_input(rows: Value, w: Value, scale: Any, zero_point: Any, added: Value | None) -> Value:
    """What the input adds to every gate: its codes times those of w, as real numbers, and the biases."""
    codes, step, zero = dynamic_quantize(rows)
    zero_point = 0 if zero_point is None else _plain(value_of(rows.pipeline, zero_point, "lstm", "zero point of w"))
    acc = gemm(codes, transpose(w, (1, 0)), zero, zero_point)
    scale = mul(_plain(value_of(rows.pipeline, scale, "lstm", "scale of w")), step)
    return map(_real, acc, scale, np.zeros((), np.float32) if added is None else added)


def _plain(parameter: Value) -> Value:
    """A parameter of one element without axes."""
    return reshape(parameter, ()) if all(n == 1 for n in parameter.shape) else parameter
