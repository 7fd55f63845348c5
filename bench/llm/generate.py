"""`tilework generate`: text as it comes, then how many tokens a second."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import tilework as tw
from tilework.frontends.llm import Model, Sampler
from tilework.primitives.errors import ArgumentError, Unsupported


@dataclass(frozen=True)
class Options:
    """scheme, kv_scheme: names of schemes, or None for what the file has. threads: None for all."""

    tokens: int = 64
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    threads: int | None = None
    scheme: str | None = None
    kv_scheme: str | None = None
    compute: str = "int8"


def load(path: str, options: Options) -> Model:
    """A model, with a bar on a terminal while its weights are read and packed."""
    with _progress() as note:
        return tw.llm.load(
            path,
            scheme=options.scheme,
            kv_scheme=options.kv_scheme,
            compute=options.compute,
            executor=tw.TilingExecutor(threads=options.threads),
            progress=note,
        )


@contextmanager
def _progress() -> Iterator[Callable[[int, int], Any]]:
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("reading weights", total=None)

        def note(done: int, total: int) -> None:
            what = "packing weights" if done == total else f"reading layer {done + 1} of {total}"
            progress.update(task, total=total + 1, completed=done, description=what)

        yield note


def run(path: str, prompt: str, options: Options, show: bool = True) -> dict[str, Any]:
    """Load, generate, and say what it took; the text goes to stdout as it comes where `show`."""
    sampler = Sampler(options.temperature, options.top_k, options.top_p, options.seed)
    if options.tokens < 1:
        raise ArgumentError(f"{options.tokens} tokens; at least 1 can be generated")
    start = time.perf_counter()
    model = load(path, options)
    loaded = time.perf_counter() - start
    if model.tokenizer is None:
        raise Unsupported(
            f"{path} has no tokenizer, so that text cannot become tokens; tw.llm.load(..).generate takes ids"
        )
    ids = model.tokenizer.encode(prompt, special=True)
    if not ids:
        raise ArgumentError("the prompt is empty, and the file has no token that begins a text; give --prompt")
    if len(ids) + options.tokens > model.config.context:
        raise ArgumentError(
            f"{len(ids)} tokens of prompt and {options.tokens} to generate; the model was made for "
            f"{model.config.context} in all"
        )
    model.session().feed(ids), model.session().feed(ids[:1])  # kernels are compiled and memory is laid out
    text, made, times = model.tokenizer.stream(), [], [time.perf_counter()]
    pieces = []
    if show:
        print(prompt, end="", flush=True)
    for token in model.generate(ids, options.tokens, sampler):
        times.append(time.perf_counter())
        made.append(token)
        pieces.append(text(token))
        if show:
            print(pieces[-1], end="", flush=True)
    if show:
        print()
    decoded = times[-1] - times[1] if len(times) > 2 else 0.0
    return {
        "model": str(path),
        "prompt": prompt,
        "text": "".join(pieces),
        "tokens": made,
        "prompt_tokens": len(ids),
        "threads": model.executor.threads,
        "load_s": loaded,
        "prefill_tokens_per_s": len(ids) / (times[1] - times[0]) if len(times) > 1 else None,
        "decode_tokens_per_s": (len(made) - 1) / decoded if decoded else None,
    }


def show(result: dict[str, Any]) -> None:
    """The closing line, on stderr, so that stdout is the text alone."""
    parts = [f"loaded in {result['load_s']:.1f} s"]
    for what, count in (("prefill", result["prompt_tokens"]), ("decode", len(result["tokens"]) - 1)):
        if (rate := result[f"{what}_tokens_per_s"]) is not None:
            parts.append(f"{what} {count} tokens, {rate:.1f} tokens/s")
    threads = result["threads"]
    print("; ".join([*parts, f"{threads} thread{'s' * (threads > 1)}"]), file=sys.stderr)
