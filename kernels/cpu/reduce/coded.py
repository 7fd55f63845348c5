"""Reductions of codes on the CPU: sums in int32, as many as it holds, then in int64.

kernels/reference/reduce/coded.py says what they compute.
"""

from __future__ import annotations

from ....primitives import dtypes
from ...factory import register
from ...forge import Native
from ...indexing import AXES
from ...reduce.coded import EXACT, ReduceCodes
from ..moving.gather import loops

_STEP = {
    "sum": "np.int32({t} + np.int32({v}))",
    "max": "max({t}, np.int32({v}))",
    "min": "min({t}, np.int32({v}))",
}


@register("reduce_codes", backend="cpu")
def build(kernel: ReduceCodes) -> Native:
    kept = kernel.rank - len(kernel.axes)
    names = AXES[:kept]
    counted = [f"n = {' * '.join(f'x.shape[{d}]' for d in range(kept, kept + kernel.reduced)) or '1'}"]
    lines = [
        "if bad_scale(x_scale[()]) or bad_scale(scale[()]):",
        "    return 1",
        *counted,
        "factor, step, zero, x_zero = x_scale[()], scale[()], np.int32(zero_point[()]), np.int64(x_zero_point[()])",
        *(_across if kernel.across else _along)(kernel, names),
        "return 0",
    ]
    arguments = ["x", "x_scale", "x_zero_point", "scale", "zero_point", "y", "scratch"]
    body = "".join(f"    {line}\n" for line in lines)
    home = __package__.rpartition(".")[0]
    return Native(
        f"import numpy as np\nfrom numba import njit\nfrom {home}.scalar import bad_scale, rint32, saturate_narrow\n\n\n"
        f'@njit(nogil=True, error_model="numpy")\n'
        f"def tile({', '.join([*(f'{a}0, {a}1' for a in names), *arguments])}):\n{body}"
    )


def _start(kernel: ReduceCodes) -> str:
    kind = dtypes.get(kernel.source)
    return {"max": str(int(kind.min)), "min": str(int(kind.max))}.get(kernel.op, "0")


def _finished(kernel: ReduceCodes, total: str) -> list[str]:
    """Lines that set `code` from what the elements of a row come to."""
    codes = dtypes.get(kernel.dtype)
    summed = kernel.op in ("sum", "mean")
    return [
        f"real = np.float32({total} - {'n * ' if summed else ''}x_zero) * factor",
        *(["real = real / np.float32(n)"] if kernel.op == "mean" else []),
        f"code = saturate_narrow(rint32(real / step), zero, {int(codes.min)}, {int(codes.max)})",
    ]


def _along(kernel: ReduceCodes, names: str) -> list[str]:
    """One result after the other, the elements of its row together."""
    reduced = kernel.reduced
    rows = [f"r{d}" for d in range(max(reduced - 1, 0))]
    pad = "    " * len(names)
    fold = _STEP["sum" if kernel.op == "mean" else kernel.op]
    summed = kernel.op in ("sum", "mean")
    lines = [*loops(names), f"{pad}total = np.int64({_start(kernel)})"]
    for d, r in enumerate(rows):
        lines.append(f"{pad}{'    ' * d}for {r} in range(x.shape[{len(names) + d}]):")
    inner = pad + "    " * len(rows)
    if reduced:
        lines += [
            f"{inner}row = x[{', '.join([*names, *rows, ':'])}]",
            f"{inner}for first in range(0, row.size, {EXACT}):",
            f"{inner}    part = np.int32({_start(kernel)})",
            f"{inner}    for p in range(first, min(first + {EXACT}, row.size)):",
            f"{inner}        part = {fold.format(t='part', v='row[p]')}",
            f"{inner}    total = {'total + part' if summed else f'{kernel.op}(total, np.int64(part))'}",
        ]
    else:
        lines.append(f"{pad}total = np.int64(x[{', '.join(names) or '()'}])")
    lines += [f"{pad}{line}" for line in _finished(kernel, "total")]
    return [*lines, f"{pad}y[{', '.join(names) or '()'}] = code"]


def _across(kernel: ReduceCodes, names: str) -> list[str]:
    """Neighbouring results together, one element of each after the other."""
    outer, last = names[:-1], names[-1]
    reduced = kernel.reduced
    rows = [f"r{d}" for d in range(reduced)]
    pad = "    " * len(outer)
    fold = _STEP["sum" if kernel.op == "mean" else kernel.op]
    lines = [
        f"m = {last}1 - {last}0",
        "wide, part = scratch[: 2 * m].view(np.int64), scratch[2 * m : 3 * m]",
        *loops(outer),
        f"{pad}wide[:] = 0",
        f"{pad}part[:] = {_start(kernel)}",
        f"{pad}held = 0",
    ]
    for d, r in enumerate(rows):
        lines.append(f"{pad}{'    ' * d}for {r} in range(x.shape[{len(names) + d}]):")
    inner = pad + "    " * reduced
    lines += [
        f"{inner}row = x[{', '.join([*outer, f'{last}0:{last}1', *rows])}]",
        f"{inner}for p in range(m):",
        f"{inner}    part[p] = {fold.format(t='part[p]', v='row[p]')}",
    ]
    if kernel.op in ("sum", "mean"):
        lines += [
            f"{inner}held += 1",
            f"{inner}if held == {EXACT}:",
            f"{inner}    for p in range(m):",
            f"{inner}        wide[p] += part[p]",
            f"{inner}        part[p] = 0",
            f"{inner}    held = 0",
        ]
    lines += [
        f"{pad}out = y[{', '.join([*outer, f'{last}0:{last}1'])}]",
        f"{pad}for p in range(m):",
        *(f"{pad}    {line}" for line in _finished(kernel, "(wide[p] + part[p])")),
        f"{pad}    out[p] = code",
    ]
    return lines
