"""Operators of the domain com.microsoft, which ONNX Runtime's quantizers and optimizers write."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....kernels import ops
from ....kernels.linear import CodeFormat, Linear
from ....primitives import dtypes
from ....primitives.pipeline import Value
from ..node import Coded, Node, axes_of
from ..reading import package
from ..scope import TABLE, operator, spread, widened
from . import elementwise, linear, tables
from .linear import flat, flat_or_zero
from .quantize import to_codes

DOMAIN = "com.microsoft"


def coded(node: Node, first: int) -> Coded:
    """Three operands in a row: codes, scale, zero point."""
    return Coded(node.operand(first), flat(node.operand(first + 1)), _flat(node.operand(first + 2)), 0, 0)


def _flat(operand: Any) -> Any:
    return None if operand is None else flat(operand)


def codes_of(node: Node, real: Any, first: int, like: Any) -> Any:
    """The codes of a result, with scale and zero point from operand `first` on; their type is that of `like`."""
    zero = _flat(node.operand(first + 1))
    kind = zero.dtype if zero is not None else like.dtype
    return to_codes(node.scope, real, flat(node.operand(first)), zero, dtypes.get(kind).name)


def _binary(name: str, op: str) -> None:
    @operator(name, domain=DOMAIN)
    def translate(node: Node) -> Any:
        a, b = coded(node, 0), coded(node, 3)
        real = TABLE["", op](node.on(node.scope, [a, b]))
        return codes_of(node, real, 6, a.codes)


_binary("QLinearAdd", "Add")
_binary("QLinearMul", "Mul")


def _unary(name: str, op: str) -> None:
    @operator(name, domain=DOMAIN)
    def translate(node: Node) -> Any:
        x = coded(node, 0)
        return codes_of(node, TABLE["", op](node.on(node.scope, [x])), 3, x.codes)


@operator("QLinearWhere", domain=DOMAIN)
def where(node: Node) -> Any:
    a, b = coded(node, 1), coded(node, 4)
    real = TABLE["", "Where"](node.on(node.scope, [node.operand(0), a, b]))
    return codes_of(node, real, 7, a.codes)


_unary("QLinearSigmoid", "Sigmoid")
_unary("QLinearLeakyRelu", "LeakyRelu")


@operator("QLinearAveragePool", domain=DOMAIN)
def average_pool(node: Node) -> Any:
    x, rank = coded(node, 0), len(node.operand(0).shape)
    last = bool(node.attr("channels_last", 0))
    if last:
        turned = ops.transpose(node.value(0), (0, rank - 1, *range(1, rank - 1)))
        x = Coded(turned, x.scale, x.zero_point, 0, 0)
    pool = node.on(node.scope, [x])
    if node.attr("ceil_mode", 0) and node.attr("count_include_pad", 0):
        pool = padded_out(pool, x.shape)
    found = codes_of(node, TABLE["", "AveragePool"](pool), 3, x.codes)
    return ops.transpose(found, (0, *range(2, rank), 1)) if last else found


def padded_out(node: Node, shape: tuple[Any, ...]) -> Node:
    """The same pooling with padding where windows reach behind it: ONNX Runtime counts all elements of a window here."""
    window = node.attr("kernel_shape")
    rank = len(window)
    steps, pads = node.attr("strides", [1] * rank), list(node.attr("pads", [0] * 2 * rank))
    if not all(isinstance(n, int) for n in shape[2:]):
        raise node.unsupported(f"ceil_mode with count_include_pad on run-time sizes {shape}; known ones work")
    for d, (n, k, s) in enumerate(zip(shape[2:], window, steps, strict=True)):
        whole = n + pads[d] + pads[d + rank]
        last = -(-(whole - k) // s)
        last -= last * s >= n + pads[d]  # a window that begins behind the data is left out
        pads[d + rank] += max(0, last * s + k - whole)
    proto = type(node.proto)()
    proto.CopyFrom(node.proto)
    for attribute in [a for a in proto.attribute if a.name in ("pads", "ceil_mode")]:
        proto.attribute.remove(attribute)
    proto.attribute.append(package().helper.make_attribute("pads", pads))
    return Node(node.scope, proto, node.version, node.label).on(node.scope, [node.operand(0)])


@operator("QLinearSoftmax", domain=DOMAIN)
def softmax(node: Node) -> Any:
    x = coded(node, 0)
    real = TABLE["", "Softmax"](node.on(node.scope, [x], version=node.attr("opset")))
    return codes_of(node, real, 3, x.codes)


@operator("QLinearGlobalAveragePool", domain=DOMAIN)
def global_average(node: Node) -> Any:
    x = node.value(0)
    last = bool(node.attr("channels_last", 0))
    return mean_of_codes(node, [d for d in range(x.ndim) if d not in (0, x.ndim - 1 if last else 1)], True)


@operator("QLinearReduceMean", domain=DOMAIN)
def reduce_mean(node: Node) -> Any:
    axes, rank = node.attr("axes", None), len(node.operand(0).shape)
    return mean_of_codes(node, axes_of(axes, rank, node) if axes else None, bool(node.attr("keepdims", 1)))


def mean_of_codes(node: Node, axes: list[int] | None, keepdims: bool) -> Value:
    """The codes are added up as integers; the mean is scaled once."""
    x = node.value(0)
    zero = flat_or_zero(node.operand(4))
    like = x if isinstance(zero, int) else zero
    return ops.reduce(
        "mean",
        x,
        axes,
        keepdims,
        x_scale=flat(node.operand(1)),
        x_zero_point=flat_or_zero(node.operand(2)),
        scale=flat(node.operand(3)),
        zero_point=zero,
        dtype=str(like.dtype) if isinstance(like, Value) else dtypes.get(like.dtype).name,
    )


@operator("QLinearConcat", domain=DOMAIN)
def concat(node: Node) -> Any:
    """Operands with the result's own parameters are taken as they are; others go through a table."""
    like = node.operand(2)
    parts = []
    for first in range(2, len(node), 3):
        x = coded(node, first)
        zero = _flat(node.operand(1))
        parts.append(to_codes(node.scope, x, flat(node.operand(0)), zero, dtypes.get(like.dtype).name))
    return ops.concat([node.scope.value(p) for p in parts], node.attr("axis"))


