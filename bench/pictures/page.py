"""A result as one HTML page that needs nothing beside it: tables that can be sorted, pictures, and every point."""

from __future__ import annotations

import json
from html import escape
from typing import Any

from ..machine import load
from ..tiles.report import digits
from ..tiles.result import Result, Sweep
from ..tiles.space import show
from . import figures

STYLE = """
:root { color-scheme: light dark; --ink: #1b1b1b; --paper: #fff; --line: #d0d0d0; --mark: #e8f1fa; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e6e6; --paper: #181818; --line: #444; --mark: #23384d; } }
body { font: 15px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 2rem auto; max-width: 64rem;
  padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.2rem; margin-top: 2.2rem; border-top: 1px solid var(--line); padding-top: 1rem; }
table { border-collapse: collapse; margin: .6rem 0; font-variant-numeric: tabular-nums; }
th, td { padding: .15rem .7rem; text-align: right; border-bottom: 1px solid var(--line); }
th.text, td.text { text-align: left; } td.text:first-child { white-space: nowrap; }
th { cursor: pointer; } th[aria-sort] { text-decoration: underline; }
tr.chosen { background: var(--mark); font-weight: 600; } tr.bad td { color: #c0392b; }
.scroll { overflow-x: auto; } .warn { color: #c0392b; } .pictures svg { max-width: 100%; height: auto; background: #fff; }
figure { margin: 1rem 0; } details { margin: .6rem 0; } summary { cursor: pointer; }
"""
SCRIPT = """
for (const head of document.querySelectorAll('th')) head.addEventListener('click', () => {
  const table = head.closest('table'), body = table.tBodies[0], at = head.cellIndex;
  const up = head.getAttribute('aria-sort') !== 'ascending';
  for (const other of table.querySelectorAll('th')) other.removeAttribute('aria-sort');
  head.setAttribute('aria-sort', up ? 'ascending' : 'descending');
  const value = row => { const v = row.cells[at].dataset.v ?? row.cells[at].textContent; return v === '' ? null : v; };
  const rows = [...body.rows].sort((a, b) => {
    const x = value(a), y = value(b);
    if (x === null || y === null) return (x === null) - (y === null);
    const n = Number(x) - Number(y);
    return (Number.isNaN(n) ? x.localeCompare(y) : n) * (up ? 1 : -1);
  });
  body.append(...rows);
});
"""


def page(result: Result) -> str:
    """The text of the page. Raises Unsupported without matplotlib."""
    pictures = [
        f"<figure role='img' aria-label='{escape(title)}'>{_own_ids(figures.svg(paint), n)}</figure>"
        for n, (title, paint) in enumerate(figures.panels(result))
    ]
    m = result.machine
    facts = [
        ("machine", f"{m['model']}, {m['usable_cores']} cores, {m['isa']}"),
        ("compiler", m.get("compiler", "")),
        ("tilework", m.get("tilework", "")),
        ("load", " to ".join(_load(m, k) for k in ("load_before", "load_after"))),
    ]
    parts = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
        "<meta name='viewport' content='width=device-width, initial-scale=1'>",
        f"<title>{escape(_title(result))}</title><link rel='icon' href='data:,'><style>{STYLE}</style></head><body>",
        f"<h1>{escape(_title(result))}</h1>",
        "<table><tbody>"
        + "".join(f"<tr><td class='text'>{k}</td><td class='text'>{escape(str(v))}</td></tr>" for k, v in facts),
        "</tbody></table>",
        "<section class='pictures'><h2>Pictures</h2>" if pictures else "<section>",
        *pictures,
        "</section>",
        *(_sweep(s, " open" if len(result.sweeps) < 3 else "") for s in result.sweeps),
        f"<script type='application/json' id='result'>{_json(result)}</script>",
        f"<script>{SCRIPT}</script></body></html>\n",
    ]
    return "\n".join(parts)


def _title(result: Result) -> str:
    return "tilework: " + ", ".join(dict.fromkeys(f"{s.kernel} {s.label}" for s in result.sweeps))


def _load(machine: Any, key: str) -> str:
    found = (machine.get(key) or {}).get("load_1min")
    return "unknown" if found is None else f"{found:.1f}"


def _json(result: Result) -> str:
    """The whole result, as it may stand inside an element."""
    return json.dumps(result.to_dict(), allow_nan=False).replace("<", "\\u003c")


