"""Block types to float32 and back: each is a scheme whose codes are the bytes of a file (kernels/schemes/gguf)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from ...executors.schemes import QuantizedTensor, Scheme, from_parts, get
from ...kernels.schemes.shipped import is_shipped
from ...primitives.errors import ArgumentError, ShapeMismatch, Unsupported
from .layout import TYPES, TensorType
from .reader import RawTensor

_OWN_NAMES = {"MXFP4": "mxfp4_gguf", "NVFP4": "nvfp4_gguf"}  # OCP's and NVIDIA's have the short ones
QUIET = 0x0040  # the bit of a bfloat16 that makes a NaN quiet


def type_of(name: str) -> TensorType:
    found = TYPES.get(name.upper())
    if found is None:
        raise ArgumentError(f"there is no tensor type {name!r}; there is {', '.join(TYPES)}")
    return found


def scheme_of(qtype: str) -> Scheme:
    """The scheme of a block type. Raises Unsupported for one that no scheme exists for."""
    kind = type_of(qtype)
    name = _OWN_NAMES.get(kind.name, kind.name.lower())
    if kind.plain is not None or not is_shipped(name):
        known = ", ".join(t for t in TYPES if is_shipped(_OWN_NAMES.get(t, t.lower())))
        raise Unsupported(f"{qtype} is {'no block type' if kind.plain is not None else 'not decoded'}; {known} are")
    return get(name)


def quantized(raw: Any, qtype: str, shape: Sequence[int] | None = None, executor: Any = None) -> QuantizedTensor:
    """The blocks of a file as a tensor to multiply with, without a copy.

    raw    uint8 (.., bytes of a row), whole blocks
    shape  of the tensor; left out: as many whole blocks as there are bytes
    """
    data, kind = _checked(raw, qtype)
    whole = (*data.shape[:-1], data.shape[-1] // kind.nbytes * kind.block)
    shape = whole if shape is None else tuple(shape)
    if shape[:-1] != whole[:-1] or not whole[-1] - kind.block < shape[-1] <= whole[-1]:
        raise ShapeMismatch(f"{qtype}: raw {data.shape} holds {whole}; it cannot be of shape {shape}")
    return from_parts(scheme_of(qtype), data.reshape(math.prod(data.shape[:-1]), data.shape[-1]), {}, shape, executor)


def _checked(raw: Any, qtype: str) -> tuple[np.ndarray[Any, Any], TensorType]:
    kind = type_of(qtype)
    data = np.asarray(raw)
    if data.dtype != np.uint8 or data.ndim == 0 or data.shape[-1] % kind.nbytes:
        raise ShapeMismatch(
            f"{qtype}: raw is {data.dtype} {data.shape}; uint8 whose rows are blocks of {kind.nbytes} bytes works"
        )
    return data, kind


def dequantize(raw: Any, qtype: str) -> np.ndarray[Any, Any]:
    """The float32 numbers that blocks stand for.

    raw    uint8 (.., bytes of a row), whole blocks
    qtype  "Q4_0", "Q6_K", "MXFP4" and so on

    Raises ShapeMismatch where rows are no whole blocks, Unsupported for a type that is not decoded.
    """
    kind = type_of(qtype)
    data = np.asarray(raw)
    if kind.plain is not None and data.dtype != np.uint8:
        return data.astype(np.float32)
    data, kind = _checked(raw, qtype)
    if kind.plain is not None:
        return np.ascontiguousarray(data).view(kind.plain).astype(np.float32)
    return quantized(data, qtype).dequantize()


def quantize(x: Any, qtype: str) -> np.ndarray[Any, Any]:
    """The blocks of float32 numbers: uint8 (.., bytes of a row).

    x  real numbers; the last axis is a whole number of blocks

    Raises ShapeMismatch where it is not, Unsupported for a type that is only decoded.
    """
    kind = type_of(qtype)
    data = np.ascontiguousarray(x, np.float32)
    if data.ndim == 0 or data.shape[-1] % kind.block:
        raise ShapeMismatch(f"{qtype}: x has shape {data.shape}; rows of whole blocks of {kind.block} work")
    if kind.plain == ml_dtypes.bfloat16:
        return _bfloat16(data)
    if kind.plain is not None:
        return np.ascontiguousarray(data.astype(kind.plain)).view(np.uint8)
    scheme = scheme_of(qtype)
    if not scheme.encodes:
        raise Unsupported(f"{qtype} is only decoded: no rule for encoding it is part of the format")
    return scheme.quantize(data).codes.reshape(*data.shape[:-1], data.shape[-1] // kind.block * kind.nbytes)


def encoded(name: str, x: Any, qtype: str) -> RawTensor:
    """A tensor of a type that can be encoded, ready to be saved: RawTensor(name, type, shape, quantize(x, qtype))."""
    data = quantize(x, qtype)
    return RawTensor(name, type_of(qtype), np.shape(x), data)


def _bfloat16(data: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """ggml's rounding: to nearest even; a NaN keeps what its upper half says and becomes quiet."""
    bits = data.view(np.uint32)
    rounded = ((bits.astype(np.uint64) + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    quiet = (bits >> 16).astype(np.uint16) | np.uint16(QUIET)
    return np.ascontiguousarray(np.where(np.isnan(data), quiet, rounded)).view(np.uint8)