@operator("QGemm", domain=DOMAIN)
def qgemm(node: Node) -> Any:
    a, b = node.operand(0), node.operand(3)
    a = linear.transposed(node, a) if node.attr("transA", 0) else a
    b = linear.transposed(node, b) if node.attr("transB", 0) else b
    acc = ops.gemm(
        node.scope.value(a), node.scope.value(b), flat_or_zero(node.operand(2)), flat_or_zero(node.operand(5))
    )
    if node.has(6):
        acc = ops.add(acc, node.value(6))
    scale = np.float32(node.attr("alpha", 1.0)) * flat(node.known(1)) * flat(node.known(4))
    if not node.has(7):
        return linear.real_of(acc, np.asarray(scale, np.float32))
    return linear.requantized(node, acc, np.float32(scale), np.float32(1), flat(node.known(7)), node.operand(8))


@operator("MatMulIntegerToFloat", domain=DOMAIN)
def integer_to_float(node: Node) -> Any:
    acc = ops.matmul(node.value(0), node.value(1), flat_or_zero(node.operand(4)), flat_or_zero(node.operand(5)))
    return scaled(node, acc, node.operand(2), node.operand(3), node.optional(6))


def scaled(node: Node, acc: Value, a_scale: Any, b_scale: Any, bias: Value | None) -> Value:
    """acc * (a_scale * b_scale) + bias; the scale of b is one, or one a column."""
    a_scale, b_scale = flat(a_scale), flat(b_scale)
    if isinstance(a_scale, np.ndarray) and isinstance(b_scale, np.ndarray):
        y = linear.real_of(acc, a_scale * b_scale)
    else:
        factor = ops.mul(node.scope.value(a_scale), node.scope.value(b_scale))
        y = ops.mul(ops.cast(acc, "f32"), factor)
    return y if bias is None else ops.add(y, bias)


