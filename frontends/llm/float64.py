"""What a decoder means, in NumPy and float64: the whole text at once, no cache, nothing quantized but the weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...executors.schemes import QuantizedTensor
from .config import Config
from .decoder import turns
from .weights import Matrix, Weights

Array = np.ndarray[Any, Any]


def logits(config: Config, weights: Weights, tokens: Sequence[int]) -> Array:
    """Logits behind every token, float64 (T, vocab).

    Per layer, with h = norm(x):  x += attention(q, k, v) @ wo.T;  then, with h = norm(x) anew:
    x += (silu(h @ gate.T) * (h @ up.T)) @ down.T.  norm(x) = x / sqrt(mean(x**2) + epsilon) * scale.
    Scores are q . k / sqrt(depth), of keys up to the query's own, the last `window` where there is one;
    neighbouring heads of q share a head of k and v.
    """
    c, ids = config, np.asarray(tokens)
    cos, sin = (t.astype(np.float64) for t in turns(config, weights, len(ids)))
    table = _dense(weights.matrix("token_embd.weight", (None, c.width)))
    x = table[ids]
    hidden = np.triu(np.ones((len(ids), len(ids)), bool), 1)
    if c.window:
        hidden |= np.tril(np.ones_like(hidden), -c.window)
    for n in range(c.layers):
        at = f"blk.{n}."

        def norm(part: str, x: Array, at: str = at) -> Array:
            scale = weights.vector(f"{at}{part}.weight", x.shape[-1]).astype(np.float64)
            return x / np.sqrt(np.square(x).mean(-1, keepdims=True) + c.epsilon) * scale

        def linear(part: str, x: Array, rows: int, at: str = at) -> Array:
            y = x @ _dense(weights.matrix(f"{at}{part}.weight", (rows, x.shape[-1]))).T
            bias = f"{at}{part}.bias"
            return y + weights.vector(bias, rows) if bias in weights else y

        h = norm("attn_norm", x)
        q, k, v = (
            linear(part, h, heads * c.depth).reshape(len(ids), heads, c.depth)
            for part, heads in (("attn_q", c.heads), ("attn_k", c.kv_heads), ("attn_v", c.kv_heads))
        )
        if f"{at}attn_q_norm.weight" in weights:
            q, k = norm("attn_q_norm", q), norm("attn_k_norm", k)
        q, k = (_turned(t, cos[:, None], sin[:, None], c.interleaved) for t in (q, k))
        k, v = (np.repeat(t, c.heads // c.kv_heads, axis=1) for t in (k, v))
        scores = np.einsum("ihd,jhd->hij", q, k) / np.sqrt(c.depth)
        scores = np.where(hidden, -np.inf, scores)
        p = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = np.einsum("hij,jhd->ihd", p / p.sum(-1, keepdims=True), v)
        x = x + linear("attn_output", mixed.reshape(len(ids), -1), c.width)
        h = norm("ffn_norm", x)
        gate = linear("ffn_gate", h, c.hidden)
        x = x + linear("ffn_down", gate / (1 + np.exp(-gate)) * linear("ffn_up", h, c.hidden), c.width)
    scale = weights.vector("output_norm.weight", c.width).astype(np.float64)
    x = x / np.sqrt(np.square(x).mean(-1, keepdims=True) + c.epsilon) * scale
    output = _dense(weights.matrix("output.weight", table.shape)) if "output.weight" in weights else table
    return x @ output.T  # type: ignore[no-any-return]


def _dense(w: Matrix) -> Array:
    return (w.dequantize() if isinstance(w, QuantizedTensor) else w).astype(np.float64)


def _turned(x: Array, cos: Array, sin: Array, interleaved: bool) -> Array:
    """The first elements of each head turned in pairs: neighbours, or the two halves of what turns."""
    half = cos.shape[-1]
    first, second = (
        (np.s_[0 : 2 * half : 2], np.s_[1 : 2 * half : 2]) if interleaved else (np.s_[:half], np.s_[half : 2 * half])
    )
    a, b, y = x[..., first], x[..., second], x.copy()
    y[..., first], y[..., second] = a * cos - b * sin, b * cos + a * sin
    return y
