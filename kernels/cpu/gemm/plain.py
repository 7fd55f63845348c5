"""gemm on the CPU, plain loops that any machine runs.

kernels/reference/gemm.py says what it computes; this file only says in which order of loops.
"""

from __future__ import annotations

from ...factory import register
from ...forge import Native
from ...gemm import Gemm

_SOURCE = """\
import numpy as np
from numba import njit
from {package}.scalar import bf16_to_f32, f16_to_f32, fma32


@njit(nogil=True, error_model="numpy")
def tile({arguments}):
{loops}{indent}depth = a.shape[a.ndim - 1]
{indent}for m in range(m0, m1):
{indent}    acc_row = acc[{batch}m, n0:n1]  # a row view: indexing acc[m, n] keeps LLVM from vectorising
{indent}    acc_row[:] = 0
{za}{indent}    for p in range(depth):
{indent}        b_row = b[{b_batch}p, n0:n1]
{body}
"""

_REAL = """\
{indent}        a_mp = {widen_a}(a[{a_batch}m, p])
{indent}        for n in range(acc_row.size):
{indent}            acc_row[n] = fma32(a_mp, {widen_b}(b_row[n]), acc_row[n])"""

_WIDEN = {"bf16": "bf16_to_f32", "f16": "f16_to_f32"}

_INTEGER = """\
{indent}        a_mp = np.int32(np.int32(a[{a_batch}m, p]) - {za})
{indent}        for n in range(acc_row.size):
{indent}            b_pn = np.int32(np.int32(b_row[n]) - {zb})
{indent}            acc_row[n] = np.int32(acc_row[n] + np.int32(a_mp * b_pn))  # modulo 2**32"""


@register("gemm", backend="cpu", variant="plain", priority=-10)
def build(kernel: Gemm) -> Native:
    """The tile function of any leading rank; each (m, n) of its block accumulates over ascending depth."""
    axes = kernel.axes
    lead = axes[:-2]
    operands = ["a", "b", *(s for s in ("a_zero_point", "b_zero_point") if getattr(kernel, s) is not None), "acc"]
    loops = "".join(f"{'    ' * (d + 1)}for {x} in range({x}0, {x}1):\n" for d, x in enumerate(lead))
    indent = "    " * (len(lead) + 1)
    za, zb, hoisted = "np.int32(0)", "np.int32(0)", ""
    if kernel.a_zero_point is not None:
        za = "za"
        hoisted = f"{indent}    za = np.int32({_element('a_zero_point', kernel, axes)})\n"
    if kernel.b_zero_point is not None:
        zb = f"np.int32({_element('b_zero_point', kernel, (*lead, 'm', 'n0 + n'))})"
    names = {
        "indent": indent,
        "widen_a": _WIDEN.get(kernel.a_dtype, ""),
        "widen_b": _WIDEN.get(kernel.b_dtype, ""),
        "batch": "".join(f"{x}, " for x in lead),
        "a_batch": "".join("0, " if d is None else f"{lead[d]}, " for d in kernel.a_batch),
        "b_batch": "".join("0, " if d is None else f"{lead[d]}, " for d in kernel.b_batch),
    }
    body = _REAL.format(**names) if kernel.real else _INTEGER.format(za=za, zb=zb, **names)
    return Native(
        _SOURCE.format(
            package=__package__.rpartition(".")[0],
            arguments=", ".join([*(f"{x}0, {x}1" for x in axes), *operands]),
            loops=loops,
            za=hoisted,
            body=body,
            **names,
        )
    )


def _element(slot: str, kernel: Gemm, at: tuple[str, ...]) -> str:
    places = ["0" if x is None else at[x[0]] for x in getattr(kernel, slot)]
    return f"{slot}[{', '.join(places) or '()'}]"