@operator("DynamicQuantizeMatMul", domain=DOMAIN)
def dynamic_matmul(node: Node) -> Any:
    codes, scale, zero = ops.dynamic_quantize(node.value(0))
    acc = ops.matmul(codes, node.value(1), zero, flat_or_zero(node.operand(3)))
    return scaled(node, acc, scale, node.operand(2), node.optional(4))


@operator("MatMulNBits", domain=DOMAIN)
def matmul_nbits(node: Node) -> Any:
    """Weights of 2, 4 or 8 bits in blocks along K: multiplied in float32, the weights decoded as they are packed."""
    rows, depth = node.attr("N"), node.attr("K")
    bits, block = node.attr("bits", 4), node.attr("block_size")
    if node.has(4):
        raise node.unsupported("g_idx, which permutes the depth; weights in order work")
    blocks = -(-depth // block)
    codes = np.asarray(node.known(1)).reshape(rows, blocks, -1)
    per = 8 // bits
    spread = np.stack([(codes >> (bits * n)) & ((1 << bits) - 1) for n in range(per)], -1).astype(np.uint8)
    spread = spread.reshape(rows, -1)[:, :depth]
    scale = np.asarray(node.known(2), np.float32).reshape(rows, blocks)
    given = node.known(3, None)
    if given is None:
        zero = np.full((rows, blocks), 1 << (bits - 1), np.int32)
    elif given.dtype == np.uint8:
        packed = given.reshape(rows, -1)
        zero = np.stack([(packed >> (bits * n)) & ((1 << bits) - 1) for n in range(per)], -1)
        zero = zero.reshape(rows, -1)[:, :blocks].astype(np.int32)
    else:
        real = np.asarray(given, np.float32).reshape(rows, blocks)
        zero = real.astype(np.int32)
        if (zero != real).any():
            raise node.unsupported("zero points that are no integers; whole ones work")
    form = CodeFormat(bits=bits, signed=False, packing="bytes", block=(1, block), kind="affine", zero_point=True)
    x = node.value(0)
    y = linear_step(x, form, np.ascontiguousarray(spread), scale, zero)
    return ops.add(y, node.value(5)) if node.has(5) else y


def linear_step(x: Value, form: CodeFormat, codes: Any, scale: Any, zero: Any) -> Value:
    batch = x.ndim - 2
    kernel = Linear(form, int(codes.shape[1]), compute="f32", x_dtype=str(x.dtype), batch=batch)
    y = x.pipeline.add(kernel, x=x, codes=codes, scale=scale, zero_point=zero)
    assert isinstance(y, Value)
    return y


@operator("GatherBlockQuantized", domain=DOMAIN)
def gather_blocks(node: Node) -> Any:
    data = node.operand(0)
    axis, block = node.attr("quantize_axis", 1), node.attr("block_size", 128)
    bits = node.attr("bits", 4)
    if isinstance(data, np.ndarray) and data.dtype == np.uint8 and bits < 8:
        per = 8 // bits
        data = np.stack([(data >> (bits * n)) & ((1 << bits) - 1) for n in range(per)], -1).reshape(
            *data.shape[:-1], -1
        )
    zero = _nibbles(node.operand(3), bits, node.operand(2))
    if zero is None and isinstance(data, np.ndarray) and data.dtype == np.uint8:
        zero = np.full(np.shape(node.operand(2)), 1 << (bits - 1), np.uint8)
    codes = widened(data) if isinstance(data, np.ndarray) else data
    axis, along = axis % len(codes.shape), node.attr("gather_axis", 0) % len(codes.shape)
    if along == axis:
        return ops.gather(node.scope.value(Coded(codes, node.operand(2), zero, axis, block)), node.value(1), along)
    # only what is gathered becomes numbers; scales may be negative here
    indices = node.value(1)
    parts = [ops.gather(node.scope.value(x), indices, along) for x in (codes, node.operand(2))]
    axis += indices.ndim - 1 if axis > along else 0
    y = ops.cast(parts[0], "f32")
    if zero is not None:
        zeros = ops.gather(node.scope.value(zero), indices, along)
        y = ops.sub(y, spread(ops.cast(zeros, "f32"), y.shape, axis, block))
    kind = str(parts[1].dtype)
    y = ops.mul(y, spread(ops.cast(parts[1], "f32"), y.shape, axis, block))
    return y if kind == "f32" else ops.cast(y, kind)


def _nibbles(zero: Any, bits: int, scale: Any) -> Any:
    """Zero points, one an element: packed ones have as many bytes as are needed for those of a row."""
    if not isinstance(zero, np.ndarray) or zero.dtype != np.uint8 or bits == 8:
        return widened(zero) if isinstance(zero, np.ndarray) else zero
    per = 8 // bits
    apart = np.stack([(zero >> (bits * n)) & ((1 << bits) - 1) for n in range(per)], -1)
    return apart.reshape(*zero.shape[:-1], -1)[..., : scale.shape[-1]]


@operator("FusedMatMul", domain=DOMAIN)
def fused_matmul(node: Node) -> Any:
    operands = []
    for n, letter in enumerate("AB"):
        x = node.operand(n)
        if node.attr(f"transBatch{letter}", 0):  # the first axis goes behind the batches
            value = node.scope.value(x)
            x = ops.transpose(value, (*range(1, value.ndim - 1), 0, value.ndim - 1))
        operands.append(linear.transposed(node, x) if node.attr(f"trans{letter}", 0) else x)
    y = linear.matmul(node.on(node.scope, operands))
    alpha = node.attr("alpha", 1.0)
    return y if alpha == 1.0 else ops.mul(y, np.float32(alpha))


@operator("FusedConv", domain=DOMAIN)
def fused_conv(node: Node) -> Any:
    y = TABLE["", "Conv"](node.on(node.scope, [node.operand(n) for n in range(3)]))
    if node.has(3):
        y = ops.add(y, node.value(3))
    name, numbers = node.attr("activation", ""), node.attr("activation_params", [])
    return activated(node, y, name, numbers) if name else y


@operator("FusedGemm", domain=DOMAIN)
def fused_gemm(node: Node) -> Any:
    y = TABLE["", "Gemm"](node.on(node.scope, [node.operand(n) for n in range(3)]))
    name = node.attr("activation", "")
    return activated(node, y, name, [node.attr(f"activation_{n}", 0.0) for n in ("alpha", "beta")]) if name else y


def activated(node: Node, y: Any, name: str, numbers: Any) -> Any:
    y = node.scope.value(y)
    if name == "Clip":
        return ops.clip(y, np.float32(numbers[0]), np.float32(numbers[1]))
    if name == "LeakyRelu":
        return ops.leaky_relu(y, np.float32(numbers[0]))
    if name == "HardSigmoid":
        return ops.hard_sigmoid(y, alpha=np.float32(numbers[0]), beta=np.float32(numbers[1]))
    if name not in elementwise.UNARY:
        raise node.unsupported(f"activation {name!r}")
    return elementwise.UNARY[name](y)


@operator("Gelu", "BiasGelu", "FastGelu", "QuickGelu", domain=DOMAIN)
def gelus(node: Node) -> Any:
    def translate(node: Node) -> Any:
        x = node.value(0)
        if node.has(1):
            x = ops.add(x, node.value(1))
        if node.op == "QuickGelu":
            return ops.swish(x, alpha=np.float32(node.attr("alpha", 1.702)))
        return ops.gelu_tanh(x) if node.op == "FastGelu" else ops.gelu(x)

    return tables.apply(node, translate)


@operator("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", domain=DOMAIN)
def skip_layer_norm(node: Node) -> Any:
    simple = node.op == "SkipSimplifiedLayerNormalization"
    total = ops.add(node.value(0), node.value(1))
    bias = 3 if simple else 4
    if node.has(bias):
        total = ops.add(total, node.value(bias))
    epsilon = node.attr("epsilon", 1e-12 if not simple else 1e-5)
    if simple:
        y = ops.rms_norm(total, node.value(2), None, -1, epsilon)
    else:
        y = ops.layer_norm(total, node.value(2), node.optional(3), -1, epsilon)
    return [y, None, None, total]