def _own_ids(svg: str, n: int) -> str:
    """Pictures stand in one page: their ids must differ."""
    for what in ('id="', 'href="#', "url(#"):
        svg = svg.replace(what, f"{what}p{n}-")
    return svg


def _cell(value: Any, shown: str = "", text: bool = False) -> str:
    kind = " class='text'" if text else ""
    data = "" if text or value is None else f" data-v='{value}'"
    return f"<td{kind}{data}>{escape(shown or ('' if value is None else str(value)))}</td>"


def _table(headings: list[tuple[str, bool]], rows: list[str]) -> str:
    head = "".join(f"<th class='text'>{escape(h)}</th>" if text else f"<th>{escape(h)}</th>" for h, text in headings)
    return f"<div class='scroll'><table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"


def _sweep(s: Sweep, opened: str) -> str:
    peak = f", measured peak {s.peak_gops:.0f} {'GFLOPS' if s.unit == 'fma' else 'GOPS'}" if s.peak_gops else ""
    threads = f"{s.threads} thread{'s' * (s.threads > 1)}"
    lines = [
        f"<section><h2>{escape(s.kernel)} {escape(s.label)}, {threads}</h2>",
        f"<p>{threads.capitalize()} on {escape(s.device)}{peak}. Search: {s.search}; caches: {s.cache}. "
        f"{len(s.timed)} of {len(s.points)} tiles timed, {s.count('pruned')} pruned, {s.compiled} compiled in "
        f"{s.compile_s:.1f} s; {s.wall_s:.1f} s in all. Right by {escape(s.checked)}.</p>",
        f"<p>Chosen: <b>{escape(show(s.best))}</b>{' (saved: plans take it)' if s.saved else ''}.</p>",
    ]
    if s.interrupted:
        lines.append("<p class='warn'>Interrupted; the same command goes on from there.</p>")
    if s.others is not None and s.others > load.BUSY:
        lines.append(f"<p class='warn'>Other programs used {s.others:.0%} of the processors meanwhile.</p>")
    rivals = [(show(r.tile) if r.tile is not None else r.name, r, r.tile == s.best) for r in [*s.finalists, *s.peers]]
    if rivals:
        rows = []
        for name, r, chosen in rivals:
            gops = s.gops(r.p5_us)
            tie = " tie" if r.tie and not chosen else ""
            cold = f"{r.cold_us / r.p5_us - 1:+.0%}" if r.cold_us else ""
            rows.append(
                f"<tr class='{'chosen' if chosen else ''}'>{_cell(None, name, True)}{_cell(r.p5_us, digits(r.p5_us))}"
                f"{_cell(gops, f'{gops:.0f}' if gops else '')}"
                f"{_cell(r.ratio, f'{r.ratio:.3f} ({r.low:.3f}-{r.high:.3f}){tie}')}{_cell(r.cold_us, cold)}"
                f"{_cell(None, r.convention, True)}</tr>"
            )
        headings = [
            ("final", True),
            ("p5 us", False),
            ("GOPS", False),
            ("time / chosen", False),
            ("cold", False),
            ("", True),
        ]
        lines.append(_table(headings, rows))
    rows = []
    for p in sorted(s.points, key=lambda p: p.p5_us or float("inf")):
        gops = s.gops(p.p5_us)
        kind = "chosen" if p.tile == s.best and p.p5_us else "bad" if p.status in ("wrong", "failed") else ""
        rows.append(
            f"<tr class='{kind}'>{_cell(None, show(p.tile), True)}{_cell(p.p5_us, digits(p.p5_us))}"
            f"{_cell(gops, f'{gops:.0f}' if gops else '')}{_cell(p.spread, f'{p.spread:.1%}' if p.spread is not None else '')}"
            f"{_cell(p.samples or None)}{_cell(p.predicted_us, digits(p.predicted_us))}{_cell(None, p.status, True)}"
            f"{_cell(None, p.why, True)}</tr>"
        )
    headings = [
        ("tile", True), ("p5 us", False), ("GOPS", False), ("spread", False), ("samples", False), ("model us", False),
        ("status", True), ("why", True),
    ]  # fmt: skip
    lines.append(
        f"<details{opened}><summary>All {len(s.points)} tiles</summary>{_table(headings, rows)}</details></section>"
    )
    return "\n".join(lines)
