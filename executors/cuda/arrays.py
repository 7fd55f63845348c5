"""Arrays that lie on a device: other libraries' as they are lent to a run, and those that a run returns.

Read are DLPack (objects and capsules, of device kCUDA and kCUDAManaged), `__cuda_array_interface__` of every version, and
Buffers. Nothing is copied: kernels get the caller's pointers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...primitives import dlpack, dtypes
from ...primitives.buffer import Buffer
from ...primitives.dtypes import DType
from ...primitives.errors import (
    ArgumentError,
    BufferAccessError,
    DTypeMismatch,
    KernelFailed,
    LayoutError,
    ShapeMismatch,
)
from ...primitives.interop import from_cuda
from ...primitives.pipeline import Value
from ..inputs import stored_shape
from ..recording import contiguous
from .context import Block, Context, new_event

Array = np.ndarray[Any, Any]
ALIGN = 16  # bytes, of the widest access of a kernel
CUDA = (2, 13)  # DLPack's kDLCUDA and kDLCUDAManaged
LEGACY = 1  # the legacy default stream, CU_STREAM_LEGACY
NO_ORDER = -1  # DLPack's word for a stream that needs none


@dataclass(frozen=True)
class Lent:
    """Memory of a device that a caller lends for a run.

    given    what the caller handed over
    shape    of what is stored: packed codes count by their bytes
    stream   whose work must come first; None where there is none
    keep     kept until the run has finished
    """

    given: Any
    address: int
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    readonly: bool
    stream: int | None
    keep: Any

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.numpy.itemsize


class DeviceArray:
    """An output that stays on the device: contiguous, owned, freed with the last reference to it or to what was made of it.

    shape, dtype   as the pipeline has them; packed codes of less than 8 bits are bytes to others
    device         "cuda:0"
    stream         on which it is computed, for who reads it on another stream; None: it is there

    Other libraries take it without a copy: torch.from_dlpack(y), cupy.from_dlpack(y), cupy.asarray(y). `numpy()` copies it
    to the host.
    """

    def __init__(self, context: Context, name: str, dtype: DType, shape: tuple[int, ...]) -> None:
        self.dtype, self.shape = dtype, shape
        self.stored_shape = stored_shape(dtype, shape)
        self.nbytes = math.prod(self.stored_shape) * dtype.numpy.itemsize
        self.stream: int | None = None
        self._context = context
        with context.entered():
            self._block = Block(context, self.nbytes, name)

    @property
    def device(self) -> str:
        return self._context.name

    @property
    def address(self) -> int:
        """Of the first byte, on the device."""
        return self._block.address

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        self._context.check()
        return {
            "version": 3,
            "shape": self.stored_shape,
            "typestr": self.dtype.numpy.str,
            "data": (self.address, False),
            "strides": None,
            "stream": self.stream,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return CUDA[0], self._context.number

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A capsule. stream: the consumer's; it waits for what computes the array. None: the legacy default stream."""
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(f"the array lies on {self.device}; numpy() copies it to the host")
        if copy:
            raise BufferError("no copy is made on the device; the consumer can make one")
        self._context.check()
        if self.stream is not None and stream != NO_ORDER:
            consumer = LEGACY if stream is None else stream
            if consumer != self.stream:
                with self._context.entered():
                    event = new_event(self._context)
                    self._context.wait(consumer, event.handle, self.stream)
                    event.close()
        stored = self.dtype if not self.dtype.packed else _BYTES
        versioned = max_version is not None and max_version[0] >= 1
        return dlpack.write(
            self.address, self.__dlpack_device__(), stored, self.stored_shape, False, self._block, versioned
        )

    def numpy(self) -> Array:
        """A copy on the host, once the array is computed."""
        found = np.empty(self.stored_shape, self.dtype.numpy)
        context = self._context
        with context.entered():
            if self.stream is not None:
                context.call(context.api.cuStreamSynchronize(self.stream), "finish an array")
            if found.nbytes:
                context.call(context.api.cuMemcpyDtoH(found.ctypes.data, self.address, found.nbytes), "fetch an array")
        return found

    def __repr__(self) -> str:
        return f"<{self.dtype} {self.shape} on {self.device}>"


_BYTES = dtypes.get("u8")


def is_on_device(given: Any) -> bool:
    """Whether something is memory of a CUDA device."""
    if isinstance(given, np.ndarray):
        return False
    if isinstance(given, Buffer):
        return given.device.startswith("cuda")
    if hasattr(given, "__dlpack_device__"):
        return int(given.__dlpack_device__()[0]) in CUDA
    if dlpack.is_capsule(given):
        return dlpack.read_capsule(given).device.startswith("cuda")
    return getattr(given, "__cuda_array_interface__", None) is not None


