"""bitsandbytes checkpoints: NF4 and FP4 nibbles, the first weight in the high half of a byte, blocks through all rows.

Source: bitsandbytes, functional.quantize_4bit and QuantState.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ....kernels.schemes.bitsandbytes import FP4, by_table
from ....kernels.schemes.normalfloat import NF4
from ....primitives.errors import ArgumentError, ShapeMismatch, Unsupported
from ..scheme import Scheme
from ..tensor import QuantizedTensor, from_parts

TABLES = {"nf4": NF4, "fp4": FP4}


@lru_cache(maxsize=32)
def _scheme(quant_type: str, block: int) -> Scheme:
    return Scheme.of(by_table(f"bnb_{quant_type}_g{block}", TABLES[quant_type], block))


def _swapped(packed: Any) -> Any:
    packed = np.asarray(packed, np.uint8)
    return (packed >> 4) | (packed << 4)


def from_bitsandbytes(
    packed: Any,
    absmax: Any,
    shape: Sequence[int],
    *,
    quant_type: str = "nf4",
    block: int = 64,
    nested_absmax: Any = None,
    nested_quant_map: Any = None,
    nested_offset: float = 0.0,
    nested_block: int = 256,
) -> QuantizedTensor:
    """The weights of a layer.

    packed   uint8, N * K / 2 of any shape
    absmax   f32 (N * K / block,); with double quantization uint8 codes of `nested_quant_map`, times `nested_absmax`
             for every `nested_block` of them, plus `nested_offset`
    shape    (N, K), K a multiple of block

    Raises Unsupported where blocks run from one row into the next.
    """
    if quant_type not in TABLES:
        raise ArgumentError(f"quant_type {quant_type!r}; {' and '.join(TABLES)} work")
    n, k = int(np.prod(shape[:-1], dtype=np.int64)), int(shape[-1])
    if k % block:
        raise Unsupported(f"blocks of {block} run from one row of {k} into the next; dequantize with bitsandbytes")
    codes, largest = _swapped(packed).reshape(-1), np.asarray(absmax)
    if nested_absmax is not None:
        scale = np.repeat(np.asarray(nested_absmax, np.float32), nested_block)[: largest.size]
        largest = np.asarray(nested_quant_map, np.float32)[largest] * scale + np.float32(nested_offset)
    if codes.size * 2 != n * k or largest.size * block != n * k:
        raise ShapeMismatch(
            f"{codes.size} bytes and {largest.size} scales for {tuple(shape)} in blocks of {block}; "
            f"{n * k // 2} and {n * k // block} are needed"
        )
    params = {"absmax": np.ascontiguousarray(largest, np.float32).reshape(n, k // block)}
    return from_parts(_scheme(quant_type, block), codes.reshape(n, k // 2), params, tuple(shape))


def to_bitsandbytes(q: QuantizedTensor) -> dict[str, Any]:
    """{"packed": uint8 (N * K / 2, 1), "absmax": f32}: what `from_bitsandbytes` reads."""
    if q.scheme.bits != 4 or set(q.scheme.params) != {"absmax"} or not isinstance(q.scheme.block, int):
        raise ShapeMismatch(f"bitsandbytes holds 4-bit codes with an absmax for each block; {q.scheme!r} does not fit")
    if q.shape[-1] % q.scheme.block:
        raise ShapeMismatch(f"rows of {q.shape[-1]} are no whole blocks of {q.scheme.block}")
    return {"packed": _swapped(q.codes).reshape(-1, 1), "absmax": q.params["absmax"].reshape(-1)}
