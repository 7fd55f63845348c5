"""Writing a GGUF file."""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np

from ...primitives.errors import ArgumentError, DTypeMismatch, ShapeMismatch
from ...primitives.placing import placed
from .layout import ALIGNMENT, ARRAY, MAGIC, STRING, TYPES, VALUES, TensorType
from .reader import RawTensor

_CODES = {dtype: code for code, dtype in VALUES.items()}


def write(path: str | os.PathLike[str], tensors: Mapping[str, Any], metadata: Mapping[str, Any]) -> None:
    """Write a GGUF file of version 3, little-endian.

    tensors    name: an array (f32, f16, bf16, f64, s8 to s64), or a RawTensor of any type
    metadata   key: str, bool, int, float, a NumPy scalar, or a list or array of one of them; what it lacks of
               general.architecture is written as "unknown"

    A file is put in place whole or not at all.
    """
    metadata = {"general.architecture": "unknown", **metadata}
    alignment = int(metadata.get("general.alignment", ALIGNMENT))
    if alignment < 8 or alignment & (alignment - 1):
        raise ArgumentError(f"general.alignment is {alignment}; a power of two from 8 is needed")
    raw = {name: _raw(name, tensor) for name, tensor in tensors.items()}
    with placed(path) as part, part.open("wb") as file:
        file.write(MAGIC + struct.pack("<IQQ", 3, len(raw), len(metadata)))
        for key, value in metadata.items():
            file.write(_text(key) + _value(key, value))
        offset = 0
        for name, (kind, shape, data) in raw.items():
            sizes = shape[::-1]
            file.write(_text(name) + struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, kind.code, offset))
            offset += -(-data.nbytes // alignment) * alignment
        _pad(file, alignment)
        for _, _, data in raw.values():
            file.write(np.ascontiguousarray(data).data)
            _pad(file, alignment)


def _raw(name: str, tensor: Any) -> tuple[TensorType, tuple[int, ...], np.ndarray[Any, Any]]:
    if isinstance(tensor, RawTensor):
        return tensor.type, tensor.shape, tensor.data
    array = np.asarray(tensor)
    kind = next((t for t in TYPES.values() if t.plain == array.dtype), None)
    if kind is None:
        known = ", ".join(str(t.plain) for t in TYPES.values() if t.plain is not None)
        raise DTypeMismatch(f"tensor {name!r} is {array.dtype}; {known} and tensors of a block type can be written")
    if array.ndim > 4:
        raise ShapeMismatch(f"tensor {name!r} has {array.ndim} dimensions; GGUF has at most 4")
    return kind, array.shape, np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _text(text: str) -> bytes:
    data = text.encode("utf-8", "surrogateescape")
    return struct.pack("<Q", len(data)) + data


def _pad(file: BinaryIO, alignment: int) -> None:
    file.write(b"\0" * (-file.tell() % alignment))


def _value(key: str, value: Any) -> bytes:
    if isinstance(value, str):
        return struct.pack("<I", STRING) + _text(value)
    if isinstance(value, (list, tuple)) and any(isinstance(x, str) for x in value):
        if not all(isinstance(x, str) for x in value):
            raise DTypeMismatch(f"metadata {key!r} mixes strings and numbers; a list holds one type")
        return struct.pack("<IIQ", ARRAY, STRING, len(value)) + b"".join(map(_text, value))
    if isinstance(value, (list, tuple, np.ndarray)) and np.ndim(value) == 1:
        code, data = _numbers(key, np.asarray(value), isinstance(value, np.ndarray))
        return struct.pack("<IIQ", ARRAY, code, len(value)) + data
    if np.ndim(value) == 0:
        code, data = _numbers(key, np.asarray(value), isinstance(value, np.generic))
        return struct.pack("<I", code) + data
    raise DTypeMismatch(
        f"metadata {key!r} is {type(value).__name__}; text, numbers and flat lists of them can be written"
    )


def _numbers(key: str, array: np.ndarray[Any, Any], typed: bool) -> tuple[int, bytes]:
    """Numbers in their own type; Python's ints and floats in the one that readers expect: uint32 or int32, float32."""
    if not typed and array.dtype.kind == "i":
        low, high = (int(array.min()), int(array.max())) if array.size else (0, 0)
        fitting = (np.uint32, np.int32, np.uint64, np.int64)
        array = array.astype(next(t for t in fitting if np.iinfo(t).min <= low and high <= np.iinfo(t).max))
    elif not typed and array.dtype.kind == "f":
        array = array.astype(np.float32)
    if array.dtype not in _CODES:
        raise DTypeMismatch(f"metadata {key!r} is {array.dtype}; text, bool, integers and f32, f64 can be written")
    return _CODES[array.dtype], array.astype(array.dtype.newbyteorder("<")).tobytes()
