"""AWQ checkpoints (GEMM format): eight columns to a word, in an order of their own.

Source: AutoAWQ, awq/modules/linear/gemm.py (from_linear).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ....primitives.errors import ShapeMismatch
from ..tensor import QuantizedTensor
from .words import Array, codes_of, parts_of, tensor, words_of

ORDER = np.array([0, 2, 4, 6, 1, 3, 5, 7])  # nibble i of a word holds column ORDER[i]
BITS = 4


def _columns(words: Any) -> Array:
    """Codes (rows, 8 * words) of int32 words (rows, words)."""
    words = np.asarray(words)
    found = codes_of(words, BITS, 8 * words.shape[1]).reshape(len(words), -1, 8)
    out = np.empty_like(found)
    out[:, :, ORDER] = found
    return out.reshape(len(words), -1)


def _words(codes: Array) -> Array:
    return words_of(codes.reshape(len(codes), -1, 8)[:, :, ORDER].reshape(len(codes), -1), BITS)


def from_awq(qweight: Any, qzeros: Any, scales: Any) -> QuantizedTensor:
    """The weights (N, K) of an AWQ linear layer.

    qweight  int32 (K, N / 8)
    qzeros   int32 (groups, N / 8)
    scales   f16, bf16 or f32 (groups, N)
    """
    codes, zero, scale = _columns(qweight).T, _columns(qzeros).T, np.asarray(scales).T
    return tensor(codes, scale, zero, BITS, -(-codes.shape[1] // scale.shape[1]))


def to_awq(q: QuantizedTensor) -> dict[str, Any]:
    """The tensors qweight, qzeros and scales of a layer: what `from_awq` reads."""
    codes, scale, zero, _ = parts_of(q, "AWQ")
    if q.scheme.bits != BITS or q.shape[0] % 8:
        raise ShapeMismatch(f"AWQ packs 4-bit codes of eight columns; found {q.scheme.bits} bits and N = {q.shape[0]}")
    return {"qweight": _words(codes.T), "qzeros": _words(zero.T), "scales": np.ascontiguousarray(scale.T)}
