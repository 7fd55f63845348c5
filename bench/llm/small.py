"""A small language model, trained in a few minutes and saved as a GGUF file: `python -m tilework.bench.llm.small FILE`.

A decoder of llama's architecture, 1.3 million weights, on the language reference that every Python carries. The same
seed, thread count and torch give the same file. Needs the extra `torch`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import tilework as tw
from tilework.frontends.llm import Tokenizer
from tilework.primitives.errors import Unsupported

from . import text

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Recipe:
    """The model's sizes, and how it is trained. Rows are multiples of 256, which K-quants want."""

    width: int = 256
    hidden: int = 512
    layers: int = 2
    heads: int = 4
    kv_heads: int = 2
    vocabulary: int = 512
    context: int = 512
    window: int = 128  # tokens of an example
    batch: int = 8
    steps: int = 500
    rate: float = 3e-3
    seed: int = 0

    @property
    def metadata(self) -> dict[str, Any]:
        return {
            "general.architecture": "llama",
            "general.name": "language reference, small",
            "llama.block_count": self.layers,
            "llama.embedding_length": self.width,
            "llama.feed_forward_length": self.hidden,
            "llama.attention.head_count": self.heads,
            "llama.attention.head_count_kv": self.kv_heads,
            "llama.attention.layer_norm_rms_epsilon": 1e-5,
            "llama.rope.dimension_count": self.width // self.heads,
            "llama.rope.freq_base": 10000.0,
            "llama.context_length": self.context,
        }


def train(recipe: Recipe, note: Callable[[int, float], Any] | None = None) -> tuple[dict[str, Array], dict[str, Any]]:
    """Tensors in float32 by GGUF's names, and the metadata. note(step, loss) after every step."""
    try:
        import torch
    except ImportError as error:
        raise Unsupported("training the small model needs torch: pip install 'tilework[torch]'") from error

    learn, _ = text.texts()
    metadata = {**recipe.metadata, **text.vocabulary(learn, recipe.vocabulary)}
    ids = torch.tensor(Tokenizer(metadata).encode(learn))
    torch.manual_seed(recipe.seed)
    weights = {name: torch.randn(shape) * scale for name, (shape, scale) in _shapes(recipe).items()}
    weights |= {name: torch.ones(recipe.width) for name in _norms(recipe)}
    for w in weights.values():
        w.requires_grad_(True)
    matrices = [w for w in weights.values() if w.ndim == 2]
    vectors = [w for w in weights.values() if w.ndim == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    optimiser = torch.optim.AdamW(groups, lr=recipe.rate, betas=(0.9, 0.95))
    draw = torch.Generator().manual_seed(recipe.seed)
    for step in range(recipe.steps):
        share = min(1.0, (step + 1) / 50) * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * step / recipe.steps)))
        for group in optimiser.param_groups:
            group["lr"] = recipe.rate * share
        at = torch.randint(len(ids) - recipe.window - 1, (recipe.batch,), generator=draw)
        block = torch.stack([ids[n : n + recipe.window + 1] for n in at.tolist()])
        logits = _forward(torch, recipe, weights, block[:, :-1])
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), block[:, 1:].flatten())
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(list(weights.values()), 1.0)
        optimiser.step()
        if note is not None:
            note(step, loss.item())
    return {name: w.detach().numpy().copy() for name, w in weights.items()}, metadata


def drawn(recipe: Recipe, seed: int = 0) -> dict[str, Array]:
    """Tensors of a model that has learnt nothing, spread like those of one that has."""
    rng = np.random.default_rng(seed)
    found = {
        name: rng.standard_normal(shape, np.float32) * np.float32(shape[1] ** -0.5)
        for name, (shape, _) in _shapes(recipe).items()
    }
    return found | {n: 1 + rng.standard_normal(recipe.width, np.float32) / 10 for n in _norms(recipe)}


