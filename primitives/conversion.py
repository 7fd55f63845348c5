"""From one layout to another: what it costs, and what it means.

`convert` is the reference meaning of every packing in the library: a packed panel is the array that it returns.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from .dtypes import DTypeLike, get
from .errors import LayoutError, ShapeMismatch
from .layout import LayoutSpec

Kind = Literal["none", "view", "copy", "permute", "pack", "unpack", "repack"]


@dataclass(frozen=True)
class Conversion:
    """How to get from src to dst, and its cost in bytes.

    kind           "none": the same; "view": the same memory under other axes; "copy": the same order, other gaps or
                   padding; "permute": another order of axes; "pack": into blocks; "unpack": out of blocks;
                   "repack": into other blocks
    bytes_read     of valid elements; what a broadcast repeats counts once
    bytes_written  of the whole destination, padding included; 0 for "none" and "view"
    permutation    for each axis of dst, the number of the axis of src that it is
    """

    src: LayoutSpec
    dst: LayoutSpec
    kind: Kind
    permutation: tuple[int, ...]
    bytes_read: int
    bytes_written: int

    @property
    def cost(self) -> int:
        """Bytes moved: read and written."""
        return self.bytes_read + self.bytes_written

    def __str__(self) -> str:
        return f"{self.kind}: {self.bytes_read} bytes read, {self.bytes_written} written"


def conversion(src: LayoutSpec, dst: LayoutSpec, dtype: DTypeLike) -> Conversion:
    """Plan the way from one layout to another. Axes are matched by letter where both have letters, else by number.

    Raises LayoutError or ShapeMismatch if the two do not describe the same elements, and LayoutError for a
    destination whose elements overlap.
    """
    dtype = get(dtype)
    permutation = _match(src, dst)
    kind = _kind(src, dst, permutation)
    if kind in ("none", "view"):
        return Conversion(src, dst, kind, permutation, 0, 0)
    if dst.has_internal_overlap():
        raise LayoutError(f"{dst!r} has elements that share memory, so nothing can be written to it")
    rows = src.shape[-1] if src.ndim else 1
    valid = (src.size // rows) * dtype.row_nbytes(rows) if rows else 0
    read = min(valid, src.nbytes(dtype))
    return Conversion(src, dst, kind, permutation, read, dst.nbytes(dtype))


def convert(array: NDArray[Any], src: LayoutSpec, dst: LayoutSpec, fill: Any = 0) -> NDArray[Any]:
    """Move an array from one layout to another, in NumPy.

    array   stored as src says: `src.stored_shape`, or only its valid part. Packed types come as codes, one each
    fill    what padding gets: the rest of blocks, and capacity beyond the valid size

    Returns a new array of `dst.stored_shape` whose strides are those of dst.
    """
    permutation = _match(src, dst)
    return from_logical(to_logical(array, src).transpose(permutation), dst, fill)


def to_logical(array: NDArray[Any], layout: LayoutSpec) -> NDArray[Any]:
    """Return the valid elements of a stored array in the shape of the axes. A view where the layout has no blocks."""
    if array.shape not in (layout.stored_shape, layout.valid_stored_shape):
        expected = " or ".join(str(s) for s in dict.fromkeys((layout.stored_shape, layout.valid_stored_shape)))
        raise ShapeMismatch(f"{layout!r} is stored as {expected}; found an array of shape {array.shape}")
    if layout.blocks:
        order: list[int] = []
        for i in range(layout.ndim):
            order.append(i)
            order += [layout.ndim + j for j, (axis, _) in enumerate(layout.blocks) if layout.axis(axis) == i]
        sizes = [n * b for n, b in zip(array.shape, layout.block_sizes, strict=False)]
        array = array.transpose(order).reshape(sizes)
    index: Any = (*(slice(n) for n in layout.shape), ...)  # without the ..., a scalar would leave its array
    found: NDArray[Any] = array[index]
    return found


def from_logical(array: NDArray[Any], layout: LayoutSpec, fill: Any = 0) -> NDArray[Any]:
    """Return a new stored array that holds elements given in the shape of the axes; the rest is `fill`."""
    if array.shape != layout.shape:
        raise ShapeMismatch(f"{layout!r} holds shape {layout.shape}; found an array of shape {array.shape}")
    if layout.has_internal_overlap():
        raise LayoutError(f"{layout!r} has elements that share memory, so nothing can be written to it")
    whole = layout.stored_shape
    padded = np.full([n * b for n, b in zip(whole, layout.block_sizes, strict=False)], fill, array.dtype)
    padded[tuple(slice(n) for n in array.shape)] = array
    if layout.blocks:
        # (n/32, 32, k/4, 4) in the order of the axes, then each dimension to the place where it is stored.
        split: list[int] = []
        source: dict[int, int] = {}
        for i in range(layout.ndim):
            source[i] = len(split)
            split.append(whole[i])
            for j, (axis, block) in enumerate(layout.blocks):
                if layout.axis(axis) == i:
                    source[layout.ndim + j] = len(split)
                    split.append(block)
        padded = padded.reshape(split).transpose([source[d] for d in range(layout.stored_ndim)])
    return _placed(padded, layout, fill)


def _placed(stored: NDArray[Any], layout: LayoutSpec, fill: Any) -> NDArray[Any]:
    if layout.is_dense:
        return np.ascontiguousarray(stored).reshape(stored.shape)  # ascontiguousarray makes a scalar 1-D
    steps = [(n - 1) * s for n, s in zip(stored.shape, layout.strides, strict=True)]
    first = -sum(s for s in steps if s < 0)
    memory = np.full(1 + sum(abs(s) for s in steps) if stored.size else 0, fill, stored.dtype)
    strides = tuple(s * stored.itemsize for s in layout.strides)
    if not stored.size:
        return np.empty(stored.shape, stored.dtype)
    out: NDArray[Any] = np.ndarray(
        stored.shape, stored.dtype, buffer=memory, offset=first * stored.itemsize, strides=strides
    )
    out[...] = stored
    return out


def _match(src: LayoutSpec, dst: LayoutSpec) -> tuple[int, ...]:
    if src.axes is not None and dst.axes is not None:
        if sorted(src.axes) != sorted(dst.axes):
            raise LayoutError(f"axes {src.axes!r} and {dst.axes!r} are not the same ones; name them alike")
        permutation = tuple(src.axis(letter) for letter in dst.axes)
    else:
        permutation = tuple(range(src.ndim))
    if src.ndim != dst.ndim or tuple(src.shape[i] for i in permutation) != dst.shape:
        raise ShapeMismatch(
            f"{src!r} and {dst!r} do not have the same elements; "
            f"in the order of the second, the first has {tuple(src.shape[i] for i in permutation)}"
        )
    return permutation


def _kind(src: LayoutSpec, dst: LayoutSpec, permutation: tuple[int, ...]) -> Kind:
    here = _places(src, permutation)
    there = _places(dst, tuple(range(dst.ndim)))
    room = tuple(src.capacity[i] for i in permutation)
    if here == there and dst.capacity in (dst.shape, room):
        same = permutation == tuple(range(src.ndim)) and src.stored_shape == dst.stored_shape
        return "none" if same else "view"
    if dst.blocks and src.blocks:
        return "repack"
    if dst.blocks or src.blocks:
        return "pack" if dst.blocks else "unpack"
    repeated = {axis for axis, _, stride in here if stride == 0}
    return "copy" if _memory_order(here, repeated) == _memory_order(there, repeated) else "permute"


def _places(layout: LayoutSpec, permutation: tuple[int, ...]) -> list[tuple[int, int, int]]:
    """(axis, elements, stride) of every stored dimension of more than one element, blocks with their order."""
    sizes = layout.valid_stored_shape
    place = {old: new for new, old in enumerate(permutation)}
    outer = [(place[i], sizes[i], layout.strides[i]) for i in permutation]
    inner = [
        (place[layout.axis(axis)], block, layout.strides[layout.ndim + j])
        for j, (axis, block) in enumerate(layout.blocks)
    ]
    return [p for p in [*outer, *sorted(inner, key=lambda p: (p[0], -p[2]))] if p[1] != 1]


def _memory_order(places: list[tuple[int, int, int]], repeated: set[int]) -> list[int]:
    return [axis for axis, _, _ in sorted(places, key=lambda p: -abs(p[2])) if axis not in repeated]
