"""Scaled dot-product attention with a streaming softmax, the order of every operation said."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..attention import KEYS, ROWS, Attention, AttentionCodes
from ..attention_coded import AttentionCoded
from ..factory import Whole, register
from ..vectormath import exp
from .arithmetic import fma32
from .reduce.lanes import fold
from .schemes import decode

_ZERO, _ONE = np.float32(0), np.float32(1)


def chain(a: NDArray, b: NDArray, start: NDArray) -> NDArray[np.float32]:
    """a (M, K) times b (K, N): one chain of fused multiply-adds over ascending k for each element, from `start`."""
    total = np.asarray(start, np.float32)
    for p in range(a.shape[1]):
        total = fma32(a[:, p, None], b[None, p], total)
    return total


def attention_head(
    q: ArrayLike, k: ArrayLike, v: ArrayLike, mask: ArrayLike, limits: ArrayLike, scale: ArrayLike
) -> NDArray[np.float32]:
    """One head: out[i] = sum over j of softmax_j(q[i] . k[j] * scale + mask[i, j]) * v[j].

    q       float32 (M, D);  k: (N, D);  v: (N, E);  mask: (M, N), added to the scores
    limits  (M,): query i sees keys 0 .. limits[i] - 1
    scale   float32

    Queries are taken 64 at a time, keys 64 at a time up to the last that any query of the block sees. For a block:

        s = chain(q, k) * scale + mask          top = max(m, max(s));  z = top, or 0 where that is -inf
        p = exp(s - z), 0 for keys not seen     a = exp(m - z)
        l = l * a + sum(p);  o = chain(p, v) from o * a;  m = top          (from m = -inf, l = 0, o = 0)

    and out = o * (1 / l), or 0 where a query sees nothing. A query that sees no key of a block has p = 0 and a = 1.
    Sums have the order of reduce/lanes.py, products that of gemm_f32.
    Source: Dao et al., "FlashAttention", 2022; Milakov and Gimelshein, "Online normalizer calculation", 2018.
    """
    a, b, c = (np.asarray(x, np.float32) for x in (q, k, v))
    factor = np.asarray(scale, np.float32)

    def score(rows: slice, keys: slice) -> NDArray:
        zeros = np.zeros((a[rows].shape[0], b[keys].shape[0]), np.float32)
        return chain(a[rows], b[keys].T, zeros) * factor

    def value(p: NDArray, keys: slice, o: NDArray) -> NDArray:
        return chain(p, c[keys], o)

    return _streamed(score, value, (a.shape[0], b.shape[0], c.shape[1]), mask, limits)


def _streamed(score: Any, value: Any, sizes: tuple[int, int, int], mask: ArrayLike, limits: ArrayLike) -> NDArray:
    """The streaming softmax around two products: score(rows, keys), and value(p, keys, o) which adds p v to o."""
    queries, known, width = sizes
    added, limit = np.asarray(mask, np.float32), np.clip(np.asarray(limits), 0, known)
    out = np.zeros((queries, width), np.float32)
    with np.errstate(all="ignore"):
        for i0 in range(0, queries, ROWS):
            rows = slice(i0, min(i0 + ROWS, queries))
            m, total, o = (
                np.full(rows.stop - i0, -np.inf, np.float32),
                np.zeros(rows.stop - i0, np.float32),
                out[rows],
            )
            end = int(limit[rows].max(initial=0))
            for j0 in range(0, end, KEYS):
                keys = slice(j0, min(j0 + KEYS, end))
                s = score(rows, keys) + added[rows, keys]
                seen = np.arange(j0, keys.stop)[None] < limit[rows, None]
                some = seen.any(1)
                top = np.maximum(m, fold(np.where(seen, s, -np.inf), "max"))
                z = np.where(top > -np.inf, top, np.where(np.isnan(top), top, _ZERO)).astype(np.float32)
                p = np.where(seen, exp(s - z[:, None]), _ZERO)
                a = np.where(some, exp(m - z), _ONE)
                total = np.where(some, total * a + fold(np.where(seen, p, np.float32(-0.0))), total)
                o = value(p, keys, o * a[:, None])
                m = np.where(some, top, m)
            out[rows] = o * np.where(total != 0, _ONE / total, _ZERO)[:, None]
    return out


def attention_codes_head(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    scales: tuple[ArrayLike, ArrayLike, ArrayLike],
    mask: ArrayLike,
    limits: ArrayLike,
    scale: ArrayLike,
) -> NDArray[np.float32]:
    """One head on codes: as attention_head, with both products exact in integers.

    q, k, v  int8 (M, D), (N, D), (N, E);  scales: float32 (M,), (N,), (N,), one for each row of q, k and v

        s = float32(q k^T) * (q_scale * scale) * k_scale + mask
        w = p * v_scale;  r = max(w);  u = min(rint(w * (255 / r)), 255), or 0 where r is not above 0
        o = o * a + float32(u v) * (r * float32(1 / 255))
    """
    a, b, c = (np.asarray(x).astype(np.int64) for x in (q, k, v))
    qs, ks, vs = (np.asarray(x, np.float32) for x in scales)
    own = qs * np.asarray(scale, np.float32)

    def score(rows: slice, keys: slice) -> NDArray:
        return (a[rows] @ b[keys].T).astype(np.float32) * own[rows, None] * ks[None, keys]

    def value(p: NDArray, keys: slice, o: NDArray) -> NDArray:
        w = p * vs[None, keys]
        most = np.maximum(fold(w, "max"), _ZERO)
        inverse = np.where(most > 0, np.float32(255) / most, _ZERO)
        u = np.minimum(np.rint(w * inverse[:, None]), np.float32(255))
        u = np.where(np.isnan(u), 0, u).astype(np.int64)
        return o + (u @ c[keys]).astype(np.float32) * (most * np.float32(1 / 255))[:, None]

    return _streamed(score, value, (a.shape[0], b.shape[0], c.shape[1]), mask, limits)


def limits_of(kernel: Attention, batch: int, rows: int, keys: int, lengths: Any, offset: Any) -> NDArray:
    """How many keys each query of a batch sees."""
    found = np.full(rows, keys if lengths is None else int(lengths[batch]))
    return np.minimum(found, np.arange(rows) + int(offset) + 1) if kernel.causal else found


def _step(kernel: Attention) -> Whole:
    def fn(q: Any, k: Any, v: Any, *operands: Any) -> None:
        given = list(operands[:-1])
        scales = [given.pop(0) for _ in kernel.scales]
        mask = given.pop(0) if kernel.mask is not None else None
        lengths = given.pop(0) if kernel.lengths else None
        offset = given.pop(0)[()] if kernel.causal else 0
        scale, y = given
        rows, keys = q.shape[2], k.shape[2]
        nothing = np.full((rows, keys), -0.0, np.float32)  # adding it changes no score
        for b, h in np.ndindex(q.shape[:2]):
            g = h // kernel.groups
            added = nothing if mask is None else mask[b, h]
            limits = limits_of(kernel, b, rows, keys, lengths, offset)
            if scales:
                own = (scales[0][b, h], scales[1][b, g], scales[2][b, g])
                y[b, h] = attention_codes_head(q[b, h], k[b, g], v[b, g], own, added, limits, scale[()])
            else:
                y[b, h] = attention_head(q[b, h], k[b, g], v[b, g], added, limits, scale[()])

    return Whole(fn)


@register("attention", backend="reference")
def attention_step(kernel: Attention) -> Whole:
    return _step(kernel)


@register("attention_s8", backend="reference")
def attention_codes_step(kernel: AttentionCodes) -> Whole:
    return _step(kernel)


@register("attention_coded", backend="reference")
def attention_coded_step(kernel: AttentionCoded) -> Whole:
    """Decode everything, then attend."""
    step, count = _step(kernel), len(kernel.slots("k"))

    def rows(codes: Any, params: Any) -> NDArray:
        flat = [p.reshape(-1, p.shape[3]) for p in params]
        y = decode(kernel.definition, codes.reshape(-1, codes.shape[3]), flat, kernel.columns)
        return y.reshape(*codes.shape[:3], kernel.columns)

    def fn(q: Any, *operands: Any) -> None:
        k, v = operands[:count], operands[count : 2 * count]
        step.fn(q, rows(k[0], k[1:]), rows(v[0], v[1:]), *operands[2 * count :])

    return Whole(fn)
