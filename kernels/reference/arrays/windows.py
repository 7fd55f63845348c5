"""Windows of images, put back: Col2Im, MaxUnpool, and the places of the largest of MaxPool (ONNX)."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from ...arrays import array_function

Array = np.ndarray[Any, Any]


def _image_shape(x: tuple[Any, ...], image: tuple[int, ...], block: tuple[int, ...], **_: Any) -> Any:
    return [(x[0], x[1] // math.prod(block), *image)]


@array_function(_image_shape)
def columns_to_image(
    x: Array,
    image: tuple[int, ...],
    block: tuple[int, ...],
    strides: tuple[int, ...],
    pads: tuple[int, ...],
    dilations: tuple[int, ...],
) -> Array:
    """The sum of blocks x (N, C * block, blocks) put where they were cut from an image (N, C, image..)."""
    rank = len(image)
    padded = [n + pads[d] + pads[d + rank] for d, n in enumerate(image)]
    counts = [(n - dilations[d] * (block[d] - 1) - 1) // strides[d] + 1 for d, n in enumerate(padded)]
    if x.shape[2] != math.prod(counts):
        raise ValueError(f"{x.shape[2]} blocks; images of {image} have {math.prod(counts)}")
    parts = x.reshape(x.shape[0], -1, *block, *counts)
    found = np.zeros((*parts.shape[:2], *padded), x.dtype)
    for tap in itertools.product(*(range(b) for b in block)):
        to = tuple(
            slice(t * dilations[d], t * dilations[d] + strides[d] * (counts[d] - 1) + 1, strides[d])
            for d, t in enumerate(tap)
        )
        into: Any = (slice(None), slice(None), *to)
        taken: Any = (slice(None), slice(None), *tap)
        found[into] += parts[taken]
    inside: Any = (slice(None), slice(None), *(slice(pads[d], pads[d] + n) for d, n in enumerate(image)))
    return found[inside]


@array_function(lambda x, indices, *, inner, shape: [shape])
def unpooled(x: Array, indices: Array, inner: tuple[int, ...], shape: tuple[int, ...]) -> Array:
    """x at `indices` of a flat tensor of the shape `inner`, zero elsewhere, in the corner of one of `shape`."""
    flat = np.zeros(math.prod(inner), x.dtype)
    if indices.size and not 0 <= indices.min() <= indices.max() < flat.size:
        raise ValueError(f"an index is outside of {flat.size} places")
    flat[indices.reshape(-1)] = x.reshape(-1)
    found = np.zeros(shape, x.dtype)
    both = tuple(slice(0, min(a, b)) for a, b in zip(inner, shape, strict=True))
    found[both] = flat.reshape(inner)[both]
    return found


@array_function(lambda x, *, out, **_: [(x[0], x[1], *out)])
def largest_places(
    x: Array,
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    pads: tuple[int, ...],
    dilations: tuple[int, ...],
    out: tuple[int, ...],
    columns_first: int,
) -> Array:
    """Where in the flat x the largest element of each window is, the first of equal ones.

    out            windows along each axis
    columns_first  the image's places counted along its first axis first (ONNX storage_order 1)
    """
    rank = len(kernel)
    best = np.full((*x.shape[:2], *out), -np.inf)
    found = np.zeros((*x.shape[:2], *out), np.int64)
    order = range(rank) if columns_first else range(rank - 1, -1, -1)
    for tap in itertools.product(*(range(k) for k in kernel)):
        at = [np.arange(n) * strides[d] - pads[d] + tap[d] * dilations[d] for d, n in enumerate(out)]
        inside: Any = True
        place: Any = 0
        factor = 1
        for d in order:
            lined = at[d].reshape([-1 if e == d else 1 for e in range(rank)])
            inside = inside & (lined >= 0) & (lined < x.shape[2 + d])
            place = place + lined * factor
            factor *= x.shape[2 + d]
        near: Any = (slice(None), slice(None), *np.ix_(*(a.clip(0, x.shape[2 + d] - 1) for d, a in enumerate(at))))
        picked = x[near]
        better = (picked > best) & inside
        best, found = np.where(better, picked, best), np.where(better, place, found)
    size = math.prod(x.shape[2:])
    images = np.arange(x.shape[0] * x.shape[1]).reshape(*x.shape[:2], *(1,) * rank)
    return found + images * size
