"""`tilework scheme passport`: everything that a reader needs to judge a scheme, on one page that needs nothing beside it.

The definition as it was written, figures on weights of several kinds (and on the reader's own), the proof that plain
Python and compiled code agree, the certificate of a format of single numbers, times on this machine, and pictures.
"""

from __future__ import annotations

import base64
import inspect
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from tilework.primitives.errors import ArgumentError, TileworkError, Unsupported

from ..machine import doctor
from . import certificate
from . import figures as schemes

NEIGHBOURS = ("int8_channel", "int4_g32", "int4_g128", "nf4", "mxfp4", "int3_g32", "int2_g32", "fp8_e4m3_channel")
ROWS, COLUMNS = 256, 1024
FIGURES = (
    ("bits_per_weight", "bits a weight", ".3f"),
    ("sqnr_db", "SQNR dB", ".2f"),
    ("max_abs", "largest error", ".3g"),
    ("cosine", "cosine", ".6f"),
    ("output_sqnr_db", "outputs dB", ".2f"),
    ("output_kl", "outputs KL", ".3g"),
    ("clipped", "clipped", ".2%"),
)
ROLES = ("fit", "encode", "decode", "encode_block", "decode_block")


def weights_of_kinds() -> dict[str, np.ndarray]:
    """Made-up weights: normal, heavy-tailed, with outlying channels, and of one sign."""
    rng = np.random.default_rng(0)
    normal = rng.standard_normal((ROWS, COLUMNS))
    outliers = normal * np.where(rng.random(COLUMNS) < 0.01, 20.0, 1.0)
    kinds = {
        "normal": normal,
        "heavy-tailed (Student, 3)": rng.standard_t(3, (ROWS, COLUMNS)),
        "1 % of channels 20 times": outliers,
        "of one sign": np.abs(normal),
    }
    return {name: (w * 0.02).astype(np.float32) for name, w in kinds.items()}


def collect(name: str, weights: str | None = None, tensors: Sequence[str] = (), proof: bool = True) -> dict[str, Any]:
    """Everything on the page but the pictures, ready for JSON.

    name     of a shipped scheme, or file.py:name
    weights  a file of the reader's own
    proof    whether to run the proof on every instruction set; without it, on this machine's best only
    """
    scheme = schemes.find(name)
    if not scheme.encodes:
        raise Unsupported(f"{scheme.name} only decodes; a passport shows what quantizing loses")
    data = weights_of_kinds()
    if weights is not None:
        data |= {f"{Path(weights).name}: {k}": w for k, w in schemes.load(weights, tensors).items()}
    reports = {kind: scheme.report(w, timings=False).as_dict() for kind, w in data.items()}
    timed = scheme.report(data["normal"]).as_dict()
    checked = scheme.check(levels=None if proof else ())
    found = {
        "scheme": scheme.name,
        "shown": repr(scheme),
        "digest": scheme.digest,
        "source": source_of(scheme),
        "explained": scheme.explain(),
        "figures": reports,
        "times_ms": timed["times_ms"],
        "shape": timed["shape"],
        "proof": str(checked),
        "agrees": bool(checked),
        "certificate": certificate_of(scheme),
        "machine": _machine(),
    }
    return found


def certificate_of(scheme: Any) -> str | None:
    """The quick certificate of a format of single numbers, as text; None for other schemes."""
    try:
        return str(certificate.certify(scheme, quick=True))
    except TileworkError:
        return None


def source_of(scheme: Any) -> dict[str, str]:
    """The text of the scheme's functions, by role, as they were written."""
    found = {}
    functions = {role: getattr(scheme, role) for role in ROLES}
    if scheme.grouped is not None:
        functions["split"] = scheme.grouped.split
    for role, fn in functions.items():
        if fn is not None:
            try:
                found[role] = inspect.cleandoc(inspect.getsource(fn)) if fn.__name__ == "<lambda>" else _dedented(fn)
            except (OSError, TypeError):
                found[role] = f"{fn!r}: its source is not at hand"
    return found


def _dedented(fn: Any) -> str:
    import textwrap

    return textwrap.dedent(inspect.getsource(fn)).rstrip()


def _machine() -> dict[str, str]:
    cpu, versions = doctor.cpu(), doctor.versions()
    return {
        "processor": ", ".join(str(v) for k, v in cpu.items() if k in ("model", "name", "level", "isa") and v),
        "versions": ", ".join(f"{k} {v}" for k, v in versions.items() if v),
    }


def pictures_of(name: str, weights: Mapping[str, np.ndarray]) -> list[tuple[str, Any]]:
    """[(title, function that paints it)] for the page."""
    from ..pictures import schemes as pictures

    scheme = schemes.find(name)
    w = next(iter(weights.values()))
    rows: list[Any] = []
    for other in dict.fromkeys((name, *(n for n in NEIGHBOURS if n != scheme.name))):
        chosen = schemes.find(other)
        found = chosen.report(w, timings=False)
        rows.append({"scheme": chosen.name, "bits_per_weight": found.bits_per_weight, "sqnr_db": found.sqnr_db})
    finite = [r for r in rows if np.isfinite(r["sqnr_db"])]
    layers = {
        scheme.name: {kind: float(scheme.report(v, timings=False).sqnr_db) for kind, v in weights.items()},
    }
    return [
        *pictures.of_scheme(scheme, w),
        ("SQNR against bits", lambda axes: pictures.sqnr_against_bits(axes, finite)),
        ("SQNR by kind of weights", lambda axes: pictures.layer_errors(axes, layers)),
    ]


