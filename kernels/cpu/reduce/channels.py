"""Normalization by channels on the CPU: of groups of them, and by their neighbours.

kernels/reference/reduce/channels.py says what the steps compute.
"""

from __future__ import annotations

from ...factory import Whole, register
from ...forge import Native
from ...indexing import AXES
from ...reduce.groups import SHORT, GroupNormalize
from ...reduce.response import CHUNK, LocalResponse
from ...reference.reduce import channels as meaning
from ..map import compiled
from ..moving.gather import loops
from .passes import BYTES
from .rows import RowTile
from .steps import imports, pass_text

_GROUPS = """\
mean_value = sum_of(n, src) / np.float32(n)
inverse_value = np.float32(1) / sqrt(squares_of(n, src, mean_value) / np.float32(n) + epsilon)
inside = n // max(x.shape[2], 1)
if inside < {short}:
    p = 0
    for c in range(x.shape[2]):
        for _ in range(inside):
            put_f32(spare, p, scale[j, c])
            put_f32(spare, n + p, bias[j, c])
            p += 1
    finish_short(n, src, spare, spare + 4 * n, y_at, mean_value, inverse_value)
else:
    for c in range(x.shape[2]):
        at = c * inside * {item}
        finish(inside, src + at, y_at + at, mean_value, inverse_value, scale[j, c], bias[j, c])
"""


@register("group_normalize", backend="cpu", requires=compiled)
def build_groups(kernel: GroupNormalize) -> Native:
    """A channel at a time where it is long; short ones with a factor and a term for each element of the group."""
    t = kernel.dtype
    prelude = (
        imports("sqrt")
        + f"from {__package__.rpartition('.')[0]}.simd import put_f32\n"
        + pass_text("sum_of", "value", t, folds="add")
        + pass_text("squares_of", "square_from", t, folds="add", numbers=1)
        + pass_text("finish", "centred_channel", t, t, numbers=4)
        + pass_text("finish_short", "centred_affine", f"{t} f32 f32", t, numbers=2)
    )
    return RowTile(
        2,
        kernel.rank - 1,
        t,
        _GROUPS.format(short=SHORT, item=BYTES[t]).splitlines(),
        prelude,
        others=("scale", "bias"),
        numbers=("epsilon",),
        full=(("y", t),),
        spare=f"(8 * n if n < {SHORT} * max(x.shape[2], 1) else 0)",
    ).native()


@register("local_response", backend="cpu", requires=compiled)
def build_response(kernel: LocalResponse) -> Native:
    """Sums of squares over the channels around, of a piece of a row at a time."""
    names = AXES[2 : kernel.rank]
    inner, last = names[:-1], names[-1:]
    t = kernel.dtype
    wide = f"{t}_value(np.int32({{}}))" if t != "f32" else "{}"
    narrow = f"np.uint16({t}_bits({{}}))" if t != "f32" else "{}"
    cut = ", ".join([*inner, "p0:p1"] if last else ["p0:p1"])
    ranges = [f"{n}0, {n}1 = 0, x.shape[{d}]" for d, n in enumerate(inner, 2)]
    pad = "    " * len(inner)
    pieces = [
        f"{pad}for p0 in range(0, length, {CHUNK}):",
        f"{pad}    p1 = min(p0 + {CHUNK}, length)",
        f"{pad}    for c in range(first, end):",
        f"{pad}        row = source[c, {cut}]",
        f"{pad}        for p in range(p1 - p0):",
        f"{pad}            v = {wide.format('row[p]')}",
        f"{pad}            total[p] = v * v if c == first else total[p] + v * v",
        f"{pad}    row, out = source[j, {cut}], target[j, {cut}]",
        f"{pad}    for p in range(p1 - p0):",
        f"{pad}        value[p] = {wide.format('row[p]')}",
        f"{pad}    for p in range(p1 - p0):  # of arrays side by side, which LLVM vectorises",
        f"{pad}        value[p] = value[p] / power(shift + factor * total[p], exponent)",
        f"{pad}    for p in range(p1 - p0):",
        f"{pad}        out[p] = {narrow.format('value[p]')}",
    ]
    spread = "" if last else "[:, :, None]"
    body = [
        f"total, value = local_f32({CHUNK}), local_f32({CHUNK})",
        "factor, exponent, shift = alpha[()], beta[()], bias[()]",
        *ranges,
        f"length = x.shape[{kernel.rank - 1}]" if last else "length = 1",
        "for i in range(i0, i1):",
        f"    source, target = x{spread}[i], y{spread}[i]",
        "    for j in range(j0, j1):",
        f"        first, end = max(0, j - {kernel.before}), min(x.shape[1], j + {kernel.size - kernel.before})",
        *(f"        {line}" for line in [*loops(inner), *pieces]),
    ]
    lines = "".join(f"    {line}\n" for line in body)
    return Native(
        f"import numpy as np\nfrom numba import njit\n{imports('power', 'f16_bits', 'f16_value', 'bf16_bits', 'bf16_value')}"
        f"from {__package__.rpartition('.')[0]}.local_arrays import local_f32\n\n\n"
        '@njit(nogil=True, error_model="numpy")\n'
        f"def tile(i0, i1, j0, j1, x, alpha, beta, bias, y):\n{lines}"
    )


@register("group_normalize", backend="cpu", variant="interpreted", priority=-100)
def interpreted_groups(kernel: GroupNormalize) -> Whole:
    """Whole arrays under plain Python."""
    return meaning.groups_step(kernel)


@register("local_response", backend="cpu", variant="interpreted", priority=-100)
def interpreted_response(kernel: LocalResponse) -> Whole:
    """Whole arrays under plain Python."""
    return meaning.response_step(kernel)
