"""Where a resized element lies, and which elements with which weights it is made of: scalar, for every backend.

Source: the text of ONNX Resize, operator set 19. All of it is float64 arithmetic without contraction.
"""

from __future__ import annotations

from numba import njit

HALF_PIXEL, SYMMETRIC, PYTORCH, ALIGN_CORNERS, ASYMMETRIC, CROP, HALF_PIXEL_NN = range(7)
PREFER_FLOOR, PREFER_CEIL, FLOOR, CEIL = range(4)

_fixed = njit(nogil=True, error_model="numpy")


@_fixed
def floor(x):
    n = int(x)
    return n - 1 if n > x else n


@_fixed
def position(i, rule, scale, before, after, start, end):
    """The place in an axis of `before` elements of element i of one of `after`."""
    if rule == HALF_PIXEL:
        return (i + 0.5) / scale - 0.5
    if rule == SYMMETRIC:
        adjustment = after / (scale * before)
        return before / 2.0 * (1.0 - adjustment) + (i + 0.5) / scale - 0.5
    if rule == PYTORCH:
        return (i + 0.5) / scale - 0.5 if after > 1 else 0.0
    if rule == ALIGN_CORNERS:
        width = scale * before  # what the scale says, of which `after` is the whole part
        if abs(width - after) < 1e-6:
            width = after * 1.0
        return 0.0 if width == 1.0 else i * (before - 1.0) / (width - 1.0)
    if rule == ASYMMETRIC:
        return i / scale
    if rule == CROP:
        if after > 1:
            return start * (before - 1.0) + i * (end - start) * (before - 1.0) / (after - 1.0)
        return 0.5 * (start + end) * (before - 1.0)
    return (i + 0.5) / scale


@_fixed
def nearest(x, rounding, n):
    """The element at a place, by a rounding rule; inside an axis of n."""
    low = floor(x)
    if rounding == FLOOR:
        at = low
    elif rounding == CEIL:
        at = low if low == x else low + 1
    else:
        rest = x - low
        up = rest > 0.5 or (rest == 0.5 and rounding == PREFER_CEIL)
        at = low + 1 if up else low
    return min(max(at, 0), n - 1)


@_fixed
def linear_weight(x):
    x = abs(x)
    return 1.0 - x if x < 1.0 else 0.0


@_fixed
def cubic_weight(x, a):
    x = abs(x)
    if x <= 1.0:
        return ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
    if x < 2.0:
        return ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a
    return 0.0


@_fixed
def weight(distance, cubic, a):
    return cubic_weight(distance, a) if cubic else linear_weight(distance)


@_fixed
def support(cubic, stretch):
    """Elements on each side of a place that may have a weight."""
    return (2.0 if cubic else 1.0) * stretch
