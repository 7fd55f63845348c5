"""A pipeline as a picture: steps in rows by their depth, edges as curves. Plain SVG, nothing needed to see it."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from .sizes import show

if TYPE_CHECKING:
    from .pipeline import Pipeline, Value

WIDTH, HEIGHT, GAP_X, GAP_Y, MARGIN = 210, 44, 30, 60, 20


def svg(pipe: Pipeline) -> str:
    """The graph of a pipeline; constants are left out, their number stands in the step's box."""
    boxes: dict[str, tuple[int, str, str, str]] = {}  # key: depth, title, subtitle, colour
    lines: list[tuple[str, str]] = []
    depth: dict[int, int] = {}
    origin: dict[int, str] = {}
    for value in pipe.values.values():
        if value.kind in ("input", "argument", "state"):
            origin[id(value)] = f"v {value.name}"
            depth[id(value)] = 0
            boxes[f"v {value.name}"] = (0, value.name, f"{value.kind} {_type(value)}", "#dbeafe")
    for step in pipe.order():
        level = 1 + max((depth[id(v)] for v in step.inputs.values() if id(v) in depth), default=0)
        constants = sum(v.kind == "constant" for v in step.inputs.values())
        written = ", ".join(_type(v) for v in step.outputs.values())
        title = f"{written}; {constants} constants" if constants else written
        boxes[f"s {step.name}"] = (level, step.name, title, "#fef3c7")
        for value in step.inputs.values():
            if id(value) in origin:
                lines.append((origin[id(value)], f"s {step.name}"))
        for value in step.outputs.values():
            origin[id(value)] = f"s {step.name}"
            depth[id(value)] = level
    bottom = 1 + max((b[0] for b in boxes.values()), default=0)
    for name, value in pipe.outputs.items():
        boxes[f"o {name}"] = (bottom, name, f"output {_type(value)}", "#dcfce7")
        if id(value) in origin:
            lines.append((origin[id(value)], f"o {name}"))
    return draw(pipe.name, boxes, lines)


def _type(value: Value) -> str:
    return f"{value.dtype or 'function'} {show(value.shape)}"


def draw(title: str, boxes: dict[str, tuple[int, str, str, str]], lines: list[tuple[str, str]]) -> str:
    """Boxes in rows and curves between them. boxes: {key: (row, title, subtitle, colour)}; lines: pairs of keys."""
    rows: dict[int, list[str]] = {}
    for key, box in boxes.items():
        rows.setdefault(box[0], []).append(key)
    at: dict[str, tuple[float, float]] = {}
    across = max((len(row) for row in rows.values()), default=1)
    whole = across * (WIDTH + GAP_X) - GAP_X + 2 * MARGIN
    for n, level in enumerate(sorted(rows)):
        used = len(rows[level]) * (WIDTH + GAP_X) - GAP_X
        for k, key in enumerate(rows[level]):
            at[key] = ((whole - used) / 2 + k * (WIDTH + GAP_X), MARGIN + n * (HEIGHT + GAP_Y))
    tall = 2 * MARGIN + len(rows) * (HEIGHT + GAP_Y) - GAP_Y
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{whole:.0f}" height="{tall:.0f}" '
        f'font-family="sans-serif" font-size="12"><title>{html.escape(title)}</title>'
    ]
    for source, target in lines:
        (x0, y0), (x1, y1) = at[source], at[target]
        x0, y0, x1 = x0 + WIDTH / 2, y0 + HEIGHT, x1 + WIDTH / 2
        middle = (y0 + y1) / 2
        curve = f"M{x0:.0f},{y0:.0f} C{x0:.0f},{middle:.0f} {x1:.0f},{middle:.0f} {x1:.0f},{y1:.0f}"
        parts.append(f'<path d="{curve}" fill="none" stroke="#64748b"/>')
    for key, (_, name, below, colour) in boxes.items():
        x, y = at[key]
        parts.append(
            f'<rect x="{x:.0f}" y="{y:.0f}" width="{WIDTH}" height="{HEIGHT}" rx="6" fill="{colour}" stroke="#64748b"/>'
            f'<text x="{x + 8:.0f}" y="{y + 18:.0f}" font-weight="bold">{html.escape(_short(name))}</text>'
            f'<text x="{x + 8:.0f}" y="{y + 35:.0f}" fill="#475569">{html.escape(_short(below))}</text>'
        )
    return "".join([*parts, "</svg>"])


def _short(text: str) -> str:
    return text if len(text) <= 30 else text[:29] + "\N{HORIZONTAL ELLIPSIS}"
