"""linear: x times the transpose of weights that are codes and parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..linear import CodeFormat, Linear
from .arithmetic import fma32, to_f32
from .gemm import bf16_bound, gemm_f32

TINY = np.float32(2.0**-100)  # a block of x that is nowhere larger counts as zeros: 127 / amax would overflow
STEP = np.float32(1.0) / np.float32(127.0)
EXPONENTS = range(-16, 17)  # powers of two that may make a table's levels integers


def unpack_bytes(codes: ArrayLike, fmt: CodeFormat, K: int) -> NDArray[np.uint8]:
    """Codes one by one, as their bits: uint8 (N, K), below 2**bits.

    codes   as CodeFormat.packing says
    """
    codes = np.asarray(codes)
    mask = np.uint8((1 << fmt.bits) - 1)
    if fmt.packing == "bytes" or fmt.bits == 8:
        return codes.view(np.uint8)[:, :K] & mask
    q = np.empty((len(codes), K), np.uint8)
    if 8 % fmt.bits == 0:
        per_byte = 8 // fmt.bits
        for i in range(min(per_byte, K)):
            q[:, i::per_byte] = (codes >> np.uint8(i * fmt.bits))[:, : -(-(K - i) // per_byte)] & mask
        return q
    first = np.arange(K) * fmt.bits
    byte, shift = first // 8, (first % 8).astype(np.uint16)
    for at in range(0, len(codes), 64):  # a code lies in at most two bytes
        rows = np.pad(codes[at : at + 64], ((0, 0), (0, 1))).astype(np.uint16)
        q[at : at + 64] = ((rows[:, byte] | rows[:, byte + 1] << np.uint16(8)) >> shift).astype(np.uint8) & mask
    return q


def unpack_codes(codes: ArrayLike, fmt: CodeFormat, K: int) -> NDArray[np.int32]:
    """Codes one by one, sign-extended where they are signed: int32 (N, K)."""
    q = unpack_bytes(codes, fmt, K).astype(np.int32)
    return q - ((q & (1 << (fmt.bits - 1))) << 1) if fmt.signed else q


def spread(parameter: ArrayLike, fmt: CodeFormat, N: int, K: int) -> NDArray:
    """A parameter for each row of w and block along K: (N, blocks)."""
    rows = N if fmt.block[0] is None else fmt.block[0]
    return np.repeat(np.asarray(parameter), max(rows, 1), axis=0)[:N]


def decode(codes: ArrayLike, fmt: CodeFormat, K: int, *parameters: ArrayLike) -> NDArray[np.float32]:
    """The weights that codes stand for: float32 (N, K).

        affine   w = f32(q - zero_point) * scale
        offset   w = f32(q) * scale + offset            rounded after the product and after the sum
        table    w = table[q mod 2**bits] * scale
        decode   w = decode(q, *parameters)             in float32 and int32, as a captured function computes

    parameters   the slots of the format in its order, of shape format.blocks(N, K); then the table
    """
    q = unpack_codes(codes, fmt, K)
    N = len(q)
    count = len(fmt.parameters)
    p = [np.repeat(spread(x, fmt, N, K), fmt.depth(K), axis=1)[:, :K] for x in parameters[:count]]
    with np.errstate(all="ignore"):
        if fmt.kind == "affine":
            shifted = q.astype(np.int64) - p[1] if fmt.zero_point else q
            return shifted.astype(np.float32) * p[0]
        if fmt.kind == "offset":
            return q.astype(np.float32) * p[0] + p[1]
        if fmt.kind == "table":
            return np.asarray(parameters[count], np.float32)[q & ((1 << fmt.bits) - 1)] * p[0]
        from .map import map_elements

        if fmt.position:
            p.append(np.arange(N * K).reshape(N, K).astype(np.int32))
        return map_elements(fmt.captured.interpreted, [q, *p], np.dtype(np.float32))


def levels(table: ArrayLike) -> tuple[NDArray[np.int32], np.float32, bool]:
    """A table as integers of -127..127 and a factor: table ~ levels * factor; and whether that is exact.

    The least power of two that makes every level an integer in range is exact; else the largest level becomes 127 and
    the others are rounded, ties to even: each is off by at most half of factor = max |table| / 127.

    Raises ValueError for a table that is not finite.
    """
    table = np.asarray(table, np.float32)
    if not np.all(np.isfinite(table)):
        raise ValueError("a table with infinite or NaN levels has no integers; compute='f32' takes it")
    wide = table.astype(np.float64)
    for e in EXPONENTS:
        scaled = np.ldexp(wide, e)
        if np.all(scaled == np.rint(scaled)) and np.all(np.abs(scaled) <= 127):
            return scaled.astype(np.int32), np.float32(2.0**-e), True
    top = float(np.abs(wide).max())
    return np.rint(wide * (127.0 / top)).astype(np.int32), np.float32(top) / np.float32(127), False


def quantize_rows(x: ArrayLike, depth: int, per_row: bool = False) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """x as codes of 8 bits with a scale for each row and block of `depth` columns, or for each row.

        amax = max |x|;  scale = amax * (1 / 127);  q = round(x * (127 / amax))          ties to even, float32

    returns  int32 (M, K) in -127..127, float32 (M, blocks)

    Where amax is below 2**-100 codes and scale are 0. Where it is infinite or NaN, codes are 0 and the scale is NaN.
    """
    x = to_f32(x)
    M, K = x.shape
    q, scales = np.zeros((M, K), np.int32), np.zeros((M, -(-K // depth)), np.float32)
    for g in range(scales.shape[1]):
        at = slice(g * depth, (g + 1) * depth)
        part = x if per_row else x[:, at]
        amax = np.abs(part).max(axis=1, initial=0)
        with np.errstate(all="ignore"):
            finite = np.isfinite(amax)
            used = finite & (amax >= TINY)
            inverse = np.float32(127) / np.where(used, amax, np.float32(1))
            scales[:, g] = np.where(finite, np.where(used, amax * STEP, np.float32(0)), np.float32(np.nan))
            q[:, at] = np.where(used[:, None], np.rint(x[:, at] * inverse[:, None]), 0)
    return q, scales


def linear_int8(
    x: ArrayLike, codes: ArrayLike, fmt: CodeFormat, *parameters: ArrayLike, per_row: bool = False
) -> NDArray[np.float32]:
    """y = x @ w.T with both as integers of 8 bits (w of up to 9), block by block along K.

        S[m, n, g] = sum over k in g of xq[m, k] * wq[n, k]                              exact, int32
        y[m, n]    = fma(f32(S[.., g]), scale[n, g] * x_scale[m, g], y[m, n])            ascending g, from +0.0
        offset     then y = fma(offset[n, g], f32(sum of xq[m, g]) * x_scale[m, g], y)

    x, x_scale   quantize_rows; wq is q - zero_point, q, or levels(table)[q], whose factor is multiplied into the scale
    """
    x = to_f32(x)
    M, K = x.shape
    depth = fmt.depth(K)
    q = unpack_codes(codes, fmt, K)
    N = len(q)
    count = len(fmt.parameters)
    p = [spread(v, fmt, N, K) for v in parameters[:count]]
    scale = p[0]
    if fmt.kind == "table":
        whole, factor, _ = levels(np.asarray(parameters[count]))
        q, scale = whole[q & ((1 << fmt.bits) - 1)], scale * factor
    xq, x_scale = quantize_rows(x, depth, per_row)
    y = np.zeros((M, N), np.float32)
    with np.errstate(all="ignore"):
        for g in range(x_scale.shape[1]):
            at = slice(g * depth, (g + 1) * depth)
            w = q[:, at].astype(np.int64)
            if fmt.zero_point:
                w = w - p[1][:, g : g + 1]
            total = (xq[:, at].astype(np.int64) @ w.T).astype(np.int32).astype(np.float32)
            y = fma32(total, scale[None, :, g] * x_scale[:, g, None], y)
            if fmt.kind == "offset":
                sums = xq[:, at].sum(axis=1, dtype=np.int32).astype(np.float32) * x_scale[:, g]
                y = fma32(p[1][None, :, g], sums[:, None], y)
    return y


def linear(kernel: Linear, x: Any, codes: ArrayLike, *parameters: ArrayLike) -> NDArray[np.float32]:
    """y = x @ w.T: float32 (.., M, N).

    f32    gemm_f32(x, decode(..).T): the bits of decoding w and multiplying
    bf16   x and w rounded to bfloat16, then gemm; a native product is within linear_bf16_bound
    int8   linear_int8
    """
    rows = np.asarray(x).reshape(-1, kernel.K)
    lead = np.asarray(x).shape[:-1]
    if kernel.compute == "int8":
        y = linear_int8(rows, codes, kernel.format, *parameters, per_row=kernel.activation == "row")
    else:
        w = decode(codes, kernel.format, kernel.K, *parameters)
        y = gemm_f32(*((rows, w.T) if kernel.compute == "f32" else (to_bf16(rows), to_bf16(w).T)))
    return y.reshape(*lead, y.shape[-1])


def linear_bf16_bound(x: ArrayLike, w: ArrayLike) -> NDArray[np.float64]:
    """How far y of compute="bf16" may be from the exact product of the rounded operands: reference.gemm.bf16_bound."""
    return bf16_bound(to_bf16(x), to_bf16(w).T)


def to_bf16(x: ArrayLike) -> NDArray:
    """Rounded to bfloat16, ties to even."""
    import ml_dtypes

    with np.errstate(all="ignore"):
        return to_f32(x).astype(ml_dtypes.bfloat16)
