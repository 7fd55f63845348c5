"""grid_sample on the CPU: where a piece of a row lies is worked out once, then every channel is gathered there.

kernels/reference/sampling.py says what it computes.
"""

from __future__ import annotations

import numpy as np

from ...factory import Whole, register
from ...forge import Native
from ...indexing import AXES
from ...moving.sampling import CHUNK, GridSample
from ...reference import sampling as meaning
from ..map import compiled
from ..scalar import floor32, rint32, scalar

A = np.float32(-0.75)
_ZERO, _HALF, _ONE, _TWO = (np.float32(v) for v in (0, 0.5, 1, 2))
_A2, _A3, _A4, _A5, _A8 = (np.float32(v) for v in (A + 2, A + 3, 4 * A, 5 * A, 8 * A))
_FAR = np.float32(2.0**22)


@scalar
def position(g, n, align):
    g = (-_ONE if g != g else g) + _ONE
    return g / _TWO * np.float32(n - 1) if align else (g * np.float32(n) - _ONE) / _TWO


@scalar
def reflected(p, n, align):
    low = _ZERO if align else -_HALF
    span = np.float32(n - 1) if align else np.float32(n)
    a = abs(p - low)
    k = floor32(a / span)
    e = a - k * span
    even = k - _TWO * floor32(k * _HALF) == _ZERO
    found = (e if even else span - e) + low
    return _ZERO if span == _ZERO else found


@scalar
def inside(p, low, high):
    p = p if p > low else low
    return p if p < high else high


@scalar
def placed(g, n, align, reflect):
    """A place, and outside x one inside."""
    p = position(g, n, align)
    return inside(reflected(p, n, align) if reflect else p, _ZERO, np.float32(n - 1))


@scalar
def near(g, n, align):
    """A place; one far outside x is moved to where no element is near."""
    return inside(position(g, n, align), np.float32(-4), np.float32(n + 3))


@scalar
def anywhere(g, n, align):
    return inside(position(g, n, align), -_FAR, _FAR)


@scalar
def inner(d):
    return (_A2 * d - _A3) * d * d + _ONE


@scalar
def outer(d):
    return ((A * d - _A5) * d + _A8) * d - _A4


@scalar
def mirrored(at, n, align):
    if align:
        period = max(2 * (n - 1), 1)
        at = abs(at) % period
        return min(at, period - at)
    at = (-at - 1 if at < 0 else at) % (2 * n)
    return at if at < n else 2 * n - 1 - at


_PLACE = {"zeros": "near({}, {}, {})", "border": "placed({}, {}, {}, False)", "reflection": "placed({}, {}, {}, True)"}
_WEIGHTS = {
    "nearest": (),
    "linear": ("np.float32(1) - f", "f"),
    "cubic": (
        "outer(f + np.float32(1))",
        "inner(f)",
        "inner(np.float32(1) - f)",
        "outer((np.float32(1) - f) + np.float32(1))",
    ),
}


@register("grid_sample", backend="cpu", requires=compiled)
def build(kernel: GridSample) -> Native:
    names = AXES[: kernel.spatial + 2]
    outer_axes, last = names[2:-1], names[-1]
    lines = [
        "places = start_of(scratch)",
        f"shares = places + {8 * CHUNK * kernel.taps**kernel.spatial}",
        "base = start_of(x)",
        "for i in range(i0, i1):",
    ]
    pad = "    "
    for axis in outer_axes:
        lines.append(f"{pad}for {axis} in range({axis}0, {axis}1):")
        pad += "    "
    lines.append(f"{pad}for from_ in range({last}0, {last}1, {CHUNK}):")
    pad += "    "
    lines.append(f"{pad}count = min({CHUNK}, {last}1 - from_)")
    lines.append(f"{pad}for p in range(count):")
    lines += [f"{pad}    {line}" for line in _placing(kernel, ", ".join(["i", *outer_axes, "from_ + p"]))]
    lines += [
        f"{pad}for j in range(j0, j1):",
        f"{pad}    plane = base + i * x.strides[0] + j * x.strides[1]",
        f"{pad}    out = y[{', '.join(['i', 'j', *outer_axes, 'from_ : from_ + count'])}]",
        f"{pad}    for p in range(count):",
        f"{pad}        out[p] = blend(x, plane, places, shares, p)",
    ]
    body = "".join(f"    {line}\n" for line in lines)
    arguments = ", ".join([*(f"{n}0, {n}1" for n in names), "x", "grid", "y", "scratch"])
    home = __package__.rpartition(".")[0]
    kinds = f"{kernel.taps}, {kernel.spatial}, {kernel.padding == 'zeros'}"
    return Native(
        f"import numpy as np\nfrom numba import njit\nfrom {home}.elements import start_of\n"
        f"from {home}.scalar import floor32, rint32\n"
        f"from {__name__} import anywhere, inner, mirrored, near, outer, placed\n"
        f"from {__package__}.taps import blended, put_places, put_weights\n\n"
        f"put_at, put_shares, blend = put_places({kinds}), put_weights({kernel.taps}), blended({kinds})\n\n"
        f'@njit(nogil=True, error_model="numpy")\ndef tile({arguments}):\n{body}'
    )


def _placing(kernel: GridSample, at: str) -> list[str]:
    """What elements around place p there are, and their weights along each axis."""
    cubic, taps = kernel.mode == "cubic", kernel.taps
    lines, indices = [], []
    for d in range(kernel.spatial):
        n, g = f"x.shape[{2 + d}]", f"grid[{at}, {kernel.spatial - 1 - d}]"
        place = "anywhere({}, {}, {})" if cubic else _PLACE[kernel.padding]
        lines += [
            f"q = {place.format(g, n, kernel.align)}",
            f"low = {'rint32' if kernel.mode == 'nearest' else 'floor32'}(q)",
            f"first{d} = np.int64(np.int32(low)){' - 1' if cubic else ''}",
        ]
        if taps > 1:
            lines += ["f = q - low", f"put_shares(shares, {d * taps}, p, ({', '.join(_WEIGHTS[kernel.mode])}))"]
        for t in range(taps):
            tap = f"first{d} + {t}"
            indices.append(f"mirrored({tap}, {n}, {kernel.align})" if kernel.padding == "reflection" else tap)
    return [*lines, f"put_at(x, places, p, ({', '.join(indices)},))"]


@register("grid_sample", backend="cpu", variant="interpreted", priority=-100)
def interpreted(kernel: GridSample) -> Whole:
    """Whole arrays under plain Python."""
    return meaning.grid_sample_step(kernel)


__all__ = ["anywhere", "floor32", "inner", "mirrored", "near", "outer", "placed", "rint32"]
