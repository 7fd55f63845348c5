"""Attention on the CPU: blocks of 64 queries and 64 keys whose scores never leave the cache.

The keys of a head are packed once, 64 side by side for each depth, so that a vector holds one score of 16 keys; values
are used as they lie where their rows are whole vectors. kernels/reference/attention.py says what it computes.
"""

from __future__ import annotations

import numpy as np

from ...attention import KEYS, LANES, ROWS, Attention
from ...factory import Whole, register
from ...forge import Native
from ...reference.attention import attention_step
from ..map import compiled
from ..scalar import scalar
from ..simd import get_f32, put_f32
from ..wide_pack import transpose_words
from .product import MR, product_1, product_4


@scalar
def multiply(rows, depth, width, c, ldc, a, lda, b, ldb, from_c):
    """rows (whole groups of MR) by `width` columns (whole vectors)."""
    for r in range(0, rows, MR):
        n = 0
        while n + 4 * LANES <= width:
            product_4(depth, c + r * ldc + 4 * n, ldc, a + r * lda, lda, b + 4 * n, ldb, from_c)
            n += 4 * LANES
        while n < width:
            product_1(depth, c + r * ldc + 4 * n, ldc, a + r * lda, lda, b + 4 * n, ldb, from_c)
            n += LANES


@scalar
def pack_keys(target, start, count, depth, step, item):
    """KEYS keys side by side for each depth, of which `count` are there: target[d, n] = source[n, d], then zeros."""
    rows, whole = (count // LANES * LANES, depth // LANES * LANES) if item == 4 else (0, 0)
    for n in range(0, rows, LANES):
        for d in range(0, whole, LANES):
            transpose_words(target + 4 * (d * KEYS + n), 4 * KEYS, start + n * step + 4 * d, step)
    for n in range(count):
        for d in range(whole if n < rows else 0, depth):
            put_f32(target + 4 * n, d * KEYS, get_f32(start + n * step + d * item, 0))
    for n in range(count, KEYS):
        for d in range(depth):
            put_f32(target + 4 * n, d * KEYS, np.float32(0))


@scalar
def pack_values(target, start, count, width, columns, step, item):
    """`count` rows of values, filled up with zeros to whole vectors."""
    for n in range(count):
        for d in range(width):
            put_f32(target + 4 * n * columns, d, get_f32(start + n * step + d * item, 0))
        for d in range(width, columns):
            put_f32(target + 4 * n * columns, d, np.float32(0))


TEXT = """\
import numpy as np
from numba import njit
from tilework.kernels.cpu.attention.steps import multiply, pack_keys, pack_values
from tilework.kernels.cpu.elements import start_of
from tilework.kernels.cpu.reduce.bodies import *
from tilework.kernels.cpu.reduce.passes import one_pass
from tilework.kernels.cpu.simd import get_f32, put_f32
from tilework.kernels.cpu.vectormath import exp

scores = one_pass(scaled_scores, ("f32",), ("f32",), ("max",), 1)
masked_scores = one_pass(scaled_masked_scores, ("f32", "f32"), ("f32",), ("max",), 1)
weights = one_pass(exponential_kept, ("f32",), ("f32",), ("add",), 1)
scale_row = one_pass(times, ("f32",), ("f32",), (), 1)


@njit(nogil=True, error_model="numpy")
def tile(b0, b1, h0, h1, m0, m1, q, {rows_of}{more}scale, y, scratch{trailing}):
    keys, depth, width = k.shape[2], q.shape[3], {width}
    columns = (width + {lanes} - 1) // {lanes} * {lanes}
    factor, low = scale[()], np.float32(-np.inf)
    packed_k = (start_of(scratch) + 63) // 64 * 64
    blocks = (keys + {KEYS} - 1) // {KEYS}
    packed_v = packed_k + 4 * blocks * {KEYS} * depth
    q_at = packed_v + 4 * blocks * {KEYS} * columns
    s_at = q_at + 4 * {ROWS} * depth
    o_at = s_at + 4 * {ROWS} * {KEYS}
    mask_at = o_at + 4 * {ROWS} * columns
    m_at = mask_at + 4 * {KEYS}
    l_at = m_at + 4 * {ROWS}
    {ready}
    for b in range(b0, b1):
        packed = -1  # the head whose keys and values are packed: neighbouring heads of q share it
        h = h0
        while h < h1:
            g = h // {groups}
            # heads of one query that share keys are rows of one product, else queries of one head
            together = min(min(h1, (g + 1) * {groups}) - h, {ROWS}) if m1 - m0 == 1 else 0
            dh, di = (1, 0) if together else (0, 1)
            length = min(keys, max(0, {length}))
            last = {last}
            if g != packed:
                packed = g
                {pack}
            v_at = start_of(v) + b * v.strides[0] + g * v.strides[1] if whole_v else packed_v
            v_step = v.strides[2] if whole_v else 4 * columns
            for i in range(m0, m1, {ROWS}):
                rows = together if together else min({ROWS}, m1 - i)
                padded = (rows + {MR} - 1) // {MR} * {MR}
                start = start_of(q) + b * q.strides[0] + h * q.strides[1] + i * q.strides[2]
                q_step = q.strides[1] if together else q.strides[2]
                for r in range(padded):
                    put_f32(m_at, r, low)
                    put_f32(l_at, r, np.float32(0))
                    for d in range(depth):
                        value = get_f32(start + r * q_step + d * q.strides[3], 0) if r < rows else np.float32(0)
                        put_f32(q_at + 4 * r * depth, d, value)
                    for d in range(columns):
                        put_f32(o_at + 4 * r * columns, d, np.float32(0))
                end = {end}
                for j in range(0, end, {KEYS}):
                    count = min({KEYS}, end - j)
                    multiply(
                        padded, depth, {KEYS}, s_at, 4 * {KEYS}, q_at, 4 * depth, packed_k + 4 * j * depth, 4 * {KEYS}, 0
                    )
                    for r in range(padded):
                        row = s_at + 4 * r * {KEYS}
                        seen = min(count, max(0, {limit} - j)) if r < rows else 0
                        if seen > 0:
                            {score}
                            before = get_f32(m_at + 4 * r, 0)
                            top = before if before > top or before != before else top
                            zero = top if top > low or top != top else np.float32(0)
                            total = weights(seen, row, row, zero)
                            again = exp(before - zero)
                            put_f32(l_at + 4 * r, 0, get_f32(l_at + 4 * r, 0) * again + total)
                            put_f32(m_at + 4 * r, 0, top)
                            scale_row(columns, o_at + 4 * r * columns, o_at + 4 * r * columns, again)
                        for n in range(seen, {KEYS}):
                            put_f32(row, n, np.float32(0))
                    multiply(
                        padded, count, columns, o_at, 4 * columns, s_at, 4 * {KEYS}, v_at + j * v_step, v_step, 1
                    )
                for r in range(rows):
                    total = get_f32(l_at + 4 * r, 0)
                    inverse = np.float32(1) / total if total != np.float32(0) else np.float32(0)
                    for d in range(width):
                        y[b, h + r * dh, i + r * di, d] = get_f32(o_at + 4 * r * columns, d) * inverse
            h += max(together, 1)
"""


_PACK = """\
for j in range(0, last, {KEYS}):
    start = start_of(k) + b * k.strides[0] + g * k.strides[1] + j * k.strides[2]
    pack_keys(packed_k + 4 * j * depth, start, min({KEYS}, keys - j), depth, k.strides[2], k.strides[3])
if not whole_v:
    start = start_of(v) + b * v.strides[0] + g * v.strides[1]
    pack_values(packed_v, start, min(last, keys), width, columns, v.strides[2], v.strides[3])
"""


def indented(text: str, by: int) -> str:
    """Lines that go where the first of them stands, so many times four spaces in."""
    return f"\n{'    ' * by}".join(text.splitlines())


def parts(kernel: Attention, score: str, masked_score: str, dh: str = "0", di: str = "1") -> dict[str, object]:
    """What differs between the texts of attention: operands, how far keys are seen, and how a row is scored.

    dh, di  from row to row of a block: how many heads and queries on
    """
    more = [*(["mask"] if kernel.mask is not None else []), *(["lengths"] if kernel.lengths else [])]
    more += ["offset"] if kernel.causal else []
    if kernel.mask is not None:
        lines = (
            "added = start_of(mask) + b * mask.strides[0]",
            f"added += (h + r * {dh}) * mask.strides[1] + (i + r * {di}) * mask.strides[2]",
            "added += j * mask.strides[3]",
            "if mask.strides[3] != 4:",
            "    for n in range(seen):",
            "        put_f32(mask_at, n, get_f32(added + n * mask.strides[3], 0))",
            "    added = mask_at",
            masked_score,
        )
        score = "\n".join(f"{'    ' * 7 if n else ''}{line}" for n, line in enumerate(lines))
    reach = "min(length, {} + np.int64(offset[()]) + 1)" if kernel.causal else "length"
    return {
        "more": "".join(f"{name}, " for name in more),
        "length": "np.int64(lengths[b])" if kernel.lengths else "keys",
        "last": f"max(0, {reach.format('m1 - 1')})",
        "end": f"max(0, {reach.format(f'i + (rows - 1) * {di}')})",
        "limit": reach.format(f"i + r * {di}"),
        "score": score,
        "groups": kernel.groups,
    }


@register("attention", backend="cpu", requires=compiled)
def build(kernel: Attention) -> Native:
    return Native(
        text(
            kernel,
            rows_of="k, v, ",
            trailing="",
            width="v.shape[3]",
            ready="whole_v = width == columns and v.strides[3] == 4",
            pack=indented(_PACK.format(KEYS=KEYS), 4),
        )
    )


def text(kernel: Attention, **more: str) -> str:
    """The module of an attention over real rows. more: how they come, and how they are packed."""
    one, masked = "top = scores(seen, row, row, factor)", "top = masked_scores(seen, row, added, row, factor)"
    given = parts(kernel, one, masked, "dh", "di")
    return TEXT.format(**given, **more, lanes=LANES, KEYS=KEYS, ROWS=ROWS, MR=MR)


@register("attention", backend="cpu", variant="interpreted", priority=-100)
def build_interpreted(kernel: Attention) -> Whole:
    """Whole arrays under plain Python."""
    return attention_step(kernel)
