"""Attention over codes of a scheme: as steps.py, but rows are decoded a block at a time where they are packed.

kernels/reference/attention.py says what it computes. What decodes is the tile of the step that decodes whole matrices.
"""

from __future__ import annotations

from typing import Any

from ...attention import KEYS
from ...attention_coded import AttentionCoded
from ...factory import Whole, WithParams, register
from ...forge import Native
from ...reference.attention import attention_coded_step
from ...schemes.definition import WHOLE
from .. import isa as levels
from ..map import compiled
from ..schemes.steps import decode_text
from .steps import indented, text

_PACK = """\
for j in range(0, min(last, keys), {KEYS}):
    count = min({KEYS}, min(last, keys) - j)
    decode_rows(0, count, {k}decoded, across, 1)
    pack_words(packed_k + 4 * j * depth, start_of(decoded), 4 * depth, count, depth)
    decode_rows(0, count, {v}decoded, across, 1)
    zero_bytes(packed_v + 4 * j * columns, 4 * count * columns)
    copy_4(packed_v + 4 * j * columns, 4 * columns, 4, start_of(decoded), 4 * depth, 4, count, width)
"""


@register("attention_coded", backend="cpu", requires=compiled)
def build(kernel: AttentionCoded, isa: str | None = None) -> WithParams:
    scheme = kernel.definition
    count = len(scheme.stored)
    names = {which: [which, *(f"{which}{n}" for n in range(count))] for which in "kv"}
    part = {which: "".join(f"{name}[b, g, j : j + count], " for name in names[which]) for which in "kv"}
    module = text(
        kernel,
        rows_of="".join(f"{name}, " for which in "kv" for name in names[which]),
        trailing=", across",
        width="q.shape[3]",
        ready=f"whole_v, decoded = False, np.empty(({KEYS}, depth), np.float32)",
        pack=indented(_PACK.format(KEYS=KEYS, **part), 4),
    )
    across = scheme.edges[1]
    width = max(kernel.columns, 1) if across == WHOLE else across

    def params(*_: Any) -> tuple[int, ...]:
        return (width,)

    return WithParams(Native(f"{decode_text(scheme, levels.select(isa), 'decode_rows')}\n\n{module}"), params)


@register("attention_coded", backend="cpu", variant="interpreted", priority=-100)
def build_interpreted(kernel: AttentionCoded) -> Whole:
    """Whole arrays under plain Python."""
    return attention_coded_step(kernel)
