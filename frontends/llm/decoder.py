"""A decoder of the llama family as a pipeline: one for prefill and decoding, whose cache grows from run to run.

Every layer is x + attention(norm(x)), then x + down(silu(gate(norm(x))) * up(norm(x))). Sizes known when it runs: T
tokens, R rows of logits and C places in the cache.
Source: Touvron et al., "LLaMA", 2023; Ainslie et al., "GQA", 2023; Su et al., "RoFormer", 2021.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...executors.schemes import Scheme
from ...kernels import ops
from ...kernels.ops.coded_rows import CodedRows
from ...primitives.errors import FileFormatError
from ...primitives.pipeline import Pipeline, Value
from ...primitives.sizes import size
from . import positions
from .config import Config
from .weights import Array, Weights, linear, rows

Progress = Callable[[int, int], Any]


def decoder(
    config: Config,
    weights: Weights,
    *,
    compute: str = "int8",
    kv_scheme: Scheme | None = None,
    progress: Progress | None = None,
) -> Pipeline:
    """The pipeline of a model.

    Inputs: `tokens` and `positions`, s64 (T,); `cos` and `sin`, f32 (C, rotated / 2), see `turns`; `rows`, s64 (R,),
    those whose logits are wanted; argument `start`, the position of the first token; where the model has a window, `mask`,
    f32 (T, C), see positions.window_mask. Output: `logits`, f32 (R, vocab).
    Its states are the keys and values of each layer, (1, kv_heads, C, depth) in f32 or in the codes of `kv_scheme`.

    compute    "int8": products with codes quantize x row by row; "f32": they decode the weights
    progress   progress(layers done, layers) while weights are read
    """
    pipe = Pipeline(config.architecture)
    tokens, places = pipe.input("tokens", "s64", ("T",)), pipe.input("positions", "s64", ("T",))
    wanted, start = pipe.input("rows", "s64", ("R",)), pipe.argument("start", "s64")
    turn = [ops.gather(pipe.input(name, "f32", ("C", config.rotated // 2)), places) for name in ("cos", "sin")]
    mask = pipe.input("mask", "f32", ("T", "C")) if config.window else None
    table = weights.matrix("token_embd.weight", (None, config.width))
    x = rows(pipe, table, tokens)
    for n in range(config.layers):
        if progress is not None:
            progress(n, config.layers)
        x = _Layer(pipe, config, weights, n, compute).run(x, turn, start, mask, kv_scheme)
    if progress is not None:
        progress(config.layers, config.layers)
    x = ops.gather(x, wanted)
    x = ops.rms_norm(x, weights.vector("output_norm.weight", config.width), epsilon=config.epsilon)
    tied = "output.weight" not in weights
    output = table if tied else weights.matrix("output.weight", (table.shape[0], config.width))
    pipe.output("logits", linear(x, output, compute))
    return pipe


class _Layer:
    def __init__(self, pipe: Pipeline, config: Config, weights: Weights, n: int, compute: str) -> None:
        self.pipe, self.config, self.weights, self.n, self.compute = pipe, config, weights, n, compute

    def run(self, x: Value, turn: list[Value], start: Value, mask: Value | None, kv_scheme: Scheme | None) -> Value:
        c = self.config
        h = self.norm("attn_norm", x)
        q = self.turned(self.heads("attn_q", h, c.heads), turn)
        k = self.turned(self.heads("attn_k", h, c.kv_heads), turn)
        v = self.heads("attn_v", h, c.kv_heads)
        keys, values = self.kept("keys", k, start, kv_scheme), self.kept("values", v, start, kv_scheme)
        mixed = ops.attention(q, keys, values, mask, causal=True, offset=start)
        flat = ops.reshape(ops.transpose(mixed, (0, 2, 1, 3)), (x.shape[0], c.heads * c.depth))
        x = ops.add(x, self.linear("attn_output", flat, c.width))
        h = self.norm("ffn_norm", x)
        inner = ops.mul(ops.silu(self.linear("ffn_gate", h, c.hidden)), self.linear("ffn_up", h, c.hidden))
        return ops.add(x, self.linear("ffn_down", inner, c.width))

    def _name(self, part: str, kind: str = "weight") -> str:
        return f"blk.{self.n}.{part}.{kind}"

    def norm(self, part: str, x: Value) -> Value:
        scale = self.weights.vector(self._name(part), int(x.shape[-1]))
        return ops.rms_norm(x, scale, epsilon=self.config.epsilon)

    def linear(self, part: str, x: Value, n: int) -> Value:
        y = linear(x, self.weights.matrix(self._name(part), (n, int(x.shape[-1]))), self.compute)
        bias = self._name(part, "bias")
        return ops.add(y, self.weights.vector(bias, n)) if bias in self.weights else y

    def heads(self, part: str, x: Value, heads: int) -> Value:
        """(1, heads, T, depth)."""
        y = self.linear(part, x, heads * self.config.depth)
        y = ops.reshape(y, (1, x.shape[0], heads, self.config.depth))
        if self._name(f"{part}_norm") in self.weights:
            y = self.norm(f"{part}_norm", y)
        return ops.transpose(y, (0, 2, 1, 3))

    def turned(self, x: Value, turn: list[Value]) -> Value:
        return ops.rotary(x, turn[0], turn[1], interleaved=self.config.interleaved)

    def kept(self, what: str, new: Value, start: Value, scheme: Scheme | None) -> Value | CodedRows:
        """The cache with the new rows in it, as attention takes it."""
        name, c = f"{what}_{self.n}", self.config
        shape = (1, c.kv_heads, size("C"), c.depth)
        if scheme is None:
            return ops.cache_append(self.pipe.state(name, "f32", shape), new, start)
        return ops.scheme_cache(self.pipe, name, scheme, shape).extend(new, start)


def turns(config: Config, weights: Weights, places: int) -> tuple[Array, Array]:
    """cos and sin of the angles of `places` positions, f32 (places, rotated / 2): positions.turns.

    Where `rope_freqs.weight` of the file has factors (llama 3.1), angles are divided by them.
    """
    factors: Array | float = 1.0
    if "rope_freqs.weight" in weights:
        factors = weights.vector("rope_freqs.weight", config.rotated // 2).astype(np.float64)
        if not (factors > 0).all():
            raise FileFormatError(f"{weights.name}: rope_freqs.weight has factors that are not above 0")
    return positions.turns(places, config.rotated, config.rope_base, config.rope_scale, factors, config.yarn)
