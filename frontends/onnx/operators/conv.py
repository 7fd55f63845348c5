"""Convolution and pooling, channels first as ONNX has them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ....kernels import ops
from ....primitives.pipeline import Value
from ..node import Coded, Node
from ..scope import operator, widened
from . import linear
from .linear import codes_of, flat, flat_or_zero, integer_bias, zero_of
from .moving import moved
from .window import largest_places, window


@operator("Conv")
def conv(node: Node) -> Any:
    x, w = node.operand(0), node.operand(1)
    rules = window(node, len(w.shape) - 2)
    integer = integer_conv(node, x, w, rules)
    if integer is None:
        image = node.value(0)
        bias = None if not node.has(2) else ops.cast(node.value(2), "f32") if image.dtype != "f32" else node.value(2)
        return linear.as_type(ops.conv(image, node.value(1), bias, **rules), image)
    acc, scale = integer
    bias = node.operand(2)
    if bias is None:
        return real_channels(acc, scale)
    whole = integer_bias(bias, scale)
    if whole is not None:
        return real_channels(ops.add(acc, per_channel(whole, acc.ndim)), scale)
    return ops.add(real_channels(acc, scale), per_channel(node.value(2), acc.ndim))


def per_channel(values: Any, rank: int) -> Any:
    """One value a channel, shaped to broadcast along axis 1."""
    if isinstance(values, np.ndarray):
        return values.reshape(-1, *(1,) * (rank - 2))
    return ops.reshape(values, [-1, *(1,) * (rank - 2)])


def integer_conv(node: Node, x: Any, w: Any, rules: dict[str, Any]) -> tuple[Value, Any] | None:
    """The integer sum of a convolution of promised operands, and the scale that makes it real; or None."""
    if not isinstance(x, Coded) or not isinstance(w, Coded) or x.block or w.block or {x.dtype, w.dtype} != {"f32"}:
        return None
    x_codes, w_codes = codes_of(x.codes), codes_of(w.codes)
    if x_codes is None or w_codes is None or not x.per_tensor or not (w.per_tensor or w.axis == 0):
        return None
    if not isinstance(x.scale, np.ndarray) or not isinstance(w.scale, np.ndarray):
        return None
    with np.errstate(over="ignore", under="ignore"):
        scale = flat(x.scale).astype(np.float32) * flat(w.scale).astype(np.float32)
    if not (np.isfinite(scale) & (scale > 0)).all():
        return None
    acc = ops.conv(node.scope.value(x_codes), node.scope.value(w_codes), None, **rules, **zeros(zero_of(x), zero_of(w)))
    return acc, scale


def zeros(a: Any, b: Any) -> dict[str, Any]:
    return {"a_zero_point": a, "b_zero_point": b}


def real_channels(acc: Value, scale: Any) -> Value:
    return ops.dequantize(acc, scale, 0, **({"axis": 1} if np.ndim(scale) else {}))


@operator("ConvInteger")
def conv_integer(node: Node) -> Any:
    w = node.value(1)
    return ops.conv(
        node.value(0),
        w,
        None,
        **window(node, w.ndim - 2),
        **zeros(flat_or_zero(node.operand(2)), flat_or_zero(node.operand(3))),
    )


@operator("QLinearConv")
def qlinear_conv(node: Node) -> Any:
    w = node.operand(3)
    rules = window(node, len(w.shape) - 2)
    x_scale, w_scale, y_scale = (flat(np.asarray(node.known(n), np.float32)) for n in (1, 4, 6))
    w_codes = widened(w) if isinstance(w, np.ndarray) else w
    acc = ops.conv(
        node.value(0),
        node.scope.value(w_codes),
        None,
        **rules,
        **zeros(flat_or_zero(node.operand(2)), flat_or_zero(node.operand(5))),
    )
    if node.has(8):
        acc = ops.add(acc, per_channel(node.known(8) if node.is_known(8) else node.value(8), acc.ndim))
    multiplier = np.asarray(x_scale * w_scale / y_scale, np.float32)
    zero = np.zeros((), np.uint8) if node.operand(7) is None else flat(node.operand(7))
    return linear.requantize(acc, multiplier, zero, axis=1)


@operator("ConvTranspose")
def conv_transpose(node: Node) -> Any:
    x, w = node.value(0), node.value(1)
    spatial = w.ndim - 2
    strides = list(node.attr("strides", [1] * spatial))
    dilations = list(node.attr("dilations", [1] * spatial))
    more = list(node.attr("output_padding", [0] * spatial))
    kernel = [int(n) for n in w.shape[2:]]
    pads = list(node.attr("pads", [0] * (2 * spatial)))
    shape = node.attr("output_shape", None)
    auto = node.attr("auto_pad", "NOTSET")
    if shape is not None or auto in ("SAME_UPPER", "SAME_LOWER"):
        for d in range(spatial):
            n = x.shape[2 + d]
            full = strides[d] * (n - 1) + more[d] + (kernel[d] - 1) * dilations[d] + 1
            wanted = shape[len(shape) - spatial + d] if shape is not None else n * strides[d]
            total = full - wanted
            if not isinstance(total, int):
                raise node.unsupported("output_shape of sizes known only at run time; pads work")
            small = total // 2
            before = total - small if auto == "SAME_LOWER" else small
            pads[d], pads[d + spatial] = before, total - before
            if total < 0:
                more[d] -= total
                pads[d] = pads[d + spatial] = 0
    return ops.conv_transpose(
        x,
        w,
        node.optional(2),
        strides=strides,
        pads=pads,
        out_pads=more,
        dilations=dilations,
        groups=int(node.attr("group", 1)),
    )


# Pooling -------------------------------------------------------------------------------------------------------------


def pool_window(node: Node, spatial: int) -> dict[str, Any]:
    rules = window(node, spatial)
    del rules["groups"]
    return {**rules, "ceil_mode": bool(node.attr("ceil_mode", 0))}


POOLED = ("f32", "u8", "s8")


@operator("MaxPool")
def max_pool(node: Node) -> Any:
    if node.wants(1):
        x = node.value(0)
        pooled = in_float(x, lambda v: _pooled(node, v))
        return pooled, largest_places(node, pooled, x)
    x = node.operand(0)
    if isinstance(x, Coded) and str(node.scope.value(x.codes).dtype) in POOLED:
        return moved(node, lambda v: _pooled(node, v))
    return in_float(node.value(0), lambda v: _pooled(node, v))


def _pooled(node: Node, x: Value) -> Value:
    kernel = list(node.attr("kernel_shape"))
    rules = pool_window(node, len(kernel))

    spatial = [isinstance(n, int) for n in x.shape[2:]]
    if rules["pads"] == "same_upper" and not all(spatial) and kernel == rules["strides"] == [2] * len(kernel):
        return ops.max_pool(x, kernel, **{**rules, "pads": 0, "ceil_mode": True})  # the same for windows of two
    return ops.max_pool(x, kernel, **rules)


def in_float(x: Value, op: Callable[[Value], Value]) -> Value:
    """An op that float32 has, on other types that float32 holds exactly."""
    if str(x.dtype) in POOLED:
        return op(x)
    return ops.cast(op(ops.cast(x, "f32")), str(x.dtype))


@operator("AveragePool")
def average_pool(node: Node) -> Any:
    kernel = list(node.attr("kernel_shape"))
    counted = bool(node.attr("count_include_pad", 0))
    rules = pool_window(node, len(kernel))
    return in_float(node.value(0), lambda x: ops.average_pool(x, kernel, count_include_pad=counted, **rules))


@operator("LpPool")
def lp_pool(node: Node) -> Any:
    """(sum of |x| ** p over a window) ** (1 / p), by way of an average that counts what is padded as 0."""
    x, p = node.value(0), np.float32(node.attr("p", 2))
    kernel = list(node.attr("kernel_shape"))
    powers = ops.pow(ops.abs(x), p)
    mean = ops.average_pool(powers, kernel, count_include_pad=True, **pool_window(node, len(kernel)))
    return ops.pow(ops.mul(mean, np.float32(math.prod(kernel))), np.float32(1) / p)


@operator("GlobalAveragePool")
def global_average(node: Node) -> Any:
    x = node.value(0)
    return ops.reduce("mean", x, list(range(2, x.ndim)), True)


@operator("GlobalMaxPool")
def global_max(node: Node) -> Any:
    return moved(node, lambda v: ops.reduce("max", v, list(range(2, v.ndim)), True))
