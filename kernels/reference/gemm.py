"""gemm: matrix products of integers with zero points, and of float32."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .arithmetic import fma32


def gemm_int(a: ArrayLike, b: ArrayLike, a_zero_point: ArrayLike = 0, b_zero_point: ArrayLike = 0) -> NDArray[np.int32]:
    """Product of two 8-bit matrices, exact modulo 2**32.

        acc[.., m, n] = sum over k of (a[.., m, k] - a_zero_point[.., m]) * (b[.., k, n] - b_zero_point[.., n])

    a             uint8 or int8 (.., M, K)
    b             uint8 or int8 (.., K, N); leading dimensions are broadcast
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
    """Product of two float32 matrices; the order of the sum is part of the definition.

        acc[.., m, n] = fma(a[.., m, K-1], b[.., K-1, n], .. fma(a[.., m, 0], b[.., 0, n], +0.0))

    a        float32 (.., M, K)
    b        float32 (.., K, N); leading dimensions are broadcast
    returns  float32 (.., M, N)

    One chain of fused multiply-adds over ascending k, started at +0.0: the same bits on every machine and tile.
    Raises ValueError if the inner sizes differ.
    """
    a, b = np.asarray(a, np.float32), np.asarray(b, np.float32)
    check_inner(a, b)
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    acc = np.zeros((*batch, a.shape[-2], b.shape[-1]), np.float32)
    for p in range(a.shape[-1]):
        acc = fma32(a[..., :, p, None], b[..., p, None, :], acc)
    return acc


def check_inner(a: NDArray, b: NDArray) -> None:
    if a.ndim < 2 or b.ndim < 2 or a.shape[-1] != b.shape[-2]:
        raise ValueError(f"a is {a.shape} but b is {b.shape}: a's columns must equal b's rows")
