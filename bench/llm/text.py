"""Text that every Python carries, and a vocabulary made of it: its language reference, cut by byte-level BPE."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from tilework.frontends.llm.patterns import cutter
from tilework.frontends.llm.tokenizer import BYTES
from tilework.primitives.errors import ArgumentError

HELD_OUT = 20  # each 20th paragraph is for judging only
END = "<|endoftext|>"


@lru_cache(maxsize=1)
def texts() -> tuple[str, str]:
    """(to learn from, to judge by): the topics of Python's language reference, paragraph by paragraph."""
    from pydoc_data.topics import topics

    whole = "\n\n".join(topics[name] for name in sorted(topics))
    paragraphs = list(dict.fromkeys(whole.split("\n\n")))
    held = [p for n, p in enumerate(paragraphs) if n % HELD_OUT == HELD_OUT - 1]
    kept = [p for n, p in enumerate(paragraphs) if n % HELD_OUT != HELD_OUT - 1]
    return "\n\n".join(kept), "\n\n".join(held)


def vocabulary(text: str, size: int) -> dict[str, Any]:
    """Metadata of a tokenizer of kind gpt2: all bytes, an end, and the merges of most frequent pairs up to `size`."""
    words = Counter("".join(BYTES[b] for b in word.encode()) for word in cutter("gpt-2")(text))
    split = {word: list(word) for word in words}
    tokens, merges = [*sorted(BYTES), END], []
    while len(tokens) < size:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, count in words.items():
            for pair in zip(split[word], split[word][1:], strict=False):
                pairs[pair] += count
        if not pairs:
            raise ArgumentError(f"the text has merges for {len(tokens)} tokens only; {size} were asked for")
        (a, b), _ = max(pairs.items(), key=lambda item: (item[1], item[0]))
        merges.append(f"{a} {b}")
        tokens.append(a + b)
        for word, parts in split.items():
            if a in parts:
                split[word] = _joined(parts, a, b)
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3 if t == END else 1 for t in tokens],
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.eos_token_id": tokens.index(END),
        "tokenizer.ggml.add_bos_token": False,
    }


def _joined(parts: Iterable[str], a: str, b: str) -> list[str]:
    found: list[str] = []
    for part in parts:
        if found and found[-1] == a and part == b:
            found[-1] = a + b
        else:
            found.append(part)
    return found
