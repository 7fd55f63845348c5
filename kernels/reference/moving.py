"""Data movement: what each step means. Shapes, ties and clamping are those of the ONNX operators of the same names."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def copy(x: Array, y: Array) -> None:
    """y[...] = x[...]; x may be broadcast."""
    y[...] = x


def _wrapped(indices: Array, n: int) -> Array:
    """Indices with negative ones counted from the end; ValueError outside."""
    found = np.where(indices < 0, indices + n, indices)
    if found.size and (found.min() < 0 or found.max() >= n):
        raise ValueError(f"an index is outside an axis of {n} elements")
    return found


def gather(x: Array, indices: Array, axis: int) -> Array:
    """x[.., indices, ..] along an axis (ONNX Gather)."""
    return np.take(x, _wrapped(indices, x.shape[axis]), axis)


def gather_elements(x: Array, indices: Array, axis: int) -> Array:
    """y[i, j, ..] = x[.., indices[i, j, ..], ..] (ONNX GatherElements)."""
    inside = tuple(slice(None) if d == axis else slice(0, n) for d, n in enumerate(indices.shape))
    return np.take_along_axis(x[inside], _wrapped(indices, x.shape[axis]), axis)


def gather_nd(x: Array, indices: Array, batch: int) -> Array:
    """y[b.., i..] = x[b.., indices[b.., i.., 0], indices[b.., i.., 1], ..] (ONNX GatherND)."""
    depth = indices.shape[-1]
    places = [_wrapped(indices[..., t], x.shape[batch + t]) for t in range(depth)]
    mid = indices.ndim - 1 - batch
    lead = [np.arange(n).reshape((1,) * d + (n,) + (1,) * (batch - 1 - d + mid)) for d, n in enumerate(x.shape[:batch])]
    at = (*lead, *places)
    return x[at]


COMBINE = {"none": None, "add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def scatter_elements(x: Array, indices: Array, updates: Array, axis: int, reduction: str) -> Array:
    """y = x with y[.., indices[i, j, ..], ..] replaced by or combined with updates[i, j, ..] (ONNX ScatterElements)."""
    y = x.copy()
    found = _wrapped(indices, x.shape[axis])
    for place in np.ndindex(indices.shape):
        at = tuple(found[place] if d == axis else p for d, p in enumerate(place))
        _combine(y, at, updates[place], reduction)
    return y


def scatter_nd(x: Array, indices: Array, updates: Array, reduction: str) -> Array:
    """y = x with y[indices[i.., 0], indices[i.., 1], ..] replaced by or combined with updates[i..] (ONNX ScatterND)."""
    y = x.copy()
    for place in np.ndindex(indices.shape[:-1]):
        at = tuple(int(_wrapped(np.asarray(i), n)) for i, n in zip(indices[place], x.shape, strict=False))
        _combine(y, at, updates[place], reduction)
    return y


def _combine(y: Array, at: tuple[Any, ...], new: Any, reduction: str) -> None:
    combine = COMBINE[reduction]
    with np.errstate(all="ignore"):
        y[at] = new if combine is None else combine(y[at], new).astype(y.dtype)


def cumsum(x: Array, axis: int, exclusive: bool, reverse: bool) -> Array:
    """Sums of the first 1, 2, .. elements along an axis (ONNX CumSum), in x's type, one addition after another."""
    moved = np.moveaxis(x, axis, 0)
    if reverse:
        moved = moved[::-1]
    y = np.empty_like(moved)
    total = np.zeros(moved.shape[1:], x.dtype)
    with np.errstate(all="ignore"):
        for n, row in enumerate(moved):
            if exclusive:
                y[n] = total
                total = total + row
            else:
                total = total + row
                y[n] = total
    return np.moveaxis(y[::-1] if reverse else y, 0, axis)


def topk(x: Array, k: int, axis: int, largest: bool) -> tuple[Array, Array]:
    """The k largest or smallest along an axis, best first, equal ones by index; NaN is the largest (ONNX TopK)."""
    order = np.argsort(x, axis, kind="stable")  # NaN last
    if largest:
        flipped = np.flip(x, axis)
        order = x.shape[axis] - 1 - np.flip(np.argsort(flipped, axis, kind="stable"), axis)
    order = np.take(order, np.arange(k), axis)
    return np.take_along_axis(x, order, axis), order.astype(np.int64)


def one_hot(indices: Array, values: Array, axis: int, depth: int) -> Array:
    """values[1] where the index is the place along a new axis, or depth below it; else values[0] (ONNX OneHot)."""
    places = np.arange(depth).reshape((depth,) + (1,) * (indices.ndim - axis))
    spread = np.expand_dims(indices, axis)
    return np.where((spread == places) | (spread + depth == places), values[1], values[0])


def trilu(x: Array, k: int, upper: bool) -> Array:
    """A triangle of the last two axes; zero elsewhere (ONNX Trilu)."""
    rows, columns = (np.arange(n) for n in x.shape[-2:])
    place = columns[None, :] - rows[:, None]
    return np.where(place >= k if upper else place <= k, x, np.zeros((), x.dtype))


def arange(start: Array, step: Array, count: int) -> Array:
    """start + i * step for i = 0 .. count - 1 (ONNX Range), in their type."""
    with np.errstate(all="ignore"):
        return start + np.arange(count).astype(start.dtype) * step


def resize(x: Array, axis: int, size: int, kernel: Any) -> Array:
    """x resampled along one axis to a size; `kernel` has the rules (kernels/moving/resize.py; ONNX Resize)."""
    from ..moving.resize import COORDINATES, ROUNDINGS
    from ..resampling import floor, nearest, position, support, weight

    position, nearest, floor, support, weight = (
        getattr(f, "py_func", f) for f in (position, nearest, floor, support, weight)
    )
    n = x.shape[axis]
    moved = np.moveaxis(x, axis, 0)
    y = np.zeros((size, *moved.shape[1:]), x.dtype)
    scale = kernel.scale or size / n
    cubic = kernel.mode == "cubic"
    stretch = max(1.0, 1.0 / scale) if kernel.antialias else 1.0
    for i in range(size):
        at = position(i, COORDINATES.index(kernel.coordinates), scale, n, size, kernel.start, kernel.end)
        if kernel.coordinates == "tf_crop_and_resize" and not 0.0 <= at <= n - 1.0:
            y[i] = kernel.outside
            continue
        if kernel.mode == "nearest":
            y[i] = moved[nearest(at, ROUNDINGS.index(kernel.rounding), n)]
            continue
        reach = support(cubic, stretch)
        around = range(floor(at - reach) + 1, floor(at + reach) + 1)
        taps = [z for z in around if not kernel.exclude or 0 <= z < n]
        total = 1.0
        if kernel.exclude or stretch != 1.0:
            total = 0.0
            for z in taps:
                total += weight((z - at) / stretch, cubic, kernel.cubic_a)
        for z in taps:
            w = x.dtype.type(weight((z - at) / stretch, cubic, kernel.cubic_a) / total)
            with np.errstate(all="ignore"):
                y[i] += w * moved[min(max(z, 0), n - 1)]
    return np.moveaxis(y, 0, axis)
