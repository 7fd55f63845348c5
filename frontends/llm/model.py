"""A language model from its file: logits of tokens, and text token by token."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...executors.schemes import Scheme, get
from ...executors.states import OwnedState
from ...executors.tiling import TilingExecutor
from ...primitives.errors import ArgumentError
from ..gguf import load as load_gguf
from .config import Config
from .decoder import Progress, decoder, turns
from .positions import window_mask
from .sampling import Sampler
from .tokenizer import Tokenizer
from .weights import COMPUTES, Array, Weights

LEAST_PLACES = 64  # of a cache; it doubles when it is full
CHUNK = 256  # tokens of a prompt that one run takes: bounds memory, and changes no bit


class Model:
    """A decoder ready to run. Sessions share its weights.

    plan       of the pipeline that frontends/llm/decoder.py describes, for prefill and decoding alike
    tokenizer  of the file; None where it has none that is known
    """

    def __init__(
        self,
        config: Config,
        weights: Weights,
        tokenizer: Tokenizer | None,
        *,
        compute: str = "int8",
        kv_scheme: Scheme | None = None,
        executor: Any = None,
        progress: Progress | None = None,
    ) -> None:
        if compute not in COMPUTES:
            raise ArgumentError(f"compute {compute!r}; {' and '.join(COMPUTES)} work")
        self.config, self.tokenizer, self.kv_scheme = config, tokenizer, kv_scheme
        self._weights = weights
        self._turns = turns(config, weights, LEAST_PLACES)
        self.executor = TilingExecutor() if executor is None else executor
        self.pipe = decoder(config, weights, compute=compute, kv_scheme=kv_scheme, progress=progress)
        self.plan = self.executor.compile(self.pipe)

    @property
    def vocabulary(self) -> int:
        """How many tokens the model knows: the width of its logits."""
        return int(self.pipe.outputs["logits"].shape[1])

    def session(self) -> Session:
        """A text of its own: an empty cache."""
        return Session(self)

    def logits(self, tokens: Sequence[int]) -> Array:
        """The logits behind each token of a text, f32 (T, vocab)."""
        return self.session().feed(tokens, every=True)

    def turns(self, places: int) -> tuple[Array, Array]:
        """cos and sin of the first `places` positions."""
        if len(self._turns[0]) < places:
            self._turns = turns(self.config, self._weights, places)
        return self._turns[0][:places], self._turns[1][:places]

    def generate(
        self, tokens: Sequence[int], count: int, sampler: Sampler | None = None, session: Session | None = None
    ) -> Iterator[int]:
        """Up to `count` tokens that follow, one by one; it ends early where the model ends the text.

        sampler  how one is chosen; left out: the most likely
        session  a text to go on with; left out: a new one
        """
        sampler = Sampler() if sampler is None else sampler
        session = self.session() if session is None else session
        ends = self.tokenizer.ends if self.tokenizer is not None else set()
        logits = session.feed(tokens)
        for n in range(count):
            token = sampler(logits[-1])
            if token in ends:
                return
            yield token
            if n + 1 < count:
                logits = session.feed([token])


class Session:
    """A text and what a model keeps of it."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.position = 0
        self.state = OwnedState()
        self.places = 0

    def feed(self, tokens: Sequence[int], *, every: bool = False) -> Array:
        """Go on with these tokens; returns logits f32, of the last token (1, vocab) or of every one (T, vocab).

        Raises ArgumentError for a token that the vocabulary lacks, and where the text becomes longer than the context
        that the model was made for.
        """
        ids = np.asarray(tokens, np.int64)
        model, size = self.model, self.model.vocabulary
        if ids.ndim != 1 or ids.size == 0:
            raise ArgumentError(f"tokens of shape {ids.shape}; at least one number, in one row, is needed")
        if ids.min() < 0 or ids.max() >= size:
            raise ArgumentError(f"tokens from {ids.min()} to {ids.max()}; the vocabulary has 0 to {size - 1}")
        if self.position + len(ids) > model.config.context:
            raise ArgumentError(
                f"{self.position} tokens and {len(ids)} more; the model was made for {model.config.context}"
            )
        found = [
            self._run(ids[at : at + CHUNK], every, last=at + CHUNK >= len(ids)) for at in range(0, len(ids), CHUNK)
        ]
        return np.concatenate(found) if every else found[-1]

    def _run(self, ids: Array, every: bool, last: bool) -> Array:
        count = len(ids)
        self._reserve(self.position + count)
        cos, sin = self.model.turns(self.places)
        rows = np.arange(count) if every else np.arange(count - 1, count) if last else np.arange(0)
        inputs: dict[str, Any] = {
            "tokens": ids,
            "positions": np.arange(self.position, self.position + count),
            "start": np.int64(self.position),
            "rows": rows.astype(np.int64),
            "cos": cos,
            "sin": sin,
        }
        if self.model.config.window:
            inputs["mask"] = window_mask(inputs["positions"], self.places, self.model.config.window)
        logits = self.model.plan.run(inputs, state=self.state)["logits"]
        self.position += count
        return logits

    def _reserve(self, places: int) -> None:
        """Room in the cache; twice as much when it is full."""
        if places <= self.places:
            return
        more = max(LEAST_PLACES, self.places)
        while more < places:
            more *= 2
        for name, kept in self.state.items():
            wider = np.zeros((*kept.shape[:2], more, kept.shape[3]), kept.dtype)
            wider[:, :, : kept.shape[2]] = kept
            self.state[name] = wider
        self.places = more


def load(
    path: str | os.PathLike[str],
    *,
    scheme: Scheme | str | None = None,
    kv_scheme: Scheme | str | None = None,
    compute: str = "int8",
    executor: Any = None,
    progress: Progress | None = None,
) -> Model:
    """A model from a GGUF file of the architecture llama, qwen2 or qwen3, with weights of any type.

    scheme     quantize all matrices with it; left out: as they are in the file
    kv_scheme  keys and values are kept in its codes; left out: f32
    compute    products with codes: "int8" quantizes activations row by row and is fast, "f32" decodes the weights
    executor   what runs it; left out: a TilingExecutor on all threads. The bits are the same for every one
    progress   progress(layers read, layers)

    Raises FileFormatError for a damaged file, Unsupported for what is not built, with what is.
    """
    contents = load_gguf(path)
    name = Path(path).name
    config = Config.of(contents.metadata, name)
    tokenizer = Tokenizer(contents.metadata, name) if "tokenizer.ggml.model" in contents.metadata else None
    weights = Weights(contents, _scheme(scheme), name, executor)
    made = Model(
        config,
        weights,
        tokenizer,
        compute=compute,
        kv_scheme=_scheme(kv_scheme),
        executor=executor,
        progress=progress,
    )
    if tokenizer is not None and len(tokenizer) > made.vocabulary:
        raise ArgumentError(f"{name} has {len(tokenizer)} tokens and only {made.vocabulary} rows of logits")
    return made


def _scheme(given: Scheme | str | None) -> Scheme | None:
    return get(given) if isinstance(given, str) else given
