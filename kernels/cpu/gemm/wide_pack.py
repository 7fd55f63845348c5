"""Packing B whose elements have 2 or 4 bytes: s16 and bf16 in pairs along K, float32 one by one, or widened to it.

packing.py says what the panels look like; pack_b.py packs bytes. Columns have no sums here: there are no zero points.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from ..simd import I32, Emitter, copy_bytes, function, get_f32, get_s16, put_f32, put_s16, vector, zero_bytes
from .dot import DOTS
from .wide_rows import get_bf16, get_f16

DEEP = 16  # values of K that are read together where B lies along K
BLOCK = 16  # columns and steps that are transposed at once


def transposer(module: Any) -> Any:
    """The function of `transpose_words` in a module."""
    made = module.globals.get("transpose_words")
    if made is not None:
        return made
    made = function(module, "transpose_words", 4)
    e = Emitter(ir.IRBuilder(made.append_basic_block("entry")))
    target, pitch, source, stride = made.args
    block = []
    for _ in range(BLOCK):
        block.append(e.load(source, vector(I32, BLOCK), 1))
        source = e.b.add(source, stride)
    low = [n for i in range(8) for n in (i, i + 16)]
    high = [n + 8 for n in low]
    for _ in range(4):
        pairs = [(block[i], block[i + 8]) for i in range(8)]
        block = [e.shuffle(x, order, y) for x, y in pairs for order in (low, high)]
    for words in block:
        e.store(words, target, 1)
        target = e.b.add(target, pitch)
    e.b.ret_void()
    return made


@intrinsic
def transpose_words(typingctx: Any, target: Any, pitch: Any, source: Any, stride: Any) -> Any:
    """4-byte words, 16 of each of 16 columns that lie `stride` apart, to 16 rows of 16 columns that lie `pitch` apart.

    Four rounds of interleaving in registers, as in rows.py.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.call(transposer(builder.module), args)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 4), codegen


def pack_entry(dot: str, dtype: str) -> Callable[..., Any]:
    """The entry that packs panels n0:n1, its block as pack_b's. n0 and n1 are multiples of nr, or n1 is N."""
    group = DOTS[dot].group
    item = 4 if dtype == "f32" else 2
    plain = DOTS[dot].element == dtype
    get = {"f32": get_f32, "s16": get_s16, "bf16": get_s16 if plain else get_bf16, "f16": get_f16}[dtype]
    put = put_f32 if group == 1 else put_s16

    @njit(error_model="numpy")
    def row(target, source, have):
        """One k of a group of 1, B along N."""
        for c in range(have):
            put(target, c, get(source, c))

    @njit(error_model="numpy")
    def pair(target, first, second, have):
        for c in range(have):
            put(target, 2 * c, get(first, c))
            put(target, 2 * c + 1, get(second, c))

    @njit(error_model="numpy")
    def each(target, pitch, source, stride_k, stride_n, p0, depth, have):
        for p in range(p0, depth):
            at = target + p // group * pitch
            for c in range(have):
                put(at, group * c + p % group, get(source + p * stride_k + c * stride_n, 0))

    @njit(error_model="numpy")
    def deep(target, pitch, source, stride_k, stride_n, start, depth, first, have):
        for p0 in range(start, depth, DEEP):
            p1 = min(p0 + DEEP, depth)
            for c in range(first, have):
                for p in range(p0, p1):
                    value = get(source + c * stride_n + p * stride_k, 0)
                    put(target + p // group * pitch, group * c + p % group, value)

    def entry(bases, block, ranges):
        depth, columns, stride_k, stride_n = block[2], block[3], block[4], block[5]
        source = bases[block[0]] + block[1]
        packed, sums = bases[block[6]] + block[7], bases[block[10]] + block[11]
        nr, rest_width, steps = block[14], block[15], block[16]
        for col in range(ranges[0], ranges[1], nr):
            width = nr if col + nr <= columns else rest_width
            have = min(columns - col, width)
            pitch, at = 4 * width, source + col * stride_n
            panel = packed + 4 * col * steps
            zero_bytes(sums + 4 * col, 4 * have)
            if have < width or group * steps != depth:
                zero_bytes(panel, pitch * steps)
            if stride_n == item:
                whole = depth // group
                for s in range(whole):
                    if group == 2:
                        pair(panel + s * pitch, at + 2 * s * stride_k, at + (2 * s + 1) * stride_k, have)
                    elif plain:
                        copy_bytes(panel + s * pitch, at + s * stride_k, 4 * have)
                    else:
                        row(panel + s * pitch, at + s * stride_k, have)
                each(panel, pitch, at, stride_k, stride_n, whole * group, depth, have)
            elif stride_k == item:
                steps_done, columns_done = 0, 0
                if plain:
                    steps_done, columns_done = depth // group // BLOCK * BLOCK, have // BLOCK * BLOCK
                for s in range(0, steps_done, BLOCK):
                    for c in range(0, columns_done, BLOCK):
                        transpose_words(panel + s * pitch + 4 * c, pitch, at + c * stride_n + 4 * s, stride_n)
                deep(panel, pitch, at, stride_k, stride_n, steps_done * group, depth, 0, columns_done)
                deep(panel, pitch, at, stride_k, stride_n, 0, depth, columns_done, have)
            else:
                each(panel, pitch, at, stride_k, stride_n, 0, depth, have)
        return np.int32(0)

    return entry
