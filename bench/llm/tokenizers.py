"""`python -m tilework.bench.llm.tokenizers`: tokens of random texts against sentencepiece and tokenizers.

Both train small vocabularies on text of the standard library, which are written as a GGUF file's metadata would have
them. Texts are made of words, spaces and line ends of all kinds, digits, marks and any characters of Unicode. Exit
status 1 where any text has other tokens here, or tokens another text.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from pydoc_data.topics import topics  # type: ignore[import-untyped]
from typing import Any

import numpy as np

from ...frontends.llm import Tokenizer
from ...frontends.llm.patterns import PATTERNS
from ..progress import track

SIZE = 900  # of a vocabulary
TEXTS = 4000
CONTROL, USER, NORMAL, UNKNOWN, BYTE = 3, 4, 1, 2, 6  # tokenizer.ggml.token_type
FOREIGN = (
    "Größe naïve 日本語テキスト 한국어 привет мир 12345 67 👍🏽 émojis don't I'll WE'RE\t\ttabs  spaces   \n\n\r\n x"
)
WORDS = ["the", "import", " don't", " I'LL", "'re", "  ", "\n\n", " 1234567", "\r\n", " if", "value's", ":\n    "]
CHARACTERS = (
    3 * "".join(map(chr, range(32, 127)))
    + 20 * " \n\t\r  "
    + 2 * "'sStTmMdD\u017f\u212a"
    + "àéîöüßñçøåÆÐŁżž日本語テキスト한국어привет٣५๓Ⅳ½²①👍🏽🇩🇪"
    + "\u0301\u0308\u20d0\u200d\u200b\ufeff\u00a0\u3000\u2028\x85\x1c\x1f\x0b\x0c\x00\x7f\ue000\U0010ffff"
)


@dataclass(frozen=True)
class Vocabulary:
    """A vocabulary as a file has it, and the peer's own functions."""

    name: str
    metadata: dict[str, Any]
    encode: Callable[[str], list[int]]
    decode: Callable[[list[int]], str]


def texts(count: int, seed: int = 0) -> Iterator[str]:
    rng = random.Random(seed)
    for _ in range(count):
        parts = []
        for _ in range(rng.randrange(1, 40)):
            kind = rng.random()
            if kind < 0.3:
                parts.append(rng.choice(WORDS))
            elif kind < 0.9:
                parts.append(rng.choice(CHARACTERS))
            else:
                n = rng.randrange(0x110000 - 0x800)
                parts.append(chr(n if n < 0xD800 else n + 0x800))  # no half of a surrogate pair
        yield "".join(parts)


def corpus() -> str:
    return "\n".join(topics.values()) + "\n" + 30 * FOREIGN


def sentencepiece(prefix: bool) -> Vocabulary:
    """Trained as llama's was: BPE, bytes for what is unknown, nothing normalized."""
    import sentencepiece as peer  # type: ignore[import-untyped]

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        source, made = Path(folder) / "text", Path(folder) / "made"
        source.write_text(corpus(), encoding="utf-8")
        peer.SentencePieceTrainer.train(
            input=str(source),
            model_prefix=str(made),
            vocab_size=SIZE,
            model_type="bpe",
            byte_fallback=True,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            add_dummy_prefix=prefix,
            split_digits=True,
            allow_whitespace_only_pieces=True,
            user_defined_symbols=["<|x|>"],
            minloglevel=2,
        )
        model = peer.SentencePieceProcessor(model_file=f"{made}.model")
    ids = range(model.get_piece_size())
    names = [model.id_to_piece(n) for n in ids]

    def kind(n: int) -> int:
        if names[n] == "<|x|>":
            return USER
        return (
            UNKNOWN if model.is_unknown(n) else CONTROL if model.is_control(n) else BYTE if model.is_byte(n) else NORMAL
        )

    fields = {
        "model": "llama",
        "tokens": names,
        "scores": np.array([model.get_score(n) for n in ids], np.float32),
        "token_type": np.array([kind(n) for n in ids], np.int32),
        "add_space_prefix": prefix,
        "eos_token_id": 2,
    }
    name = f"sentencepiece, {'with' if prefix else 'without'} a space first"
    return Vocabulary(name, _metadata(fields), model.encode, model.decode)


def byte_level(pre: str) -> Vocabulary:
    """Byte-level BPE that cuts text as `pre` does."""
    from tokenizers import Regex, decoders, models, pre_tokenizers, trainers
    from tokenizers import Tokenizer as Peer

    cut = PATTERNS[pre]
    steps: list[Any] = [pre_tokenizers.Split(Regex(r"\p{N}"), "isolated")] if cut.digits else []
    steps += [
        pre_tokenizers.Split(Regex(cut.text), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ]
    peer = Peer(models.BPE(ignore_merges=cut.whole_first))
    peer.pre_tokenizer = pre_tokenizers.Sequence(steps)  # type: ignore[assignment]
    peer.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=SIZE, initial_alphabet=alphabet, special_tokens=["<|end|>"], show_progress=False
    )
    peer.train_from_iterator([corpus()], trainer)
    model = json.loads(peer.to_str())["model"]
    names = sorted(model["vocab"], key=model["vocab"].get)
    fields = {
        "model": "gpt2",
        "pre": pre,
        "tokens": names,
        "merges": [m if isinstance(m, str) else " ".join(m) for m in model["merges"]],
        "token_type": np.array([CONTROL if name == "<|end|>" else NORMAL for name in names], np.int32),
        "eos_token_id": 0,
    }
    return Vocabulary(
        pre,
        _metadata(fields),
        lambda text: list(peer.encode(text).ids),
        lambda ids: str(peer.decode(ids, skip_special_tokens=False)),
    )


def _metadata(fields: dict[str, Any]) -> dict[str, Any]:
    return {f"tokenizer.ggml.{name}": value for name, value in fields.items()}


def differing(vocabulary: Vocabulary, count: int, seed: int = 0) -> list[str]:
    """The texts that have other tokens here than at the peer, or whose tokens have another text."""
    ours = Tokenizer(vocabulary.metadata)
    found = []
    for text in texts(count, seed):
        tokens = ours.encode(text, bos=False)
        if tokens != vocabulary.encode(text) or ours.decode(tokens) != vocabulary.decode(tokens):
            found.append(text)
    return found


def main() -> int:
    from rich.console import Console

    console, wrong = Console(), 0
    makers = [partial(sentencepiece, prefix) for prefix in (True, False)]
    makers += [partial(byte_level, pre) for pre in ("gpt-2", "llama-bpe", "dbrx", "qwen2", "starcoder", "tekken")]
    for make in track(makers, "tokens like", lambda make: str(make.args[0])):
        vocabulary = make()
        found = differing(vocabulary, TEXTS)
        wrong += len(found)
        console.print(f"{vocabulary.name}: {len(found)} of {TEXTS} texts differ", *map(repr, found[:3]))
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
