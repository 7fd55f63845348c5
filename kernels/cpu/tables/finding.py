"""Where elements are not zero, and which rows differ, on the CPU. kernels/reference/finding.py has the meaning."""

from __future__ import annotations

from numba import njit

from ...factory import register
from ...forge import Native
from ...indexing import AXES
from ...tables.finding import NonZero
from .text import tile_of


@register("non_zero", backend="cpu")
def non_zero(kernel: NonZero) -> Native:
    """Every index is written where the next one goes, so that nothing is guessed wrong; only some of them count."""
    names = AXES[: kernel.rank]
    body = ["found = 0"]
    for d, name in enumerate(names):
        body.append(f"{'    ' * d}for {name} in range(x.shape[{d}]):")
    pad = "    " * kernel.rank
    body += [f"{pad}y[{d}, found] = {name}" for d, name in enumerate(names)]
    body += [f"{pad}found += 1 if x[{', '.join(names) or '()'}] != 0 else 0", "y[:, found:] = 0", "count[()] = found"]
    return tile_of("n", ["x", "count", "y"], [*body, "return 0"])


@njit(nogil=True, error_model="numpy")
def before(a, b):
    """Whether row a comes before row b."""
    for m in range(a.shape[0]):
        if a[m] < b[m] or (b[m] != b[m] and a[m] == a[m]):
            return True
        if b[m] < a[m] or (a[m] != a[m] and b[m] == b[m]):
            return False
    return False


@njit(nogil=True, error_model="numpy")
def merge_sort(x, order, other):
    """Places of the rows in order: runs of twice the length are merged until there is one. Whether it is in `other`."""
    n = order.shape[0]
    for i in range(n):
        order[i] = i
    swapped = False
    width = 1
    while width < n:
        for low in range(0, n, 2 * width):
            middle, high = min(low + width, n), min(low + 2 * width, n)
            a, b = low, middle
            for k in range(low, high):
                if a < middle and (b >= high or not before(x[order[b]], x[order[a]])):
                    other[k] = order[a]
                    a += 1
                else:
                    other[k] = order[b]
                    b += 1
        order, other = other, order
        swapped = not swapped
        width *= 2
    return swapped


@register("row_order", backend="cpu")
def row_order() -> Native:
    body = ["if merge_sort(x, y, scratch):", "    for p in range(y.shape[0]):", "        y[p] = scratch[p]", "return 0"]
    return tile_of("n", ["x", "y", "scratch"], body, f"from {__package__}.finding import merge_sort\n")


@register("distinct", backend="cpu")
def distinct() -> Native:
    body = [
        "found = 0",
        "for p in range(order.shape[0]):",
        "    row = x[order[p]]",
        "    if p == 0 or before(x[order[p - 1]], row) or before(row, x[order[p - 1]]):",
        "        for m in range(row.shape[0]):",
        "            y[found, m] = row[m]",
        "        first[found] = order[p]",
        "        counts[found] = 0",
        "        found += 1",
        "    inverse[order[p]] = found - 1",
        "    counts[found - 1] += 1",
        "y[found:] = 0",
        "first[found:] = 0",
        "counts[found:] = 0",
        "count[()] = found",
        "return 0",
    ]
    names = ["x", "order", "count", "y", "first", "inverse", "counts"]
    return tile_of("n", names, body, f"from {__package__}.finding import before\n")
