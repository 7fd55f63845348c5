"""Pictures of schemes, drawn by matplotlib (extra `plot`): each paints one pair of axes from plain arrays.

error_histogram, code_usage and reconstruction show one scheme on weights; sqnr_against_bits and layer_errors compare
schemes, given what `tilework.bench.schemes.figures.compare` returns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...primitives.errors import ArgumentError
from .figures import COLOURS, FORMATS, _bound, _figure

POINTS = 801  # of a reconstruction curve
MOST_BARS = 24


def error_histogram(axes: Any, w: np.ndarray, kept: np.ndarray) -> None:
    """How large the errors of the weights are, in root mean squares of the weights."""
    size = float(np.sqrt(np.mean(np.square(w, dtype=np.float64)))) or 1.0
    errors = ((kept - w) / size).reshape(-1)
    errors = errors[np.isfinite(errors)]
    axes.hist(errors, bins=121, color=COLOURS[0])
    axes.set_yscale("log")
    axes.set(xlabel="error, in root mean squares of the weights", ylabel="weights", title="Error")


def code_usage(axes: Any, codes: np.ndarray) -> None:
    """How often each code is taken."""
    found, counts = np.unique(codes, return_counts=True)
    axes.bar(found, counts / counts.sum(), width=0.9, color=COLOURS[0])
    axes.axhline(1 / max(1, len(found)), color=COLOURS[1], linewidth=1, label="all alike")
    axes.legend(frameon=False)
    p = counts / counts.sum()
    entropy = float(-(p * np.log2(p)).sum())
    axes.set(xlabel="code", ylabel="share", title=f"Codes: {len(found)} in use, {entropy:.2f} bits of entropy")


def reconstruction(axes: Any, scheme: Any, w: np.ndarray) -> None:
    """What comes out for every number that goes in, with the parameters of one block of w."""
    x, y = curve(scheme, w)
    axes.plot(x, x, color="#bbbbbb", linewidth=1, label="as it was")
    axes.plot(x, y, color=COLOURS[0], linewidth=1.2, drawstyle="steps-mid", label=scheme.name)
    axes.legend(frameon=False)
    axes.set(xlabel="weight", ylabel="after quantizing", title="Reconstruction")


def curve(scheme: Any, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Numbers across the range of a block, and what is left of them: the block's largest weight stays in each try."""
    top = float(np.abs(w[np.isfinite(w)]).max(initial=0.0)) or 1.0
    block = scheme.block if isinstance(scheme.block, int) else 32
    x = np.linspace(-top, top, POINTS).astype(np.float32)
    rows = np.zeros((POINTS, block), np.float32)
    rows[:, 0], rows[:, -1] = x, top
    if block > 2:
        rows[:, 1] = -top
    if scheme.edges[0] != 1 or scheme.vector > 1:  # rows share parameters already
        return x, scheme.fake_quantize(rows)[:, 0]
    return x, scheme.fake_quantize(rows)[:, 0]


