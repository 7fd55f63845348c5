"""Resize along one axis on the CPU. kernels/reference/moving.py says what it computes."""

from __future__ import annotations

import numpy as np
from numba import njit

from ...factory import register
from ...forge import Native, jit_disabled
from ...indexing import AXES
from ...moving.resize import COORDINATES, ROUNDINGS, Resize
from ...resampling import floor, position, support, weight
from ..local_arrays import local_f32, local_i32
from .gather import loops, ranges, tile_text

BLOCK = 128  # elements of a row whose weights are kept
TAPS = 4 * BLOCK


@register("resize", backend="cpu")
def build(kernel: Resize) -> Native:
    """Loops over the axes before and after the resized one; along the last axis when it is another, whole rows."""
    if _in_rows(kernel):
        return _build_rows(kernel)
    names = AXES[: kernel.rank]
    axis = kernel.axis
    place = names[axis]
    scale = f"{kernel.scale!r}" if kernel.scale else f"y.shape[{axis}] / x.shape[{axis}]"
    lines = [f"scale = {scale}", f"before = x.shape[{axis}]", f"after = y.shape[{axis}]"]
    lines += loops(names[:axis])
    repeats = _repeats(kernel)
    if repeats:
        lines += _repeated(names, repeats)
    pad = "    " * axis
    lines.append(f"{pad}for {place} in range({place}0, {place}1):")
    pad += "    "
    rule = COORDINATES.index(kernel.coordinates)
    lines.append(f"{pad}at = position({place}, {rule}, scale, before, after, {kernel.start!r}, {kernel.end!r})")
    after = names[axis + 1 :]

    def cut(middle: str) -> str:
        return ", ".join([*names[:axis], middle, *(f"{n}0:{n}1" for n in after)])

    if kernel.coordinates == "tf_crop_and_resize":
        lines += [
            f"{pad}if at < 0.0 or at > before - 1.0:",
            f"{pad}    y[{cut(place)}] = {kernel.outside!r}",
            f"{pad}    continue",
        ]
    if kernel.mode == "nearest":
        lines += [
            f"{pad}z = nearest(at, {ROUNDINGS.index(kernel.rounding)}, before)",
            f"{pad}{_copied(names, axis)}",
        ]
    else:
        looped, row = after[:-1], after[-1:]
        lines += loops(looped, axis + 1)
        pad += "    " * len(looped)
        rows = [*looped, *(f"{n}0:{n}1" for n in row)]
        source = ", ".join([*names[:axis], ":", *rows])
        target = ", ".join([*names[:axis], place if row else f"{place}:{place} + 1", *rows])
        stretch = "max(1.0, 1.0 / scale)" if kernel.antialias else "1.0"
        cubic = kernel.mode == "cubic"
        lines.append(
            f"{pad}blend{len(row)}(x[{source}], y[{target}], at, {cubic}, {kernel.cubic_a!r}, {stretch}, {kernel.exclude})"
        )
    text = tile_text([*ranges(names), "x", "y"], lines)
    home = __package__.rsplit(".", 2)[0]
    header = f"from {home}.resampling import nearest, position\n"
    if kernel.mode == "nearest":
        header += f"from {__package__}.block import copy_block\n"
    else:
        header += f"from {__package__}.resample import blend0, blend1\n"
    return Native(header + text.source)


def _in_rows(kernel: Resize) -> bool:
    """Whether the elements of a row are blends of two or four, with weights that are the same for all rows."""
    plain = not kernel.exclude and not kernel.antialias and kernel.coordinates != "tf_crop_and_resize"
    return plain and kernel.mode != "nearest" and 1 < kernel.rank == kernel.axis + 1 and not jit_disabled()


def _build_rows(kernel: Resize) -> Native:
    names, axis = AXES[: kernel.rank], kernel.axis
    outer, row, last = names[:-2], names[-2], names[-1]
    scale = f"{kernel.scale!r}" if kernel.scale else f"y.shape[{axis}] / x.shape[{axis}]"
    lead = "".join(f"{n}, " for n in outer)
    place = f"{COORDINATES.index(kernel.coordinates)}, {scale}, x.shape[{axis}], y.shape[{axis}]"
    cubic = f"{kernel.mode == 'cubic'}, {kernel.cubic_a!r}"
    call = (
        f"blend_rows(x[{lead}{row}0:{row}1], y[{lead}{row}0:{row}1, {last}0:{last}1], {last}0, {place}, "
        f"{kernel.start!r}, {kernel.end!r}, {cubic})"
    )
    text = tile_text([*ranges(names), "x", "y"], [*loops(outer), f"{'    ' * len(outer)}{call}"])
    return Native(f"from {__package__}.resample import blend_rows\n{text.source}")


