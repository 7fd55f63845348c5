"""Text to tokens and back, by the vocabulary in a GGUF file.

Two kinds: `llama` (SentencePiece: neighbours whose union is the best-scored token merge first; unknown characters are
their bytes) and `gpt2` (byte-level BPE: text is cut by a pattern, and merges go by their rank).
Source: llama.cpp, src/llama-vocab.cpp; Sennrich et al., 2016; GPT-2's encoder.py for bytes as characters.
"""

from __future__ import annotations

import codecs
import heapq
import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from ...primitives.errors import ArgumentError, FileFormatError, Unsupported
from .patterns import PATTERNS, cutter

KINDS = ("llama", "gpt2")
CONTROL, USER, BYTE = 3, 4, 6  # of tokenizer.ggml.token_type
SPACE = "\u2581"  # SentencePiece's mark for a space


class Tokenizer:
    """The vocabulary of a file.

    Raises Unsupported for a kind or a pattern that is not known, FileFormatError where fields are missing or disagree.
    """

    def __init__(self, metadata: Mapping[str, Any], name: str = "the file") -> None:
        self.name = name
        self.kind = metadata.get("tokenizer.ggml.model")
        if self.kind not in KINDS:
            raise Unsupported(f"{name} has a tokenizer of kind {self.kind!r}; {' and '.join(KINDS)} work")
        tokens = metadata.get("tokenizer.ggml.tokens")
        if not isinstance(tokens, list) or not tokens or not all(isinstance(t, str) for t in tokens):
            raise FileFormatError(f"{name}: tokenizer.ggml.tokens is no list of texts")
        self.tokens: list[str] = tokens
        self.ids = {token: n for n, token in reversed(list(enumerate(tokens)))}
        self.types = self._column(metadata, "token_type", np.int64, np.ones(len(tokens), np.int64))
        self.bos, self.eos = (self._special(metadata, f"{which}_token_id") for which in ("bos", "eos"))
        others = (self._special(metadata, f"{which}_token_id") for which in ("eot", "eom"))
        self.ends = {n for n in (self.eos, *others) if n is not None}
        self.adds_bos = bool(metadata.get("tokenizer.ggml.add_bos_token", self.kind == "llama"))
        marked = [tokens[n] for n in np.flatnonzero((self.types == CONTROL) | (self.types == USER)) if tokens[n]]
        self._marked = re.compile("|".join(map(re.escape, sorted(marked, key=len, reverse=True)))) if marked else None
        if self.kind == "llama":
            self.scores = self._column(metadata, "scores", np.float64, np.zeros(len(tokens)))
            self.leads = bool(metadata.get("tokenizer.ggml.add_space_prefix", True))
        else:
            self._read_merges(metadata)

    def __len__(self) -> int:
        return len(self.tokens)

    def _column(self, metadata: Mapping[str, Any], key: str, dtype: Any, default: Any) -> np.ndarray[Any, Any]:
        found = np.asarray(metadata.get(f"tokenizer.ggml.{key}", default))
        if found.shape != (len(self.tokens),) or found.dtype.kind not in "iuf":
            raise FileFormatError(
                f"{self.name}: tokenizer.ggml.{key} has shape {found.shape} for {len(self.tokens)} tokens"
            )
        return found.astype(dtype)

    def _special(self, metadata: Mapping[str, Any], key: str) -> int | None:
        found = metadata.get(f"tokenizer.ggml.{key}")
        if found is None:
            return None
        if not isinstance(found, int) or not 0 <= found < len(self.tokens):
            raise FileFormatError(f"{self.name}: tokenizer.ggml.{key} is {found!r} of {len(self.tokens)} tokens")
        return found

    def _read_merges(self, metadata: Mapping[str, Any]) -> None:
        merges = metadata.get("tokenizer.ggml.merges")
        if not isinstance(merges, list) or not all(isinstance(m, str) for m in merges):
            raise FileFormatError(f"{self.name}: tokenizer.ggml.merges is no list of texts, which kind gpt2 needs")
        pairs = (m.split(" ", 1) if " " in m[:-1] else [m, ""] for m in merges)
        self.ranks = {(a, b): n for n, (a, b) in reversed(list(enumerate(pairs)))}
        pre = metadata.get("tokenizer.ggml.pre", "gpt-2")
        if pre not in PATTERNS:
            raise Unsupported(f"{self.name} cuts text as {pre!r} does; {', '.join(PATTERNS)} work")
        self._cut = cutter(pre)
        self._whole_first = PATTERNS[pre].whole_first

    # To tokens -----------------------------------------------------------------------------------------------------

    def encode(self, text: str, *, bos: bool | None = None, special: bool = False) -> list[int]:
        """The tokens of a text.

        bos      whether the token that begins a text comes first; left out: as the file says
        special  whether names of control tokens in the text, like <|eot_id|>, stand for them; user-defined ones always do
        """
        if bos is None:
            bos = self.adds_bos
        found = [self.bos] if bos and self.bos is not None else []
        for part, token in self._parts(text, special):
            if token is not None:
                found.append(token)
            elif self.kind == "llama":
                found += self._pieces(part)
            else:
                found += [n for word in self._cut(part) for n in self._bpe(word)]
        return found

    def _parts(self, text: str, special: bool) -> Iterable[tuple[str, int | None]]:
        """Runs of plain text, and the tokens between them that are matched as a whole."""
        at = 0
        for match in self._marked.finditer(text) if self._marked is not None else ():
            token = self.ids[match.group()]
            if self.types[token] == CONTROL and not special:
                continue
            if match.start() > at:
                yield text[at : match.start()], None
            yield match.group(), token
            at = match.end()
        if at < len(text):
            yield text[at:], None

    def _pieces(self, text: str) -> list[int]:
        text = (" " if self.leads else "") + text
        symbols = list(text.replace(" ", SPACE))

        def rank(a: str, b: str) -> float | None:
            n = self.ids.get(a + b)
            return None if n is None else -float(self.scores[n])

        return [n for piece in _merged(symbols, rank) for n in self._known(piece)]

    def _known(self, piece: str) -> list[int]:
        if piece in self.ids:
            return [self.ids[piece]]
        return [self._byte(b) for b in piece.encode("utf-8", "surrogatepass")]

    def _byte(self, b: int) -> int:
        for name in (f"<0x{b:02X}>", BYTES[b]):
            if name in self.ids:
                return self.ids[name]
        raise ArgumentError(f"the vocabulary of {self.name} has no token for the byte {b:#04x}")

    def _bpe(self, word: str) -> list[int]:
        text = "".join(BYTES[b] for b in word.encode("utf-8", "surrogatepass"))
        if self._whole_first and text in self.ids:
            return [self.ids[text]]
        pieces = _merged(list(text), lambda a, b: self.ranks.get((a, b)))
        return [n for p in pieces for n in ([self.ids[p]] if p in self.ids else [self._byte(OF_BYTE[c]) for c in p])]

    # To text -------------------------------------------------------------------------------------------------------

    def bytes_of(self, token: int) -> bytes:
        """What a token stands for; nothing for a control token."""
        text, kind = self.tokens[token], self.types[token]
        if kind == CONTROL:
            return b""
        if kind == BYTE and (match := re.fullmatch(r"<0x([0-9A-Fa-f]{2})>", text)):
            return bytes([int(match.group(1), 16)])
        if kind == USER or self.kind == "llama":
            return text.replace(SPACE, " ").encode("utf-8", "surrogatepass")
        return b"".join(bytes([OF_BYTE[c]]) if c in OF_BYTE else c.encode("utf-8", "surrogatepass") for c in text)

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of tokens; bytes that are no UTF-8 become U+FFFD."""
        text = b"".join(map(self.bytes_of, tokens)).decode("utf-8", "replace")
        return text[1:] if self.kind == "llama" and self.leads and text.startswith(" ") else text

    def stream(self) -> Callable[[int], str]:
        """A function that takes token after token and returns what text is complete by now."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        return lambda token: decoder.decode(self.bytes_of(token))


