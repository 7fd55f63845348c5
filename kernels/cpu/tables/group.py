"""Aggregates by group on the CPU. kernels/reference/tables.py says what they compute."""

from __future__ import annotations

from ...factory import register
from ...forge import Native
from ...tables.group import LANES, OUTSIDE, PASS, GroupAggregate, GroupResult
from .text import length, optional, tile_of


@register("group_aggregate", backend="cpu")
def group_aggregate(kernel: GroupAggregate) -> Native:
    hows = [how for how, _ in kernel.aggregates]
    columns = [f"x{n}" for n in range(len(hows))]
    kept = [f"acc{n}" for n in range(len(hows))]
    step = []
    for n, how in enumerate(hows):
        if how == "sum":
            step.append(f"a{n}[g] += a{n}.dtype.type(x{n}[i])")
        else:
            step += [f"if x{n}[i] {'<' if how == 'min' else '>'} a{n}[g]:", f"    a{n}[g] = x{n}[i]"]
    begin = f"begin + ((l - first[()] - begin) & {LANES - 1})"
    body = [
        f"n = {length(kernel, 'codes')}",
        "groups = rows.shape[1]",
        f"for begin in range(0, n, {PASS}):",
        f"    end = min(begin + {PASS}, n)",
        "    for l in range(l0, l1):",
        "        r = rows[l]",
        *(f"        a{m} = acc{m}[l]" for m in range(len(hows))),
        "        count = 0",
        f"        for i in range({begin}, end, {LANES}):",  # rows that count, found without guessing
        "            chosen[count] = i",
        f"            count += {'np.int64(where[i])' if kernel.where else '1'}",
        "        for c in range(count):",
        "            i = chosen[c]",
        "            g = codes[i]",
        "            if g < 0 or g >= groups:",
        f"                return {OUTSIDE}",
        "            r[g] += 1",
        *(f"            {line}" for line in step),
        "return 0",
    ]
    return tile_of("l", ["codes", "first", *optional(kernel), *columns, "rows", *kept, "chosen"], body)


@register("group_result", backend="cpu")
def group_result(kernel: GroupResult) -> Native:
    if kernel.how in ("sum", "mean"):
        total = _tree([f"acc[{n}, g]" for n in range(LANES)])
        if kernel.how == "sum":
            return tile_of("g", ["acc", "y"], ["for g in range(g0, g1):", f"    y[g] = {total}", "return 0"])
        mean = f"np.float64({total}) / np.float64({_tree([f'rows[{n}, g]' for n in range(LANES)])})"
        return tile_of("g", ["acc", "rows", "y"], ["for g in range(g0, g1):", f"    y[g] = {mean}", "return 0"])
    less = "<" if kernel.how == "min" else ">"
    fold, half = [], LANES // 2
    while half:
        fold += [f"    v{n} = v{n + half} if v{n + half} {less} v{n} else v{n}" for n in range(half)]
        half //= 2
    loads = [f"    v{n} = acc[{n}, g]" for n in range(LANES)]
    return tile_of("g", ["acc", "y"], ["for g in range(g0, g1):", *loads, *fold, "    y[g] = v0", "return 0"])


def _tree(values: list[str]) -> str:
    """Their sum, lane l with lane l + half."""
    while len(values) > 1:
        half = len(values) // 2
        values = [f"({a} + {b})" for a, b in zip(values[:half], values[half:], strict=True)]
    return values[0]
