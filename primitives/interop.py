"""Memory of others: what it is, and what a Buffer over it can say of it.

NumPy arrays, DLPack, __array_interface__, __cuda_array_interface__ and the buffer protocol, in this order of trust.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import dlpack, dtypes
from .dtypes import DType
from .errors import ArgumentError, BufferAccessError, DTypeMismatch, LayoutError, ShapeMismatch
from .layout import LayoutSpec
from .memory import address_of, array_at


@dataclass(frozen=True)
class Source:
    """Memory as it came: stored elements, where they are and whom they belong to.

    array   what the host sees; None for memory that only a device sees
    owner   kept alive as long as the memory is used
    copied  why this is a copy of the memory already, or ""
    """

    address: int
    device: str
    dtype: DType
    shape: tuple[int, ...]
    byte_strides: tuple[int, ...]
    readonly: bool
    array: NDArray[Any] | None
    owner: object
    copied: str = ""


def byte_shape(stored: tuple[int, ...], dtype: DType) -> tuple[int, ...]:
    """Stored dimensions in stored elements: rows of packed types in bytes."""
    return (*stored[:-1], -(-stored[-1] // dtype.per_byte)) if dtype.packed and stored else stored


def import_memory(a: Any) -> Source:
    """Find the memory behind an object, without copying where there is a way."""
    if isinstance(a, np.ma.MaskedArray):
        raise ArgumentError("a masked array would lose its mask; a.filled(value) makes a plain one")
    if isinstance(a, (np.ndarray, np.generic)):
        return _from_numpy(np.asarray(a), None)
    cuda = getattr(a, "__cuda_array_interface__", None)
    if cuda is not None:
        return from_cuda(a, cuda)
    if hasattr(a, "__dlpack__") and hasattr(a, "__dlpack_device__"):
        return from_dlpack(a)
    if hasattr(a, "__array_interface__") or hasattr(a, "__array_struct__"):
        return _from_numpy(np.asarray(a), a)
    try:
        return _from_numpy(np.asarray(memoryview(a)), a)
    except TypeError:
        pass
    if hasattr(a, "__array__"):
        array = np.asarray(a)
        fresh = array.size > 0 and not np.may_share_memory(array, np.asarray(a))
        return replace(_from_numpy(array, a), copied="its __array__ makes a new one" if fresh else "")
    raise DTypeMismatch(
        f"{type(a).__name__} holds no array memory; np.asarray(x, dtype) makes an array of a list or a number, and "
        f"anything with DLPack, an array interface or the buffer protocol works"
    )


def _from_numpy(array: NDArray[Any], owner: object) -> Source:
    found = dtypes.get(array.dtype)
    readonly = not array.flags.writeable
    return Source(address_of(array), "cpu", found, array.shape, array.strides, readonly, array, owner)


def from_dlpack(exporter: Any) -> Source:
    """Memory of another library, read from its DLPack capsule."""
    given = dlpack.read(exporter)
    strides = tuple(s * given.dtype.itemsize for s in given.strides)
    array = None
    if given.device == "cpu":
        array = array_at(given.address, given.shape, strides, given.dtype.numpy, given.readonly, given.owner)
    owner = (given.owner, exporter)
    return Source(given.address, given.device, given.dtype, given.shape, strides, given.readonly, array, owner)


def from_cuda(a: Any, interface: Mapping[str, Any]) -> Source:
    """Device memory as its __cuda_array_interface__ describes it, of any version."""
    if interface.get("mask") is not None:
        raise ArgumentError("a masked device array would lose its mask; fill it first")
    kind = np.dtype(interface["typestr"])
    # The interface has no names for bf16 and 8-bit floats: bytes of their size count as codes, and dtype= says of what.
    codes = {1: "u8", 2: "u16"}.get(kind.itemsize) if kind.kind == "V" and kind.fields is None else None
    found = dtypes.get(codes or kind)
    shape = tuple(int(n) for n in interface["shape"])
    strides = interface.get("strides")
    steps = LayoutSpec(shape).byte_strides(found) if strides is None else tuple(int(s) for s in strides)
    address, readonly = interface["data"]
    number = int(a.__dlpack_device__()[1]) if hasattr(a, "__dlpack_device__") else 0
    return Source(int(address or 0), f"cuda:{number}", found, shape, steps, bool(readonly), None, a)


def typed(
    source: Source, wanted: DType | None, shape: Sequence[int] | None, reasons: list[str]
) -> tuple[Source, tuple[int, ...]]:
    """Settle the type of the elements: theirs, the one that their codes are of, or a packed one.

    Returns the source in stored elements of that type, and the sizes in elements. Adds a reason if it had to copy.
    """
    want = source.dtype if wanted is None else wanted
    if want.packed:
        return _packed(source, want, shape, reasons)
    if shape is not None:
        raise ArgumentError(
            f"shape= is for packed types, whose bytes do not tell it; {want} has the shape of the array"
        )
    if source.dtype == want:
        return source, source.shape
    codes = source.dtype.kind == "uint" and source.dtype.itemsize == want.itemsize <= 2 and not source.dtype.packed
    if not codes or want.kind not in ("float", "scale"):
        raise DTypeMismatch(
            f"asked for {want}, found {source.dtype}: nothing is converted silently; "
            f"convert the array with astype, or leave dtype out to keep {source.dtype}"
        )
    array = None if source.array is None else source.array.view(want.numpy)
    return replace(source, dtype=want, array=array), source.shape


def _packed(
    source: Source, want: DType, shape: Sequence[int] | None, reasons: list[str]
) -> tuple[Source, tuple[int, ...]]:
    if shape is not None:
        sizes = tuple(int(n) for n in shape)
        if source.dtype != "u8":
            raise DTypeMismatch(f"packed {want} comes as bytes, uint8; found {source.dtype}")
        if not sizes or source.shape != byte_shape(sizes, want):
            raise ShapeMismatch(
                f"{want} of shape {sizes} takes bytes of shape {byte_shape(sizes, want)}; found {source.shape}"
            )
        return replace(source, dtype=want), sizes
    if source.array is None:
        raise BufferAccessError(f"codes on {source.device} cannot be packed by the host; give packed bytes and shape=")
    if source.dtype.packed and source.dtype != want:
        raise DTypeMismatch(f"asked for {want}, found {source.dtype}: nothing is converted silently")
    packed = dtypes.pack(source.array, want)
    reasons.append(f"its codes were packed, {want.per_byte} to a byte")
    found = replace(
        source, address=address_of(packed), dtype=want, shape=packed.shape, byte_strides=packed.strides, array=packed
    )
    return found, source.shape


def lay_out(
    source: Source, sizes: tuple[int, ...], axes: str | None, layout: LayoutSpec | None, reasons: list[str]
) -> LayoutSpec:
    """Say how the elements lie. Adds a reason to copy where no layout could say it."""
    dtype = source.dtype
    if layout is not None:
        return _given(source, layout if axes is None else layout.with_axes(axes), reasons)
    if 0 in sizes:
        return LayoutSpec(sizes, axes=axes)
    if any(s % dtype.itemsize for s in source.byte_strides) or source.address % dtype.numpy.alignment:
        reasons.append(f"its elements of {dtype.itemsize} bytes are not aligned to their own size")
        return LayoutSpec(sizes, axes=axes)
    if not dtype.packed:
        return LayoutSpec(sizes, [s // dtype.itemsize for s in source.byte_strides], axes)
    if _same_steps(source, LayoutSpec(source.shape).byte_strides("u8")):
        return LayoutSpec(sizes, axes=axes)
    if source.byte_strides[-1] != 1 and source.shape[-1] > 1:
        reasons.append("its packed rows have gaps between their bytes")
        return LayoutSpec(sizes, axes=axes)
    return LayoutSpec(sizes, [*(s * dtype.per_byte for s in source.byte_strides[:-1]), 1], axes)


def _given(source: Source, layout: LayoutSpec, reasons: list[str]) -> LayoutSpec:
    expected = byte_shape(layout.stored_shape, source.dtype)
    if source.shape != expected:
        raise ShapeMismatch(f"{layout!r} of {source.dtype} is stored as {expected}; found shape {source.shape}")
    if not _same_steps(source, layout.byte_strides(source.dtype)) and 0 not in expected:
        if not layout.is_dense:
            raise LayoutError(
                f"{layout!r} steps {layout.byte_strides(source.dtype)} bytes; the array steps {source.byte_strides}"
            )
        reasons.append("its strides are not those of the layout")
    return layout


def _same_steps(source: Source, byte_strides: tuple[int, ...]) -> bool:
    return all(n == 1 or a == b for n, a, b in zip(source.shape, source.byte_strides, byte_strides, strict=True))
