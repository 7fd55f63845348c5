"""QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear.

A DequantizeLinear is only a promise (`Coded`) until something needs the real numbers: an integer operator takes the
codes instead, and a QuantizeLinear with the same parameters gives them back, which is exact: (code - zero_point) *
scale / scale is within an ulp of an integer that float32 holds, so it rounds to it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ....kernels import ops
from ....primitives import dtypes
from ....primitives.pipeline import Value
from ..node import Coded, Node
from ..scope import IN_BYTES, Scope, operator, spread, widened
from ..tensors import element_type
from . import tables

MICROSOFT = "com.microsoft"  # the same for codes of 4 and 16 bits, before the operator sets of ONNX had them
INTEGER_CODES = ("u8", "s8", "u16", "s16")


def _code_type(node: Node, zero_point: Any) -> str:
    if zero_point is not None:
        return dtypes.get(zero_point.dtype).name.removesuffix("b")
    asked = node.attr("output_dtype", 0)
    return dtypes.get(element_type(asked, node.label)).name if asked else "u8"


def same_numbers(a: Any, b: Any) -> bool:
    """Whether two operands are one value or equal constants."""
    if a is b:
        return True
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and bool((a == b).all())
    return False


def _zero_point(given: Any) -> Any:
    if given is None:
        return 0
    if isinstance(given, Value):
        return ops.cast(given, IN_BYTES[str(given.dtype)]) if str(given.dtype) in IN_BYTES else given
    return widened(given)


def _axis(node: Node, x: Any, scale: Any) -> int:
    """The attribute axis, which must be one of the data where there are scales for its indices or blocks."""
    axis, rank = int(node.attr("axis", 1)), len(x.shape)
    if any(n != 1 for n in scale.shape) and not -rank <= axis < rank:
        raise node.malformed(f"scales of shape {tuple(scale.shape)} along axis {axis} of {rank} dimensions")
    return axis


@operator("QuantizeLinear", domain=MICROSOFT)
@operator("QuantizeLinear")
def quantize_linear(node: Node) -> Any:
    zero_point = node.operand(2)
    dtype = _code_type(node, zero_point)
    place = (_axis(node, node.operand(0), node.operand(1)), node.attr("block_size", 0))
    return to_codes(
        node.scope, node.operand(0), node.operand(1), zero_point, dtype, *place, bool(node.attr("saturate", 1))
    )


def to_codes(
    scope: Scope, x: Any, scale: Any, zero_point: Any, dtype: str, axis: int = 1, block: int = 0, saturate: bool = True
) -> Any:
    """The codes of an operand: those that it already has, a table over other codes, or a quantize step."""
    if isinstance(x, Coded) and dtype in INTEGER_CODES and _type_of(x.codes) == dtype:
        zero = zero_point if zero_point is not None else np.zeros((), dtypes.get(dtype).numpy)
        other = x.zero_point if x.zero_point is not None else np.zeros((), dtypes.get(dtype).numpy)
        layout = x.per_tensor or (x.axis == axis % max(1, len(x.shape)) and x.block == block)
        if layout and same_numbers(x.scale, scale) and same_numbers(other, zero):
            return x.codes
    table = tables.as_table(scope, x) if dtype in ("u8", "s8") and not block and _constant(scale, zero_point) else None
    if table is not None:
        found = tables.quantized(scope, table, scale, zero_point, dtype)
        if found is not None:
            return found
    value = scope.value(scope.settle(x))
    if dtypes.get(dtype).kind == "float":
        return _small_float(value, scale, dtype, axis, block, saturate)
    if str(value.dtype) == "s32":
        value = ops.cast(value, "f32")
    return ops.quantize(value, scale, _zero_point(zero_point), dtype=dtype, **_layout(scale, axis, block))


def _small_float(value: Value, scale: Any, dtype: str, axis: int, block: int, saturate: bool) -> Value:
    """x / scale in a small float type."""
    return ops.cast(ops.div(value, spread(scale, value.shape, axis, block)), dtype, saturate)


def _constant(scale: Any, zero_point: Any) -> bool:
    """Whether scale and zero point are one constant each."""
    return all(x is None or (isinstance(x, np.ndarray) and x.size == 1) for x in (scale, zero_point))


def _layout(scale: Any, axis: int, block: int) -> dict[str, Any]:
    if not len(scale.shape):
        return {}
    return {"axis": axis, "block": block} if block else {"axis": axis}


def _type_of(x: Any) -> str:
    return str(x.dtype) if isinstance(x, Value) else dtypes.get(x.dtype).name


@operator("DequantizeLinear", domain=MICROSOFT)
@operator("DequantizeLinear")
def dequantize_linear(node: Node) -> Any:
    x, scale, zero_point = node.operand(0), node.operand(1), node.operand(2)
    rank = len(x.shape)
    axis = _axis(node, x, scale)
    real = _type_of(scale)
    asked = node.attr("output_dtype", 0)
    real = dtypes.get(element_type(asked, node.label)).name if asked else real
    return Coded(x, scale, zero_point, axis % rank if rank else 0, node.attr("block_size", 0), real)


@operator("DynamicQuantizeLinear")
def dynamic_quantize_linear(node: Node) -> Any:
    x = node.value(0)
    if x.ndim:
        return ops.dynamic_quantize(x)
    codes, scale, zero = ops.dynamic_quantize(ops.reshape(x, [1]))
    return ops.reshape(codes, []), scale, zero
