"""`tilework bench perplexity`: weights in many formats and caches in several schemes, each by its perplexity.

    perplexity = exp(mean over tokens of -log p(token | the tokens before it))

The text is cut into windows of the model's context, and the first half of each but the first only gives context. Every
row is also compared with logits of the file's own weights in float64: the largest difference on the first tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import tilework as tw
from tilework.frontends.llm import Config, Model, Tokenizer, Weights, float64
from tilework.primitives.errors import ArgumentError, Unsupported

from ..progress import track
from . import small
from .text import texts

Array = np.ndarray[Any, Any]
FORMATS = (
    "F32",
    "Q8_0",
    "Q5_1",
    "Q5_0",
    "Q4_1",
    "Q4_0",
    "MXFP4",
    "TQ2_0",
    "int4_g32",
    "nf4",
    "int3_g32",
    "fp8_e4m3_channel",
)
CACHES = ("int8_channel", "int4_g32", "fp8_e4m3_channel")
COMPARED = 64  # tokens whose logits are compared with float64


@dataclass(frozen=True)
class Options:
    """text: a file; tokens: at most so many of it. Empty formats and caches: the usual ones."""

    formats: tuple[str, ...] = ()
    caches: tuple[str, ...] = ()
    text: str | None = None
    tokens: int = 4096
    compute: str = "int8"
    threads: int | None = None


def measure(path: str | None, options: Options) -> dict[str, Any]:
    """One row for each format with a cache in f32, then one for each scheme of the cache with weights of the file."""
    source = _small() if path is None else Path(path)
    contents = tw.gguf.load(source)
    config = Config.of(contents.metadata, source.name)
    tokenizer = Tokenizer(contents.metadata, source.name)
    ids = np.asarray(tokenizer.encode(_text(options.text), bos=False)[: options.tokens])
    if len(ids) < 2:
        raise ArgumentError("the text has less than two tokens, so that nothing is predicted")
    weights = Weights(contents, name=source.name)
    exact = float64.logits(config, weights, ids[:COMPARED].tolist())
    executor = tw.TilingExecutor(threads=options.threads)
    rows = [{"weights": "float64", "cache": "float64", "perplexity": _in_float64(config, weights, ids)}]
    rows[0] |= {"bits": None, "largest_difference": 0.0}
    work: list[tuple[str | None, str | None]] = [(name, None) for name in options.formats or FORMATS]
    work += [(None, cache) for cache in options.caches or CACHES]
    for name, cache in track(work, "measuring", lambda item: item[0] or item[1] or ""):
        given, scheme = _weights(contents, name)
        made = Weights(given, scheme, source.name, executor)
        kv = None if cache is None else tw.schemes.get(cache)
        model = Model(config, made, tokenizer, compute=options.compute, kv_scheme=kv, executor=executor)
        logits = model.logits(ids[:COMPARED].tolist())
        rows.append(
            {
                "weights": name or "the file's",
                "cache": cache or "f32",
                "bits": _bits(given, scheme),
                "perplexity": _perplexity(model, ids),
                "largest_difference": float(np.abs(logits - exact).max()),
            }
        )
    return {
        "model": str(source),
        "tokens": len(ids),
        "compute": options.compute,
        "largest_logit": float(np.abs(exact).max()),
        "rows": rows,
    }


def _small() -> Path:
    """The small model, trained once and kept in the cache folder."""
    from tilework.kernels import cache

    path = Path(cache.folder()) / "models" / "small.gguf"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        small.make(path)
    return path


def _text(path: str | None) -> str:
    if path is None:
        return texts()[1]
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ArgumentError(f"the text {path!r} cannot be read: {error}") from error


def _weights(contents: Any, name: str | None) -> tuple[Any, Any]:
    """(tensors, scheme): a type of GGUF is encoded as a file would have it; other names are schemes."""
    if name is None:
        return contents, None
    if name.upper() in tw.gguf.TYPES:
        try:
            return small.converted(contents, name.upper()), None
        except Unsupported as error:
            raise Unsupported(f"{error}; give a file that has it, or --format with another") from error
    return contents, tw.schemes.get(name)


def _bits(tensors: Any, scheme: Any) -> float:
    """Bits for each weight of all matrices."""
    raw = [t for t in tensors.values() if len(t.shape) == 2]
    size = sum(int(np.prod(t.shape)) for t in raw)
    if scheme is None:
        return 8 * sum(t.nbytes for t in raw) / size
    return sum(scheme.quantize(np.zeros(t.shape, np.float32)).nbytes for t in raw) * 8 / size


def windows(count: int, context: int) -> list[tuple[int, int, int]]:
    """(first, end, first that is judged) of each window over `count` tokens: all but the very first token once."""
    found, at = [], 1
    while at < count:
        first = max(0, at - context // 2) if at > 1 else 0
        end = min(first + context, count)
        found.append((first, end, at))
        at = end
    return found


def _perplexity(model: Model, ids: Array) -> float:
    return _of(windows(len(ids), model.config.context), ids, lambda part: model.logits(part.tolist()))


def _in_float64(config: Config, weights: Weights, ids: Array) -> float:
    return _of(windows(len(ids), config.context), ids, lambda part: float64.logits(config, weights, part.tolist()))


def _of(parts: Sequence[tuple[int, int, int]], ids: Array, logits_of: Any) -> float:
    total = 0.0
    for first, end, judged in parts:
        logits = np.asarray(logits_of(ids[first : end - 1]), np.float64)[judged - first - 1 :]
        wanted = ids[judged:end]
        top = logits.max(-1)
        chosen = logits[np.arange(len(wanted)), wanted]
        total += float((np.log(np.exp(logits - top[:, None]).sum(-1)) + top - chosen).sum())
    return float(np.exp(total / (len(ids) - 1)))


def show(result: dict[str, Any]) -> None:
    from rich.table import Table

    from ..terminal import wide_console

    title = f"{Path(result['model']).name}, {result['tokens']} tokens, compute {result['compute']}"
    table = Table(title=title, title_justify="left")
    for column in ("weights", "cache", "bits", "perplexity", "vs float64", "logits off by"):
        table.add_column(column, justify="left" if column in ("weights", "cache") else "right", no_wrap=True)
    exact = result["rows"][0]["perplexity"]
    for row in result["rows"]:
        bits = "" if row["bits"] is None else f"{row['bits']:.2f}"
        change = f"{100 * (row['perplexity'] / exact - 1):+.2f} %"
        table.add_row(
            row["weights"], row["cache"], bits, f"{row['perplexity']:.4f}", change, f"{row['largest_difference']:.2g}"
        )
    wide_console().print(table)
    print(
        f"Logits are off by at most that on the first {COMPARED} tokens, where the largest is {result['largest_logit']:.3g}."
    )


def draw(result: dict[str, Any], path: str) -> None:
    """Perplexity of every row, one line each: formats of weights, then schemes of the cache."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    exact, *rows = result["rows"]
    kinds = [[r for r in rows if (r["cache"] == "f32") == plain] for plain in (True, False)]
    figure = Figure(figsize=(8, 1.5 + 0.27 * len(rows)), layout="constrained")
    axes = figure.subplots(2, 1, height_ratios=[max(len(k), 1) for k in kinds])
    for axis, kind, key in zip(axes, kinds, ("weights", "cache"), strict=True):
        values = [r["perplexity"] for r in kind]
        axis.axvline(exact["perplexity"], color="grey", linewidth=0.8)
        axis.plot(values, range(len(kind)), "o")
        axis.set_yticks(
            range(len(kind)), [f"{r[key]}  {r['bits']:.2f} bits" if key == "weights" else r[key] for r in kind]
        )
        axis.invert_yaxis()
        axis.grid(axis="x", linewidth=0.3)
        if values and max(values) > 3 * exact["perplexity"]:
            axis.set_xscale("log")
    axes[0].set_title("formats of weights; the line is float64", fontsize=10)
    axes[1].set(title="schemes of keys and values, weights of the file", xlabel="perplexity")
    axes[1].title.set_fontsize(10)
    figure.savefig(path, dpi=150)
