"""What a decoder is built from: the numbers in a GGUF file's metadata, checked before anything is made of them.

Source: the GGUF specification (ggml, docs/gguf.md), and llama.cpp's src/llama-arch.cpp for the names of keys and which
architecture pairs rotated elements how.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...primitives.errors import FileFormatError, Unsupported
from .positions import Yarn

# Whether rotary positions turn neighbours (GGUF stores llama's rows in that order), else the two halves of a head.
INTERLEAVED = {"llama": True, "qwen2": False, "qwen3": False}
LARGEST = 1 << 24  # of any count in a configuration: more is a damaged file
SCALINGS = ("none", "linear", "yarn")


@dataclass(frozen=True)
class Config:
    """
    width       elements of the residual stream
    hidden      elements inside a feed-forward layer
    heads       of queries; kv_heads of keys and values, a divisor
    depth       elements of a head
    rotated     elements of a head that positions turn; rope_base and rope_scale say how fast
    epsilon     of the RMS norms
    context     tokens that the model was made for
    window      how many positions a query sees, its own the last; 0: all
    yarn        how positions are blended for long texts
    """

    architecture: str
    layers: int
    width: int
    hidden: int
    heads: int
    kv_heads: int
    depth: int
    rotated: int
    rope_base: float
    rope_scale: float
    epsilon: float
    context: int
    window: int = 0
    yarn: Yarn | None = None

    @property
    def interleaved(self) -> bool:
        """Whether rotary embedding turns neighbours (2i, 2i + 1), and not (i, i + half)."""
        return INTERLEAVED[self.architecture]

    @classmethod
    def of(cls, metadata: Mapping[str, Any], name: str = "the file") -> Config:
        """Read the configuration of a model.

        Raises Unsupported for an architecture or a variant of one that is not built, FileFormatError where a number is
        missing or cannot be.
        """
        architecture = metadata.get("general.architecture")
        if architecture not in INTERLEAVED:
            raise Unsupported(
                f"{name} has the architecture {architecture!r}; decoders of {', '.join(INTERLEAVED)} are built "
                f"(tensors of any file are read by tw.gguf.load)"
            )
        keys = _Keys(metadata, architecture, name)
        if keys.whole("expert_count", 0, least=0):
            raise Unsupported(f"{name} is a mixture of experts ({architecture}.expert_count); dense models are built")
        scaling = metadata.get(f"{architecture}.rope.scaling.type", "linear")
        if scaling not in SCALINGS:
            raise Unsupported(f"{name} scales its positions by {scaling!r}; {', '.join(SCALINGS)} work")
        width, heads = keys.whole("embedding_length"), keys.whole("attention.head_count")
        kv_heads = keys.whole("attention.head_count_kv", heads)
        if heads % kv_heads:
            raise FileFormatError(f"{name}: {heads} heads of queries share {kv_heads} of keys; a divisor is needed")
        depth = keys.whole("attention.key_length", width // heads)
        if keys.whole("attention.value_length", depth) != depth:
            raise Unsupported(f"{name} has keys of {depth} elements and values of others; equal ones work")
        rotated = keys.whole("rope.dimension_count", depth)
        if rotated > depth or rotated % 2:
            raise FileFormatError(f"{name}: positions turn {rotated} of {depth} elements of a head; an even part works")
        factor = 1.0 if scaling == "none" else keys.real("rope.scaling.factor", keys.real("rope.scale_linear", 1.0))
        context = keys.whole("context_length")
        window = keys.whole("attention.sliding_window", 0, least=0)
        return cls(
            architecture=architecture,
            layers=keys.whole("block_count"),
            width=width,
            hidden=keys.whole("feed_forward_length"),
            heads=heads,
            kv_heads=kv_heads,
            depth=depth,
            rotated=rotated,
            rope_base=keys.real("rope.freq_base", 10000.0),
            rope_scale=1.0 / factor,
            epsilon=keys.real("attention.layer_norm_rms_epsilon"),
            context=context,
            window=window if window < context else 0,
            yarn=keys.yarn(context) if scaling == "yarn" else None,
        )


class _Keys:
    """Numbers under an architecture's prefix."""

    def __init__(self, metadata: Mapping[str, Any], architecture: str, name: str) -> None:
        self.metadata, self.architecture, self.name = metadata, architecture, name

    def _get(self, key: str, default: Any) -> Any:
        full = f"{self.architecture}.{key}"
        found = self.metadata.get(full, default)
        if found is None:
            raise FileFormatError(f"{self.name} has no metadata {full!r}, which a decoder needs")
        return found

    def yarn(self, context: int) -> Yarn:
        at = "rope.scaling."
        return Yarn(
            self.whole(f"{at}original_context_length", context),
            self.real(f"{at}yarn_beta_fast", 32.0),
            self.real(f"{at}yarn_beta_slow", 1.0),
            self.real(f"{at}yarn_ext_factor", 1.0),
            self.real(f"{at}attn_factor", 1.0) * self.real(f"{at}yarn_attn_factor", 1.0),
        )

    def whole(self, key: str, default: int | None = None, least: int = 1) -> int:
        found = self._get(key, default)
        if isinstance(found, np.ndarray) and found.size and found.dtype.kind in "iu" and (found == found[0]).all():
            found = int(found[0])  # a number for each layer, all of them equal
        if not isinstance(found, int) or isinstance(found, bool) or not least <= found <= LARGEST:
            raise FileFormatError(
                f"{self.name}: {self.architecture}.{key} is {_short(found)}; a whole number from {least} to {LARGEST} "
                f"is needed, the same for every layer"
            )
        return found

    def real(self, key: str, default: float | None = None) -> float:
        found = self._get(key, default)
        if not isinstance(found, (int, float)) or isinstance(found, bool) or not 0 < found < float("inf"):
            raise FileFormatError(
                f"{self.name}: {self.architecture}.{key} is {_short(found)}; a number above 0 is needed"
            )
        return float(found)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}.."
