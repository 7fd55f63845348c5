"""Reading images between their pixels: GridSample and DeformConv of ONNX."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from ...arrays import array_function

Array = np.ndarray[Any, Any]
ALPHA = -0.75  # of the cubic; Keys, Cubic convolution interpolation, 1981


@array_function(lambda x, grid, **_: [(x[0], x[1], *grid[1:-1])])
def grid_sample(x: Array, grid: Array, mode: str, padding: str, align: int) -> Array:
    """x (N, C, D..) read at the places of grid (N, out.., rank), -1 to 1 along each axis, the last axis of x first.

    mode     "nearest" (ties to even), "linear" or "cubic"
    padding  what lies outside: "zeros", "border" (the nearest pixel) or "reflection"
    align    whether -1 and 1 are the centres of the outermost pixels, not their outer edges
    """
    sizes = x.shape[2:]
    places, edges = [], []
    for axis, n in enumerate(sizes):
        at = grid[..., len(sizes) - 1 - axis].astype(np.float32)
        at = (at + 1) / 2 * (n - 1) if align else ((at + 1) * n - 1) / 2
        edges.append((0.0, n - 1.0) if align else (-0.5, n - 0.5))
        at = np.rint(at) if mode == "nearest" else at
        outside = (at < edges[-1][0]) | (at > edges[-1][1])
        if padding == "border":
            at = np.where(outside, np.clip(at, 0, n - 1), at)
        elif padding == "reflection":
            at = np.where(outside, _reflected(at, *edges[-1]), at)
        places.append(at)
    return np.stack([_image(image, [p[b] for p in places], mode, padding, edges) for b, image in enumerate(x)]).astype(
        x.dtype
    ) if len(x) else np.zeros((0, x.shape[1], *grid.shape[1:-1]), x.dtype)  # fmt: skip


def _reflected(at: Array, lo: float, hi: float) -> Array:
    """Places outside [lo, hi] thrown back at its ends until they lie within."""
    width = hi - lo
    if width <= 0:
        return np.full_like(at, lo)
    below = at < lo
    far = np.where(below, lo - at, at - hi)
    turns, rest = np.trunc(far / width), np.fmod(far, width)
    even = turns % 2 == 0
    return np.where(below == even, lo + rest, hi - rest)


def _image(image: Array, places: list[Array], mode: str, padding: str, edges: list[tuple[float, float]]) -> Array:
    """One image (C, D..) read at places, an array of coordinates for each axis."""
    if mode == "nearest":
        return _pixels(image, [p.astype(np.int64) for p in places], padding, edges)
    reach = range(2) if mode == "linear" else range(-1, 3)
    floors = [np.floor(p).astype(np.int64) for p in places]
    weights = [(_linear if mode == "linear" else _cubic)(p - f) for p, f in zip(places, floors, strict=True)]
    total = np.zeros((image.shape[0], *places[0].shape), np.float64)
    for corner in itertools.product(range(len(reach)), repeat=len(places)):
        weight = math.prod(w[c] for w, c in zip(weights, corner, strict=True))
        total += weight * _pixels(image, [f + reach[c] for f, c in zip(floors, corner, strict=True)], padding, edges)
    return total


def _linear(t: Array) -> list[Array]:
    return [1 - t, t]


def _cubic(t: Array) -> list[Array]:
    def far(d: Array) -> Array:
        return ((ALPHA * d - 5 * ALPHA) * d + 8 * ALPHA) * d - 4 * ALPHA

    def near(d: Array) -> Array:
        return ((ALPHA + 2) * d - (ALPHA + 3)) * d * d + 1

    return [far(t + 1), near(t), near(1 - t), far(2 - t)]


def _pixels(image: Array, at: list[Array], padding: str, edges: list[tuple[float, float]]) -> Array:
    """Pixels (C, places..) at whole coordinates, with what `padding` says outside."""
    inside: Any = True
    found = []
    for p, n, edge in zip(at, image.shape[1:], edges, strict=True):
        within = (p >= 0) & (p < n)
        inside = inside & within
        if padding == "reflection":
            p = np.where(within, p, np.trunc(_reflected_outside(p, *edge))).astype(np.int64)
        found.append(np.clip(p, 0, n - 1))
    places: Any = (slice(None), *found)
    pixels = image[places]
    return pixels * inside if padding == "zeros" else pixels


def _reflected_outside(p: Array, lo: float, hi: float) -> Array:
    return np.where((p < lo) | (p > hi), _reflected(p.astype(np.float64), lo, hi), p)


@array_function(lambda x, w, offset, *more, **_: [(x[0], w[0], *offset[2:])])
def deform_conv(
    x: Array,
    w: Array,
    offset: Array,
    bias: Array | None = None,
    mask: Array | None = None,
    *,
    strides: tuple[int, ...],
    pads: tuple[int, ...],
    dilations: tuple[int, ...],
    groups: int,
    offset_groups: int,
) -> Array:
    """A convolution whose taps are moved by `offset` (N, offset_groups * taps * 2, OH, OW) and weighted by `mask`."""
    n, channels = x.shape[:2]
    height, width = offset.shape[2:]
    kh, kw = w.shape[2:]
    moved = offset.reshape(n, offset_groups, kh, kw, 2, height, width).astype(np.float64)
    weight = np.ones((n, offset_groups, kh, kw, height, width)) if mask is None or not mask.size else mask.reshape(
        n, offset_groups, kh, kw, height, width
    )  # fmt: skip
    rows = np.arange(height)[:, None] * strides[0] - pads[0]
    columns = np.arange(width)[None, :] * strides[1] - pads[1]
    sampled = np.zeros((n, channels, kh, kw, height, width))
    each = channels // offset_groups
    edges = [(-0.5, x.shape[2] - 0.5), (-0.5, x.shape[3] - 0.5)]
    for b, g, i, j in itertools.product(range(n), range(offset_groups), range(kh), range(kw)):
        at = [rows + i * dilations[0] + moved[b, g, i, j, 0], columns + j * dilations[1] + moved[b, g, i, j, 1]]
        own = slice(g * each, (g + 1) * each)
        sampled[b, own, i, j] = _image(x[b, own], at, "linear", "zeros", edges) * weight[b, g, i, j]
    sampled = sampled.reshape(n, groups, channels // groups, kh, kw, height, width)
    kernels = w.reshape(groups, w.shape[0] // groups, channels // groups, kh, kw).astype(np.float64)
    found: Array = np.einsum("ngcijhw,gocij->ngohw", sampled, kernels).reshape(n, w.shape[0], height, width)
    if bias is not None:
        found = found + bias.reshape(1, -1, 1, 1)
    return found.astype(x.dtype)
