"""DLPack capsules, including the types that NumPy cannot import (bf16, 8-bit floats) and device memory.

A capsule that is read is not consumed but kept alive: its producer frees the memory when the last array that looks at
it is gone. One that is written keeps the memory's owner alive until its consumer calls the deleter.
Source: dlpack.h, version 1.1.
"""

import ctypes
import itertools
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


def read(exporter: Any, stream: int | None = None) -> Tensor:
    """Ask an object for its capsule, in the newest version that it speaks, and read it.

    stream   of CUDA memory: the stream that must find the memory's content there (1: the legacy default stream)

    Raises BufferAccessError if the object refuses, DTypeMismatch for a type without a counterpart, Unsupported for
    memory that is neither the host's nor CUDA's.
    """
    options = {} if stream is None else {"stream": stream}
    try:
        try:
            capsule = exporter.__dlpack__(max_version=(1, 0), **options)
        except TypeError:
            capsule = exporter.__dlpack__(**options)
    except (BufferError, RuntimeError) as error:
        raise BufferAccessError(f"{type(exporter).__name__} does not give its memory by DLPack: {error}") from error
    return read_capsule(capsule, type(exporter).__name__)


def is_capsule(found: Any) -> bool:
    """Whether this is an unused DLPack capsule itself, rather than an object that gives one."""
    return bool(_is_valid(found, b"dltensor_versioned") or _is_valid(found, b"dltensor"))


def read_capsule(capsule: Any, whose: str = "the caller") -> Tensor:
    """What an unused capsule says; raises as `read` does."""
    readonly = False
    if _is_valid(capsule, b"dltensor_versioned"):
        versioned = _ManagedVersioned.from_address(_pointer(capsule, b"dltensor_versioned"))
        if versioned.major != 1:
            raise Unsupported(f"DLPack version {versioned.major}.{versioned.minor}; versions below 2 are read")
        tensor, readonly = versioned.tensor, bool(versioned.flags & _READ_ONLY)
    elif _is_valid(capsule, b"dltensor"):
        tensor = _Managed.from_address(_pointer(capsule, b"dltensor")).tensor
    else:
        raise BufferAccessError(f"{whose} gave {capsule!r}, which is no unused DLPack capsule")
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


# Writing -----------------------------------------------------------------------------------------------------------------

_CODES = {"s": 0, "u": 1, "f": 2}
_kept: dict[int, tuple[Any, ...]] = {}  # what each capsule that is in use points to
_numbers = itertools.count(1)
_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype, _new_capsule.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
# The same two functions by address: a capsule that is being destroyed must not become a Python object again.
_valid_at = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))
_pointer_at = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def _deleted(managed: int) -> None:
    _kept.pop(_Managed.from_address(managed).context or 0, None)


def _deleted_versioned(managed: int) -> None:
    _kept.pop(_ManagedVersioned.from_address(managed).context or 0, None)


def _destroyed(capsule: int) -> None:
    """A capsule goes; where nobody consumed it, so does what it points to."""
    for name, deleted in ((b"dltensor", _deleted), (b"dltensor_versioned", _deleted_versioned)):
        if _valid_at(capsule, name):
            deleted(_pointer_at(capsule, name))


_delete, _delete_versioned = (ctypes.CFUNCTYPE(None, ctypes.c_void_p)(fn) for fn in (_deleted, _deleted_versioned))
_destroy = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(_destroyed)
for _thunk in (_delete, _delete_versioned, _destroy):
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_thunk))  # consumers may call them while the interpreter shuts down


def write(
    address: int,
    device: tuple[int, int],
    dtype: DType,
    shape: tuple[int, ...],
    readonly: bool,
    owner: object,
    versioned: bool,
) -> Any:
    """A capsule over contiguous memory.

    device     DLPack's type and number
    owner      kept until the consumer is done
    versioned  as DLPack 1.0 has it, which alone can say that memory is read-only: BufferError without
    """  # fmt: skip
    if readonly and not versioned:
        raise BufferError("the memory is read-only, which only DLPack 1.0 can say; ask with max_version=(1, 0)")
    code = next((c for (c, bits), name in _TYPES.items() if (name, bits) == (dtype.name, dtype.bits)), None)
    if code is None:
        code = _CODES.get(dtype.name[0], -1)
    if code < 0 or dtype.packed:
        raise BufferError(f"DLPack has no type for {dtype}")
    sizes = (ctypes.c_int64 * max(len(shape), 1))(*shape)
    steps = (ctypes.c_int64 * max(len(shape), 1))(*(_product(shape[i + 1 :]) for i in range(len(shape))))
    number = next(_numbers)
    made = _ManagedVersioned() if versioned else _Managed()
    tensor = made.tensor
    tensor.data, tensor.device, tensor.ndim = address, _Device(*device), len(shape)
    tensor.dtype = _Type(code, dtype.bits, 1)
    tensor.shape, tensor.strides = (ctypes.cast(x, ctypes.POINTER(ctypes.c_int64)) for x in (sizes, steps))
    made.context = number
    made.deleter = ctypes.cast(_delete_versioned if versioned else _delete, ctypes.c_void_p).value
    if isinstance(made, _ManagedVersioned):
        made.major, made.minor, made.flags = 1, 0, _READ_ONLY if readonly else 0
    _kept[number] = (made, sizes, steps, owner)
    name = b"dltensor_versioned" if versioned else b"dltensor"
    return _new_capsule(ctypes.addressof(made), name, ctypes.cast(_destroy, ctypes.c_void_p).value)
