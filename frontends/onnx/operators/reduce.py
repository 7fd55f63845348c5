"""Reductions, normalizations, and what finds places."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....kernels import ops
from ....kernels.cast import Cast
from ....kernels.reduce.coded import CODES
from ....primitives.pipeline import Value
from ..node import Coded, Node, axes_of
from ..scope import operator
from .moving import moved

REDUCTIONS = {
    "ReduceSum": "sum",
    "ReduceMean": "mean",
    "ReduceMax": "max",
    "ReduceMin": "min",
    "ReduceProd": "prod",
    "ReduceL1": "l1",
    "ReduceL2": "l2",
    "ReduceLogSum": "log_sum",
    "ReduceLogSumExp": "log_sum_exp",
    "ReduceSumSquare": "sum_square",
}


def _reduction(name: str, kind: str) -> None:
    @operator(name)
    def translate(node: Node) -> Any:
        axes, keep = node.ints("axes", 1), bool(node.attr("keepdims", 1))

        def reduced(x: Value) -> Value:
            if not axes and node.attr("noop_with_empty_axes", 0):
                same = kind in ("sum", "mean", "max", "min", "prod")
                return x if same else ops.reduce(kind, ops.unsqueeze(x, [0]), [0])
            return ops.reduce(kind, x, axes_of(axes, x.ndim, node) if axes else None, keep)

        codes = node.operand(0)
        if kind in ("max", "min") and isinstance(codes, Coded) and str(codes.codes.dtype) in CODES:
            return moved(node, reduced)  # the largest number is that of the largest code
        return reduced(node.value(0))


for _name, _kind in REDUCTIONS.items():
    _reduction(_name, _kind)


@operator("ArgMax", "ArgMin")
def arg(node: Node) -> Any:
    find = ops.argmax if node.op == "ArgMax" else ops.argmin
    return find(
        node.value(0),
        node.attr("axis", 0),
        bool(node.attr("keepdims", 1)),
        last=bool(node.attr("select_last_index", 0)),
    )


@operator("Softmax", "LogSoftmax", "Hardmax")
def softmax(node: Node) -> Any:
    x = node.value(0)
    axis = node.attr("axis", 1 if node.version < 13 else -1)
    axes = list(range(axis % x.ndim, x.ndim)) if node.version < 13 else [axis]
    if node.op == "Hardmax":
        flat = x if node.version >= 13 else ops.flatten(x, axis)
        place = ops.argmax(flat, axis if node.version >= 13 else 1)
        along = axis % x.ndim if node.version >= 13 else 1
        depth = flat.shape[along]
        if not isinstance(depth, int):
            raise node.unsupported(f"axis {axis} has {depth} elements, known only at run time; a constant number works")
        hot = ops.one_hot(place, depth, np.array([0, 1], x.dtype.numpy), along)  # type: ignore[union-attr]
        return hot if node.version >= 13 else ops.reshape(hot, x.shape)
    of = ops.log_softmax if node.op == "LogSoftmax" else ops.softmax
    narrow = _before_widening(x)
    found = of(x if narrow is None else narrow, axes if len(axes) > 1 else axes[0])
    return found if narrow is None else ops.cast(found, "f64")


def _before_widening(x: Value) -> Value | None:
    """What a float64 value was cast from, where that was float32: float32's softmax serves it as well."""
    if str(x.dtype) != "f64" or x.producer is None:
        return None
    step = x.producer[0]
    found: Value = next(iter(step.inputs.values()))
    return found if isinstance(step.kernel, Cast) and str(found.dtype) == "f32" else None


@operator("LayerNormalization")
def layer_norm(node: Node) -> Any:
    scale, bias = node.optional(1), node.optional(2)
    axis, epsilon = node.attr("axis", -1), node.attr("epsilon", 1e-5)
    x = node.value(0)
    if node.outputs > 1:
        y, average, deviation = ops.layer_norm(
            x, _spread(scale, x, axis), _spread(bias, x, axis), axis, epsilon, statistics=True
        )
        return y, average, deviation
    return ops.layer_norm(x, _spread(scale, x, axis), _spread(bias, x, axis), axis, epsilon)


def _spread(parameter: Value | None, x: Value, axis: int) -> Value | None:
    """Scale or bias in the shape of the normalized axes; it may come broadcast."""
    if parameter is None:
        return None
    wanted = x.shape[axis % x.ndim :]
    return parameter if parameter.shape == wanted else ops.expand(parameter, wanted)


