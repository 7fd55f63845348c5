"""Attention and embeddings of the domain com.microsoft, which transformer optimizers and quantizers write.

Masks add `mask_filter_value` to the scores of keys that are not to be seen, as ONNX Runtime does, so a query whose keys
are all masked still sees them all. Keys that come after a query of a unidirectional attention are never seen.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ....kernels import ops
from ....primitives.pipeline import Value
from ..node import Coded, Node
from ..scope import operator
from . import linear
from .linear import flat, flat_or_zero
from .microsoft import DOMAIN, scaled

MASKED = -10000.0  # mask_filter_value where a node gives none


@operator("Attention", domain=DOMAIN)
def attention(node: Node) -> Any:
    """input (B, S, D), weights (D, Nq + Nk + Nv) -> output (B, S, Nv), present (2, B, N, T, H)."""
    y = linear.matmul(node.on(node.scope, [node.operand(0), node.operand(1)]))
    if node.has(2):
        y = ops.add(y, node.value(2))
    if node.has(6):
        raise node.unsupported("past_sequence_length, for a past in a shared buffer; a past of its own works")
    bias = node.value(5) if node.has(5) else None
    return packed_attention(node, y, node.optional(3), node.optional(4), bias)


@operator("QAttention", domain=DOMAIN)
def qattention(node: Node) -> Any:
    """Attention on codes: the projection is an integer product, what follows is float32."""
    acc = ops.matmul(node.value(0), node.value(1), flat_or_zero(node.operand(6)), flat_or_zero(node.operand(7)))
    y = scaled(node, acc, node.operand(3), node.operand(4), node.optional(2))
    return packed_attention(node, y, node.optional(5), node.optional(8), None)


def packed_attention(node: Node, y: Value, mask: Value | None, past: Value | None, bias: Value | None) -> Any:
    """Attention of the projections side by side, (B, S, Nq + Nk + Nv)."""
    for name in ("do_rotary", "past_present_share_buffer"):
        if node.attr(name, 0):
            raise node.unsupported(f"{name}, which ONNX Runtime has on GPUs alone; 0 works")
    heads = int(node.attr("num_heads"))
    whole = y.shape[2]
    if not isinstance(whole, int):
        raise node.unsupported(f"projections of {whole} elements; a known number works")
    widths = [int(n) for n in node.attr("qkv_hidden_sizes", [whole // 3] * 3)]
    if len(widths) != 3 or sum(widths) != whole or widths[0] != widths[1] or any(n % heads for n in widths):
        raise node.malformed(f"{whole} projections for q, k and v of {widths} and {heads} heads")
    q, k, v = (by_head(part, heads) for part in ops.split(y, widths, 2))
    if past is not None:
        k, v = (ops.concat([one(past, n), new], 2) for n, new in ((0, k), (1, v)))
    causal = bool(node.attr("unidirectional", 0))
    outputs: list[Any] = [attended(node, q, k, v, mask, bias, causal)]
    if node.wants(1):
        outputs.append(ops.concat([ops.unsqueeze(x, [0]) for x in (k, v)], 0))
    return outputs


@operator("MultiHeadAttention", domain=DOMAIN)
def multi_head(node: Node) -> Any:
    """query (B, S, D), or q, k and v packed (B, S, N, 3, H); key and value (B, L, D), packed (B, L, N, 2, H), or by head."""
    heads = int(node.attr("num_heads"))
    if node.has(8) or node.has(9):
        raise node.unsupported("past_sequence_length or cache_indirection, for shared buffers; a past of its own works")
    if node.wants(3):
        raise node.unsupported("the output qk; the first three outputs work")
    query = node.value(0)
    if query.ndim == 5:
        q, k, v = (ops.transpose(slot(query, n), (0, 2, 1, 3)) for n in range(3))
    elif not node.has(1):
        raise node.malformed("no key beside a query that is not packed with it")
    else:
        q, key = by_head(query, heads), node.value(1)
        if key.ndim == 5:
            k, v = (ops.transpose(slot(key, n), (0, 2, 1, 3)) for n in range(2))
        else:
            k, v = (x if x.ndim == 4 else by_head(x, heads) for x in (key, node.value(2)))
    if node.has(3):
        q, k, v = biased(node, q, k, v, heads)
    if node.has(6):
        k, v = (ops.concat([node.value(n), new], 2) for n, new in ((6, k), (7, v)))
    bias = node.value(5) if node.has(5) else None
    causal = bool(node.attr("unidirectional", 0))
    return [attended(node, q, k, v, node.optional(4), bias, causal), k, v]


def biased(node: Node, q: Value, k: Value, v: Value, heads: int) -> tuple[Value, Value, Value]:
    """q, k and v by head plus the bias of all three, (D + D + Dv); keys that came by head have none."""
    by_itself = node.has(1) and node.value(1).ndim == 4
    found, start = [], 0
    for x in (q, k, v):
        depth = x.shape[3]
        if not isinstance(depth, int):
            raise node.unsupported(f"heads of {depth} elements; a known number works")
        part = ops.slice(node.value(3), [start], [start + heads * depth], [0])
        found.append(ops.add(x, ops.reshape(part, (1, heads, 1, depth))) if x is q or not by_itself else x)
        start += heads * depth
    return found[0], found[1], found[2]


def one(x: Value, n: int) -> Value:
    """Element n along the first axis, without that axis."""
    return ops.reshape(ops.slice(x, [n], [n + 1], [0]), x.shape[1:])


def slot(x: Value, n: int) -> Value:
    """Element n along axis 3 of five, without that axis."""
    return ops.reshape(ops.slice(x, [n], [n + 1], [3]), (*x.shape[:3], x.shape[4]))


def by_head(x: Value, heads: int) -> Value:
    """(B, S, N * H) as (B, N, S, H)."""
    batch, length, width = x.shape
    if not isinstance(width, int) or width % heads:
        raise ValueError(f"{width} elements for {heads} heads")
    return ops.transpose(ops.reshape(x, (batch, length, heads, width // heads)), (0, 2, 1, 3))


def attended(node: Node, q: Value, k: Value, v: Value, mask: Value | None, bias: Value | None, causal: bool) -> Value:
    """The attention of heads, (B, S, N * Hv). Queries are the last of the keys where there is a past."""
    kind, depth = str(q.dtype), q.shape[3]
    if kind != "f32":
        q, k, v = (ops.cast(x, "f32") for x in (q, k, v))
    given = float(node.attr("scale", 0.0))
    if not isinstance(depth, int):
        raise node.unsupported(f"heads of {depth} elements; a known number works")
    scale = np.float32(given or 1.0 / float(depth) ** 0.5)
    seen: Any = additive_mask(node, mask, k) if mask is not None else None
    if bias is not None:
        bias = ops.cast(bias, "f32") if str(bias.dtype) != "f32" else bias
        seen = bias if seen is None else ops.add(seen, bias)
    before = ops.sub(size_of(k, 2), size_of(q, 2)) if causal and k.shape[2] != q.shape[2] else 0
    y = ops.attention(q, k, v, seen, scale=scale, causal=causal, offset=before)
    batch, heads, length, width = y.shape
    y = ops.reshape(ops.transpose(y, (0, 2, 1, 3)), (batch, length, heads * width))
    return y if kind == "f32" else ops.cast(y, kind)


def size_of(x: Value, axis: int) -> Value:
    """The size of an axis as an s64 number."""
    n = x.shape[axis]
    if isinstance(n, int):
        return x.pipeline.constant(np.array(n, np.int64))
    ones = ops.expand(x.pipeline.constant(np.ones((1,), np.int64)), (n,))
    return ops.reduce("sum", ones, [0])


def places(x: Value, axis: int) -> Any:
    """0, 1, .. along an axis of x, s64."""
    n = x.shape[axis]
    return np.arange(n, dtype=np.int64) if isinstance(n, int) else ops.arange(x, n)


def hidden(node: Node, condition: Value) -> Value:
    """mask_filter_value where the condition holds, else 0."""
    value = np.float32(node.attr("mask_filter_value", MASKED))
    return ops.where(condition, np.full((), value, np.float32), np.zeros((), np.float32))


def additive_mask(node: Node, mask: Value, k: Value) -> Value:
    """A mask in any of its forms as what is added to scores, broadcast to (B, N, S, T).

    (B, T) and (B, S, T): seen where above 0. (B,): the key behind the last one. (2 B,): then the first ones too.
    """
    batch, keys = k.shape[0], k.shape[2]
    if mask.ndim in (2, 3):
        unseen = hidden(node, ops.less_equal(mask, np.zeros((), mask.dtype.numpy)))  # type: ignore[union-attr]
        return ops.unsqueeze(unseen, [1, 2] if mask.ndim == 2 else [1])
    if mask.ndim != 1:
        raise node.unsupported(f"a mask of {mask.ndim} dimensions; (B,), (2 B,), (B, T) and (B, S, T) work")
    place = ops.unsqueeze(node.scope.value(places(k, 2)), [0])
    n = mask.shape[0]
    if n == batch:
        return ops.unsqueeze(hidden(node, ops.greater_equal(place, _column(mask))), [1, 2])
    if not isinstance(n, int) or not isinstance(batch, int) or n != 2 * batch:
        raise node.unsupported(f"a mask of {n} numbers for {batch} batches and {keys} keys; (B,) and (2 B,) work")
    ends, starts = (_column(part) for part in ops.split(mask, [batch, batch], 0))
    outside = ops.where(ops.less(place, starts), np.ones((), bool), ops.greater_equal(place, ends))
    return ops.unsqueeze(hidden(node, outside), [1, 2])


def _column(numbers: Value) -> Value:
    return ops.unsqueeze(ops.cast(numbers, "s64"), [1])


# Embeddings ----------------------------------------------------------------------------------------------------------


@operator("EmbedLayerNormalization", domain=DOMAIN)
def embed(node: Node) -> Any:
    tables = [node.operand(n) for n in (2, 3, 4)]
    return embedded(node, tables, node.value(5), node.value(6), node.optional(8))


@operator("QEmbedLayerNormalization", domain=DOMAIN)
def embed_codes(node: Node) -> Any:
    """Tables, scale and shift of the normalization are codes with a scale and a zero point each."""

    def coded(n: int) -> Any:
        if not node.has(n + 2):
            return None
        scale, zero = node.operand(8 + n), node.operand(13 + n)
        return Coded(node.operand(2 + n), flat(scale), None if zero is None else flat(zero), 0, 0)

    gamma, beta = (node.scope.value(coded(n)) for n in (3, 4))
    return embedded(node, [coded(n) for n in range(3)], gamma, beta, None)[:2]


def rows_of(node: Node, table: Any, places: Value) -> Value:
    """Rows of a table; of codes only those that are taken become numbers."""
    if isinstance(table, Coded) and table.per_tensor:
        codes = ops.gather(node.scope.value(table.codes), places, 0)
        return node.scope.value(Coded(codes, table.scale, table.zero_point, 0, 0))
    return ops.gather(node.scope.value(table), places, 0)


def embedded(node: Node, tables: list[Any], gamma: Value, beta: Value, positions: Value | None) -> Any:
    """layer_norm(words + positions + segments); how many words of each row its mask shows; the sum."""
    words, ids = rows_of(node, tables[0], node.value(0)), node.value(0)
    length = ids.shape[1]
    if positions is None:
        positions = node.scope.value(np.arange(length)) if isinstance(length, int) else ops.arange(ids, length)
    total = ops.add(words, rows_of(node, tables[1], positions))
    if tables[2] is not None:
        total = ops.add(total, rows_of(node, tables[2], node.value(1)))
    y = ops.layer_norm(total, gamma, beta, -1, node.attr("epsilon", 1e-12))
    if not node.wants(1):
        return [y, None, total]
    if node.has(7):
        shown = ops.cast(ops.equal(node.value(7), np.ones((), np.int32)), "s32")
        return [y, ops.reduce("sum", shown, [1], False), total]
    return [y, ops.expand(node.scope.value(np.zeros((1,), np.int32)), (ids.shape[0],)), total]
