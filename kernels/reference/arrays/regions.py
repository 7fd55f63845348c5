"""Pooling of regions of an image: RoiAlign and MaxRoiPool of ONNX."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays import array_function

Array = np.ndarray[Any, Any]


@array_function(lambda x, rois, batch, *, height, width, **_: [(rois[0], x[1], height, width)])
def roi_align(
    x: Array, rois: Array, batch: Array, height: int, width: int, ratio: int, scale: float, mode: str, half: int
) -> Array:
    """Regions rois (R, 4: x1, y1, x2, y2) of images x[batch], each sampled to (height, width).

    ratio  samples along each side of a bin; 0: as many as the bin has pixels, rounded up
    mode   "avg", or "max": the largest weighted corner of any sample
    half   whether pixels have their centres at halves
    """
    found = np.zeros((len(rois), x.shape[1], height, width), np.float64)
    for r, (roi, b) in enumerate(zip(rois.astype(np.float64), batch, strict=True)):
        x1, y1, x2, y2 = roi * scale - (0.5 if half else 0.0)
        w, h = (x2 - x1, y2 - y1) if half else (max(x2 - x1, 1.0), max(y2 - y1, 1.0))
        counts = [ratio if ratio > 0 else int(np.ceil(n / bins)) for n, bins in ((h, height), (w, width))]
        ys, xs = (
            (start + (np.arange(bins)[:, None] + (np.arange(count) + 0.5) / max(count, 1)) * (n / bins)).reshape(-1)
            for start, bins, count, n in ((y1, height, counts[0], h), (x1, width, counts[1], w))
        )
        corners = _corners(x[int(b)].astype(np.float64), ys, xs)
        parts = corners.reshape(4, x.shape[1], height, counts[0], width, counts[1])
        if mode == "avg":
            found[r] = parts.sum(axis=(0, 3, 5)) / max(counts[0] * counts[1], 1)
        elif counts[0] * counts[1]:
            found[r] = parts.max(axis=(0, 3, 5))
    return found.astype(x.dtype)


def _corners(image: Array, ys: Array, xs: Array) -> Array:
    """(4, C, len(ys), len(xs)): each sample's four pixels by their bilinear weights; 0 outside of the image."""
    sides = []
    for at, n in ((ys, image.shape[1]), (xs, image.shape[2])):
        inside = (at >= -1.0) & (at <= n)
        at = np.maximum(at, 0)
        low = np.minimum(at.astype(np.int64), n - 1)
        last = low >= n - 1
        high = np.where(last, n - 1, low + 1)
        rest = np.where(last, 0.0, at - low)
        sides.append(((low, (1 - rest) * inside), (high, rest * inside)))
    return np.stack([image[:, y][:, :, x] * wy[:, None] * wx[None, :] for y, wy in sides[0] for x, wx in sides[1]])


@array_function(lambda x, rois, *, height, width, **_: [(rois[0], x[1], height, width)])
def roi_max_pool(x: Array, rois: Array, height: int, width: int, scale: float) -> Array:
    """Regions rois (R, 5: image, x1, y1, x2, y2), ends included, each pooled to (height, width) by its largest pixel."""
    found = np.zeros((len(rois), x.shape[1], height, width), x.dtype)
    for r, roi in enumerate(rois):
        image = x[int(roi[0])]
        x1, y1, x2, y2 = (int(n) for n in np.floor(roi[1:].astype(np.float64) * scale + 0.5))
        h, w = max(y2 - y1 + 1, 1), max(x2 - x1 + 1, 1)
        for i in range(height):
            for j in range(width):
                top, left = (int(np.floor(k * n / m)) for k, n, m in ((i, h, height), (j, w, width)))
                bottom, right = (int(np.ceil((k + 1) * n / m)) for k, n, m in ((i, h, height), (j, w, width)))
                rows = slice(min(max(top + y1, 0), x.shape[2]), min(max(bottom + y1, 0), x.shape[2]))
                columns = slice(min(max(left + x1, 0), x.shape[3]), min(max(right + x1, 0), x.shape[3]))
                part = image[:, rows, columns]
                if part.size:
                    found[r, :, i, j] = part.max(axis=(1, 2))
    return found
