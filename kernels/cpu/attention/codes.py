"""Attention on codes: as steps.py, with both products in integers (product.py: product_codes).

kernels/reference/attention.py says what it computes.
"""

from __future__ import annotations

from ...attention import KEYS, LANES, ROWS, AttentionCodes
from ...factory import Whole, register
from ...forge import Native
from ...reference.attention import attention_codes_step
from ..map import compiled
from ..scalar import scalar
from .product import MR, codes_1, codes_4
from .steps import parts


@scalar
def multiply_codes(rows, steps, width, c, ldc, a, lda, b, ldb):
    """rows (whole groups of MR) by `width` columns (whole vectors), over steps of 4."""
    for r in range(0, rows, MR):
        n = 0
        while n + 4 * LANES <= width:
            codes_4(steps, c + r * ldc + 4 * n, ldc, a + r * lda, lda, b + 4 * n, ldb)
            n += 4 * LANES
        while n < width:
            codes_1(steps, c + r * ldc + 4 * n, ldc, a + r * lda, lda, b + 4 * n, ldb)
            n += LANES


_TEXT = """\
import numpy as np
from numba import njit
from tilework.kernels.cpu.attention.codes import codes_4, multiply_codes
from tilework.kernels.cpu.elements import start_of
from tilework.kernels.cpu.reduce.bodies import *
from tilework.kernels.cpu.reduce.passes import one_pass
from tilework.kernels.cpu.simd import get_f32, get_s8, get_s32, get_u8, put_f32, put_s32, put_s8, put_u8
from tilework.kernels.cpu.vectormath import exp
from tilework.kernels.cpu.wide_pack import transpose_words

flip = one_pass(flipped, ("u8",), ("u8",), (), 0)
interleave = one_pass(interleaved, ("u8",) * 4, ("s32",), (), 0)
scores = one_pass(code_scores, ("s32", "s32", "f32"), ("f32",), ("top",), 1)
masked_scores = one_pass(masked_code_scores, ("s32", "s32", "f32", "f32"), ("f32",), ("top",), 1)
weights = one_pass(exponential_weighed, ("f32", "f32"), ("f32",), ("add", "farthest"), 1)
scale_row = one_pass(times, ("f32",), ("f32",), (), 1)
weight_codes = one_pass(to_weight_codes, ("f32",), ("u8",), (), 1)
add_sums = one_pass(add_code_sums, ("f32", "s32"), ("f32",), (), 2)


@njit(nogil=True, error_model="numpy")
def tile(b0, b1, h0, h1, m0, m1, q, k, v, q_scale, k_scale, v_scale, {more}scale, y, scratch):
    keys, depth, width = k.shape[2], q.shape[3], v.shape[3]
    columns = (width + {lanes} - 1) // {lanes} * {lanes}
    steps = (depth + 3) // 4
    factor, low = scale[()], np.float32(-np.inf)
    blocks = (keys + {KEYS} - 1) // {KEYS}
    packed_k = (start_of(scratch) + 63) // 64 * 64
    packed_v = packed_k + blocks * {KEYS} * 4 * steps
    sums = packed_v + blocks * {KEYS} * columns
    q_at = sums + 4 * blocks * {KEYS}
    s_at = q_at + {ROWS} * 4 * steps
    p_at = s_at + 4 * {ROWS} * {KEYS}
    o_at = p_at + {ROWS} * {KEYS}
    i_at = o_at + 4 * {ROWS} * columns
    mask_at = i_at + 4 * {ROWS} * columns
    near_at = mask_at + 4 * {KEYS}
    m_at = near_at + 4 * {KEYS}
    l_at = m_at + 4 * {ROWS}
    r_at = l_at + 4 * {ROWS}
    again_at = r_at + 4 * {ROWS}
    zero_at = again_at + 4 * {ROWS}
    far_at = zero_at + 4 * {ROWS}
    middle_at = far_at + 4 * {KEYS}  # a row of codes that all are 128: its product with the keys is what q's 128 adds
    for d in range(4 * steps):
        put_u8(middle_at, d, np.uint8(128))
    for b in range(b0, b1):
        for h in range(h0, h1):
            g = h // {groups}
            length = min(keys, max(0, {length}))
            last = {last}
            for j in range(0, last, {KEYS}):
                count = min({KEYS}, last - j)
                start = start_of(k) + b * k.strides[0] + g * k.strides[1] + j * k.strides[2]
                target = packed_k + j * 4 * steps
                together = k.strides[3] == 1
                squares = count // {lanes} * {lanes} if together else 0
                deep = depth // (4 * {lanes}) * (4 * {lanes})
                for n in range(0, squares, {lanes}):
                    for d in range(0, deep, 4 * {lanes}):
                        near = start + n * k.strides[2] + d
                        transpose_words(target + d * {KEYS} + 4 * n, 4 * {KEYS}, near, k.strides[2])
                for n in range({KEYS}):
                    row, whole = start + n * k.strides[2], deep if n < squares else 0
                    if n < count and together:
                        for p in range(whole // 4, depth // 4):
                            put_s32(target + 4 * n, p * {KEYS}, get_s32(row, p))
                        whole = depth // 4 * 4
                    for d in range(whole, 4 * steps):
                        code = get_s8(row + d * k.strides[3], 0) if n < count and d < depth else np.int8(0)
                        put_s8(target + 4 * n + (d & 3), (d >> 2) * 4 * {KEYS}, code)
                codes_4(steps, sums + 4 * j, 0, middle_at, 0, target, 4 * {KEYS})
                start = start_of(v) + b * v.strides[0] + g * v.strides[1] + j * v.strides[2]
                target = packed_v + j * columns
                for n in range(0, {KEYS}, 4):
                    row, place, whole = start + n * v.strides[2], target + n * columns, 0
                    if n + 4 <= count and v.strides[3] == 1:
                        whole, far = width, v.strides[2]
                        interleave(width, row, row + far, row + 2 * far, row + 3 * far, place)
                    for c in range(4):
                        for d in range(whole, columns):
                            code = np.int8(0)
                            if n + c < count and d < width:
                                code = get_s8(row + c * v.strides[2] + d * v.strides[3], 0)
                            put_s8(place + c, 4 * d, code)
            for i in range(m0, m1, {ROWS}):
                rows = min({ROWS}, m1 - i)
                padded = (rows + {MR} - 1) // {MR} * {MR}
                start = start_of(q) + b * q.strides[0] + h * q.strides[1] + i * q.strides[2]
                for r in range(padded):
                    put_f32(m_at, r, low)
                    put_f32(l_at, r, np.float32(0))
                    row, whole = start + r * q.strides[2], 0
                    if r < rows and q.strides[3] == 1:
                        whole = depth
                        flip(depth, row, q_at + r * 4 * steps)
                    for d in range(whole, 4 * steps):
                        code = get_u8(row + d * q.strides[3], 0) if r < rows and d < depth else np.uint8(0)
                        put_u8(q_at + r * 4 * steps, d, np.uint8(code ^ 128))
                    for d in range(columns):
                        put_f32(o_at + 4 * r * columns, d, np.float32(0))
                end = {end}
                for j in range(0, end, {KEYS}):
                    multiply_codes(
                        padded, steps, {KEYS}, s_at, 4 * {KEYS}, q_at, 4 * steps, packed_k + j * 4 * steps, 4 * {KEYS}
                    )
                    k_near = start_of(k_scale) + b * k_scale.strides[0] + g * k_scale.strides[1] + j * k_scale.strides[2]
                    v_near = start_of(v_scale) + b * v_scale.strides[0] + g * v_scale.strides[1] + j * v_scale.strides[2]
                    if k_scale.strides[2] != 4 or v_scale.strides[2] != 4:
                        for n in range(min({KEYS}, end - j)):
                            put_f32(near_at, n, get_f32(k_near + n * k_scale.strides[2], 0))
                            put_f32(far_at, n, get_f32(v_near + n * v_scale.strides[2], 0))
                        k_near, v_near = near_at, far_at
                    # Each of these loops is short for one row, and rows do not wait for each other.
                    most_seen = min({KEYS}, end - j)
                    for r in range(rows):
                        row, seen = s_at + 4 * r * {KEYS}, min(most_seen, max(0, {limit} - j))
                        again = np.float32(1)
                        if seen > 0:
                            own = q_scale[b, h, i + r] * factor
                            {score}
                            before = get_f32(m_at + 4 * r, 0)
                            top = before if before > top or before != before else top
                            zero = top if top > low or top != top else np.float32(0)
                            again = exp(before - zero) if j > 0 else np.float32(0)
                            put_f32(m_at + 4 * r, 0, top)
                            put_f32(zero_at, r, zero)
                        put_f32(again_at, r, again)
                    for r in range(rows):
                        row, seen = s_at + 4 * r * {KEYS}, min(most_seen, max(0, {limit} - j))
                        put_f32(r_at, r, np.float32(0))
                        if seen > 0:
                            total, most = weights(seen, row, v_near, row, get_f32(zero_at, r))
                            put_f32(l_at, r, get_f32(l_at, r) * get_f32(again_at, r) + total)
                            put_f32(r_at, r, most)
                    for r in range(padded):
                        row, near = s_at + 4 * r * {KEYS}, p_at + r * {KEYS}
                        seen = min(most_seen, max(0, {limit} - j)) if r < rows else 0
                        if seen > 0:
                            most = get_f32(r_at, r)
                            inverse = np.float32(255) / most if most > np.float32(0) else np.float32(0)
                            weight_codes(seen, row, near, inverse)
                            put_f32(r_at, r, most * np.float32(1 / 255))
                        for n in range(seen, {KEYS}):
                            put_u8(near, n, np.uint8(0))
                    multiply_codes(
                        padded, {KEYS} // 4, columns, i_at, 4 * columns, p_at, {KEYS}, packed_v + j * columns, 4 * columns
                    )
                    for r in range(rows):
                        add_sums(
                            columns, o_at + 4 * r * columns, i_at + 4 * r * columns, o_at + 4 * r * columns,
                            get_f32(again_at, r), get_f32(r_at, r),
                        )
                for r in range(rows):
                    total = get_f32(l_at + 4 * r, 0)
                    inverse = np.float32(1) / total if total != np.float32(0) else np.float32(0)
                    near = start_of(y) + b * y.strides[0] + h * y.strides[1] + (i + r) * y.strides[2]
                    if y.strides[3] == 4:
                        scale_row(width, o_at + 4 * r * columns, near, inverse)
                    else:
                        for d in range(width):
                            y[b, h, i + r, d] = get_f32(o_at + 4 * r * columns, d) * inverse
"""


@register("attention_s8", backend="cpu", requires=compiled)
def build(kernel: AttentionCodes) -> Native:
    one, masked = (
        "top = scores(seen, row, sums + 4 * j, k_near, row, own)",
        ("top = masked_scores(seen, row, sums + 4 * j, k_near, added, row, own)"),
    )
    return Native(_TEXT.format(**parts(kernel, one, masked), lanes=LANES, KEYS=KEYS, ROWS=ROWS, MR=MR))


@register("attention_s8", backend="cpu", variant="interpreted", priority=-100)
def build_interpreted(kernel: AttentionCodes) -> Whole:
    """Whole arrays under plain Python."""
    return attention_codes_step(kernel)
