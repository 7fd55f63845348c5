"""Attention on the CPU: blocks of 64 queries and 64 keys whose scores never leave the cache.

The keys of a head are packed once, 64 side by side for each depth, so that a vector holds one score of 16 keys; values
are used as they lie where their rows are whole vectors. kernels/reference/attention.py says what it computes.
"""

from __future__ import annotations

from ...attention import KEYS, LANES, ROWS, Attention
from ...factory import Whole, register
from ...forge import Native
from ...reference.attention import attention_step
from ..map import compiled
from .product import MR

HEADER = """\
import numpy as np
from numba import njit
from tilework.kernels.cpu.attention.blocks import copy_1, copy_4, pack_words, within
from tilework.kernels.cpu.attention.product import multiply, multiply_codes
from tilework.kernels.cpu.elements import place, start_of
from tilework.kernels.cpu.reduce.bodies import *
from tilework.kernels.cpu.reduce.passes import one_pass
from tilework.kernels.cpu.simd import get_f32, put_f32, zero_bytes

tops = one_pass(new_tops, ("f32",) * 2, ("f32",) * 3, whole=True)
inverses = one_pass(inverse_of, ("f32",), ("f32",), whole=True)
scale_row = one_pass(times, ("f32",), ("f32",), (), 1)
"""

TEXT = """\
scores = one_pass(scaled_scores, ("f32",), ("f32",), ("max",), 1)
masked_scores = one_pass(scaled_masked_scores, ("f32", "f32"), ("f32",), ("max",), 1)
weights = one_pass(exponential_kept, ("f32",), ("f32",), ("add",), 1)
sums = one_pass(new_sums, ("f32",) * 3, ("f32",), whole=True)
scale_whole = one_pass(times, ("f32",), ("f32",), (), 1, whole=True)


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
    room = o_at + 4 * {ROWS} * columns
    mask_at = room + 4 * {KEYS} * depth
    m_at = mask_at + 4 * {KEYS}
    l_at, top_at, zero_at = m_at + 4 * {ROWS}, m_at + 8 * {ROWS}, m_at + 12 * {ROWS}
    again_at, sum_at = m_at + 16 * {ROWS}, m_at + 20 * {ROWS}
    {ready}
    for b in range(b0, b1):
        packed = -1  # the head whose keys and values are packed: neighbouring heads of q share it
        h = h0
        while h < h1:
            g = h // {groups}
            # heads of one query that share keys are rows of one product, else queries of one head
            together = min(min(h1, (g + 1) * {groups}) - h, {ROWS}) if m1 - m0 == 1 else 0
            dh, di = (1, 0) if together else (0, 1)
            length = {length}
            last = {last}
            if g != packed:
                packed = g
                {pack}
            v_at, v_step = (place(v, (b, g)), v.strides[2]) if whole_v else (packed_v, 4 * columns)
            q_step, y_step = (q.strides[1], y.strides[1]) if together else (q.strides[2], y.strides[2])
            for i in range(m0, m1, {ROWS}):
                rows = together if together else min({ROWS}, m1 - i)
                padded, whole = (rows + {MR} - 1) // {MR} * {MR}, (rows + {lanes} - 1) // {lanes} * {lanes}
                zero_bytes(q_at, 4 * padded * depth)
                copy_4(q_at, 4 * depth, 4, place(q, (b, h, i)), q_step, q.strides[3], rows, depth)
                zero_bytes(o_at, 4 * padded * columns)
                zero_bytes(l_at, 4 * {ROWS})
                for r in range({ROWS}):
                    put_f32(m_at, r, low)
                end = {end}
                for j in range(0, end, {KEYS}):
                    count = min({KEYS}, end - j)
                    multiply(
                        padded, {KEYS}, depth, s_at, 4 * {KEYS}, q_at, 4 * depth, packed_k + 4 * j * depth, 4 * {KEYS}, 0
                    )
                    # Each of these loops is short for one row, and rows do not wait for each other.
                    for r in range(rows):
                        row, seen, top = s_at + 4 * r * {KEYS}, {seen}, low
                        if seen > 0:
                            {score}
                        put_f32(top_at, r, top)
                    tops(whole, m_at, top_at, m_at, zero_at, again_at)
                    for r in range(padded):
                        row, seen, total = s_at + 4 * r * {KEYS}, {seen} if r < rows else 0, np.float32(0)
                        if seen > 0:
                            total = weights(seen, row, row, get_f32(zero_at, r))
                            scale_whole(columns, o_at + 4 * r * columns, o_at + 4 * r * columns, get_f32(again_at, r))
                        put_f32(sum_at, r, total)
                        if seen < {KEYS}:
                            zero_bytes(row + 4 * seen, 4 * ({KEYS} - seen))
                    sums(whole, l_at, again_at, sum_at, l_at)
                    multiply(
                        padded, columns, count, o_at, 4 * columns, s_at, 4 * {KEYS}, v_at + j * v_step, v_step, 1
                    )
                inverses(whole, l_at, l_at)
                near, far = (place(y, (b, h, i)), y_step) if y.strides[3] == 4 else (o_at, 4 * columns)
                for r in range(rows):
                    scale_row(width, o_at + 4 * r * columns, near + r * far, get_f32(l_at, r))
                if y.strides[3] != 4:
                    copy_4(place(y, (b, h, i)), y_step, y.strides[3], o_at, 4 * columns, 4, rows, width)
            h += max(together, 1)
"""


_PACK = """\
for j in range(0, last, {KEYS}):
    count, near, step = min({KEYS}, keys - j), place(k, (b, g, j)), k.strides[2]
    if k.strides[3] != 4:
        copy_4(room, 4 * depth, 4, near, step, k.strides[3], count, depth)
        near, step = room, 4 * depth
    pack_words(packed_k + 4 * j * depth, near, step, count, depth)
if not whole_v:
    zero_bytes(packed_v, 4 * min(last, keys) * columns)
    copy_4(packed_v, 4 * columns, 4, place(v, (b, g)), v.strides[2], v.strides[3], min(last, keys), width)
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
            f"added = place(mask, (b, h + r * {dh}, i + r * {di}, j))",
            "if mask.strides[3] != 4:",
            "    copy_4(mask_at, 0, 4, added, 0, mask.strides[3], 1, seen)",
            "    added = mask_at",
            masked_score,
        )
        score = "\n".join(f"{'    ' * 7 if n else ''}{line}" for n, line in enumerate(lines))
    reach = "within({} + np.int64(offset[()]) + 1, length)" if kernel.causal else "length"
    return {
        "more": "".join(f"{name}, " for name in more),
        "length": "within(np.int64(lengths[b]), keys)" if kernel.lengths else "keys",
        "last": reach.format("m1 - 1"),
        "end": reach.format(f"i + (rows - 1) * {di}"),
        "seen": f"within(i + r * {di} + np.int64(offset[()]) + 1 - j, count)" if kernel.causal else "count",
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
        ),
        joined=True,
    )


def text(kernel: Attention, **more: str) -> str:
    """The module of an attention over real rows. more: how they come, and how they are packed."""
    one, masked = "top = scores(seen, row, row, factor)", "top = masked_scores(seen, row, added, row, factor)"
    given = parts(kernel, one, masked, "dh", "di")
    return HEADER + TEXT.format(**given, **more, lanes=LANES, KEYS=KEYS, ROWS=ROWS, MR=MR)


@register("attention", backend="cpu", variant="interpreted", priority=-100)
def build_interpreted(kernel: Attention) -> Whole:
    """Whole arrays under plain Python."""
    return attention_step(kernel)
