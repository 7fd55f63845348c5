"""Matrix products."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...primitives import sizes
from ...primitives.errors import (
    DTypeMismatch,
    ShapeMismatch,
    Unsupported,
)
from ...primitives.pipeline import Value
from ...primitives.sizes import Shape
from ..gemm import PARTNERS, Gemm
from ..indexing import Index, broadcast
from .given import Operand, dtype_of, only, pipeline_of, value_of, zero_points
from .quantizations import axis_of, product_scale


def gemm(a: Operand, b: Operand, a_zero_point: Operand = None, b_zero_point: Operand = None) -> Value:
    """Matrix product: acc[.., m, n] = sum over k of (a - a_zero_point)[.., m, k] * (b - b_zero_point)[.., k, n].

    a             u8, s8, s16, f32, f16 or bf16 (.., M, K)
    b             u8 or s8 where a is one of them, s16 where a is, else f32, f16 or bf16 (.., K, N); leading sizes are
                  equal or 1
    a_zero_point  one, (M,) or (.., M, 1), of a's type; left out: that of the quantization a carries, or 0
    b_zero_point  one, (N,) or (.., 1, N), of b's type; left out: likewise
    returns       s32 (exact modulo 2**32) or f32 (one chain of fused multiply-adds over ascending k; bf16 times bf16 on
                  a machine that multiplies pairs of them within reference.gemm.bf16_bound) (.., M, N);
                  it carries scale_a * scale_b where both operands carry a quantization that is constant along k
    """
    pipe = pipeline_of("gemm", a, b)
    a, b = value_of(pipe, a, "gemm", "a"), value_of(pipe, b, "gemm", "b")
    a_dtype, b_dtype = dtype_of(a), dtype_of(b)
    if b_dtype not in PARTNERS.get(a_dtype, ()):
        raise DTypeMismatch(
            f"gemm: a is {a_dtype} and b is {b_dtype}; u8 or s8 times u8 or s8, s16 times s16, or f32, f16 or bf16 "
            f"times f32, f16 or bf16 work"
        )
    for name, operand in (("a", a), ("b", b)):
        if len(operand.shape) < 2:
            raise ShapeMismatch(
                f"gemm: {name} has shape {sizes.show(operand.shape)}; a matrix has two dimensions at least"
            )
    k, k_of_b = a.shape[-1], b.shape[-2]
    if isinstance(k, int) and isinstance(k_of_b, int) and k != k_of_b:
        raise ShapeMismatch(
            f"gemm: a is {sizes.show(a.shape)} but b is {sizes.show(b.shape)}: a's columns must equal b's rows"
        )
    batch, (a_lead, b_lead) = broadcast([a.shape[:-2], b.shape[:-2]], "gemm's leading dimensions")
    kernel: dict[str, Any] = {
        "a_dtype": a_dtype,
        "b_dtype": b_dtype,
        "batch": len(batch),
        "a_batch": tuple(at and at[0] for at in a_lead),
        "b_batch": tuple(at and at[0] for at in b_lead),
    }
    operands = {"a": a, "b": b}
    out = (*batch, a.shape[-2], b.shape[-1])
    for slot, given, operand, along in (("a_zero_point", a_zero_point, a, -2), ("b_zero_point", b_zero_point, b, -1)):
        if given is None:
            given = _zero_point_of(operand, along, slot)
        if not isinstance(given, Value):
            given = (
                zero_points(given, dtype_of(operand), f"gemm: {slot}") if a_dtype in ("u8", "s8") else np.asarray(given)
            )
            if not given.any() and _has_no_effect(given.shape, out, along, f"gemm: {slot}"):
                continue
        if a_dtype not in ("u8", "s8"):
            raise DTypeMismatch(f"gemm of {a_dtype} has no zero points; leave {slot} out")
        kernel[slot] = _gemm_zero_point(given.shape, out, along, f"gemm: {slot}")
        operands[slot] = given
    acc = pipe.add(Gemm(**kernel), **operands)
    if a_dtype in ("u8", "s8", "s16"):
        acc.quant = product_scale(a.quant, b.quant, a.shape, b.shape, len(out))
    return only(acc)


def _gemm_zero_point(shape: Shape, out: Shape, along: int, what: str) -> Index:
    """Zero points of gemm over its result: one, one for each row (along -2) or column (along -1), or with batches."""
    rank = len(out)
    if all(n == 1 for n in shape) and len(shape) <= rank:
        return (None,) * len(shape)
    if len(shape) == 1:
        return ((rank + along, 1),)
    across = -1 if along == -2 else -2
    if len(shape) > rank or shape[across] != 1:
        axis = "a's rows" if along == -2 else "b's columns"
        raise ShapeMismatch(
            f"{what} has shape {sizes.show(shape)}; one, one for each of {axis}, or "
            f"{'(.., M, 1)' if along == -2 else '(.., 1, N)'} work"
        )
    lead = rank - len(shape)
    return tuple(None if n == 1 else (lead + d, 1) for d, n in enumerate(shape))


def _has_no_effect(shape: Shape, out: Shape, along: int, what: str) -> bool:
    """Whether zero points that are all zero can be left out: one, or as many as the result is known to have."""
    sizes_of_result = [out[at[0]] if at is not None else 1 for at in _gemm_zero_point(shape, out, along, what)]
    for n, wanted in zip(shape, sizes_of_result, strict=True):
        if isinstance(wanted, int) and n != wanted:
            raise ShapeMismatch(
                f"{what} has shape {sizes.show(shape)}; {sizes.show(tuple(sizes_of_result))} is asked for"
            )
    return all(isinstance(wanted, int) for wanted in sizes_of_result)


def _zero_point_of(operand: Value, along: int, slot: str) -> Any:
    """The zero point that an operand of gemm carries, shaped for its slot."""
    quant = operand.quant
    if quant is None or not quant.zero_point.any():
        return 0
    if quant.zero_point.ndim == 0 or quant.axis is None:
        return quant.zero_point.reshape(())
    if quant.block is None and axis_of(quant, len(operand.shape)) == len(operand.shape) + along:
        return quant.zero_point
    raise Unsupported(
        f"gemm: {operand.name!r} carries zero points along axis {quant.axis}, block {quant.block}, which is no axis of "
        f"the result; give {slot}=, or dequantize and multiply f32"
    )
