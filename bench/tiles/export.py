"""A result as CSV, one line a point, and as Markdown, for a report."""

from __future__ import annotations

import csv as writer
import io

from .report import digits
from .result import Result, Rival
from .space import show

COLUMNS = (
    "kernel", "step", "label", "threads", "device", "search", "cache", "tile", "status", "p5_us", "median_us", "gops",
    "samples", "spread", "stopped", "calm", "cold_us", "predicted_us", "best", "why",
)  # fmt: skip


def csv(result: Result) -> str:
    """All points of all sweeps, with a heading line; `tile` is "mr 6 nr 32", and each parameter has a column too."""
    names = list(dict.fromkeys(name for s in result.sweeps for name in s.values))
    out = io.StringIO()
    table = writer.writer(out, lineterminator="\n")
    table.writerow([*COLUMNS, *names])
    for s in result.sweeps:
        for p in s.points:
            facts = {
                **{k: getattr(s, k) for k in ("kernel", "step", "label", "threads", "device", "search", "cache")},
                **{k: getattr(p, k) for k in COLUMNS if hasattr(p, k)},
                "tile": show(p.tile),
                "gops": s.gops(p.p5_us),
                "best": int(p.tile == s.best),
            }
            row = [facts[c] for c in COLUMNS] + [p.tile.get(n) for n in names]
            table.writerow(["" if v is None else v for v in row])
    return out.getvalue()


def markdown(result: Result, top: int = 10) -> str:
    """For each sweep the fastest tiles and the peers."""
    m = result.machine
    lines = [f"Measured on {m['model']}, {m['isa']}, {m.get('compiler', '')}.", ""]
    for s in result.sweeps:
        peak = f", peak {s.peak_gops:.0f} GOPS (measured)" if s.peak_gops else ""
        lines += [f"### {s.kernel} {s.label}, {s.threads} thread{'s' * (s.threads > 1)}{peak}", ""]
        lines += ["| | tile | p5 us | GOPS | % peak | to the chosen |", "|---|---|---|---|---|---|"]
        final = {tuple(sorted((r.tile or {}).items())): r for r in s.finalists}
        rows: list[tuple[dict[str, int], float, Rival | None]] = [(r.tile or {}, r.p5_us, r) for r in s.finalists]
        rows += [(p.tile, p.p5_us or 0.0, None) for p in s.timed if tuple(sorted(p.tile.items())) not in final]
        for tile, us, r in rows[:top]:
            gops = s.gops(us)
            share = f"{gops / s.peak_gops:.0%}" if gops and s.peak_gops else ""
            ratio = f"{r.ratio:.3f} ({r.low:.3f}-{r.high:.3f}){' tie' if r.tie else ''}" if r and tile != s.best else ""
            star = "*" if tile == s.best else ""
            lines.append(
                f"| {star} | {show(tile)} | {digits(us)} | {f'{gops:.0f}' if gops else ''} | {share} | {ratio} |"
            )
        if s.peers:
            lines += ["", "| peer | p5 us | tilework is | convention |", "|---|---|---|---|"]
            for r in s.peers:
                lines.append(
                    f"| {r.name} | {digits(r.p5_us)} | {r.ratio:.2f}x ({r.low:.2f}-{r.high:.2f}) | {r.convention} |"
                )
        lines.append("")
    return "\n".join(lines)
