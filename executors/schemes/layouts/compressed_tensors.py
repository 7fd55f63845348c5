"""compressed-tensors checkpoints, format "pack-quantized": signed codes stored with half of their range added.

Source: compressed-tensors, compressors/quantized_compressors/pack_quantized.py (pack_to_int32).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..tensor import QuantizedTensor
from .words import codes_of, parts_of, tensor, words_of


def from_compressed_tensors(
    weight_packed: Any, weight_scale: Any, weight_shape: Any, weight_zero_point: Any = None, *, bits: int = 4
) -> QuantizedTensor:
    """The weights (N, K) of a layer.

    weight_packed      int32 (N, ceil(K * bits / 32))
    weight_scale       f16, bf16 or f32 (N, groups)
    weight_shape       (N, K)
    weight_zero_point  int32 (ceil(N * bits / 32), groups), packed along N; None: symmetric
    """
    n, k = (int(s) for s in np.asarray(weight_shape).reshape(-1))
    scale = np.asarray(weight_scale)
    codes = codes_of(np.asarray(weight_packed), bits, k)
    if weight_zero_point is None:
        zero = np.full(scale.shape, 1 << (bits - 1), np.int32)
    else:
        zero = codes_of(np.asarray(weight_zero_point).T, bits, n).T
    return tensor(codes, scale, zero, bits, -(-k // scale.shape[1]))


def to_compressed_tensors(q: QuantizedTensor) -> dict[str, Any]:
    """The tensors of a layer: what `from_compressed_tensors` reads. Zero points in the middle are left out."""
    codes, scale, zero, _ = parts_of(q, "compressed-tensors")
    bits = q.scheme.bits
    found = {
        "weight_packed": words_of(codes, bits),
        "weight_scale": np.ascontiguousarray(scale),
        "weight_shape": np.array(q.shape, np.int64),
    }
    if (zero != 1 << (bits - 1)).any():
        found["weight_zero_point"] = np.ascontiguousarray(words_of(zero.T, bits).T)
    return found
