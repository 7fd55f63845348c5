"""LayoutSpec: how the elements of an array lie in memory.

A layout is a shape, strides, a letter for each axis, and inner blocks. It holds no data and no data type; questions
about bytes take the type. conversion.py turns one layout into another.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .dtypes import DType, DTypeLike, get
from .errors import LayoutError, ShapeMismatch, SizeError

Dim: TypeAlias = Any  # an int, or a size known only at run time: a name or an expression of names
Axis: TypeAlias = str | int
MOST_DIMENSIONS = 64  # what NumPy holds
_OVERLAP_WORK = 1 << 20  # element offsets that has_internal_overlap compares one by one before it gives up


@dataclass(frozen=True, init=False, repr=False)
class LayoutSpec:
    """Where element (i, j, ...) of an array lies.

    shape     sizes of the axes, which are the valid ones: ints, or sizes known only at run time
    strides   in ELEMENTS (as in DLPack), one per stored dimension; None: dense, the last dimension innermost
    axes      one letter per axis, "NCHW"; None: axes have numbers only
    blocks    inner blocks, (("N", 32), ("K", 4)): the stored dimensions are the axes, each divided by its blocks
              (rounded up), then the blocks in this order. An axis may be blocked more than once, outer block first
    capacity  {"N": 100}: elements allocated along an axis whose valid size, in shape, is decided by data
    start     element zero, in elements from the beginning of the memory; slices have it

    Dense rows of packed types (u4 and smaller) are padded to whole bytes, so byte questions depend on the type;
    strides in elements of a dense layout do not know of that padding, `byte_strides(dtype)` does.
    Raises LayoutError for anything that describes no memory.
    """

    shape: tuple[Dim, ...]
    axes: str | None
    blocks: tuple[tuple[Axis, int], ...]
    capacity: tuple[Dim, ...]
    start: int
    _strides: tuple[int, ...] | None

    def __init__(
        self,
        shape: Iterable[Dim],
        strides: Iterable[int] | None = None,
        axes: str | None = None,
        blocks: Iterable[tuple[Axis, int]] = (),
        *,
        capacity: Mapping[Axis, Dim] | None = None,
        start: int = 0,
    ) -> None:
        if isinstance(shape, int) and not isinstance(shape, bool):
            shape = (shape,)
        if isinstance(shape, (str, bytes)) or not isinstance(shape, Iterable):
            raise LayoutError(f"shape {shape!r} is no sequence of sizes; give a tuple, like ('M', 768)")
        sizes = tuple(_dim(n) for n in shape)
        if len(sizes) > MOST_DIMENSIONS:
            raise LayoutError(f"a shape of {len(sizes)} dimensions; at most {MOST_DIMENSIONS} work")
        keep = object.__setattr__
        keep(self, "shape", sizes)
        keep(self, "axes", _letters(axes, len(sizes)))
        keep(self, "blocks", tuple(self._block(block) for block in blocks))
        room = list(sizes)
        for axis, most in (capacity or {}).items():
            i = self.axis(axis)
            room[i] = _dim(most)
            if _is_int(room[i]) and _is_int(sizes[i]) and sizes[i] > room[i]:
                raise LayoutError(f"axis {axis!r} has {sizes[i]} valid elements but room for {room[i]} only")
        keep(self, "capacity", tuple(room))
        keep(self, "start", int(start))
        keep(self, "_strides", None)
        if strides is not None:
            steps = tuple(_stride(s) for s in strides)
            if len(steps) != self.stored_ndim:
                raise LayoutError(
                    f"{len(steps)} strides for {self.stored_ndim} stored dimensions "
                    f"(shape {sizes}, blocks {self.blocks}); give one each, in elements"
                )
            if not self.is_static or steps != self.strides:
                keep(self, "_strides", steps)

    # What it says ------------------------------------------------------------------------------------------------

    @property
    def ndim(self) -> int:
        """Axes of the shape, blocks not counted."""
        return len(self.shape)

    @property
    def stored_ndim(self) -> int:
        """Axes as they lie in memory: those of the shape and one for each block."""
        return len(self.shape) + len(self.blocks)

    @property
    def is_static(self) -> bool:
        """Whether every allocated size is a number, so that bytes can be counted."""
        return all(_is_int(n) for n in self.capacity)

    @property
    def is_dense(self) -> bool:
        """Whether the strides are those of the whole memory in the order of the stored dimensions."""
        return self._strides is None

    @property
    def size(self) -> int:
        """Valid elements."""
        return math.prod(self._ints(self.shape))

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """Allocated sizes of the stored dimensions: the axes divided by their blocks, then the blocks."""
        return self._stored(self._ints(self.capacity))

    @property
    def valid_stored_shape(self) -> tuple[int, ...]:
        """Like `stored_shape`, but only as far as the valid elements reach."""
        return self._stored(self._ints(self.shape))

    @property
    def strides(self) -> tuple[int, ...]:
        """Elements from one index to the next, for each stored dimension."""
        return self._strides if self._strides is not None else _dense(self.stored_shape)

    @property
    def innermost_axis(self) -> Axis | None:
        """The axis whose neighbours are closest in memory: its letter, or its number without letters.

        For a blocked layout, the axis of the innermost block. None for a scalar. Axes of one element or of stride 0
        (broadcast) come last.
        """
        if not self.stored_ndim:
            return None
        stored = self.stored_shape
        far = math.inf
        order = [
            (abs(s) if n > 1 and s else far, -d) for d, (n, s) in enumerate(zip(stored, self.strides, strict=True))
        ]
        return self._name(self._axis_of(-min(order)[1]))

    @property
    def block_sizes(self) -> tuple[int, ...]:
        """For each axis, the product of its blocks; 1 where it has none."""
        products = [1] * self.ndim
        for axis, block in self.blocks:
            products[self.axis(axis)] *= block
        return tuple(products)

    def axis(self, axis: Axis) -> int:
        """Number of an axis given by letter or number (negative from the end)."""
        if isinstance(axis, str):
            if self.axes is None or len(axis) != 1 or axis not in self.axes:
                raise LayoutError(f"no axis {axis!r}: {self._axes_text()}")
            return self.axes.index(axis)
        if not _is_int(axis) or not -self.ndim <= axis < self.ndim:
            raise LayoutError(f"axis {axis!r} is out of range for {self.ndim} dimensions: {self._axes_text()}")
        return int(axis) % self.ndim

    def is_contiguous(self, order: str | Sequence[Axis] = "C") -> bool:
        """Whether the valid elements fill one stretch of memory without gaps when walked in an order.

        order   "C": as the dimensions are; "F": the first innermost; or the axes from outermost to innermost,
                "NHWC". Blocks come after the axes, in their own order.
        """
        if order == "C" or order == "F":
            if order == "F" and self.blocks:
                return False
            walk = list(range(self.stored_ndim))
            if order == "F":
                walk.reverse()
        else:
            walk = [*self._permutation(order), *range(self.ndim, self.stored_ndim)]
        sizes, strides = self.valid_stored_shape, self.strides
        if 0 in sizes:
            return True
        expected = 1
        for d in reversed(walk):
            if sizes[d] != 1:
                if strides[d] != expected:
                    return False
                expected *= sizes[d]
        return True

    def has_internal_overlap(self) -> bool:
        """Whether two indices may reach the same element, so that the layout cannot be written safely.

        Exact up to a million elements; beyond, a layout whose strides do not prove otherwise counts as overlapping.
        """
        pairs = [(abs(s), n) for n, s in zip(self.stored_shape, self.strides, strict=True) if n != 1]
        if any(n == 0 for _, n in pairs):
            return False
        span = 0
        for stride, n in sorted(pairs):
            if stride <= span:
                break
            span += stride * (n - 1)
        else:
            return False
        if any(stride == 0 for stride, _ in pairs) or math.prod(n for _, n in pairs) > _OVERLAP_WORK:
            return True
        reached = np.zeros(1, np.int64)
        for stride, n in pairs:
            reached = np.add.outer(reached, stride * np.arange(n)).ravel()
        return bool(np.unique(reached).size < reached.size)

    # Bytes -------------------------------------------------------------------------------------------------------

    def byte_strides(self, dtype: DTypeLike) -> tuple[int, ...]:
        """Bytes from one index to the next, for each dimension of the array that `view_on` returns.

        Raises LayoutError where elements of a packed type would start inside a byte.
        """
        dtype = get(dtype)
        if not dtype.packed:
            return tuple(s * dtype.itemsize for s in self.strides)
        if not self.stored_ndim:
            return ()
        if self._strides is None and (self.start == 0 or self.stored_shape[-1] % dtype.per_byte == 0):
            rows = self.stored_shape
            return _dense((*rows[:-1], dtype.row_nbytes(rows[-1])))
        *outer, inner = self.strides
        per_byte = dtype.per_byte
        if (inner != 1 and self.stored_shape[-1] > 1) or any(s % per_byte for s in outer) or self.start % per_byte:
            raise LayoutError(
                f"{dtype} packs {per_byte} elements to a byte along the innermost axis, which needs stride 1 last "
                f"and multiples of {per_byte} elsewhere; found strides {self.strides}, start {self.start}"
            )
        return (*(s // per_byte for s in outer), 1)

    def nbytes(self, dtype: DTypeLike) -> int:
        """Bytes from the lowest to the highest allocated element, without `start`."""
        dtype = get(dtype)
        shape = self._byte_shape(self.stored_shape, dtype)
        if 0 in shape:
            return 0
        steps = zip(shape, self.byte_strides(dtype), strict=True)
        return dtype.itemsize + sum((n - 1) * abs(s) for n, s in steps)

    def offset(self, index: Sequence[int]) -> int:
        """Elements from the beginning of the memory to the element at an index of the axes. Python ints: no limit."""
        stored = self._stored_index(index)
        return self.start + sum(i * s for i, s in zip(stored, self.strides, strict=True))

    def byte_offset(self, index: Sequence[int], dtype: DTypeLike) -> int:
        """Bytes from the beginning of the memory to the byte that holds an element (its first byte)."""
        dtype = get(dtype)
        stored = list(self._stored_index(index))
        if stored:
            stored[-1] //= dtype.per_byte
        start = self.start // dtype.per_byte * dtype.itemsize
        return start + sum(i * s for i, s in zip(stored, self.byte_strides(dtype), strict=True))

    def view_on(self, memory: NDArray[np.uint8], dtype: DTypeLike, offset: int = 0) -> NDArray[Any]:
        """The stored array that this layout sees in a block of memory: its allocated dimensions, no copy.

        memory  uint8 (nbytes,)
        dtype   type of the elements; packed types give their bytes, so the last dimension is a row of bytes
        offset  bytes from the beginning of memory to element `-start`

        Raises LayoutError if the block is too small.
        """
        dtype = get(dtype)
        shape, strides = self._byte_shape(self.stored_shape, dtype), self.byte_strides(dtype)
        first = offset + self.start // dtype.per_byte * dtype.itemsize
        steps = [(n - 1) * s for n, s in zip(shape, strides, strict=True)]
        low = first + sum(s for s in steps if s < 0)
        if 0 in shape:
            return np.empty(shape, dtype.numpy)
        if low < 0 or low + self.nbytes(dtype) > memory.size:
            raise LayoutError(
                f"{self!r} of {dtype} reaches bytes {low} to {low + self.nbytes(dtype)}; the memory has {memory.size}"
            )
        return np.ndarray(shape, dtype.numpy, buffer=memory, offset=first, strides=strides)

    # Other layouts of the same memory -------------------------------------------------------------------------------

    def permute(self, order: str | Sequence[Axis]) -> "LayoutSpec":
        """The same memory with its axes in another order: letters "NHWC", or numbers. Blocks stay where they are."""
        perm = self._permutation(order)
        outer = [self.strides[i] for i in perm] if self.is_static else None
        if outer is None and (self._strides is None and perm != list(range(self.ndim))):
            raise SizeError(f"{self!r} cannot be permuted before its sizes are known; give the permuted shape instead")
        inner = self.strides[self.ndim :] if self.is_static else ()
        letters = None if self.axes is None else "".join(self.axes[i] for i in perm)
        place = {old: new for new, old in enumerate(perm)}
        blocks = [(a if isinstance(a, str) else place[a], b) for a, b in self.blocks]
        return self._like(
            [self.shape[i] for i in perm],
            None if outer is None else [*outer, *inner],
            letters,
            blocks,
            [self.capacity[i] for i in perm],
            self.start,
        )

    def transpose(self, *perm: Axis) -> "LayoutSpec":
        """`permute` by numbers or letters; all axes reversed if none are given."""
        return self.permute(perm or range(self.ndim - 1, -1, -1))

    def slice(self, *index: slice | int | None) -> "LayoutSpec":
        """The same memory, fewer elements: one slice per axis, or an int, which drops the axis. None: all of it.

        A blocked axis can be cut at multiples of its block only. Raises LayoutError otherwise, or for an int out of
        range.
        """
        if len(index) > self.ndim:
            raise LayoutError(f"{len(index)} slices for {self.ndim} axes")
        blocks = self.block_sizes
        shape: list[int] = []
        strides: list[int] = []
        kept: list[int] = []
        start = self.start
        for i, n in enumerate(self._ints(self.shape)):
            cut = index[i] if i < len(index) else None
            if isinstance(cut, (int, np.integer)):
                at = int(cut) + (n if cut < 0 else 0)
                if not 0 <= at < n:
                    raise LayoutError(f"index {cut} is out of range for axis {self._name(i)!r} of {n} elements")
                if blocks[i] > 1:
                    raise LayoutError(f"axis {self._name(i)!r} is blocked by {blocks[i]}; slice it, or unpack it first")
                start += at * self.strides[i]
                continue
            low, high, step = (cut or slice(None)).indices(n)
            count = len(range(low, high, step))
            if blocks[i] > 1 and (step != 1 or low % blocks[i] or (high % blocks[i] and high != n)):
                raise LayoutError(
                    f"axis {self._name(i)!r} is blocked by {blocks[i]} and is cut at its multiples only; "
                    f"asked {low}:{high}:{step} of {n}"
                )
            start += (low // blocks[i]) * self.strides[i] if count else 0
            kept.append(i)
            shape.append(count)
            strides.append(self.strides[i] * (step if blocks[i] == 1 else 1))
        place = {old: new for new, old in enumerate(kept)}
        letters = None if self.axes is None else "".join(self.axes[i] for i in kept)
        inner = [(a if isinstance(a, str) else place[a], b) for a, b in self.blocks]
        return self._like(shape, [*strides, *self.strides[self.ndim :]], letters, inner, shape, start)

    def broadcast_to(self, shape: Iterable[int], axes: str | None = None) -> "LayoutSpec":
        """The same memory seen with more elements: axes of size 1 repeat (stride 0), new axes come in front.

        axes   letters of the result; needed only if this layout has letters and gains axes
        """
        target = tuple(int(n) for n in shape)
        sizes, more = self._ints(self.shape), len(target) - self.ndim
        blocks = self.block_sizes
        fits = more >= 0 and all(n in (1, t) for n, t in zip(sizes, target[max(more, 0) :], strict=False))
        if not fits or any(b > 1 and n != t for b, n, t in zip(blocks, sizes, target[more:], strict=True)):
            raise ShapeMismatch(f"shape {sizes} does not broadcast to {target}: only unblocked axes of size 1 repeat")
        if self.axes is not None and more and axes is None:
            raise LayoutError(
                f"broadcasting {self.axes!r} to {len(target)} dimensions needs the letters of all of them"
            )
        outer = [s if n == t else 0 for n, t, s in zip(sizes, target[more:], self.strides, strict=False)]
        inner = [(a if isinstance(a, str) else a + more, b) for a, b in self.blocks]
        strides = [*[0] * more, *outer, *self.strides[self.ndim :]]
        return self._like(target, strides, axes or self.axes, inner, target, self.start)

    def with_shape(self, shape: Iterable[Dim]) -> "LayoutSpec":
        """A dense layout with the same letters and blocks and other sizes; how run-time sizes are filled in."""
        return LayoutSpec(shape, None, self.axes, self.blocks)

    def with_axes(self, axes: str | None) -> "LayoutSpec":
        """The same layout with other letters."""
        blocks = [(self.axis(a), b) for a, b in self.blocks]
        spec = self._like(self.shape, self._strides, None, blocks, self.capacity, self.start)
        named = _letters(axes, self.ndim)
        if named is None:
            return spec
        blocks_named = [(named[self.axis(a)], b) for a, b in self.blocks]
        return self._like(self.shape, self._strides, named, blocks_named, self.capacity, self.start)

    def with_capacity(self, axis: Axis, capacity: Dim) -> "LayoutSpec":
        """A dense layout with room for `capacity` elements along an axis; its valid size stays what it is."""
        room: dict[Axis, Dim] = {i: n for i, n in enumerate(self.capacity) if n != self.shape[i]}
        room[self.axis(axis)] = capacity
        return LayoutSpec(self.shape, None, self.axes, self.blocks, capacity=room, start=self.start)

    def with_length(self, axis: Axis, length: Dim) -> "LayoutSpec":
        """The same memory with another valid size along an axis, at most its capacity."""
        i = self.axis(axis)
        shape = [*self.shape[:i], length, *self.shape[i + 1 :]]
        return self._like(shape, self._strides, self.axes, self.blocks, self.capacity, self.start)

    def rebased(self) -> "LayoutSpec":
        """The same layout seen from its own element zero."""
        return self._like(self.shape, self._strides, self.axes, self.blocks, self.capacity, 0)

    # Inside ------------------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        text = f"LayoutSpec({self.shape}"
        text += f", strides={self._strides}" if self._strides is not None else ""
        text += f", axes={self.axes!r}" if self.axes is not None else ""
        text += f", blocks={self.blocks}" if self.blocks else ""
        room = {self._name(i): n for i, n in enumerate(self.capacity) if n != self.shape[i]}
        text += f", capacity={room}" if room else ""
        return text + (f", start={self.start})" if self.start else ")")

    def _like(
        self,
        shape: Iterable[Dim],
        strides: Iterable[int] | None,
        axes: str | None,
        blocks: Iterable[tuple[Axis, int]],
        capacity: Iterable[Dim],
        start: int,
    ) -> "LayoutSpec":
        room: dict[Axis, Dim] = dict(enumerate(capacity))
        return LayoutSpec(shape, strides, axes, blocks, capacity=room, start=start)

    def _block(self, block: tuple[Axis, int]) -> tuple[Axis, int]:
        try:
            axis, size = block
        except (TypeError, ValueError):
            raise LayoutError(f"a block is (axis, size), such as ('K', 4); found {block!r}") from None
        if not _is_int(size) or size < 1:
            raise LayoutError(f"block {block!r}: its size is a whole number from 1")
        i = self.axis(axis)
        return (self.axes[i] if self.axes is not None else i), int(size)

    def _name(self, i: int) -> Axis:
        return i if self.axes is None else self.axes[i]

    def _axes_text(self) -> str:
        named = "the layout has no letters" if self.axes is None else f"the axes are {self.axes!r}"
        return f"{named}, its shape is {self.shape}"

    def _axis_of(self, dimension: int) -> int:
        return dimension if dimension < self.ndim else self.axis(self.blocks[dimension - self.ndim][0])

    def _ints(self, sizes: tuple[Dim, ...]) -> tuple[int, ...]:
        for i, n in enumerate(sizes):
            if not _is_int(n):
                raise SizeError(f"axis {self._name(i)!r} has size {n}, known only at run time; fill it in first")
        return tuple(int(n) for n in sizes)

    def _stored(self, sizes: tuple[int, ...]) -> tuple[int, ...]:
        outer = (-(-n // b) for n, b in zip(sizes, self.block_sizes, strict=True))
        return (*outer, *(b for _, b in self.blocks))

    def _byte_shape(self, stored: tuple[int, ...], dtype: DType) -> tuple[int, ...]:
        if not dtype.packed or not stored:
            return stored
        return (*stored[:-1], -(-stored[-1] // dtype.per_byte))

    def _stored_index(self, index: Sequence[int]) -> Iterator[int]:
        if len(index) != self.ndim:
            raise LayoutError(f"index {tuple(index)} has {len(index)} numbers for {self.ndim} axes")
        rest = []
        for i, (at, n) in enumerate(zip(index, self._ints(self.capacity), strict=True)):
            if not 0 <= at < n:
                raise LayoutError(f"index {at} is out of range for axis {self._name(i)!r} of {n} elements")
            rest.append(int(at))
        inner = []
        for axis, block in reversed(self.blocks):  # the innermost block of an axis takes the low part of its index
            i = self.axis(axis)
            rest[i], low = divmod(rest[i], block)
            inner.append(low)
        return iter([*rest, *reversed(inner)])

    def _permutation(self, order: str | Sequence[Axis]) -> list[int]:
        perm = [self.axis(axis) for axis in order]
        if sorted(perm) != list(range(self.ndim)):
            raise LayoutError(f"{order!r} does not name every axis once: {self._axes_text()}")
        return perm


def _is_int(n: Any) -> bool:
    return isinstance(n, (int, np.integer)) and not isinstance(n, bool)


def _dim(n: Any) -> Dim:
    if _is_int(n):
        if n < 0:
            raise LayoutError(f"size {n} is negative; sizes are 0 or more")
        return int(n)
    if n is None or (
        isinstance(n, (bool, bytes, float, complex, np.generic, np.ndarray, Sequence)) and not _is_name(n)
    ):
        raise LayoutError(f"size {n!r} is neither a whole number nor a size known at run time")
    return n


def _is_name(n: Any) -> bool:
    return isinstance(n, str) and n.strip() != "" and not n.strip().lstrip("+-").isdecimal()


def _stride(s: Any) -> int:
    if not _is_int(s):
        raise LayoutError(f"stride {s!r} is not a whole number of elements")
    return int(s)


def _dense(sizes: tuple[int, ...]) -> tuple[int, ...]:
    strides, step = [], 1
    for n in reversed(sizes):
        strides.append(step)
        step *= max(n, 1)
    return tuple(reversed(strides))


def _letters(axes: str | None, ndim: int) -> str | None:
    if axes is None:
        return None
    if not isinstance(axes, str) or (axes and not axes.isalpha()):
        raise LayoutError(f"axes are letters, such as 'NCHW'; found {axes!r}")
    if len(axes) != ndim:
        raise LayoutError(f"axes {axes!r} name {len(axes)} dimensions; the shape has {ndim}")
    if len(set(axes)) != len(axes):
        raise LayoutError(f"axes {axes!r} name one letter twice; each axis needs its own")
    return axes