def lend(given: Any, value: Value, where: str, context: Context, stream: int) -> Lent:
    """What was given for a value, checked: device, type, layout, alignment.

    stream   on which its content must be there, or to which `Lent.stream` adds what comes first

    Raises ArgumentError for another device, DTypeMismatch, LayoutError for gaps, BufferAccessError for what cannot be
    had or is not aligned.
    """
    dtype = value.dtype
    assert dtype is not None
    found = _read(given, where, stream)
    if found.address:
        _check_device(found.address, where, context)
    unnamed = found.dtype.name in ("u8", "u16") and _has_no_name(given) and found.dtype.bits == dtype.bits
    if found.dtype != dtype and found.dtype.numpy != dtype.numpy and not unnamed:
        raise DTypeMismatch(f"{where} is {dtype}, but {found.dtype} was given; cast it first if that is meant")
    item, size = dtype.numpy.itemsize, math.prod(found.shape)
    expected = contiguous(found.shape, item)
    if size and any(n > 1 and a != b for n, a, b in zip(found.shape, found.strides, expected, strict=True)):
        raise LayoutError(
            f"{where} has strides {found.strides} bytes for shape {found.shape} on the device; only contiguous memory is "
            f"taken there, strides {expected}: pass a contiguous copy, x.contiguous() in torch, ascontiguousarray in CuPy"
        )
    align = ALIGN if size > 1 else item
    if size and found.address % align:
        raise BufferAccessError(
            f"{where} begins at address {found.address:#x} of the device; kernels need a multiple of {align} bytes: "
            f"pass a copy, x.clone() in torch, x.copy() in CuPy"
        )
    return found


def _read(given: Any, where: str, stream: int) -> Lent:
    if isinstance(given, Buffer):
        if given.layout.blocks:
            raise LayoutError(
                f"{where}: a Buffer on the device in blocks, {given!r}; only plain layouts are taken there"
            )
        told = given.__cuda_array_interface__
        address, readonly = told["data"]
        return Lent(given, address, given.dtype, told["shape"], told["strides"], readonly, None, given)
    if hasattr(given, "__dlpack_device__") or dlpack.is_capsule(given):
        tensor = dlpack.read(given, stream) if hasattr(given, "__dlpack__") else dlpack.read_capsule(given, where)
        strides = tuple(s * tensor.dtype.numpy.itemsize for s in tensor.strides)
        keep = (given, tensor.owner)
        return Lent(given, tensor.address, tensor.dtype, tensor.shape, strides, tensor.readonly, stream, keep)
    interface = given.__cuda_array_interface__
    source = from_cuda(given, interface)
    other = interface.get("stream")
    if other is not None and (not isinstance(other, int) or isinstance(other, bool) or other == 0):
        raise ArgumentError(
            f"{where}: the stream of its __cuda_array_interface__ is {other!r}; None, 1 (the legacy default stream), 2 (the "
            f"thread's) or a handle is needed, and 0 is not allowed there"
        )
    return Lent(given, source.address, source.dtype, source.shape, source.byte_strides, source.readonly, other, given)


def _has_no_name(given: Any) -> bool:
    """Whether an interface could only say how many bytes an element has (bf16, 8-bit floats)."""
    interface = getattr(given, "__cuda_array_interface__", None) if not hasattr(given, "__dlpack_device__") else None
    return interface is not None and np.dtype(interface["typestr"]).kind == "V"


def _check_device(address: int, where: str, context: Context) -> None:
    attribute = context.api.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    try:
        number = int(context.call(context.api.cuPointerGetAttribute(attribute, address), "ask for a pointer"))
    except KernelFailed as error:
        context.check()
        raise ArgumentError(f"{where} points to {address:#x}, which is no memory of a CUDA device ({error})") from None
    if number != context.number:
        raise ArgumentError(f"{where} lies on cuda:{number}, but this executor runs on {context.name}; copy it there")


def check_output(lent: Lent, value: Value, where: str, shape: tuple[int, ...]) -> None:
    """Raise unless a run may write an output to this memory."""
    assert value.dtype is not None
    wanted = stored_shape(value.dtype, shape)
    if lent.shape != wanted:
        raise ShapeMismatch(f"{where} has shape {lent.shape}, but the output has {wanted}")
    if lent.readonly:
        raise BufferAccessError(f"{where} is read-only; give a writable array")


def overlap(a: Lent, b: Lent) -> bool:
    """Whether two lent memories share a byte."""
    return a.address < b.address + b.nbytes and b.address < a.address + a.nbytes and a.nbytes > 0 and b.nbytes > 0


def handle_of(stream: Any) -> int:
    """The driver's handle of a stream: an integer, or an object of torch, CuPy, Numba or the CUDA bindings.

    Read in this order: `__cuda_stream__` (a protocol of CUDA's Python packages: a pair of version and handle),
    `cuda_stream` (torch), `ptr` (CuPy), `handle`, int().
    """
    found = stream
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        pair = protocol() if callable(protocol) else protocol
        if not isinstance(pair, tuple) or len(pair) != 2 or int(pair[0]) != 0:
            raise ArgumentError(
                f"stream: __cuda_stream__ of {type(stream).__name__} gives {pair!r}; (0, handle) is read"
            )
        found = pair[1]
    else:
        for name in ("cuda_stream", "ptr", "handle"):
            if hasattr(stream, name):
                found = getattr(stream, name)
                found = getattr(found, "value", found)
                break
    if found is None and protocol is None:
        found = 0  # ctypes' null pointer: Numba's default stream
    try:
        handle = int(found) if not isinstance(found, (bool, float, str)) else -1
    except (TypeError, ValueError):
        handle = -1
    if handle < 0:
        raise ArgumentError(
            f"stream={stream!r} is no CUDA stream: a handle, a stream of torch or CuPy, or an object with __cuda_stream__"
        )
    return handle or LEGACY
