"""Matrix products: real, integer, and real ones whose operands are codes, which run on the codes.

For operands that a DequantizeLinear promises, sum((a - za) * sa * (b - zb) * sb) is computed as the integer sum times
sa * sb: the integer sum has no rounding, where the sum of products of rounded real numbers has one a step.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ....kernels import ops
from ....primitives import dtypes
from ....primitives.pipeline import Value
from ..node import Coded, Node
from ..scope import operator, widened

EIGHT_BITS = ("u8", "s8")


def codes_of(operand: Any) -> Any:
    """Codes as 8-bit ones, or None where they are wider or no integers."""
    dtype = operand.dtype if isinstance(operand, np.ndarray) else operand.dtype.numpy
    if dtype.name in ("int4", "uint4", "int2", "uint2"):
        return widened(operand)
    return operand if dtypes.get(dtype).name in EIGHT_BITS else None


def flat(parameter: Any) -> Any:
    """A parameter of one element as a scalar, whatever its rank."""
    if isinstance(parameter, np.ndarray) and parameter.size == 1:
        return parameter.reshape(())
    if isinstance(parameter, Value) and parameter.ndim and all(n == 1 for n in parameter.shape):
        return ops.reshape(parameter, ())
    return parameter


def zero_of(coded: Coded) -> Any:
    """The zero point of 8-bit codes, a scalar where it is one for all."""
    zero = coded.zero_point
    if zero is None:
        return 0
    return flat(widened(zero) if isinstance(zero, np.ndarray) else zero)


def integer_product(a: Any, b: Any) -> tuple[Value, Any] | None:
    """The integer sum of two Coded operands of a matrix product and the scale that makes it real, or None.

    a has one scale, or one a row; b has one, or one a column: what stays constant along the depth.
    """
    if not isinstance(a, Coded) or not isinstance(b, Coded) or a.block or b.block:
        return None
    if a.dtype != "f32" or b.dtype != "f32" or len(a.shape) < 2 or len(b.shape) < 2:
        return None
    a_codes, b_codes = codes_of(a.codes), codes_of(b.codes)
    if a_codes is None or b_codes is None or not a.per_tensor:
        return None
    if not b.per_tensor and b.axis != len(b.shape) - 1:
        return None
    if not isinstance(a.scale, np.ndarray) or not isinstance(b.scale, np.ndarray):
        return None
    with np.errstate(over="ignore", under="ignore"):
        scale = flat(a.scale).astype(np.float32) * flat(b.scale).astype(np.float32)
    if not (np.isfinite(scale) & (scale > 0)).all():
        return None
    return ops.gemm(a_codes, b_codes, zero_of(a), zero_of(b)), scale


def real_of(acc: Value, scale: Any) -> Value:
    """An integer sum as real numbers; a scale for each column goes along the last axis."""
    return ops.dequantize(acc, scale, 0, **({"axis": -1} if np.ndim(scale) else {}))


def integer_bias(bias: Any, scale: Any) -> Any:
    """A bias as integers in units of the sum, where it is promised as exactly that; else None."""
    if isinstance(bias, Coded) and isinstance(bias.codes, np.ndarray) and bias.codes.dtype == np.int32:
        zero = bias.zero_point
        exact = zero is None or (isinstance(zero, np.ndarray) and not zero.any())
        if (
            exact
            and isinstance(bias.scale, np.ndarray)
            and np.array_equal(
                np.broadcast_to(flat(bias.scale), np.shape(scale)) if np.ndim(scale) else flat(bias.scale), scale
            )
        ):
            return bias.codes
    return None


@operator("MatMul")
def matmul(node: Node) -> Any:
    a, b = node.operand(0), node.operand(1)
    integer = integer_product(a, b)
    if integer is not None:
        return real_of(*integer)
    a, b = node.value(0), node.value(1)
    return as_type(ops.matmul(a, b), a)


def as_type(y: Value, like: Value) -> Value:
    """A real result, which is computed in f32, in the type of an operand: f16 and bf16 are rounded once."""
    return ops.cast(y, str(like.dtype)) if str(like.dtype) in ("f16", "bf16") else y


@operator("Gemm")
def gemm(node: Node) -> Any:
    alpha, beta = float(node.attr("alpha", 1.0)), float(node.attr("beta", 1.0))
    a, b = node.operand(0), node.operand(1)
    a = transposed(node, a) if node.attr("transA", 0) else a
    b = transposed(node, b) if node.attr("transB", 0) else b
    c = node.operand(2)
    integer = integer_product(a, b) if alpha == 1.0 else None
    if integer is not None:
        acc, scale = integer
        bias = integer_bias(c, scale) if c is not None and beta == 1.0 else None
        if bias is not None:
            return real_of(ops.add(acc, bias), scale)
        y = real_of(acc, scale)
    else:
        y = ops.gemm(node.scope.value(a), node.scope.value(b))
        if alpha != 1.0:
            y = ops.mul(y, np.float32(alpha))
    if c is not None and beta != 0.0:
        c = ops.cast(node.value(2), str(y.dtype))
        y = ops.add(y, c if beta == 1.0 else ops.mul(c, np.float32(beta)))
    return y if integer is not None else as_type(y, node.scope.value(a))


def transposed(node: Node, operand: Any) -> Any:
    """The last two axes swapped, of whatever kind the operand is."""
    if isinstance(operand, np.ndarray):
        return node.scope.once("transposed", operand, lambda x: np.ascontiguousarray(x.swapaxes(-1, -2)))
    if isinstance(operand, Coded):
        rank = len(operand.shape)
        axis = {rank - 1: rank - 2, rank - 2: rank - 1}.get(operand.axis, operand.axis)
        # blocks have a scale for each place of the other axes too
        scale, zero = operand.scale, operand.zero_point
        if operand.block:
            scale, zero = transposed(node, scale), None if zero is None else transposed(node, zero)
        return Coded(transposed(node, operand.codes), scale, zero, axis, operand.block, operand.dtype)
    value = node.scope.value(operand)
    perm = [*range(value.ndim - 2), value.ndim - 1, value.ndim - 2]
    return ops.transpose(value, perm)


@operator("MatMulInteger")
def matmul_integer(node: Node) -> Any:
    a, b = node.value(0), node.value(1)
    return ops.matmul(a, b, _row_zero(node.operand(2)), flat_or_zero(node.operand(3)))


def flat_or_zero(operand: Any) -> Any:
    return 0 if operand is None else flat(operand)


def _row_zero(operand: Any) -> Any:
    """Zero points of a: one, or one a row, (M,) or (.., M, 1)."""
    return flat_or_zero(operand)


@operator("QLinearMatMul")
def qlinear_matmul(node: Node) -> Any:
    a, b = node.value(0), node.value(3)
    a_scale, b_scale, y_scale = (np.asarray(node.known(n), np.float32) for n in (1, 4, 6))
    acc = ops.matmul(a, b, flat_or_zero(node.operand(2)), flat_or_zero(node.operand(5)))
    return requantized(node, acc, flat(a_scale), flat(b_scale), flat(y_scale), node.operand(7))


def requantized(node: Node, acc: Value, a_scale: Any, b_scale: Any, y_scale: Any, zero_point: Any) -> Value:
    """Integer sums to codes by ONNX Runtime's multiplier: float32(a_scale * b_scale) / y_scale."""
    multiplier = np.asarray((a_scale * b_scale) / y_scale, np.float32)
    zero = np.zeros((), np.uint8) if zero_point is None else flat(zero_point)
    return requantize(acc, multiplier, zero, axis=-1)


def requantize(acc: Value, multiplier: Any, zero: Any, axis: int) -> Value:
    dtype = str(zero.dtype) if isinstance(zero, Value) else dtypes.get(zero.dtype).name
    return ops.requantize(acc, multiplier, zero, dtype=dtype, axis=axis if np.ndim(multiplier) else None)
