"""Pictures out of characters."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ..tiles.result import Result, Sweep
from . import data

SHADES = " .:-=+*#%@"
MARKS = "ox+*#%&@"
WIDTH, HEIGHT = 72, 18


def heatmap(sweep: Sweep, x: str, y: str) -> str:
    """Numbers and shades: rows are x's values, columns are y's; the darkest is the best."""
    grid = data.grid(sweep, x, y)
    known = [v for row in grid.cells for v in row if v is not None]
    if not known:
        return f"nothing of {x} and {y} was timed"
    low, high = min(known), max(known)

    def cell(v: float | None) -> str:
        if v is None:
            return f"{'-':>9}"
        part = (v - low) / (high - low) if high > low else 1.0
        part = part if grid.higher_is_better else 1 - part
        number = f"{v:.0f}" if v >= 100 else f"{v:.1f}" if v >= 10 else f"{v:.2f}"
        return f"{number:>7} {SHADES[round(part * (len(SHADES) - 1))]}"

    rest = f", best over {grid.rest}" if grid.rest else ""
    head = f" {x}\\{y:<6}" + "".join(f"{c:>7}  " for c in grid.columns) + f"   ({grid.what}{rest})"
    lines = [f"{r:>8} " + "".join(cell(v) for v in row) for r, row in zip(grid.rows, grid.cells, strict=True)]
    return "\n".join([head, *lines])


def roofline(result: Result) -> str:
    """Points of the sweeps under the measured ceilings; both axes are logarithmic. Empty where nothing is known."""
    gops, levels = data.roofs(result)
    spots = data.spots(result)
    if not (gops and levels and spots):
        return ""
    top = max(gops.values())
    low_x = min([top / max(levels.values()) / 8, *(s.intensity / 2 for s in spots)])
    high_x = max([top / min(levels.values()) * 8, *(s.intensity * 2 for s in spots)])
    canvas = Canvas(low_x, high_x, min(min(levels.values()) * low_x, min(s.gops for s in spots)) / 1.5, top * 1.6)
    for mark, (_, rate) in zip("1234", levels.items(), strict=False):
        for column in range(WIDTH):
            here = canvas.x_of(column)
            if rate * here <= top:
                canvas.put(here, rate * here, mark)
    for column in range(WIDTH):
        here = canvas.x_of(column)
        if here * max(levels.values()) >= top:
            canvas.put(here, top, "-")
    for mark, spot in zip(_marks(len(spots)), spots, strict=False):
        canvas.put(spot.intensity, spot.gops, mark)
    legend = [f"- {n} {v:.0f} GOPS" for n, v in gops.items()]
    legend += [f"{mark} {n} {v:.0f} GB/s" for mark, (n, v) in zip("1234", levels.items(), strict=False)]
    for mark, s in zip(_marks(len(spots)), spots, strict=False):
        legend.append(f"{mark} {s.name} {s.gops:.0f} GOPS at {s.intensity:.0f} ops/byte")
    return canvas.draw("roofline: GOPS by operations per byte", legend)


def curves(series: Mapping[str, Sequence[tuple[float, float]]], title: str, *, logarithmic: bool = True) -> str:
    """Lines of points with a mark for each series. Empty where there is nothing."""
    points = [p for found in series.values() for p in found]
    if not points:
        return ""
    xs, ys = [p[0] for p in points], [p[1] for p in points]
    canvas = Canvas(min(xs), max(xs), min(ys), max(ys), logarithmic)
    for mark, found in zip(_marks(len(series)), series.values(), strict=False):
        for x, y in found:
            canvas.put(x, y, mark)
    legend = [f"{mark} {name}" for mark, name in zip(_marks(len(series)), series, strict=False)]
    return canvas.draw(title, legend)


def pictures(result: Result) -> str:
    """The roofline, time against size with the peers, and scaling over threads: those for which there is data."""
    found = [
        roofline(result),
        curves(data.by_size(result), "us by operations"),
        curves(data.by_threads(result), "times as fast, by threads", logarithmic=False),
    ]
    return "\n\n".join(f for f in found if f)


def _marks(count: int) -> str:
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    return MARKS[:count] if count <= len(MARKS) else (letters * (count // len(letters) + 1))[:count]


class Canvas:
    """A grid of characters with an axis for x and one for y."""

    def __init__(self, x0: float, x1: float, y0: float, y1: float, logarithmic: bool = True) -> None:
        self.scale = math.log10 if logarithmic and min(x0, y0) > 0 else float
        self.logarithmic = self.scale is not float
        self.bounds = [self.scale(v) for v in (x0, x1, y0, y1)]
        for lo, hi in ((0, 1), (2, 3)):
            if self.bounds[hi] - self.bounds[lo] < 1e-9:
                self.bounds[lo] -= 0.5
                self.bounds[hi] += 0.5
        self.cells = [[" "] * WIDTH for _ in range(HEIGHT)]

    def x_of(self, column: int) -> float:
        """The x in the middle of a column."""
        x0, x1 = self.bounds[:2]
        at = x0 + (x1 - x0) * column / (WIDTH - 1)
        return 10.0**at if self.logarithmic else at

    def put(self, x: float, y: float, mark: str) -> None:
        """A mark at a place; outside the grid there is nothing to see."""
        x0, x1, y0, y1 = self.bounds
        column = round((self.scale(x) - x0) / (x1 - x0) * (WIDTH - 1))
        row = round((y1 - self.scale(y)) / (y1 - y0) * (HEIGHT - 1))
        if 0 <= column < WIDTH and 0 <= row < HEIGHT:
            self.cells[row][column] = mark

    def draw(self, title: str, legend: Sequence[str]) -> str:
        """The picture with its axes' ends and a legend below."""
        x0, x1, y0, y1 = ((10.0**v if self.logarithmic else v) for v in self.bounds)
        left = [""] * HEIGHT
        left[0], left[-1] = _short(y1), _short(y0)
        rows = [f"{label:>8} |{''.join(row).rstrip()}" for label, row in zip(left, self.cells, strict=True)]
        ends = f"{_short(x0)}{_short(x1):>{max(1, WIDTH - len(_short(x0)))}}"
        return "\n".join(
            [title, *rows, f"{'':>8} +{'-' * WIDTH}", f"{'':>10}{ends}", *(f"{'':>10}{line}" for line in legend)]
        )


def _short(v: float) -> str:
    return f"{v:.3g}"
