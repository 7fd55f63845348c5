"""Pictures in files, drawn by matplotlib (extra `plot`): a heat map a sweep, the roofline, time against size, scaling."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from ...primitives.errors import ArgumentError, Unsupported
from ..tiles.result import Result, Sweep
from ..tiles.space import show
from . import data

FORMATS = (".png", ".svg", ".pdf")
# Distinct for people who see colours differently (Okabe and Ito).
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")


def draw(result: Result, path: str, heat: tuple[str, str] | None = None) -> None:
    """All pictures for which there is data, one below the other, in one file. Raises ArgumentError for another ending."""
    if Path(path).suffix not in FORMATS:
        raise ArgumentError(f"picture {path!r}: a name that ends in {', '.join(FORMATS)} is needed")
    parts = panels(result, heat)
    if not parts:
        raise ArgumentError("there is nothing to draw: no tile was timed")
    figure = _figure(7.2, 4.4 * len(parts))
    for n, (_, paint) in enumerate(parts):
        paint(figure.add_subplot(len(parts), 1, n + 1))
    figure.savefig(path, dpi=150)


def svg(paint: Any, width: float = 7.2, height: float = 4.2) -> str:
    """One picture as the text of an <svg> element, its letters as letters."""
    import matplotlib

    figure = _figure(width, height)
    paint(figure.add_subplot(1, 1, 1))
    out = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "tilework"}):
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    text = out.getvalue()
    return text[text.index("<svg") :]


def panels(result: Result, heat: tuple[str, str] | None = None) -> list[tuple[str, Any]]:
    """[(title, function that paints it on axes)] of every picture for which there is data."""
    _figure(1, 1)  # says what is missing, before anything is drawn
    found: list[tuple[str, Any]] = []
    for s in result.sweeps:
        axes = heat or data.best_axes(s)
        if axes and set(axes) <= s.values.keys() and data.grid(s, *axes).rows:
            found.append((f"tiles of {s.kernel} {s.label}", _bound(_heat, s, axes)))
    gops, levels = data.roofs(result)
    if gops and levels and data.spots(result):
        found.append(("roofline", _bound(_roofline, result)))
    if data.by_size(result):
        found.append(("time against size", _bound(_sizes, result)))
    if data.by_threads(result):
        found.append(("scaling over threads", _bound(_threads, result)))
    return found


def _bound(paint: Any, *given: Any) -> Any:
    return lambda axes: paint(axes, *given)


def _figure(width: float, height: float) -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise Unsupported(f"pictures in files need matplotlib ({error}): pip install 'tilework[plot]'") from error
    return Figure(figsize=(width, height), layout="constrained")


def _heat(axes: Any, sweep: Sweep, names: tuple[str, str]) -> None:
    import numpy as np

    grid = data.grid(sweep, *names)
    cells = np.array([[np.nan if v is None else v for v in row] for row in grid.cells], float)
    image = axes.imshow(cells, cmap="viridis" if grid.higher_is_better else "viridis_r", aspect="auto")
    axes.set_xticks(range(len(grid.columns)), grid.columns)
    axes.set_yticks(range(len(grid.rows)), grid.rows)
    axes.set(xlabel=grid.y, ylabel=grid.x)
    rest = f", best over {grid.rest}" if grid.rest else ""
    threads = f", {sweep.threads} threads" if sweep.threads > 1 else ""
    axes.set_title(f"{sweep.kernel} {sweep.label}{threads}: {grid.what}{rest}", fontsize=10)
    middle = (np.nanmin(cells) + np.nanmax(cells)) / 2
    for r, c in np.argwhere(~np.isnan(cells)):
        dark = (cells[r, c] < middle) == grid.higher_is_better
        axes.text(c, r, f"{cells[r, c]:.3g}", ha="center", va="center", fontsize=8, color="white" if dark else "black")
    chosen = sweep.best
    if names[0] in chosen and names[1] in chosen:
        at = grid.columns.index(chosen[names[1]]) - 0.5, grid.rows.index(chosen[names[0]]) - 0.5
        from matplotlib.patches import Rectangle

        axes.add_patch(
            Rectangle(at, 1, 1, fill=False, edgecolor=COLOURS[1], linewidth=2.5, label=f"chosen: {show(chosen)}")
        )
    axes.figure.colorbar(image, ax=axes, label=grid.what)


def _roofline(axes: Any, result: Result) -> None:
    import numpy as np

    gops, levels = data.roofs(result)
    spots = data.spots(result)
    top = max(gops.values())
    low = min([top / max(levels.values()) / 8, *(s.intensity / 2 for s in spots)])
    high = max([top / min(levels.values()) * 8, *(s.intensity * 2 for s in spots)])
    xs = np.geomspace(low, high, 200)
    for n, (name, rate) in enumerate(levels.items()):
        axes.plot(xs, np.minimum(rate * xs, top), color="0.35", linewidth=1, linestyle=("-", "--", "-.", ":")[n % 4],
                  label=f"{name} {rate:.0f} GB/s")  # fmt: skip
    for name, rate in gops.items():
        axes.axhline(rate, color="0.1", linewidth=1.2, label=f"{name} {rate:.0f} GOPS")
    for n, spot in enumerate(spots):
        axes.plot(
            [spot.intensity],
            [spot.gops],
            "o",
            color=COLOURS[n % len(COLOURS)],
            label=f"{spot.name} {spot.gops:.0f} GOPS",
        )
    axes.set(xscale="log", yscale="log", xlabel="operations per byte", ylabel="GOPS")
    axes.set_title("roofline: measured ceilings, and the chosen tiles", fontsize=10)
    axes.grid(True, which="major", alpha=0.3)
    axes.legend(fontsize=7)


def _sizes(axes: Any, result: Result) -> None:
    for n, (name, points) in enumerate(data.by_size(result).items()):
        xs, ys = zip(*points, strict=True)
        axes.plot(xs, ys, "o-", color=COLOURS[n % len(COLOURS)], label=name, markersize=4)
    axes.set(xscale="log", yscale="log", xlabel="operations", ylabel="us a call")
    axes.set_title("time against size", fontsize=10)
    axes.grid(True, which="major", alpha=0.3)
    axes.legend(fontsize=8)


def _threads(axes: Any, result: Result) -> None:
    series = data.by_threads(result)
    for n, (name, points) in enumerate(series.items()):
        xs, ys = zip(*points, strict=True)
        axes.plot(xs, ys, "o-", color=COLOURS[n % len(COLOURS)], label=name)
    counts = sorted({x for points in series.values() for x, _ in points})
    first = counts[0]
    axes.plot(counts, [x / first for x in counts], color="0.5", linestyle="--", label="as many times as threads")
    axes.set_xticks(counts)
    axes.set(xlabel="threads", ylabel=f"times as fast as on {first:.0f}")
    axes.set_title("scaling over threads", fontsize=10)
    axes.grid(True, alpha=0.3)
    axes.legend(fontsize=8)
