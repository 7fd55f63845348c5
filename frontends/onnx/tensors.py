"""TensorProto to array, with every size checked before memory is taken; external data stays in its folder."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from ...primitives.archives import holdable
from ...primitives.errors import FileFormatError, Unsupported
from .reading import package

Array = np.ndarray[Any, Any]
State = tuple[int, ...]  # of a file: its number, size and time of change
MOST = 1 << 31  # elements of one tensor: more than any machine that this runs on should take from a file
MOST_MADE = 1 << 26  # elements that are made while a file is read, of numbers that say no more than how many
MOST_FOLDED = 1 << 24  # elements of such a constant that a run can make as well: it is left to it


def check_size(shape: Any, where: str) -> int:
    """Return the number of elements; FileFormatError where a size is negative or all together are absurd."""
    sizes = [int(n) for n in shape]
    if any(n < 0 for n in sizes):
        raise FileFormatError(f"{where}: shape {tuple(sizes)} has a negative size")
    count = math.prod(sizes)
    if count > MOST or any(n > MOST for n in sizes) or not holdable(sizes):
        raise FileFormatError(f"{where}: shape {tuple(sizes)} asks for {count} elements; at most {MOST} are read")
    return count


def check_made(count: int, where: str) -> None:
    """FileFormatError where a few bytes of a file ask for a constant of absurd size."""
    if count > MOST_MADE:
        raise FileFormatError(f"{where}: a constant of {count} elements; at most {MOST_MADE} are made of their number")


def element_type(code: int, where: str) -> np.dtype[Any]:
    """The NumPy dtype of an ONNX element type; Unsupported where there is none."""
    onnx = package()
    if code == onnx.TensorProto.UNDEFINED or code not in onnx.TensorProto.DataType.values():
        raise FileFormatError(f"{where}: element type {code} is none of ONNX's")
    name = onnx.TensorProto.DataType.Name(code)
    if name in ("STRING", "COMPLEX64", "COMPLEX128"):
        raise Unsupported(f"{where}: element type {name}; integers, bool and real numbers work")
    return np.dtype(onnx.helper.tensor_dtype_to_np_dtype(code))


def to_array(tensor: Any, folder: Path | None, where: str, states: dict[str, State] | None = None) -> Array:
    """The array that a TensorProto holds, or says to find in a file.

    states   of the files that were read so far, by their names; FileFormatError where one is no longer what it was
    """
    onnx = package()
    where = f"{where}: tensor {tensor.name!r}" if tensor.name else where
    dtype = element_type(tensor.data_type, where)
    count = check_size(tensor.dims, where)
    shape = tuple(int(n) for n in tensor.dims)
    nbytes = -(-count * bits_of(dtype) // 8)
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        raw = _external(tensor, folder, nbytes, where, {} if states is None else states)
        return _unpacked(raw, dtype, count, where).reshape(shape)
    if tensor.HasField("raw_data"):
        if len(tensor.raw_data) != nbytes:
            raise FileFormatError(
                f"{where}: {shape} of {dtype} takes {nbytes} bytes, but {len(tensor.raw_data)} are there"
            )
    elif not count:
        return np.zeros(shape, dtype)
    try:
        array = onnx.numpy_helper.to_array(tensor)
    except Exception as error:  # the package raises errors of many types for malformed tensors
        raise FileFormatError(f"{where}: {error}") from None
    return np.asarray(array).reshape(shape)


def bits_of(dtype: np.dtype[Any]) -> int:
    """Bits that one element takes in raw data."""
    small = {"int4": 4, "uint4": 4, "float4_e2m1fn": 4, "int2": 2, "uint2": 2}
    return small.get(dtype.name, dtype.itemsize * 8)


def _unpacked(raw: bytes | memoryview, dtype: np.dtype[Any], count: int, where: str) -> Array:
    bits = bits_of(dtype)
    if bits >= 8:
        return np.frombuffer(raw, dtype.newbyteorder("<"), count).astype(dtype, copy=False)
    data = np.frombuffer(raw, np.uint8)
    per = 8 // bits
    codes = np.stack([(data >> (bits * n)) & ((1 << bits) - 1) for n in range(per)], -1).reshape(-1)[:count]
    if dtype == np.dtype(ml_dtypes.float4_e2m1fn):
        return codes.astype(np.uint8).view(dtype)
    if dtype.name.startswith("int"):
        codes = np.where(codes >= 1 << (bits - 1), codes.astype(np.int16) - (1 << bits), codes).astype(np.int8)
    return codes.astype(dtype)


def _external(tensor: Any, folder: Path | None, nbytes: int, where: str, states: dict[str, State]) -> bytes:
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    if folder is None:
        raise FileFormatError(f"{where}: its data is in the file {location!r}; load the model by its path to say where")
    if not location or Path(location).is_absolute() or any(c in location for c in "\\:\0"):
        raise FileFormatError(f"{where}: external data at {location!r}; a path relative to the model is needed")
    path = (folder / location).resolve()
    if not path.is_relative_to(folder):
        raise FileFormatError(f"{where}: external data at {location!r} leaves the folder of the model")
    if not path.is_file():
        raise FileFormatError(f"{where}: external data {location!r} is no file beside the model")
    try:
        offset, length = int(entries.get("offset", 0)), int(entries.get("length", nbytes))
    except ValueError:
        raise FileFormatError(f"{where}: offset or length of external data is no number") from None
    if length != nbytes or offset < 0 or offset + length > path.stat().st_size:
        raise FileFormatError(
            f"{where}: {nbytes} bytes are needed; the file says {length} at {offset} of {location!r}, which has "
            f"{path.stat().st_size}"
        )
    with path.open("rb") as file:
        stat = os.fstat(file.fileno())
        state = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
        file.seek(offset)
        raw = file.read(nbytes)
    if len(raw) != nbytes or states.setdefault(location, state) != state:
        raise FileFormatError(f"{where}: {location!r} has changed since the model was loaded; load the model again")
    return raw
