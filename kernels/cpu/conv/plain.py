"""conv on the CPU, plain loops that any machine runs.

kernels/reference/conv.py says what it computes; this file only says in which order of loops.
"""

from __future__ import annotations

from typing import Any

from ...conv import Conv
from ...factory import WithParams, register
from ...forge import Native

_SOURCE = """\
import numpy as np
from numba import njit
from {package}.scalar import bf16_to_f32, f16_to_f32, fma32


@njit(nogil=True, error_model="numpy")
def tile(n0, n1, d0, d1, h0, h1, o0, o1, {arguments}, kd, kh, kw, sd, sh, sw, pd, ph, pw, ld, lh, lw, ud, uh, uw):
    outputs, depth = w.shape[1], w.shape[5]
    for n in range(n0, n1):
        for d in range(d0, d1):
            for h in range(h0, h1):
                for v in range(acc.shape[3]):
                    for o in range(o0, o1):
                        group = o // outputs
                        first = group * depth
                        weights = w[group, o - group * outputs]
                        total = {zero}
                        for a in range(kd):
                            z = d * sd - pd + a * ld
                            z_in = z >= 0 and z % ud == 0 and z // ud < x.shape[1]
                            for b in range(kh):
                                y = h * sh - ph + b * lh
                                y_in = z_in and y >= 0 and y % uh == 0 and y // uh < x.shape[2]
                                for c in range(kw):
                                    q = v * sw - pw + c * lw
                                    inside = y_in and q >= 0 and q % uw == 0 and q // uw < x.shape[3]
{body}
                        acc[n, d, h, v, o] = total
"""

_INTEGER = """\
                                    if inside:
                                        pixel = x[n, z // ud, y // uh, q // uw, first : first + depth]
                                        taps = weights[a, b, c]
                                        for i in range(depth):
                                            p = np.int32(np.int32(pixel[i]) - {za})
                                            p = np.int32(p * np.int32(np.int32(taps[i]) - {zb}))
                                            total = np.int32(total + p)  # modulo 2**32"""

# Padding is multiplied like everything else: a weight that is not finite, or a sum of -0, shows.
_REAL = """\
                                    taps = weights[a, b, c]
                                    if inside:
                                        pixel = x[n, z // ud, y // uh, q // uw, first : first + depth]
                                        for i in range(depth):
                                            total = fma32({widen_x}(pixel[i]), {widen_w}(taps[i]), total)
                                    else:
                                        for i in range(depth):
                                            total = fma32(np.float32(0.0), {widen_w}(taps[i]), total)"""

_WIDEN = {"bf16": "bf16_to_f32", "f16": "f16_to_f32", "f32": "np.float32"}


@register("conv", backend="cpu", variant="plain", priority=-10)
def build(kernel: Conv) -> WithParams:
    """The tile function; the window's numbers follow its operands."""
    operands = ["x", "w"]
    za = zb = "np.int32(0)"
    if kernel.a_zero_point:
        operands.append("a_zero")
        za = "np.int32(a_zero[()])"
    if kernel.b_zero_point:
        operands.append("b_zero")
        zb = "np.int32(b_zero[o])"
    if kernel.real:
        body = _REAL.format(widen_x=_WIDEN[kernel.x_dtype], widen_w=_WIDEN[kernel.w_dtype])
    else:
        body = _INTEGER.format(za=za, zb=zb)
    text = _SOURCE.format(
        package=__package__.rpartition(".")[0],
        arguments=", ".join([*operands, "acc"]),
        zero="np.float32(0.0)" if kernel.real else "np.int32(0)",
        body=body,
    )
    words = kernel.window.words()

    def params(*_: Any) -> list[int]:
        return words

    return WithParams(Native(text), params)
