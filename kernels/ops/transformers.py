"""Attention."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...primitives import sizes
from ...primitives.errors import ArgumentError, DTypeMismatch, ShapeMismatch
from ...primitives.pipeline import Value
from ..attention import LAYOUTS, Attention, AttentionCodes
from ..attention_coded import AttentionCoded
from ..cache_append import CacheAppend
from ..indexing import Index
from .coded_rows import CodedRows
from .given import Operand, dtype_of, integers, one, only, pipeline_of, reals, value_of
from .moving import concat, reshape
from .moving import slice as cut
from .reductions import dynamic_quantize
from .tabled import tabled


def attention(
    q: Operand,
    k: Operand | CodedRows,
    v: Operand | CodedRows,
    mask: Operand = None,
    *,
    scale: Operand = None,
    causal: bool = False,
    offset: Operand = 0,
    lengths: Operand = None,
    layout: str = "BHTD",
    compute: str = "f32",
    scales: tuple[Operand, Operand, Operand] | None = None,
) -> Value:
    """softmax(q k^T * scale + mask) v for every batch and head.

    q        f32 (B, H, M, D), or (B, M, H, D) with layout="BTHD"; k: (B, G, N, D) and v: (B, G, N, E) likewise, or both
             from `scheme_cache(..).extend`, whose codes are decoded as they are read
    mask     bool (True: the key is seen) or f32 (added to the scores), broadcast to (B, H, M, N)
    scale    f32; left out: 1 / sqrt(D)
    causal   query i sees keys 0 .. i + offset; with a cache, offset is how many keys came before the first query
    lengths  s64 (B,): how many keys of each batch are there; left out: all
    compute  "int8": q, k and v become s8 codes with a scale for each row, and both products are integers
    scales   of q, k and v, f32 with the last size 1, where they are s8 codes already (a quantized cache)
    returns  f32 (B, H, M, E) in the same layout; a query that sees no key gives 0

    H is a multiple of G: that many neighbouring query heads share a head of k and v.
    """
    coded = _coded(k, v, layout, compute, scales)
    if coded is None:
        k, v = (x.decoded() if isinstance(x, CodedRows) else x for x in (k, v))
        pipe = pipeline_of("attention", q, k, v, mask, scale, offset, lengths)
        k, v = value_of(pipe, k, "attention", "k"), value_of(pipe, v, "attention", "v")
    else:
        k, v = coded[0].codes, coded[1].codes
        pipe = pipeline_of("attention", q, k, v, mask, scale, offset, lengths)
    q = value_of(pipe, q, "attention", "q")
    if layout not in LAYOUTS:
        raise ArgumentError(f"attention: layout {layout!r}; {' and '.join(LAYOUTS)} work")
    for name, x in (("q", q), ("k", k), ("v", v)):
        wanted = "u8" if coded is not None and name != "q" else "s8" if scales else "f32"
        if dtype_of(x) != wanted:
            raise DTypeMismatch(f"attention: {name} is {dtype_of(x)}; f32 works, and s8 with scales=")
        if len(x.shape) != 4:
            raise ShapeMismatch(f"attention: {name} has shape {sizes.show(x.shape)}; four dimensions, {layout}, work")
    head, depth = layout.index("H"), q.shape[3]
    heads, shared = q.shape[head], k.shape[head]
    if not isinstance(heads, int) or not isinstance(shared, int) or shared == 0 or heads % shared:
        raise ShapeMismatch(
            f"attention: {heads} heads of q and {shared} of k; known numbers, the first a multiple, work"
        )
    operands: dict[str, Any] = {"q": q, "k": k, "v": v}
    index: Index | None = None
    if mask is not None:
        mask = value_of(pipe, mask, "attention", "mask")
        if dtype_of(mask) == "bool":
            mask = tabled("where", mask, np.zeros((), np.float32), np.full((), -np.inf, np.float32))
        if dtype_of(mask) != "f32" or len(mask.shape) > 4:
            raise DTypeMismatch(
                f"attention: mask is {dtype_of(mask)} {sizes.show(mask.shape)}; bool or f32, broadcast to (B, H, M, N)"
            )
        lead = 4 - len(mask.shape)
        index = tuple(None if n == 1 else (lead + d, 1) for d, n in enumerate(mask.shape))
        operands["mask"] = mask
    if lengths is not None:
        operands["lengths"] = lengths if isinstance(lengths, Value) else integers(lengths, "s64", "attention: lengths")
    if causal:
        operands["offset"] = offset if isinstance(offset, Value) else integers(offset, "s64", "attention: offset")
    elif isinstance(offset, Value) or offset != 0:
        raise ArgumentError("attention: offset belongs to causal=True")
    if scale is None:
        if not isinstance(depth, int):
            raise ArgumentError(f"attention: the depth {depth} is known only at run time; give scale=")
        scale = 1.0 / np.sqrt(max(depth, 1))
    operands["scale"] = scale if isinstance(scale, Value) else one(reals(scale, "attention: scale"), "attention: scale")
    if compute not in ("f32", "int8"):
        raise ArgumentError(f"attention: compute {compute!r}; 'f32' and 'int8' work")
    if compute == "int8" and scales is None:
        made = [dynamic_quantize(x, "s8", symmetric=True, granularity="row") for x in (q, k, v)]
        operands |= {slot: codes for slot, (codes, _, _) in zip("qkv", made, strict=True)}
        scales = (made[0][1], made[1][1], made[2][1])
    step = Attention
    if scales is not None:
        step = AttentionCodes
        operands |= {f"{slot}_scale": x for slot, x in zip("qkv", scales, strict=True)}
    common = (layout, heads // shared, index, lengths is not None, causal)
    if coded is None:
        return only(pipe.add(step(*common), **operands))
    for which, rows in zip("kv", coded, strict=True):
        operands |= rows.slots(which)
    kernel = AttentionCoded(*common, scheme=coded[0].scheme, columns=int(coded[0].shape[3]))
    return only(pipe.add(kernel, **operands))


def _coded(
    k: Any, v: Any, layout: str, compute: str, scales: tuple[Operand, Operand, Operand] | None
) -> tuple[CodedRows, CodedRows] | None:
    """Keys and values, where attention takes both in their codes."""
    if not (isinstance(k, CodedRows) and isinstance(v, CodedRows)):
        return None
    if layout != "BHTD" or compute != "f32" or scales is not None:
        return None
    return (k, v) if k.fused and k.scheme is v.scheme and k.shape == v.shape else None


def cache_append(cache: Value, new: Operand, position: Operand) -> Value:
    """Write new rows into a cache that lives from run to run, in place; returns the cache, as it is afterwards.

    cache     a state of the pipeline (B, G, C, D): f32, or codes s8 or u8 (scales in a cache of their own, D = 1)
    new       (B, G, T, D) of its type
    position  s64: where the first new row goes. Rows behind C are an error of the run

    With attention(q, keys, values, causal=True, offset=position) query i sees what was there and rows up to its own.
    """
    if not isinstance(cache, Value) or cache.kind != "state":
        raise ArgumentError(f"cache_append: cache is {cache!r}; a pipe.state(...) works")
    new = value_of(cache.pipeline, new, "cache_append", "new")
    if dtype_of(new) != dtype_of(cache):
        raise DTypeMismatch(f"cache_append: new is {dtype_of(new)} and cache {dtype_of(cache)}; one type works")
    at = position if isinstance(position, Value) else integers(position, "s64", "cache_append: position")
    return only(cache.pipeline.add(CacheAppend(dtype_of(cache)), new=new, position=at, cache=cache))


def rotary(x: Operand, cos: Operand, sin: Operand, interleaved: bool = False) -> Value:
    """Rotary position embedding: each pair (a, b) of the last axis becomes (a cos - b sin, b cos + a sin).

    x            f32, f16 or bf16, its last axis of known size
    cos, sin     of x's type, broadcast to x with half as many along the last axis; fewer: only the first elements turn
    interleaved  pairs are neighbours; else the first half is paired with the second
    """
    pipe = pipeline_of("rotary", x, cos, sin)
    x, cos, sin = (value_of(pipe, v, "rotary", n) for v, n in ((x, "x"), (cos, "cos"), (sin, "sin")))
    depth, half = x.shape[-1], cos.shape[-1] if cos.shape else 0
    if not isinstance(depth, int) or not isinstance(half, int) or not 0 < 2 * half <= depth:
        raise ShapeMismatch(
            f"rotary: x is {sizes.show(x.shape)} and cos {sizes.show(cos.shape)}; half the turned elements of the last axis work"
        )
    step, second = (2, 1) if interleaved else (1, half)
    stop = 2 * half if interleaved else half
    a = cut(x, [0], [stop], [-1], [step])
    b = cut(x, [second], [second + stop if not interleaved else stop], [-1], [step])
    turned = [tabled("rotate", a, b, cos, sin), tabled("rotate_back", b, a, cos, sin)]
    if interleaved:
        pairs = [reshape(t, (*t.shape, 1)) for t in turned]
        turned = [reshape(concat(pairs, axis=-1), (*x.shape[:-1], 2 * half))]
    if 2 * half < depth:
        turned.append(cut(x, [2 * half], [depth], [-1]))
    return turned[0] if len(turned) == 1 else concat(turned, axis=-1)
