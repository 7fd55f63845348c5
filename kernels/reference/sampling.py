"""grid_sample: elements at the places of a grid. Modes and paddings are those of ONNX GridSample 20."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..factory import Whole, register
from ..moving.sampling import GridSample

Array = NDArray[Any]
A = np.float32(-0.75)  # the cubic kernel's coefficient
_ZERO, _HALF, _ONE, _TWO = (np.float32(v) for v in (0, 0.5, 1, 2))


def position(g: Array, n: int, align: bool) -> Array:
    """Where -1 .. 1 lies in an axis of n elements, in float32; NaN is -1.

    align  (g + 1) / 2 * (n - 1)            else  ((g + 1) * n - 1) / 2
    """
    g = np.where(np.isnan(g), -_ONE, g) + _ONE
    return g / _TWO * np.float32(n - 1) if align else (g * np.float32(n) - _ONE) / _TWO


def reflected(p: Array, n: int, align: bool) -> Array:
    """A position mirrored at the middles (align) or the outer edges of the first and the last element, until inside.

    a = |p - low|;  k = floor(a / span);  e = a - k * span;  out = e + low where k is even, else span - e + low
    """
    low, span = (_ZERO, np.float32(n - 1)) if align else (-_HALF, np.float32(n))
    if span == 0:
        return np.zeros_like(p)
    a = np.abs(p - low)
    k = np.floor(a / span)
    e = a - k * span
    even = k - _TWO * np.floor(k * _HALF) == 0
    return np.where(even, e, span - e) + low


def inside(p: Array, low: float, high: float) -> Array:
    """A position moved between two others; NaN, which infinite ones reflect to, to the lower."""
    p = np.where(p > np.float32(low), p, np.float32(low))
    return np.where(p < np.float32(high), p, np.float32(high))


def weights(f: Array, mode: str) -> list[Array]:
    """Of the elements around a place that is a fraction f behind one of them."""
    if mode == "nearest":
        return [np.ones_like(f)]
    if mode == "linear":
        return [_ONE - f, f]
    near = _ONE - f
    return [_outer(f + _ONE), _inner(f), _inner(near), _outer(near + _ONE)]


def _inner(d: Array) -> Array:
    return ((A + _TWO) * d - (A + np.float32(3))) * d * d + _ONE


def _outer(d: Array) -> Array:
    return ((A * d - np.float32(5) * A) * d + np.float32(8) * A) * d - np.float32(4) * A


def taps(g: Array, n: int, kernel: GridSample) -> tuple[list[Array], list[Array], list[Array]]:
    """Along one axis: the elements around each place (inside), whether they exist, and their weights."""
    with np.errstate(all="ignore"):
        p = position(g, n, kernel.align)
        if kernel.mode == "cubic":
            p = inside(p, -(2.0**22), 2.0**22)  # whole numbers from there on
        elif kernel.padding == "reflection":
            p = inside(reflected(p, n, kernel.align), 0, n - 1)
        elif kernel.padding == "border":
            p = inside(p, 0, n - 1)
        else:
            p = inside(p, -4, n + 3)
        low = np.rint(p) if kernel.mode == "nearest" else np.floor(p)
        found = weights(p - low, kernel.mode)
    first = low.astype(np.int64) - (kernel.mode == "cubic")
    places, exist = [], []
    for t in range(len(found)):
        at = first + t
        known = (at >= 0) & (at < n)
        if kernel.padding == "reflection":
            at = _mirrored(at, n, kernel.align)
        places.append(np.clip(at, 0, n - 1))
        exist.append(known | (kernel.padding != "zeros"))
    return places, exist, found


def _mirrored(at: Array, n: int, align: bool) -> Array:
    if align:
        period = max(2 * (n - 1), 1)
        at = np.abs(at) % period
        return np.minimum(at, period - at)
    at = np.where(at < 0, -at - 1, at) % (2 * n)
    return np.where(at < n, at, 2 * n - 1 - at)


def grid_sample(x: Array, grid: Array, kernel: GridSample) -> Array:
    """x float32 (N, C, ..) at the places of grid float32 (N, .., axes of x); an element outside is 0.

    Along the last axis: the sum of weight * element, in ascending order, each product rounded; those sums are weighed
    along the axis before, and so on. nearest takes the element as it is; ties are rounded to even.
    """
    axes = kernel.spatial
    along = [taps(grid[..., axes - 1 - d], x.shape[2 + d], kernel) for d in range(axes)]
    rows = np.arange(x.shape[0]).reshape((-1, *(1,) * axes))

    def element(picked: tuple[int, ...]) -> Array:
        at = (rows, *(along[d][0][t] for d, t in enumerate(picked)))
        there = np.logical_and.reduce([along[d][1][t] for d, t in enumerate(picked)])
        found = np.moveaxis(x, 1, -1)[at]
        return np.where(there[..., None], found, _ZERO)

    def blended(d: int, picked: tuple[int, ...]) -> Array:
        if d == axes:
            return element(picked)
        total = None
        for t, w in enumerate(along[d][2]):
            part = w[..., None] * blended(d + 1, (*picked, t))
            total = part if total is None else total + part
        assert total is not None
        return total

    with np.errstate(all="ignore"):
        found = element((0,) * axes) if kernel.mode == "nearest" else blended(0, ())
    return np.moveaxis(found, -1, 1)


@register("grid_sample", backend="reference")
def grid_sample_step(kernel: GridSample) -> Whole:
    def fn(x: Any, grid: Any, y: Any, scratch: Any) -> None:
        if y.size:
            y[...] = grid_sample(x, grid, kernel)

    return Whole(fn)
