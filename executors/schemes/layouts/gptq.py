"""GPTQ checkpoints: qweight packed along K, qzeros along N, scales (groups, N).

Source: AutoGPTQ and GPTQModel, qlinear (pack): format "gptq" stores zero points less one, "gptq_v2" as they are.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ....primitives.errors import ArgumentError, ShapeMismatch, Unsupported
from ..tensor import QuantizedTensor
from .words import codes_of, parts_of, tensor, words_of

FORMATS = ("gptq", "gptq_v2")


def from_gptq(
    qweight: Any, qzeros: Any, scales: Any, g_idx: Any = None, *, bits: int = 4, checkpoint_format: str = "gptq"
) -> QuantizedTensor:
    """The weights (N, K) of a GPTQ linear layer.

    qweight  int32 (K * bits / 32, N)
    qzeros   int32 (groups, N * bits / 32)
    scales   f16, bf16 or f32 (groups, N)
    g_idx    (K,) group of each row; only groups of neighbours work

    Raises Unsupported for another order of groups (desc_act).
    """
    if checkpoint_format not in FORMATS:
        raise ArgumentError(f"checkpoint format {checkpoint_format!r}; {' and '.join(FORMATS)} work")
    words, zero_words, scale = np.asarray(qweight), np.asarray(qzeros), np.asarray(scales)
    k, n = words.shape[0] * 32 // bits, words.shape[1]
    groups = scale.shape[0]
    group = -(-k // groups)
    if g_idx is not None and not np.array_equal(np.asarray(g_idx), np.arange(k) // group):
        raise Unsupported(
            f"g_idx does not run through groups of {group} neighbours (desc_act); order the rows of the "
            f"dequantized weights, or take a checkpoint with desc_act=False"
        )
    codes = codes_of(words.T, bits, k)
    zero = codes_of(zero_words, bits, n).T
    if checkpoint_format == "gptq":
        zero = (zero + 1) & ((1 << bits) - 1 if bits < 8 else 255)
    return tensor(codes, scale.T, zero, bits, group)


def to_gptq(q: QuantizedTensor, checkpoint_format: str = "gptq") -> dict[str, Any]:
    """The tensors qweight, qzeros, scales and g_idx of a layer: what `from_gptq` reads."""
    if checkpoint_format not in FORMATS:
        raise ArgumentError(f"checkpoint format {checkpoint_format!r}; {' and '.join(FORMATS)} work")
    codes, scale, zero, group = parts_of(q, "GPTQ")
    bits, (n, k) = q.scheme.bits, q.shape
    if k * bits % 32 or n * bits % 32:
        raise ShapeMismatch(f"GPTQ packs {bits}-bit codes of K = {k} and N = {n} into whole words of 32 bits")
    stored = zero - 1 if checkpoint_format == "gptq" else zero
    return {
        "qweight": np.ascontiguousarray(words_of(codes, bits).T),
        "qzeros": words_of(stored.T & ((1 << bits) - 1), bits),
        "scales": np.ascontiguousarray(scale.T),
        "g_idx": (np.arange(k) // group).astype(np.int32),
    }