def _shapes(r: Recipe) -> dict[str, tuple[tuple[int, int], float]]:
    """Shape and spread at the start of every matrix."""
    depth, deep = r.width // r.heads, (2 * r.layers) ** -0.5
    found = {"token_embd.weight": ((r.vocabulary, r.width), 0.02)}
    for n in range(r.layers):
        parts = {
            "attn_q": (r.width, r.width, 1.0),
            "attn_k": (r.kv_heads * depth, r.width, 1.0),
            "attn_v": (r.kv_heads * depth, r.width, 1.0),
            "attn_output": (r.width, r.width, deep),
            "ffn_gate": (r.hidden, r.width, 1.0),
            "ffn_up": (r.hidden, r.width, 1.0),
            "ffn_down": (r.width, r.hidden, deep),
        }
        found |= {f"blk.{n}.{name}.weight": ((a, b), s * b**-0.5) for name, (a, b, s) in parts.items()}
    return found


def _norms(r: Recipe) -> list[str]:
    layers = [f"blk.{n}.{part}_norm.weight" for n in range(r.layers) for part in ("attn", "ffn")]
    return [*layers, "output_norm.weight"]


def _forward(torch: Any, r: Recipe, w: Mapping[str, Any], ids: Any) -> Any:
    """Logits (batch, tokens, vocabulary). Positions turn neighbours, as the architecture llama has it."""
    batch, count = ids.shape
    depth = r.width // r.heads
    angle = torch.outer(torch.arange(count), 10000.0 ** (-2.0 * torch.arange(depth // 2) / depth))
    cos, sin = angle.cos()[None, :, None], angle.sin()[None, :, None]

    def norm(x: Any, name: str) -> Any:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * w[f"{name}.weight"]

    def turned(x: Any) -> Any:
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)

    x = w["token_embd.weight"][ids]
    for n in range(r.layers):
        at = f"blk.{n}."
        h = norm(x, f"{at}attn_norm")
        q, k, v = (
            (h @ w[f"{at}attn_{part}.weight"].T).view(batch, count, heads, depth)
            for part, heads in (("q", r.heads), ("k", r.kv_heads), ("v", r.kv_heads))
        )
        q, k = turned(q), turned(k)
        k, v = (t.repeat_interleave(r.heads // r.kv_heads, 2) for t in (k, v))
        mixed = torch.nn.functional.scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True
        )
        x = x + mixed.transpose(1, 2).reshape(batch, count, r.width) @ w[f"{at}attn_output.weight"].T
        h = norm(x, f"{at}ffn_norm")
        inner = torch.nn.functional.silu(h @ w[f"{at}ffn_gate.weight"].T) * (h @ w[f"{at}ffn_up.weight"].T)
        x = x + inner @ w[f"{at}ffn_down.weight"].T
    return norm(x, "output_norm") @ w["token_embd.weight"].T


def make(path: str | os.PathLike[str], recipe: Recipe | None = None) -> Path:
    """Train, with a bar on a terminal, and write the float32 file."""
    from rich.console import Console
    from rich.progress import Progress

    recipe = Recipe() if recipe is None else recipe
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("training", total=recipe.steps)

        def note(step: int, loss: float) -> None:
            progress.update(task, completed=step + 1, description=f"training, loss {loss:.2f}")

        tensors, metadata = train(recipe, note)
    tw.gguf.save(path, tensors, metadata)
    return Path(path)


def converted(source: Mapping[str, Any], qtype: str) -> dict[str, Any]:
    """The tensors of a file, every matrix in another type that can be encoded; vectors stay as they are."""
    found: dict[str, Any] = {}
    for name, raw in source.items():
        if len(raw.shape) != 2:
            found[name] = raw
            continue
        numbers = tw.gguf.dequantize(raw.numpy() if raw.type.plain is not None else raw.data, raw.type.name)
        found[name] = tw.gguf.encoded(name, numbers, qtype)
    return found


if __name__ == "__main__":
    import sys

    print(make(sys.argv[1] if len(sys.argv) > 1 else "small.gguf"))
