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
    if kernel.axis != kernel.rank - 1:
        return _sums_of_rows(kernel)
    names, cut, pad = _walk(kernel.rank, kernel.axis)
    places = "range(source.size - 1, -1, -1)" if kernel.reverse else "range(source.size)"
    body = [f"source = x[{cut}]", f"target = y[{cut}]", "total = target.dtype.type(0)", f"for z in {places}:"]
    add = "    total = target.dtype.type(total + source[z])"
    body += ["    target[z] = total", add] if kernel.exclusive else [add, "    target[z] = total"]
    return tile_text([*ranges(names), "x", "y"], [*loops(names), *(pad + line for line in body), "return 0"])


def _sums_of_rows(kernel: CumSum) -> Native:
    """Along another axis than the last: row after row, each from the one before."""
    names, axis = AXES[: kernel.rank], kernel.axis
    before, between, last = names[:axis], names[axis + 1 : -1], names[-1]
    run = f"{last}0:{last}1"

    def row(place: str) -> str:
        return ", ".join([*before, place, *between, run])

    step, first = ("-1", "length - 1") if kernel.reverse else ("1", "0")
    lines = loops(before)
    pad = "    " * axis
    lines += [
        f"{pad}length = x.shape[{axis}]",
        f"{pad}for turn in range(length):",
        f"{pad}    z = {first} + {step} * turn",
    ]
    lines += loops(between, axis + 1)
    pad += "    " * (1 + len(between))
    added = f"z - {step}" if kernel.exclusive else "z"
    lines += [
        f"{pad}target = y[{row('z')}]",
        f"{pad}if turn == 0:",
        f"{pad}    source = x[{row('z')}]",
        f"{pad}    for n in range(target.size):",
        f"{pad}        target[n] = {'0' if kernel.exclusive else 'target.dtype.type(0) + source[n]'}",
        f"{pad}else:",
        f"{pad}    source, total = x[{row(added)}], y[{row(f'z - {step}')}]",
        f"{pad}    for n in range(target.size):",
        f"{pad}        target[n] = target.dtype.type(total[n] + source[n])",
    ]
    kept = "".join(n for n in names if n != names[axis])
    return tile_text([*ranges(kept), "x", "y"], [*lines, "return 0"])


FEW = 16  # elements that are kept in order; more of them as a heap, which is put in order at the end


@register("topk", backend="cpu")
def build_topk(kernel: TopK) -> Native:
    names, cut, pad = _walk(kernel.rank, kernel.axis)
    best = "largest" if kernel.largest else "smallest"
    if kernel.k > FEW:
        best = f"many_{best}"
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


@njit(nogil=True, error_model="numpy", inline="always")
def _before(v, i, w, j, sign):
    """Whether element i, which is v, comes before element j, which is w: of the largest for sign 1, the smallest for -1."""
    if v != v or w != w:
        both = v != v and w != w
        return i < j if both else (v != v) == (sign > 0)
    if v == w:
        return i < j
    return v > w if sign > 0 else v < w


@njit(nogil=True, error_model="numpy")
def _sink(values, indices, n, at, v, i, sign):
    """Put an element into a heap of n whose first one comes last, from the place `at` on down."""
    while 2 * at + 1 < n:
        child = 2 * at + 1
        if child + 1 < n and _before(values[child], indices[child], values[child + 1], indices[child + 1], sign):
            child += 1
        if not _before(v, i, values[child], indices[child], sign):
            break
        values[at], indices[at] = values[child], indices[child]
        at = child
    values[at], indices[at] = v, i


@njit(nogil=True, error_model="numpy")
def _many(x, values, indices, sign):
    k = values.size
    for i in range(k):
        values[i], indices[i] = x[i], i
    for at in range(k // 2 - 1, -1, -1):
        _sink(values, indices, k, at, values[at], indices[at], sign)
    for i in range(k, x.size):
        if _before(x[i], i, values[0], indices[0], sign):
            _sink(values, indices, k, 0, x[i], i, sign)
    for n in range(k - 1, 0, -1):
        v, i = values[n], indices[n]
        values[n], indices[n] = values[0], indices[0]
        _sink(values, indices, n, 0, v, i, sign)


@njit(nogil=True, error_model="numpy")
def many_largest(x, values, indices):
    """As `largest`, in x.size * log(values.size) steps at most."""
    _many(x, values, indices, 1)


@njit(nogil=True, error_model="numpy")
def many_smallest(x, values, indices):
    """As `smallest`, in x.size * log(values.size) steps at most."""
    _many(x, values, indices, -1)


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
    row, last = names[-2], names[-1]
    pad = "    " * (kernel.rank - 1)
    edge = f"min(max({row} + {kernel.k}{'' if kernel.upper else ' + 1'}, {last}0), {last}1)"
    kept, cleared = (f"edge, {last}1", f"{last}0, edge") if kernel.upper else (f"{last}0, edge", f"edge, {last}1")
    at = ", ".join([*names[:-1], "first"])
    lines = [
        *loops(names[:-1]),
        f"{pad}edge = {edge}",
        f"{pad}first, end = {kept}",
        f"{pad}copy_block(y, ({at}), x, ({at}), (end - first,))",
        f"{pad}first, end = {cleared}",
        f"{pad}target = y[{', '.join([*names[:-1], 'first:end'])}]",
        f"{pad}for n in range(target.size):",
        f"{pad}    target[n] = y.dtype.type(0)",
    ]
    text = tile_text([*ranges(names), "x", "y"], lines)
    return Native(f"from {__package__}.block import copy_block\n{text.source}")


@register("range", backend="cpu")
def build_range(kernel: Range) -> Native:
    lines = ["first = start[()]", "width = step[()]", *loops("i")]
    return tile_text([*ranges("i"), "start", "step", "y"], [*lines, "    y[i] = first + y.dtype.type(i) * width"])
