"""Block types to float32 and back, by the NumPy code of the package gguf: right for every type, and not fast."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...primitives.errors import ArgumentError, ShapeMismatch, Unsupported
from .layout import TYPES, TensorType


def _package() -> Any:
    try:
        import gguf
    except ImportError as error:
        raise ArgumentError(f"block types need the package gguf ({error}); pip install 'tilework[gguf]'") from None
    return gguf


def _type(name: str) -> TensorType:
    found = TYPES.get(name.upper())
    if found is None:
        raise ArgumentError(f"there is no tensor type {name!r}; there is {', '.join(TYPES)}")
    return found


def dequantize(raw: Any, qtype: str) -> np.ndarray[Any, Any]:
    """The float32 numbers that blocks stand for.

    raw    uint8 (.., bytes of a row), whole blocks
    qtype  "Q4_0", "Q6_K", "MXFP4" and so on

    Raises ShapeMismatch where rows are no whole blocks, Unsupported for a type that the package does not decode.
    """
    kind = _type(qtype)
    data = np.asarray(raw)
    if kind.plain is not None and data.dtype != np.uint8:
        return data.astype(np.float32)
    if data.dtype != np.uint8 or data.ndim == 0 or data.shape[-1] % kind.nbytes:
        raise ShapeMismatch(
            f"{qtype}: raw is {data.dtype} {data.shape}; uint8 whose rows are blocks of {kind.nbytes} bytes works"
        )
    if kind.plain is not None:
        return np.ascontiguousarray(data).view(kind.plain).astype(np.float32)
    gguf = _package()
    try:
        return np.asarray(gguf.quants.dequantize(data, gguf.GGMLQuantizationType[kind.name]), np.float32)
    except NotImplementedError as error:
        raise Unsupported(f"{qtype} is not decoded: {error}") from None


def quantize(x: Any, qtype: str) -> np.ndarray[Any, Any]:
    """The blocks of float32 numbers: uint8 (.., bytes of a row).

    x  real numbers; the last axis is a whole number of blocks

    Raises ShapeMismatch where it is not, Unsupported for a type that the package does not encode.
    """
    kind = _type(qtype)
    data = np.ascontiguousarray(x, np.float32)
    if data.ndim == 0 or data.shape[-1] % kind.block:
        raise ShapeMismatch(f"{qtype}: x has shape {data.shape}; rows of whole blocks of {kind.block} work")
    if kind.plain is not None:
        return np.ascontiguousarray(data.astype(kind.plain)).view(np.uint8)
    gguf = _package()
    try:
        return np.asarray(gguf.quants.quantize(data, gguf.GGMLQuantizationType[kind.name]), np.uint8)
    except NotImplementedError as error:
        raise Unsupported(f"{qtype} is not encoded: {error}") from None
