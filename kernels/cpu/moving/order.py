"""cumsum, topk, one_hot, trilu and range on the CPU. kernels/reference/moving.py says what they compute."""

from __future__ import annotations

from numba import njit

from ...factory import register
from ...forge import Native
from ...indexing import AXES
from ...moving.order import CumSum, OneHot, Range, TopK, Trilu
from .gather import loops, ranges, tile_text


def _walk(rank: int, axis: int) -> tuple[str, str, str]:
    """Names of all axes but one; the index with that axis whole; its loops' depth as indentation."""
    names = "".join(n for d, n in enumerate(AXES[:rank]) if d != axis)
    cut = ", ".join(":" if d == axis else n for d, n in enumerate(AXES[:rank]))
    return names, cut, "    " * len(names)


@register("cumsum", backend="cpu")
def build_cumsum(kernel: CumSum) -> Native:
    names, cut, pad = _walk(kernel.rank, kernel.axis)
    places = "range(source.size - 1, -1, -1)" if kernel.reverse else "range(source.size)"
    body = [f"source = x[{cut}]", f"target = y[{cut}]", "total = target.dtype.type(0)", f"for z in {places}:"]
    add = "    total = target.dtype.type(total + source[z])"
    body += ["    target[z] = total", add] if kernel.exclusive else [add, "    target[z] = total"]
    return tile_text([*ranges(names), "x", "y"], [*loops(names), *(pad + line for line in body), "return 0"])


@register("topk", backend="cpu")
def build_topk(kernel: TopK) -> Native:
    names, cut, pad = _walk(kernel.rank, kernel.axis)
    best = "largest" if kernel.largest else "smallest"
    lines = [*loops(names), f"{pad}{best}(x[{cut}], values[{cut}], indices[{cut}])", "return 0"]
    text = tile_text([*ranges(names), "x", "values", "indices"], lines)
    return Native(f"from {__package__}.order import {best}\n{text.source}")


@njit(nogil=True, error_model="numpy")
def largest(x, values, indices):
    """The first values.size of x in descending order, equal ones by index; NaN before everything."""
    k = values.size
    n = 0
    for i in range(x.size):
        v = x[i]
        if n == k and (k == 0 or not (v > values[k - 1] or (v != v and values[k - 1] == values[k - 1]))):
            continue
        lo, hi = 0, n
        while lo < hi:
            mid = (lo + hi) // 2
            if v > values[mid] or (v != v and values[mid] == values[mid]):
                hi = mid
            else:
                lo = mid + 1
        n = min(n + 1, k)
        for m in range(n - 1, lo, -1):
            values[m] = values[m - 1]
            indices[m] = indices[m - 1]
        values[lo] = v
        indices[lo] = i


@njit(nogil=True, error_model="numpy")
def smallest(x, values, indices):
    """The first values.size of x in ascending order, equal ones by index; NaN after everything."""
    k = values.size
    n = 0
    for i in range(x.size):
        v = x[i]
        if n == k and (k == 0 or not (v < values[k - 1] or (v == v and values[k - 1] != values[k - 1]))):
            continue
        lo, hi = 0, n
        while lo < hi:
            mid = (lo + hi) // 2
            if v < values[mid] or (v == v and values[mid] != values[mid]):
                hi = mid
            else:
                lo = mid + 1
        n = min(n + 1, k)
        for m in range(n - 1, lo, -1):
            values[m] = values[m - 1]
            indices[m] = indices[m - 1]
        values[lo] = v
        indices[lo] = i


@register("one_hot", backend="cpu")
def build_one_hot(kernel: OneHot) -> Native:
    names = AXES[: kernel.rank + 1]
    at = "".join(n for d, n in enumerate(names) if d != kernel.axis)
    pad = "    " * len(names)
    lines = [
        *loops(names),
        f"{pad}place = indices[{', '.join(at) or '()'}]",
        f"{pad}hot = place == {names[kernel.axis]} or place + {kernel.depth} == {names[kernel.axis]}",
        f"{pad}y[{', '.join(names)}] = values[1] if hot else values[0]",
    ]
    return tile_text([*ranges(names), "indices", "values", "y"], lines)


@register("trilu", backend="cpu")
def build_trilu(kernel: Trilu) -> Native:
    names = AXES[: kernel.rank]
    pad = "    " * len(names)
    keep = f"{names[-1]} - {names[-2]} {'>=' if kernel.upper else '<='} {kernel.k}"
    at = ", ".join(names)
    lines = [*loops(names), f"{pad}y[{at}] = x[{at}] if {keep} else y.dtype.type(0)"]
    return tile_text([*ranges(names), "x", "y"], lines)


@register("range", backend="cpu")
def build_range(kernel: Range) -> Native:
    lines = ["first = start[()]", "width = step[()]", *loops("i")]
    return tile_text([*ranges("i"), "start", "step", "y"], [*lines, "    y[i] = first + y.dtype.type(i) * width"])