def sqnr_against_bits(axes: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    """A point for each scheme; 6.02 dB a bit is drawn beside them."""
    rows = [r for r in rows if r["sqnr_db"] is not None]
    for n, row in enumerate(rows):
        axes.plot(row["bits_per_weight"], row["sqnr_db"], "o", color=COLOURS[n % len(COLOURS)])
    if rows:
        bits = np.array([min(r["bits_per_weight"] for r in rows), max(r["bits_per_weight"] for r in rows)])
        middle = float(np.mean([r["sqnr_db"] - 6.02 * r["bits_per_weight"] for r in rows]))
        axes.plot(bits, 6.02 * bits + middle, color="#bbbbbb", linewidth=1, zorder=0)
    axes.margins(x=0.15)
    axes.set(xlabel="bits a weight, everything counted", ylabel="SQNR of the weights, dB", title="SQNR against bits")
    labels(axes, [(r["bits_per_weight"], r["sqnr_db"], r["scheme"]) for r in rows])


def labels(axes: Any, points: Sequence[tuple[float, float, str]], size: float = 8) -> None:
    """Write a name beside each point, inside the axes and over no other name or point; a line leads to a far one."""
    axes.autoscale_view()
    line, letter = 1.25 * size, 0.62 * size  # points
    scale = 72 / axes.figure.dpi
    places = [axes.transData.transform((x, y)) * scale for x, y, _ in points]
    frame = axes.get_window_extent()
    taken = [(x - 3, y - 3, x + 3, y + 3) for x, y in places]
    for (x, y, name), (px, py) in sorted(zip(points, places, strict=True), key=lambda p: -p[1][1]):
        width = letter * len(name)
        chosen = None
        for step in sorted(range(-30, 31), key=lambda n: (abs(n), n)):
            for right in (True, False):
                dx, dy = 5.0 if right else -5.0, 2 + step * line / 2
                left = px + dx if right else px + dx - width
                box = (left, py + dy - 1, left + width, py + dy + line - 1)
                inside = frame.x0 * scale < box[0] and box[2] < frame.x1 * scale
                inside = inside and frame.y0 * scale < box[1] and box[3] < frame.y1 * scale
                if chosen is None and inside and not any(_overlap(box, other) for other in taken):
                    chosen = (dx, dy, right, step, box)
        dx, dy, right, step, box = chosen or (5.0, 2.0, True, 0, (px, py, px, py))
        taken.append(box)
        arrow = {"arrowstyle": "-", "color": "#bbbbbb", "linewidth": 0.6} if abs(step) > 1 else None
        axes.annotate(
            name,
            (x, y),
            xytext=(dx, dy),
            textcoords="offset points",
            fontsize=size,
            ha="left" if right else "right",
            arrowprops=arrow,
        )


def _overlap(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def layer_errors(axes: Any, layers: Mapping[str, Mapping[str, float]]) -> None:
    """Bars of the SQNR of each layer, a colour for each scheme: {scheme: {layer: dB}}."""
    names = list(dict.fromkeys(name for found in layers.values() for name in found))[:MOST_BARS]
    width = 0.8 / max(1, len(layers))
    for n, (scheme, found) in enumerate(layers.items()):
        at = np.arange(len(names)) + (n - (len(layers) - 1) / 2) * width
        axes.barh(at, [found.get(name, np.nan) for name in names], width, color=COLOURS[n % len(COLOURS)], label=scheme)
    axes.set_yticks(range(len(names)), [name if len(name) < 40 else "…" + name[-38:] for name in names], fontsize=7)
    axes.invert_yaxis()
    axes.legend(frameon=False, fontsize=8)
    axes.set(xlabel="SQNR, dB", title="Layers")


def of_scheme(scheme: Any, w: np.ndarray) -> list[tuple[str, Any]]:
    """[(title, function that paints it on axes)] of one scheme on weights."""
    q = scheme.quantize(w)
    kept = q.dequantize()
    found = [("error histogram", _bound(error_histogram, w, kept))]
    if scheme.bits <= 8 and scheme.block_bytes is None:
        found.append(("code usage", _bound(code_usage, q.integer_codes().reshape(-1))))
    found.append(("reconstruction curve", _bound(reconstruction, scheme, w[:1])))
    return found


def draw_comparison(result: Mapping[str, Any], path: str) -> None:
    """SQNR against bits, and the layers where there are several, in one file. Raises ArgumentError for another ending."""
    if Path(path).suffix not in FORMATS:
        raise ArgumentError(f"picture {path!r}: a name that ends in {', '.join(FORMATS)} is needed")
    layers = result["layers"]
    several = len(result["tensors"]) > 1
    count = min(len(result["tensors"]), MOST_BARS)
    heights = [4.4, *([1.2 + 0.1 * count * (1 + len(layers))] if several else [])]
    figure = _figure(7.2, sum(heights))
    grid = figure.add_gridspec(len(heights), 1, height_ratios=heights)
    sqnr_against_bits(figure.add_subplot(grid[0]), result["rows"])
    if several:
        layer_errors(figure.add_subplot(grid[1]), layers)
    figure.savefig(path, dpi=150)
