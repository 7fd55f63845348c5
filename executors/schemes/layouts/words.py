"""Codes in 32-bit words, lowest bits first, and the scheme that such checkpoints share: (q - zero) * scale."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....kernels.schemes.integers import asymmetric
from ....kernels.schemes.packing import pack, unpack
from ....primitives.errors import ShapeMismatch
from ..scheme import Scheme
from ..tensor import QuantizedTensor, from_parts

Array = NDArray[Any]


def codes_of(words: Array, bits: int, n: int) -> Array:
    """Codes (rows, n) of int32 words (rows, m), each row one stream of bits."""
    words = np.ascontiguousarray(words, np.int32).view(np.uint8)
    return unpack(words[:, : -(-n * bits // 8)], bits, n)


def words_of(codes: Array, bits: int) -> Array:
    """int32 words (rows, m) of codes (rows, n)."""
    packed = pack(codes, bits)
    wide = np.zeros((len(packed), -(-packed.shape[1] // 4) * 4), np.uint8)
    wide[:, : packed.shape[1]] = packed
    return wide.view(np.int32)


@lru_cache(maxsize=64)
def scheme_of(bits: int, group: int, stored: str) -> Scheme:
    """Groups along a row, with a scale stored as f16, bf16 or f32 and a zero point."""
    made = asymmetric(f"uint{bits}_g{group}_{stored}", bits, group)
    return Scheme.of(made.replace(params={"scale": stored, "zero": "u8"}))


def tensor(codes: Array, scale: Array, zero: Array, bits: int, group: int) -> QuantizedTensor:
    """A tensor of codes (N, K), scales and zero points (N, groups)."""
    n, k = codes.shape
    groups = -(-k // group)
    if scale.shape != (n, groups) or zero.shape != (n, groups):
        raise ShapeMismatch(
            f"scales {scale.shape} and zero points {zero.shape} of {n} x {k} codes in groups of {group}; "
            f"{(n, groups)} is needed"
        )
    stored = {"float16": "f16", "bfloat16": "bf16"}.get(scale.dtype.name, "f32")
    scheme = scheme_of(bits, group, stored)
    kept = np.ascontiguousarray(scale, scheme.stored[0].numpy)
    params = {"scale": kept, "zero": np.ascontiguousarray(zero, np.uint8)}
    return from_parts(scheme, pack(codes, bits), params, (n, k))


def parts_of(q: QuantizedTensor, what: str) -> tuple[Array, Array, Array, int]:
    """(codes, scale, zero point, group) of a tensor that such a layout can hold."""
    scheme = q.scheme
    if q.ndim != 2 or not isinstance(scheme.block, int) or set(scheme.params) != {"scale", "zero"}:
        raise ShapeMismatch(
            f"{what} holds matrices of integers with a scale and a zero point for groups along a row; "
            f"{scheme.name} has blocks {scheme.block} and parameters {', '.join(scheme.params) or 'none'}"
        )
    params = q.params
    return q.integer_codes(), params["scale"], params["zero"].astype(np.int32), scheme.block