@operator("RMSNormalization", "SimplifiedLayerNormalization")
def rms_norm(node: Node) -> Any:
    x, axis = node.value(0), node.attr("axis", -1)
    return ops.rms_norm(x, _spread(node.optional(1), x, axis), None, axis, node.attr("epsilon", 1e-5))


@operator("BatchNormalization")
def batch_norm(node: Node) -> Any:
    if node.attr("training_mode", 0):
        return _batch_norm_training(node)
    x, epsilon = node.value(0), node.attr("epsilon", 1e-5)
    if x.ndim == 1:
        return ops.reshape(_folded(ops.unsqueeze(x, [1]), node, epsilon), x.shape)
    if all(node.is_known(n) for n in range(1, 5)):
        return _folded(x, node, epsilon)
    scale, bias, average, variance = (channels(node.value(n), x.ndim) for n in range(1, 5))
    deviation = ops.sqrt(ops.add(variance, np.array(epsilon, variance.dtype.numpy)))  # type: ignore[union-attr]
    return ops.add(ops.mul(ops.div(ops.sub(x, average), deviation), scale), bias)


def _batch_norm_training(node: Node) -> Any:
    """Normalized by the mean and the variance of x itself; and the running ones moved towards them."""
    x, momentum = node.value(0), np.float32(node.attr("momentum", 0.9))
    axes = [d for d in range(x.ndim) if d != 1]
    average = ops.reduce("mean", x, axes, True)
    centred = ops.sub(x, average)
    variance = ops.reduce("mean", ops.mul(centred, centred), axes, True)
    scale, bias = (channels(node.value(n), x.ndim) for n in (1, 2))
    deviation = ops.sqrt(ops.add(variance, np.float32(node.attr("epsilon", 1e-5))))
    found = [ops.add(ops.mul(ops.div(centred, deviation), scale), bias)]
    for n, new in ((3, average), (4, variance)):
        old = node.value(n)
        moved = ops.mul(ops.reshape(new, old.shape), np.float32(1) - momentum)
        found.append(ops.add(ops.mul(old, momentum), moved))
    return found


def _folded(x: Value, node: Node, epsilon: float) -> Value:
    scale, bias, average, variance = (node.known(n) for n in range(1, 5))
    return ops.batch_norm(x, scale, bias, average, variance, epsilon=epsilon)


def channels(value: Value, rank: int) -> Value:
    """One number a channel, shaped to broadcast along axis 1."""
    return ops.reshape(value, [*value.shape, *(1,) * (rank - 2)])


@operator("InstanceNormalization")
def instance_norm(node: Node) -> Any:
    return ops.instance_norm(node.value(0), node.value(1), node.value(2), node.attr("epsilon", 1e-5))


@operator("GroupNormalization")
def group_norm(node: Node) -> Any:
    x, groups = node.value(0), node.attr("num_groups")
    scale, bias = node.value(1), node.value(2)
    if scale.shape != (x.shape[1],):  # before operator set 21 there is one for each group
        each = x.shape[1] // groups
        scale, bias = (ops.reshape(ops.expand(ops.unsqueeze(p, [1]), (groups, each)), (-1,)) for p in (scale, bias))
    return ops.group_norm(x, groups, scale, bias, node.attr("epsilon", 1e-5))


@operator("LpNormalization")
def lp_norm(node: Node) -> Any:
    x = node.value(0)
    norm = ops.reduce("l1" if node.attr("p", 2) == 1 else "l2", x, node.attr("axis", -1), True)
    zero = np.zeros((), x.dtype.numpy)  # type: ignore[union-attr]
    return ops.where(ops.equal(norm, zero), zero, ops.div(x, norm))


@operator("MeanVarianceNormalization")
def mean_variance(node: Node) -> Any:
    x = node.value(0)
    axes = axes_of(node.attr("axes", [0, 2, 3]), x.ndim, node)
    centred = ops.sub(x, ops.reduce("mean", x, axes, True))
    variance = ops.reduce("mean", ops.mul(centred, centred), axes, True)
    return ops.div(centred, ops.add(ops.sqrt(variance), np.array(1e-9, x.dtype.numpy)))  # type: ignore[union-attr]


@operator("LRN")
def local_response(node: Node) -> Any:
    alpha, beta, bias = (node.attr(n, usual) for n, usual in (("alpha", 1e-4), ("beta", 0.75), ("bias", 1.0)))
    return ops.local_response_norm(node.value(0), node.attr("size"), alpha, beta, bias)
