"""Attention on codes: as steps.py, with both products in integers (product.py: product_codes).

kernels/reference/attention.py says what it computes.
"""

from __future__ import annotations

from ...attention import KEYS, LANES, ROWS, AttentionCodes
from ...factory import Whole, register
from ...forge import Native
from ...reference.attention import attention_codes_step
from ..map import compiled
from .product import MR
from .steps import HEADER, parts

_TEXT = """\
flip = one_pass(flipped, ("s32",), ("s32",), whole=True)
interleave = one_pass(interleaved, ("u8",) * 4, ("s32",), whole=True)
scores = one_pass(code_scores, ("s32", "s32", "f32"), ("f32",), ("top",), 1)
masked_scores = one_pass(masked_code_scores, ("s32", "s32", "f32", "f32"), ("f32",), ("top",), 1)
weights = one_pass(exponential_weighed, ("f32", "f32"), ("f32",), ("add", "farthest"), 1)
weight_codes = one_pass(to_weight_codes, ("f32",), ("u8",), (), 1, whole=True)
sums = one_pass(new_code_sums, ("f32",) * 4, ("f32",) * 3, whole=True)
add_sums = one_pass(add_code_sums, ("f32", "s32"), ("f32",), (), 2, whole=True)


@njit(nogil=True, error_model="numpy")
def tile(b0, b1, h0, h1, m0, m1, q, k, v, q_scale, k_scale, v_scale, {more}scale, y, scratch):
    keys, depth, width = k.shape[2], q.shape[3], v.shape[3]
    columns = (width + {lanes} - 1) // {lanes} * {lanes}
    pitch = (depth + 3) // 4 * 4  # bytes of a row of codes, filled up to words
    factor, low = scale[()], np.float32(-np.inf)
    blocks = (keys + {KEYS} - 1) // {KEYS}
    packed_k = (start_of(scratch) + 63) // 64 * 64
    packed_v = packed_k + blocks * {KEYS} * pitch
    key_sums = packed_v + blocks * {KEYS} * columns
    q_at = key_sums + 4 * blocks * {KEYS}
    s_at = q_at + {ROWS} * pitch
    p_at = s_at + 4 * {ROWS} * {KEYS}
    o_at = p_at + {ROWS} * {KEYS}
    i_at = o_at + 4 * {ROWS} * columns
    room = i_at + 4 * {ROWS} * columns
    mask_at = room + {KEYS} * max(pitch, columns)
    near_at, far_at, m_at = mask_at + 4 * {KEYS}, mask_at + 8 * {KEYS}, mask_at + 12 * {KEYS}
    l_at, top_at, zero_at = m_at + 4 * {ROWS}, m_at + 8 * {ROWS}, m_at + 12 * {ROWS}
    again_at, sum_at, most_at = m_at + 16 * {ROWS}, m_at + 20 * {ROWS}, m_at + 24 * {ROWS}
    inverse_at, r_at = m_at + 28 * {ROWS}, m_at + 32 * {ROWS}
    middle_at = m_at + 36 * {ROWS}  # a row of codes that all are 128: its product with the keys is what q's 128 adds
    zero_bytes(middle_at, pitch)
    flip((pitch + 63) // 64 * 16, middle_at, middle_at)
    for b in range(b0, b1):
        for h in range(h0, h1):
            g = h // {groups}
            length = {length}
            last = {last}
            for j in range(0, last, {KEYS}):
                count, near, step = min({KEYS}, last - j), place(k, (b, g, j)), k.strides[2]
                if k.strides[3] != 1 or pitch != depth:
                    zero_bytes(room, {KEYS} * pitch)
                    copy_1(room, pitch, 1, near, step, k.strides[3], count, depth)
                    near, step = room, pitch
                pack_words(packed_k + j * pitch, near, step, count, pitch // 4)
                multiply_codes(
                    {MR}, {KEYS}, pitch // 4, key_sums + 4 * j, 0, middle_at, 0, packed_k + j * pitch, 4 * {KEYS}
                )
                near, step = place(v, (b, g, j)), v.strides[2]
                if v.strides[3] != 1 or columns != width or count < {KEYS}:
                    zero_bytes(room, {KEYS} * columns)
                    copy_1(room, columns, 1, near, step, v.strides[3], count, width)
                    near, step = room, columns
                for n in range(0, {KEYS}, 4):
                    row = near + n * step
                    interleave(columns, row, row + step, row + 2 * step, row + 3 * step, packed_v + (j + n) * columns)
            for i in range(m0, m1, {ROWS}):
                rows = min({ROWS}, m1 - i)
                padded, whole = (rows + {MR} - 1) // {MR} * {MR}, (rows + {lanes} - 1) // {lanes} * {lanes}
                zero_bytes(q_at, padded * pitch)
                copy_1(q_at, pitch, 1, place(q, (b, h, i)), q.strides[2], q.strides[3], rows, depth)
                flip((padded * pitch + 63) // 64 * 16, q_at, q_at)
                zero_bytes(o_at, 4 * padded * columns)
                zero_bytes(l_at, 4 * {ROWS})
                for r in range({ROWS}):
                    put_f32(m_at, r, low)
                end = {end}
                for j in range(0, end, {KEYS}):
                    count = min({KEYS}, end - j)
                    multiply_codes(
                        padded, {KEYS}, pitch // 4, s_at, 4 * {KEYS}, q_at, pitch, packed_k + j * pitch, 4 * {KEYS}
                    )
                    k_near, v_near = place(k_scale, (b, g, j)), place(v_scale, (b, g, j))
                    if k_scale.strides[2] != 4 or v_scale.strides[2] != 4:
                        copy_4(near_at, 0, 4, k_near, 0, k_scale.strides[2], 1, count)
                        copy_4(far_at, 0, 4, v_near, 0, v_scale.strides[2], 1, count)
                        k_near, v_near = near_at, far_at
                    # Each of these loops is short for one row, and rows do not wait for each other.
                    for r in range(rows):
                        row, seen, top = s_at + 4 * r * {KEYS}, {seen}, low
                        if seen > 0:
                            own = q_scale[b, h, i + r] * factor
                            {score}
                        put_f32(top_at, r, top)
                    tops(whole, m_at, top_at, m_at, zero_at, again_at)
                    for r in range(rows):
                        row, seen, total, most = s_at + 4 * r * {KEYS}, {seen}, np.float32(0), np.float32(0)
                        if seen > 0:
                            total, most = weights(seen, row, v_near, row, get_f32(zero_at, r))
                        put_f32(sum_at, r, total)
                        put_f32(most_at, r, most)
                    sums(whole, l_at, again_at, sum_at, most_at, l_at, inverse_at, r_at)
                    for r in range(padded):
                        near, seen = p_at + r * {KEYS}, {seen} if r < rows else 0
                        weight_codes({KEYS}, s_at + 4 * r * {KEYS}, near, get_f32(inverse_at, r))
                        if seen < {KEYS}:
                            zero_bytes(near + seen, {KEYS} - seen)
                    multiply_codes(
                        padded, columns, {KEYS} // 4, i_at, 4 * columns, p_at, {KEYS}, packed_v + j * columns, 4 * columns
                    )
                    for r in range(rows):
                        by = 4 * r * columns
                        add_sums(columns, o_at + by, i_at + by, o_at + by, get_f32(again_at, r), get_f32(r_at, r))
                inverses(whole, l_at, l_at)
                together = y.strides[3] == 4
                near, far = (place(y, (b, h, i)), y.strides[2]) if together else (o_at, 4 * columns)
                for r in range(rows):
                    scale_row(width, o_at + 4 * r * columns, near + r * far, get_f32(l_at, r))
                if not together:
                    copy_4(place(y, (b, h, i)), y.strides[2], y.strides[3], o_at, 4 * columns, 4, rows, width)
"""


@register("attention_s8", backend="cpu", requires=compiled)
def build(kernel: AttentionCodes) -> Native:
    one, masked = (
        "top = scores(seen, row, key_sums + 4 * j, k_near, row, own)",
        ("top = masked_scores(seen, row, key_sums + 4 * j, k_near, added, row, own)"),
    )
    text = HEADER + _TEXT.format(**parts(kernel, one, masked), lanes=LANES, KEYS=KEYS, ROWS=ROWS, MR=MR)
    return Native(text, joined=True)


@register("attention_s8", backend="cpu", variant="interpreted", priority=-100)
def build_interpreted(kernel: AttentionCodes) -> Whole:
    """Whole arrays under plain Python."""
    return attention_codes_step(kernel)
