"""Buffer: bytes plus a contract, which is data type, layout, alignment, device, and whether they may be written."""

import logging
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import dtypes
from .conversion import to_logical
from .dtypes import DType, DTypeLike
from .errors import AliasError, ArgumentError, BufferAccessError, DTypeMismatch, QuantizationError, SizeError
from .interop import Source, byte_shape, from_dlpack, import_memory, lay_out, typed
from .layout import Axis, LayoutSpec
from .memory import address_of, aligned_bytes, alignment_of, array_at, checked_align
from .quantization import QuantParams

log = logging.getLogger("tilework")
_OVERLAP_WORK: Any = 100_000  # candidate solutions that `overlaps` looks at before it answers by address ranges alone


class Buffer:
    """Bytes plus a contract. Made by `from_array`, `from_dlpack` or `empty`; its attributes never change.

    dtype     type of the elements
    layout    shape, strides, letters and blocks
    align     bytes that the address of element zero is a multiple of: what was asked, or what was found
    readonly  whether `view_mut` is refused; the memory itself may still change under another name
    device    "cpu", or "cuda:0" for memory that only the device sees
    quant     what the codes stand for, or None
    copied    whether the bytes are a copy of what was given, rather than the same memory
    """

    __slots__ = ("_address", "_array", "_owner", "align", "copied", "device", "dtype", "layout", "quant", "readonly")

    align: int
    copied: bool
    device: str
    dtype: DType
    layout: LayoutSpec
    quant: QuantParams | None
    readonly: bool
    _address: int
    _array: NDArray[Any] | None  # the allocated stored elements; None on a device
    _owner: object

    def __init__(
        self,
        array: NDArray[Any] | None,
        dtype: DType,
        layout: LayoutSpec,
        *,
        readonly: bool,
        align: int,
        device: str = "cpu",
        quant: QuantParams | None = None,
        copied: bool = False,
        address: int | None = None,
        owner: object = None,
    ) -> None:
        if quant is not None:
            if quant.dtype != dtype:
                raise DTypeMismatch(f"quant describes codes of {quant.dtype}; the buffer holds {dtype}")
            quant.validate_for(layout.shape)
        values = (address if array is None else address_of(array), array, owner, align, copied, device, dtype, layout)
        for name, value in zip(Buffer.__slots__, (*values, quant, readonly), strict=True):
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Buffer's {name!r} never changes; make another Buffer over the same memory")

    # Making them -------------------------------------------------------------------------------------------------

    @classmethod
    def from_array(
        cls,
        a: Any,
        readonly: bool | None = None,
        align: int | None = None,
        axes: str | None = None,
        quant: QuantParams | None = None,
        dtype: DTypeLike | None = None,
        *,
        shape: Sequence[int] | None = None,
        layout: LayoutSpec | None = None,
    ) -> "Buffer":
        """Wrap an array, without copying where dtype and alignment allow; `copied` tells, and a debug log says why.

        a         an ndarray, a Buffer, or anything with DLPack, an array interface or the buffer protocol
        readonly  None: as the array is. True refuses `view_mut`, whatever the array allows
        align     None: as it is; else a power of two up to 4096. An array that is not aligned so is copied
        axes      a letter for each dimension, "NHWC"
        dtype     what the elements are. Nothing is converted, but unsigned integers may be the codes of a float type of
                  the same size (uint16 of bf16), and integers may be the codes of a packed type, which packs them
        shape     for packed bytes: the shape in elements; `a` is then uint8 with rows of whole bytes
        layout    for arrays stored in blocks: `a` has `layout.stored_shape`

        Raises DTypeMismatch, BufferAccessError, LayoutError, ShapeMismatch or ArgumentError.
        """
        asked = None if align is None else checked_align(align)
        if isinstance(a, Buffer):
            source = a._source()
            if dtype is None and shape is None and layout is None:
                laid = a.layout if axes is None else a.layout.with_axes(axes)
                return cls._wrap(source, a.dtype, laid, readonly, asked, a.quant if quant is None else quant, [])
        else:
            source = import_memory(a)
        reasons: list[str] = []
        source, sizes = typed(source, None if dtype is None else dtypes.get(dtype), shape, reasons)
        laid = lay_out(source, sizes, axes, layout, reasons)
        return cls._wrap(source, source.dtype, laid, readonly, asked, quant, reasons)

    @classmethod
    def from_dlpack(cls, exporter: Any, readonly: bool | None = None, axes: str | None = None) -> "Buffer":
        """Wrap a tensor of any library that speaks DLPack (1.0 or before), on the host or on CUDA. Never copies."""
        if not hasattr(exporter, "__dlpack__"):
            raise ArgumentError(f"{type(exporter).__name__} has no __dlpack__; Buffer.from_array takes more kinds")
        source = from_dlpack(exporter)
        layout = lay_out(source, source.shape, axes, None, [])
        return cls._wrap(source, source.dtype, layout, readonly, None, None, [])

    @classmethod
    def empty(
        cls,
        shape: Iterable[int] | LayoutSpec,
        dtype: DTypeLike,
        align: int = 64,
        axes: str | None = None,
        quant: QuantParams | None = None,
    ) -> "Buffer":
        """Return writable memory with arbitrary content.

        shape   sizes, or a whole LayoutSpec (blocks, strides, capacity)
        """
        found, asked = dtypes.get(dtype), checked_align(align)
        layout = shape if isinstance(shape, LayoutSpec) else LayoutSpec(shape, axes=axes)
        if isinstance(shape, LayoutSpec) and axes is not None:
            layout = layout.with_axes(axes)
        layout = layout.rebased()
        array = _allocate(layout, found, asked)
        return cls(array, found, layout, readonly=False, align=asked, quant=quant)

    @classmethod
    def _wrap(
        cls,
        source: Source,
        dtype: DType,
        layout: LayoutSpec,
        readonly: bool | None,
        align: int | None,
        quant: QuantParams | None,
        reasons: list[str],
    ) -> "Buffer":
        if readonly is False and source.readonly:
            raise BufferAccessError("readonly=False was asked of read-only memory; pass a writable array or a copy")
        if align is not None and source.address % align and 0 not in source.shape:
            reasons = [*reasons, f"its address is aligned to {alignment_of(source.address)} bytes, {align} were asked"]
        if reasons and source.array is None:
            raise BufferAccessError(
                f"memory on {source.device} cannot be taken as it is ({'; '.join(reasons)}), and the host cannot copy "
                f"it; copy it on the device first"
            )
        array = source.array
        if reasons and array is not None:
            layout = _compact(layout, dtype)
            fresh = _allocate(layout, dtype, align or 64)
            fresh[...] = array
            array = fresh
        if reasons or source.copied:
            why = "; ".join([*reasons, *([source.copied] if source.copied else [])])
            log.debug("Buffer copied %d bytes of %s %s: %s", layout.nbytes(dtype), dtype, layout.shape, why)
        address = source.address if array is None else address_of(array)
        found = align if align is not None else alignment_of(address if layout.size else 0)
        return cls(
            array,
            dtype,
            layout.rebased(),
            readonly=source.readonly if readonly is None else bool(readonly),
            align=found,
            device=source.device,
            quant=quant,
            copied=bool(reasons or source.copied),
            address=address,
            owner=source.owner,
        )

    # What it holds -----------------------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the axes, in elements."""
        return self.layout.shape

    @property
    def ndim(self) -> int:
        """How many axes the buffer has, blocks not counted."""
        return self.layout.ndim

    @property
    def axes(self) -> str | None:
        """A letter for each axis, such as NHWC; None where they have no names."""
        return self.layout.axes

    @property
    def nbytes(self) -> int:
        """Bytes of memory from the first to the last allocated element."""
        return self.layout.nbytes(self.dtype)

    @property
    def address(self) -> int:
        """Address of element zero, on its device."""
        return self._address

    def view(self) -> NDArray[Any]:
        """A read-only view of the stored elements: no copy.

        Its shape is `shape`, except that packed types show rows of bytes and blocked layouts their blocks; `numpy`
        gives elements in the shape of the axes for all of them. Raises BufferAccessError for memory on a device.
        """
        view = self._stored()
        view.flags.writeable = False
        return view

    def view_mut(self) -> NDArray[Any]:
        """A writable view of the stored elements.

        Raises BufferAccessError for a read-only buffer, AliasError if two indices reach the same element.
        """
        view = self._stored()
        if self.readonly:
            raise BufferAccessError(
                f"a mutable view was asked of a read-only buffer, {self!r}; "
                f"make it with readonly=False from a writable array, or copy it"
            )
        if self.layout.has_internal_overlap():
            raise AliasError(f"{self!r} has elements that share memory and cannot be written; copy it first")
        return view

    def numpy(self) -> NDArray[Any]:
        """The elements, read-only, in the shape of the axes: a view, or a copy for packed types and blocked layouts."""
        view = self.view()
        if self.dtype.packed and self.layout.stored_ndim:
            view = dtypes.unpack(view, self.dtype, self.layout.valid_stored_shape[-1])
        elements = to_logical(view, self.layout)
        elements.flags.writeable = False
        return elements

    def align_offset(self, n: int) -> int:
        """Bytes from element zero to the next address that is a multiple of n; 0 if it is one."""
        if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 1:
            raise ArgumentError(f"align_offset takes a number of bytes from 1; found {n!r}")
        return -self._address % int(n)

    def overlaps(self, other: "Buffer | NDArray[Any]") -> bool:
        """Whether this buffer and another one, or an array, share a byte.

        Exact, unless the strides are so entangled that it would take long; then True if the address ranges overlap.
        """
        mine, array = self._array, other._array if isinstance(other, Buffer) else np.asarray(other)
        if isinstance(other, Buffer) and (mine is None or array is None):
            (a0, a1), (b0, b1) = _span(self), _span(other)
            return self.device == other.device and a0 < b1 and b0 < a1
        if mine is None or array is None:
            return False
        try:
            return bool(np.shares_memory(mine, array, max_work=_OVERLAP_WORK))
        except np.exceptions.TooHardError:
            return bool(np.may_share_memory(mine, array))

    # The same memory, seen otherwise -----------------------------------------------------------------------------

    def permute(self, order: str | Sequence[Axis]) -> "Buffer":
        """The same memory with its axes in another order: "NHWC", or numbers."""
        quant = self.quant
        if quant is not None:
            quant = quant.transposed([self.layout.axis(axis) for axis in order])
        return self._seen_as(self.layout.permute(order), quant)

    def transpose(self, *perm: Axis) -> "Buffer":
        """`permute` by numbers or letters; all axes reversed if none are given."""
        return self.permute(perm or range(self.ndim - 1, -1, -1))

    def slice(self, *index: slice | int | None) -> "Buffer":
        """The same memory, fewer elements: a slice for each axis, an int to drop one, None to keep one whole."""
        layout, quant = self.layout.slice(*index), self.quant
        if quant is not None and quant.granularity != "tensor":
            for axis, cut in enumerate(index):
                if cut is None:
                    continue
                start, stop, step = cut.indices(self.shape[axis]) if isinstance(cut, slice) else (0, 0, 0)
                if step != 1:
                    raise QuantizationError(
                        f"a buffer quantized per {quant.granularity} is cut by slices of step 1; found {cut}"
                    )
                sizes = [*layout.shape[:axis], *self.shape[axis:]]
                quant = quant.sliced(axis, start, max(stop, start), sizes)
        return self._seen_as(layout, quant)

    def broadcast_to(self, shape: Iterable[int], axes: str | None = None) -> "Buffer":
        """The same memory with axes of size 1 repeated; read-only, as many indices reach one element."""
        layout = self.layout.broadcast_to(shape, axes)
        quant = self.quant
        if quant is not None and quant.granularity == "channel" and isinstance(quant.axis, int):
            from_end = quant.axis if quant.axis < 0 else quant.axis - self.ndim
            quant = QuantParams(quant.scale, quant.zero_point, quant.dtype, from_end)
        return self._seen_as(layout, quant, readonly=True)

    def _seen_as(self, layout: LayoutSpec, quant: QuantParams | None, readonly: bool = False) -> "Buffer":
        strides = layout.byte_strides(self.dtype)
        address = self._address + layout.start // self.dtype.per_byte * self.dtype.itemsize
        array = None
        if self._array is not None:
            stored = byte_shape(layout.stored_shape, self.dtype)
            locked = not self._array.flags.writeable
            array = array_at(address, stored, strides, self.dtype.numpy, locked, self._array)
        return Buffer(
            array,
            self.dtype,
            layout.rebased(),
            readonly=self.readonly or readonly,
            align=alignment_of(address if layout.size else 0),
            device=self.device,
            quant=quant,
            copied=self.copied,
            address=address,
            owner=self._owner,
        )

    # Giving them to others ---------------------------------------------------------------------------------------

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        elements = self.numpy() if copy else self._exported()
        if copy is False and (self.dtype.packed or self.layout.blocks):
            raise BufferAccessError(f"{self!r} has no array of elements without a copy; view() shows what is stored")
        if dtype is not None and np.dtype(dtype) != elements.dtype:
            if copy is False:
                raise BufferAccessError(f"{self!r} is no {np.dtype(dtype)} without a copy")
            return elements.astype(dtype)
        return elements.copy() if copy else elements

    @property
    def __array_interface__(self) -> dict[str, Any]:
        # AttributeError is how NumPy learns to ask __array__ instead: the interface cannot name ml_dtypes' types.
        if self._array is None or self.dtype.packed or self.layout.blocks or self.dtype.numpy.isbuiltin != 1:
            raise AttributeError(f"{self!r} has no array interface; numpy() gives its elements")
        interface: dict[str, Any] = self._exported().__array_interface__
        return interface

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if not self.device.startswith("cuda"):
            raise AttributeError(f"{self!r} is not on a CUDA device")
        return {
            "version": 3,
            "shape": byte_shape(self.layout.valid_stored_shape, self.dtype),
            "strides": self.layout.byte_strides(self.dtype),
            "typestr": self.dtype.numpy.str,
            "data": (self._address, self.readonly),
        }

    def __dlpack__(self, **options: Any) -> Any:
        """The memory as a DLPack capsule, without a copy.

        A read-only buffer says so by the capsule's flag, and refuses a consumer too old to know it (BufferError). One
        that is told and does not care, as PyTorch, gets a tensor that can be written; ask it for a copy.
        """
        if self._array is None:
            raise BufferAccessError(
                f"{self!r} is given on by __cuda_array_interface__; DLPack works for the host's memory"
            )
        if self.dtype.packed or self.layout.blocks or self.dtype.numpy.isbuiltin != 1:
            raise BufferAccessError(f"{self!r} has no DLPack form here; view().view('uint8') gives its bytes")
        return self._exported().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        kind, _, number = self.device.partition(":")
        return (2, int(number)) if kind == "cuda" else (1, 0)

    def __reduce__(self) -> tuple[Callable[..., "Buffer"], tuple[Any, ...]]:
        stored = np.array(self.view(), order="C", copy=True)
        layout = LayoutSpec(self.shape, axes=self.layout.axes, blocks=self.layout.blocks)
        return _unpickled, (stored, self.dtype, layout, self.readonly, self.align, self.quant)

    def __repr__(self) -> str:
        text = f"Buffer({self.dtype} {self.shape}"
        text += f" {self.layout.axes}" if self.layout.axes is not None else ""
        text += f" blocks {self.layout.blocks}" if self.layout.blocks else ""
        text += "" if self.layout.is_dense else f" strides {self.layout.strides}"
        text += f", align {self.align}, {self.device}{', read-only' if self.readonly else ''}"
        return text + (f", {self.quant!r})" if self.quant is not None else ")")

    # Inside ------------------------------------------------------------------------------------------------------

    def _stored(self) -> NDArray[Any]:
        if self._array is None:
            raise BufferAccessError(
                f"{self!r} has no view on the host; copy it there first, with its library's .cpu() or copy_to_host()"
            )
        valid = byte_shape(self.layout.valid_stored_shape, self.dtype)
        index: Any = (*(slice(n) for n in valid), ...)  # the ... keeps a scalar an array
        stored: NDArray[Any] = self._array[index]
        return stored

    def _exported(self) -> NDArray[Any]:
        plain = not (self.dtype.packed or self.layout.blocks)
        if plain and not self.readonly and not self.layout.has_internal_overlap():
            return self._stored()
        return self.numpy()

    def _source(self) -> Source:
        shape = byte_shape(self.layout.stored_shape, self.dtype)
        strides = self.layout.byte_strides(self.dtype)
        return Source(self._address, self.device, self.dtype, shape, strides, self.readonly, self._array, self._owner)