def write(
    name: str, out: str, weights: str | None = None, tensors: Sequence[str] = (), proof: bool = True
) -> dict[str, Any]:
    """Write the page to a .html or .md file. Returns what is on it. Raises ArgumentError for another ending."""
    path = Path(out)
    if path.suffix not in (".html", ".md"):
        raise ArgumentError(f"{out!r} ends in {path.suffix or 'nothing'!r}; a passport is .html or .md")
    from ..pictures.figures import svg

    found = collect(name, weights, tensors, proof)
    data = weights_of_kinds()
    if weights is not None:
        data = {**schemes.load(weights, tensors), **data}
    drawn = [(title, svg(paint, 6.0, 3.6)) for title, paint in pictures_of(name, data)]
    path.write_text(_html(found, drawn) if path.suffix == ".html" else _markdown(found, drawn), encoding="utf-8")
    return found


def _rows(found: Mapping[str, Any]) -> list[list[str]]:
    rows: list[Any] = []
    for kind, figures in found["figures"].items():
        cells = ["-" if figures[key] is None else format(figures[key], form) for key, _, form in FIGURES]
        rows.append([kind, *cells])
    return rows


def _times(found: Mapping[str, Any]) -> list[list[str]]:
    elements = found["shape"][0] * found["shape"][1]
    rows: list[Any] = []
    for what, ms in found["times_ms"].items():
        rows.append([what, f"{ms:.3f}", f"{elements / ms / 1e6:.2f}"])
    return rows


TIMES = ("step", "ms", "weights a nanosecond")


def _html(found: Mapping[str, Any], drawn: Sequence[tuple[str, str]]) -> str:
    from ..pictures.page import STYLE, _own_ids

    def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
        head = "".join(f"<th{' class=text' if n == 0 else ''}>{escape(h)}</th>" for n, h in enumerate(heads))
        body = "".join(
            "<tr>"
            + "".join(f"<td{' class=text' if n == 0 else ''}>{escape(c)}</td>" for n, c in enumerate(row))
            + "</tr>"
            for row in rows
        )
        return f"<div class='scroll'><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"

    title = f"Scheme {found['scheme']}"
    verdict = "" if found["agrees"] else " class='warn'"
    parts = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
        "<meta name='viewport' content='width=device-width, initial-scale=1'>",
        f"<title>{escape(title)}</title><link rel='icon' href='data:,'><style>{STYLE}",
        "pre { overflow-x: auto; border: 1px solid var(--line); padding: .6rem; font-size: .85rem; }</style></head><body>",
        f"<h1>{escape(title)}</h1><p>{escape(found['shown'].strip('<>'))}. Digest {escape(found['digest'])}.</p>",
        "<section><h2>Figures</h2>",
        table(["weights", *(label for _, label, _ in FIGURES)], _rows(found)),
        "</section><section><h2>Proof</h2>",
        f"<pre{verdict}>{escape(found['proof'])}</pre>",
        f"<p>Certificate: {escape(found['certificate'])}</p>" if found["certificate"] else "",
        f"</section><section><h2>Times</h2><p>{found['shape'][0]} x {found['shape'][1]} weights; "
        f"{escape('; '.join(found['machine'].values()))}</p>",
        table(TIMES, _times(found)),
        "</section><section class='pictures'><h2>Pictures</h2>",
        *(
            f"<figure role='img' aria-label='{escape(what)}'>{_own_ids(text, n)}</figure>"
            for n, (what, text) in enumerate(drawn)
        ),
        "</section><section><h2>Definition</h2>",
        *(f"<h3>{escape(role)}</h3><pre>{escape(text)}</pre>" for role, text in found["source"].items()),
        f"<h3>what it became</h3><pre>{escape(found['explained'])}</pre></section></body></html>\n",
    ]
    return "\n".join(parts)


def _markdown(found: Mapping[str, Any], drawn: Sequence[tuple[str, str]]) -> str:
    def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
        lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
        return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])

    def picture(title: str, text: str) -> str:
        return f"![{title}](data:image/svg+xml;base64,{base64.b64encode(text.encode()).decode()})"

    parts = [
        f"# Scheme {found['scheme']}",
        f"{found['shown'].strip('<>')}. Digest {found['digest']}.",
        "## Figures",
        table(["weights", *(label for _, label, _ in FIGURES)], _rows(found)),
        "## Proof",
        f"```\n{found['proof']}\n```",
        *([f"Certificate: {found['certificate']}"] if found["certificate"] else []),
        "## Times",
        f"{found['shape'][0]} x {found['shape'][1]} weights; {'; '.join(found['machine'].values())}",
        table(TIMES, _times(found)),
        "## Pictures",
        *(picture(title, text) for title, text in drawn),
        "## Definition",
        *(f"### {role}\n\n```python\n{text}\n```" for role, text in found["source"].items()),
        f"### what it became\n\n```\n{found['explained']}\n```",
    ]
    return "\n\n".join(parts) + "\n"
