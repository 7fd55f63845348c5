"""Products with weights that stay codes."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...primitives import sizes
from ...primitives.errors import ArgumentError, DTypeMismatch, ShapeMismatch, Unsupported
from ...primitives.pipeline import Value
from ..linear import REAL, Linear
from .gemm import gemm
from .given import Operand, dtype_of, only, pipeline_of, value_of


def linear(x: Operand, q: Any, compute: str = "f32", activation: str = "block") -> Value:
    """x @ w.T for quantized weights w, decoded inside the product.

    x           f32, f16 or bf16 (.., M, K)
    q           a QuantizedTensor (N, K), or what has `linear_weights`, `shape`, `scheme` and `dequantize` like one
    compute     "f32": as dequantize and gemm, to the bit. "bf16": both rounded to bf16 first. "int8": x in int8, a
                scale for each row and block, sums exact in int32 (kernels/reference/linear.py)
    activation  for int8: "block", or "row" for one scale a row
    returns     f32 (.., M, N)

    Codes that stand for several weights, or whose decoding depends on more than their block, are decoded when the
    plan is made; then only "f32" works. Raises Unsupported for what the codes cannot do, with what they can.
    """
    pipe = pipeline_of("linear", x)
    x = value_of(pipe, x, "linear", "x")
    if not hasattr(q, "linear_weights"):
        raise ArgumentError(
            f"linear: the weights are {type(q).__name__}; scheme.quantize(w) makes what works, gemm takes arrays"
        )
    if dtype_of(x) not in REAL:
        raise DTypeMismatch(f"linear: x is {dtype_of(x)}; {', '.join(REAL)} work")
    if len(q.shape) != 2:
        raise ShapeMismatch(f"linear: the weights have shape {q.shape}; a matrix (N, K) works")
    if len(x.shape) < 2 or (isinstance(x.shape[-1], int) and x.shape[-1] != q.shape[1]):
        raise ShapeMismatch(
            f"linear: x is {sizes.show(x.shape)} but the weights are {q.shape}: x is (.., M, K), and both end in K"
        )
    found = q.linear_weights(compute)
    if found is None:
        if compute != "f32":
            raise Unsupported(
                f"linear: compute={compute!r} with {q.scheme.name}, whose codes are not decoded one by one with the "
                f"parameters of their block; compute='f32' works, with weights decoded when the plan is made"
            )
        return gemm(x, pipe.constant(np.ascontiguousarray(q.dequantize().T)))
    fmt, operands = found
    if compute == "int8" and fmt.kind == "decode":
        raise Unsupported(
            f"linear: compute='int8' with {q.scheme.name}, whose decode is neither affine nor a table times a scale; "
            f"compute='f32' and 'bf16' work"
        )
    if compute == "int8" and fmt.kind == "table" and not np.isfinite(operands["table"]).all():
        raise Unsupported(
            f"linear: compute='int8' with {q.scheme.name}, whose codes may stand for infinity or NaN, which are no "
            f"integers; compute='f32' and 'bf16' work"
        )
    kernel = Linear(fmt, q.shape[1], compute, dtype_of(x), len(x.shape) - 2, activation)
    values: dict[str, Any] = {slot: pipe.constant(np.ascontiguousarray(array)) for slot, array in operands.items()}
    return only(pipe.add(kernel, x=x, **values))