def _merged(symbols: list[str], rank: Callable[[str, str], Any]) -> list[str]:
    """Neighbours merged until no pair has a rank; the least rank first, of equal ones the leftmost."""
    left, right = list(range(-1, len(symbols) - 1)), list(range(1, len(symbols) + 1))
    heap: list[tuple[Any, int, int, str]] = []

    def offer(a: int, b: int) -> None:
        if a >= 0 and b < len(symbols) and (found := rank(symbols[a], symbols[b])) is not None:
            heapq.heappush(heap, (found, a, b, symbols[a] + symbols[b]))

    for n in range(len(symbols) - 1):
        offer(n, n + 1)
    while heap:
        _, a, b, both = heapq.heappop(heap)
        if not symbols[a] or not symbols[b] or right[a] != b or symbols[a] + symbols[b] != both:
            continue
        symbols[a], symbols[b] = both, ""
        right[a] = right[b]
        if right[b] < len(symbols):
            left[right[b]] = a
        offer(left[a], a)
        offer(a, right[a])
    return [s for s in symbols if s]


@lru_cache(maxsize=1)
def byte_characters() -> tuple[str, ...]:
    """The character that stands for each byte in vocabularies of kind gpt2: itself where it prints, else one from 256 on."""
    prints = {*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(256, 512))
    return tuple(chr(b if b in prints else next(others)) for b in range(256))


BYTES = byte_characters()
OF_BYTE = {c: b for b, c in enumerate(BYTES)}