def _copied(names: str, axis: int) -> str:
    """The line that copies what lies at index z of the axis."""
    after = names[axis + 1 :]
    if not after:
        return f"y[{', '.join(names)}] = x[{', '.join([*names[:axis], 'z'])}]"

    def start(middle: str) -> str:
        return ", ".join([*names[:axis], middle, *(f"{n}0" for n in after)])

    counts = "".join(f"{n}1 - {n}0, " for n in after)
    return f"copy_block(y, ({start(names[axis])}), x, ({start('z')}), ({counts}))"


def _repeats(kernel: Resize) -> int:
    """How often each element of the last axis follows itself, where that is all that a resize does; else 0."""
    times = int(kernel.scale)
    last = kernel.rank > 1 and kernel.axis == kernel.rank - 1
    whole = kernel.mode == "nearest" and last and times == kernel.scale and 2 <= times <= 8
    centred = kernel.coordinates in ("half_pixel", "half_pixel_symmetric") and kernel.rounding.startswith("round")
    floored = kernel.coordinates in ("asymmetric", "tf_half_pixel_for_nn") and kernel.rounding == "floor"
    return times if whole and (centred or floored) else 0


def _repeated(names: str, times: int) -> list[str]:
    """Lines that write a row of repeated elements: stores in groups of constant length, which LLVM interleaves."""
    k, pad = names[-1], "    " * (len(names) - 1)
    row, axis = ", ".join(names[:-1]), len(names) - 1
    return [
        f"{pad}if y.shape[{axis}] == {times} * x.shape[{axis}] and {k}0 % {times} == 0 == {k}1 % {times}:",
        f"{pad}    source, target = x[{row}, {k}0 // {times} : {k}1 // {times}], y[{row}, {k}0:{k}1]",
        f"{pad}    for z in range(source.shape[0]):",
        f"{pad}        element = source[z]",
        *(f"{pad}        target[{times} * z + {n}] = element" for n in range(times)),
        f"{pad}    continue",
    ]


@njit(nogil=True, error_model="numpy")
def total_weight(at, first, last, n, cubic, a, stretch, exclude):
    """The sum of the weights, for making them add up to 1 where they may not."""
    total = 0.0
    for z in range(first, last + 1):
        if not exclude or 0 <= z < n:
            total += weight((z - at) / stretch, cubic, a)
    return total


@njit(nogil=True, error_model="numpy")
def blend0(x, y, at, cubic, a, stretch, exclude):
    """y[0] = the weighted sum of x around a place."""
    n = x.shape[0]
    reach = support(cubic, stretch)
    first, last = floor(at - reach) + 1, floor(at + reach)
    total = total_weight(at, first, last, n, cubic, a, stretch, exclude) if exclude or stretch != 1.0 else 1.0
    result = y.dtype.type(0)
    for z in range(first, last + 1):
        if not exclude or 0 <= z < n:
            w = weight((z - at) / stretch, cubic, a) / total
            result += y.dtype.type(w) * x[min(max(z, 0), n - 1)]
    y[0] = result


@njit(nogil=True, error_model="numpy")
def blend1(x, y, at, cubic, a, stretch, exclude):
    """y[:] = the weighted sum of rows of x around a place."""
    n = x.shape[0]
    reach = support(cubic, stretch)
    first, last = floor(at - reach) + 1, floor(at + reach)
    total = total_weight(at, first, last, n, cubic, a, stretch, exclude) if exclude or stretch != 1.0 else 1.0
    y[:] = y.dtype.type(0)
    for z in range(first, last + 1):
        if not exclude or 0 <= z < n:
            w = y.dtype.type(weight((z - at) / stretch, cubic, a) / total)
            row = x[min(max(z, 0), n - 1)]
            for k in range(y.shape[0]):
                y[k] += w * row[k]


@njit(nogil=True, error_model="numpy")
def blend_rows(x, y, first_place, rule, scale, before, after, start, end, cubic, a):
    """Each row of y from the row of x, as blend0 does; where elements lie and their weights are found once for a block."""
    weights, places = local_f32(TAPS), local_i32(TAPS)
    taps = 4 if cubic else 2
    for k0 in range(0, y.shape[1], BLOCK):
        count = min(BLOCK, y.shape[1] - k0)
        for k in range(count):
            at = position(first_place + k0 + k, rule, scale, before, after, start, end)
            first = floor(at - support(cubic, 1.0)) + 1
            for t in range(taps):
                weights[t * BLOCK + k] = np.float32(weight((first + t - at) / 1.0, cubic, a) / 1.0)
                places[t * BLOCK + k] = min(max(first + t, 0), before - 1)
        for r in range(y.shape[0]):
            source, target = x[r], y[r]
            for k in range(count):
                result = np.float32(0)
                for t in range(taps):
                    result += weights[t * BLOCK + k] * source[places[t * BLOCK + k]]
                target[k0 + k] = result
