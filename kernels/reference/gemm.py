"""gemm: matrix products of integers with zero points, and of real numbers."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .arithmetic import fma32, to_f32


def gemm_int(a: ArrayLike, b: ArrayLike, a_zero_point: ArrayLike = 0, b_zero_point: ArrayLike = 0) -> NDArray[np.int32]:
    """Product of two matrices of 8 bits or of 16, exact modulo 2**32.

        acc[.., m, n] = sum over k of (a[.., m, k] - a_zero_point[.., m]) * (b[.., k, n] - b_zero_point[.., n])

    a             uint8 or int8, or int16 (.., M, K)
    b             uint8 or int8, or int16 (.., K, N); leading dimensions are broadcast
    a_zero_point  integer, one value, (M,), (M, 1) or (.., M, 1): per row of a
    b_zero_point  integer, one value, (N,), (1, N) or (.., 1, N): per column of b
    returns       int32 (.., M, N) in units of scale_a * scale_b

    The differences have 9 bits and are never stored in 8. K = 0 gives zeros. A sum outside int32 wraps here; that it
    can't is proven from the weights before a pipeline runs.
    Source: ONNX MatMulInteger.
    Raises ValueError if the inner sizes differ.
    """
    a, b = np.asarray(a), np.asarray(b)
    check_inner(a, b)
    za, zb = np.asarray(a_zero_point).astype(np.int64), np.asarray(b_zero_point).astype(np.int64)
    if za.ndim == 1:
        za = za[:, None]
    with np.errstate(over="ignore"):
        return ((a.astype(np.int64) - za) @ (b.astype(np.int64) - zb)).astype(np.int32)


def gemm_f32(a: ArrayLike, b: ArrayLike) -> NDArray[np.float32]:
    """Product of two real matrices in float32; the order of the sum is part of the definition.

        acc[.., m, n] = fma(a[.., m, K-1], b[.., K-1, n], .. fma(a[.., m, 0], b[.., 0, n], +0.0))

    a        float32, float16 or bfloat16 (.., M, K), widened to float32, which is exact
    b        likewise (.., K, N); leading dimensions are broadcast
    returns  float32 (.., M, N)

    One chain of fused multiply-adds over ascending k, started at +0.0: the same bits on every machine and tile.
    The one exception is bfloat16 times bfloat16 where the machine multiplies pairs of them (vdpbf16ps): bf16_bound.
    Raises ValueError if the inner sizes differ.
    """
    a, b = to_f32(a), to_f32(b)
    check_inner(a, b)
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    acc = np.zeros((*batch, a.shape[-2], b.shape[-1]), np.float32)
    for p in range(a.shape[-1]):
        acc = fma32(a[..., :, p, None], b[..., p, None, :], acc)
    return acc


def bf16_bound(a: ArrayLike, b: ArrayLike) -> NDArray[np.float64]:
    """How far a native bfloat16 product may be from the exact one, element by element: float64 (.., M, N).

        |acc - a @ b|  <=  (K + 1) * 2**-23 * (|a| @ |b|)  +  (2 * K + 2) * 2**-126 * largest

    a, b     bfloat16 (.., M, K) and (.., K, N)
    largest  the largest magnitude in a or b, at least 1

    The product of two bfloat16 has 16 bits and there are at most K + 1 additions, each rounded to nearest: they cost
    (K + 1) * 2**-24 to first order, in any order of the sum; twice that covers the rest while K < 2**22. The instruction
    takes subnormal operands as zeros and gives zeros for subnormal results, which is the second term. Sums that leave
    float32 are infinite and not covered.
    Source: Higham, "Accuracy and Stability of Numerical Algorithms", 2nd edition, section 3.1.
    """
    a, b = (np.asarray(x).astype(np.float64) for x in (a, b))
    depth = a.shape[-1]
    largest = max(1.0, float(np.abs(a).max(initial=0)), float(np.abs(b).max(initial=0)))
    return (depth + 1) * 2.0**-23 * (np.abs(a) @ np.abs(b)) + (2 * depth + 2) * 2.0**-126 * largest


def check_inner(a: NDArray, b: NDArray) -> None:
    if a.ndim < 2 or b.ndim < 2 or a.shape[-1] != b.shape[-2]:
        raise ValueError(f"a is {a.shape} but b is {b.shape}: a's columns must equal b's rows")
