"""Operands without data: what a kernel's `execute` sees while its program is laid out.

An `Operand` knows type, shape and strides, and where it will lie: a base of the run context and an offset. NumPy's
view functions work on it (broadcast_to, transpose, expand_dims, slices, reshape without a copy), because views only
compute with addresses. Anything that would need the data says so, and the step then runs as a Python kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..primitives.errors import BufferAccessError, LayoutError, PipelineError
from ..primitives.kernel import ArgSpec, Kernel
from ..primitives.memory import strided

Array = np.ndarray[Any, Any]

_VIEWS = {np.broadcast_to, np.transpose, np.moveaxis, np.swapaxes, np.expand_dims, np.squeeze, np.flip, np.reshape}


class NeedsData(Exception):
    """A kernel asked for an operand's values while only its layout is known."""


class Operand:
    """A view of memory that does not exist yet: shape, strides and type, at an offset from a base.

    passing   of what it stands for only a tile exists at a time, in a worker's own memory
    """

    __slots__ = ("_shadow", "base", "constant", "offset", "passing")

    def __init__(
        self, base: int, offset: int, shadow: Array, constant: Array | None = None, passing: bool = False
    ) -> None:
        self.base = base
        self.passing = passing
        self.offset = offset
        self._shadow = shadow
        self.constant = constant

    @classmethod
    def make(
        cls,
        base: int,
        offset: int,
        dtype: Any,
        shape: tuple[int, ...],
        strides: tuple[int, ...] | None = None,
        passing: bool = False,
    ) -> Operand:
        """strides in bytes; None: contiguous."""
        if strides is None:
            strides = contiguous(shape, np.dtype(dtype).itemsize)
        return cls(base, offset, strided(np.empty(1, dtype), shape, strides), passing=passing)

    @classmethod
    def of(cls, array: Array) -> Operand:
        """A constant: it has its data already, and lies where it lies."""
        return cls(0, array.__array_interface__["data"][0], array, array)

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shadow.shape

    @property
    def strides(self) -> tuple[int, ...]:
        return self._shadow.strides

    @property
    def dtype(self) -> Any:
        return self._shadow.dtype

    @property
    def ndim(self) -> int:
        return self._shadow.ndim

    @property
    def size(self) -> int:
        return self._shadow.size

    @property
    def itemsize(self) -> int:
        return self._shadow.itemsize

    @property
    def nbytes(self) -> int:
        return self._shadow.nbytes

    @property
    def T(self) -> Operand:
        return self._view(self._shadow.T)

    def transpose(self, *axes: Any) -> Operand:
        return self._view(self._shadow.transpose(*axes))

    def view(self, dtype: Any = None) -> Operand:
        return self._view(self._shadow.view(dtype) if dtype is not None else self._shadow)

    def reshape(self, *shape: Any) -> Operand:
        """Another shape of the same memory; LayoutError where it would take a copy."""
        wanted = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
        moved = self._shadow.view()
        try:
            moved.shape = wanted
        except AttributeError:
            raise LayoutError(
                f"shape {self.shape} with strides {self.strides} is not {wanted} without a copy"
            ) from None
        return self._view(moved)

    def restrided(self, shape: tuple[int, ...], strides: tuple[int, ...]) -> Operand:
        """The same memory under another shape and other strides in bytes, which stay inside it."""
        return self._view(np.lib.stride_tricks.as_strided(self._shadow, shape, strides))

    def __getitem__(self, index: Any) -> Operand:
        items = index if isinstance(index, tuple) else (index,)
        if not all(i is None or i is Ellipsis or isinstance(i, (slice, int, np.integer)) for i in items):
            raise NeedsData("indexing with arrays")
        if not any(i is Ellipsis for i in items):
            items = (*items, Ellipsis)  # an ellipsis makes NumPy return a view even of a single element
        return self._view(self._shadow[items])

    def __len__(self) -> int:
        return len(self._shadow)

    def _view(self, shadow: Array) -> Operand:
        moved = shadow.__array_interface__["data"][0] - self._shadow.__array_interface__["data"][0]
        constant = shadow if self.constant is not None else None
        return Operand(self.base, self.offset + moved, shadow, constant, self.passing)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func is np.reshape:
            return self.reshape(*args[1:], **kwargs)
        if func in _VIEWS and args and args[0] is self:
            return self._view(func(self._shadow, *args[1:], **kwargs))
        if func in (np.shape, np.ndim, np.size):
            return func(self._shadow, *args[1:], **kwargs)
        raise NeedsData(f"np.{func.__name__}")

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        if self.constant is not None:
            return self.constant
        raise NeedsData("the array's values")

    def __array_ufunc__(self, ufunc: Any, *args: Any, **kwargs: Any) -> Any:
        raise NeedsData(f"np.{ufunc.__name__}")

    def __bool__(self) -> bool:
        raise NeedsData("a truth value")

    def __float__(self) -> float:
        return float(self.__array__().reshape(())[()])

    def __setitem__(self, index: Any, value: Any) -> None:
        raise NeedsData("writing elements")

    def __repr__(self) -> str:
        return f"<operand {self.dtype} {self.shape} strides {self.strides} at base {self.base} + {self.offset}>"


def contiguous(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Row-major strides in bytes."""
    strides = []
    step = itemsize
    for n in reversed(shape):
        strides.append(step)
        step *= max(n, 1)
    return tuple(reversed(strides))


class RecordingContext:
    """The five calls of a context, answered with operands; a sweep is noted instead of run.

    scratch   (nbytes) -> byte offset in the scratch that each running thread has of its own
    """

    def __init__(
        self,
        step: str,
        specs: tuple[ArgSpec, ...],
        operands: Mapping[str, Any],
        scratch: Callable[[int], Operand],
    ) -> None:
        self._step = step
        self._specs = {spec.slot: spec for spec in specs}
        self._operands = operands
        self._scratch = scratch
        self.sweeps: list[tuple[Kernel, tuple[Operand, ...]]] = []

    def read(self, slot: str) -> Any:
        return self._get(slot, "reads")

    def write(self, slot: str) -> Any:
        return self._get(slot, "writes")

    def _get(self, slot: str, how: str) -> Any:
        spec = self._specs.get(slot)
        if spec is None:
            raise PipelineError(f"{self._step!r} has no slot {slot!r}; it has {', '.join(self._specs)}")
        if not getattr(spec, how):
            raise BufferAccessError(f"{self._step!r} {how} slot {slot!r}, which it declares as {spec.access!r}")
        return self._operands.get(slot)

    def arg(self, name: str, type: Any = float) -> Any:
        value = self.read(name)
        if value is None or callable(value):
            return value
        if value.constant is None:
            raise NeedsData(f"the value of {name!r}")
        array = value.constant
        if type is np.ndarray:
            return array
        if type is tuple:
            return tuple(int(n) for n in array)
        return type(array.reshape(())[()])

    def scratch(self, nbytes: int) -> Operand:
        return self._scratch(nbytes)

    def sweep(self, kernel: Kernel, *operands: Any) -> None:
        self.sweeps.append(
            (kernel, tuple(o if isinstance(o, Operand) else Operand.of(np.asarray(o)) for o in operands))
        )
