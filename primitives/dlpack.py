"""Reading DLPack capsules, including the types that NumPy cannot import (bf16, 8-bit floats) and device memory.

The capsule is not consumed but kept alive: its producer frees the memory when the last array that looks at it is gone.
Source: dlpack.h, version 1.1.
"""

import ctypes
from dataclasses import dataclass
from typing import Any

from . import dtypes
from .dtypes import DType
from .errors import BufferAccessError, DTypeMismatch, Unsupported

_HOST = {1: "cpu", 3: "cpu", 11: "cpu"}  # kDLCPU, kDLCUDAHost, kDLROCMHost
_CUDA = (2, 13)  # kDLCUDA, kDLCUDAManaged
_READ_ONLY = 1  # DLPACK_FLAG_BITMASK_READ_ONLY
_KINDS = {0: "s", 1: "u", 2: "f"}
_TYPES = {
    (6, 8): "bool",
    (4, 16): "bf16",
    (7, 8): "f8e3m4",
    (8, 8): "f8e4m3",
    (9, 8): "f8e4m3b11fnuz",
    (10, 8): "f8e4m3fn",
    (11, 8): "f8e4m3fnuz",
    (12, 8): "f8e5m2",
    (13, 8): "f8e5m2fnuz",
    (14, 8): "e8m0fnu",
}


class _Device(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int32), ("id", ctypes.c_int32))


class _Type(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _Type),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class _ManagedVersioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.restype, _is_valid.argtypes = ctypes.c_int, (ctypes.py_object, ctypes.c_char_p)
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)


@dataclass(frozen=True)
class Tensor:
    """What a capsule says: strides are in elements, `owner` keeps the memory alive."""

    address: int
    device: str
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    readonly: bool
    owner: object


def read(exporter: Any) -> Tensor:
    """Ask an object for its capsule, in the newest version that it speaks, and read it.

    Raises BufferAccessError if the object refuses, DTypeMismatch for a type without a counterpart, Unsupported for
    memory that is neither the host's nor CUDA's.
    """
    try:
        try:
            capsule = exporter.__dlpack__(max_version=(1, 0))
        except TypeError:
            capsule = exporter.__dlpack__()
    except (BufferError, RuntimeError) as error:
        raise BufferAccessError(f"{type(exporter).__name__} does not give its memory by DLPack: {error}") from error
    readonly = False
    if _is_valid(capsule, b"dltensor_versioned"):
        versioned = _ManagedVersioned.from_address(_pointer(capsule, b"dltensor_versioned"))
        if versioned.major != 1:
            raise Unsupported(f"DLPack version {versioned.major}.{versioned.minor}; versions below 2 are read")
        tensor, readonly = versioned.tensor, bool(versioned.flags & _READ_ONLY)
    elif _is_valid(capsule, b"dltensor"):
        tensor = _Managed.from_address(_pointer(capsule, b"dltensor")).tensor
    else:
        raise BufferAccessError(f"{type(exporter).__name__} gave {capsule!r}, which is no unused DLPack capsule")
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    if tensor.strides:
        strides = tuple(tensor.strides[i] for i in range(tensor.ndim))
    else:
        strides = tuple(_product(shape[i + 1 :]) for i in range(len(shape)))
    address = (tensor.data or 0) + tensor.byte_offset
    return Tensor(address, _device(tensor.device), _dtype(tensor.dtype), shape, strides, readonly, capsule)


def _device(device: _Device) -> str:
    if device.type in _CUDA:
        return f"cuda:{device.id}"
    if device.type not in _HOST:
        raise Unsupported(f"memory of DLPack device type {device.type}; the host's (1) and CUDA's (2) work")
    return _HOST[device.type]


def _dtype(found: _Type) -> DType:
    name = _TYPES.get((found.code, found.bits)) or _KINDS.get(found.code, "?") + str(found.bits)
    if found.lanes != 1 or name not in dtypes.DTYPES or dtypes.get(name).packed:
        raise DTypeMismatch(
            f"DLPack type code {found.code} of {found.bits} bits, {found.lanes} lanes, has no counterpart; "
            f"pass its bytes as uint8 and say dtype="
        )
    return dtypes.get(name)


def _product(sizes: tuple[int, ...]) -> int:
    product = 1
    for n in sizes:
        product *= max(n, 1)
    return product