def _unpickled(
    stored: NDArray[Any], dtype: DType, layout: LayoutSpec, readonly: bool, align: int, quant: QuantParams | None
) -> Buffer:
    array = _allocate(layout, dtype, align)
    array[...] = stored
    return Buffer(array, dtype, layout, readonly=readonly, align=align, quant=quant)


def _span(buffer: Buffer) -> tuple[int, int]:
    """Lowest and one past the highest address."""
    shape = byte_shape(buffer.layout.stored_shape, buffer.dtype)
    steps = [(n - 1) * s for n, s in zip(shape, buffer.layout.byte_strides(buffer.dtype), strict=True)]
    low = buffer.address + sum(s for s in steps if s < 0)
    return low, low + buffer.nbytes


def _allocate(layout: LayoutSpec, dtype: DType, align: int) -> NDArray[Any]:
    """Aligned memory for a layout; element zero is the aligned one."""
    shape, strides = byte_shape(layout.stored_shape, dtype), layout.byte_strides(dtype)
    before = -sum((n - 1) * s for n, s in zip(shape, strides, strict=True) if s < 0 and n)
    room = -(-before // align) * align
    if 0 in shape:
        return np.ndarray(shape, dtype.numpy, buffer=aligned_bytes(1, align))
    nbytes = room + layout.nbytes(dtype) - before
    if nbytes > sys.maxsize // 2:
        raise SizeError(f"{layout!r} of {dtype} takes {nbytes} bytes, more than there are addresses")
    memory = aligned_bytes(nbytes, align)
    return np.ndarray(shape, dtype.numpy, buffer=memory, offset=room, strides=strides)


def _compact(layout: LayoutSpec, dtype: DType) -> LayoutSpec:
    """The layout of a copy: dense, in the order in which the axes lie in memory."""
    room: dict[Axis, int] = dict(enumerate(layout.capacity))
    if layout.blocks or dtype.packed or not all(layout.strides) or 0 in layout.capacity:
        return LayoutSpec(layout.shape, axes=layout.axes, blocks=layout.blocks, capacity=room)
    strides, step = [0] * layout.ndim, 1
    for i in sorted(range(layout.ndim), key=lambda i: (abs(layout.strides[i]), -i)):
        strides[i] = step
        step *= layout.capacity[i]
    return LayoutSpec(layout.shape, strides, layout.axes, capacity=room)
