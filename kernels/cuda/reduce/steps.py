"""Reductions, softmax and normalization on CUDA: passes over rows (rows.py).

kernels/reference/reduce/steps.py says what they compute.
"""

from __future__ import annotations

from ....primitives import dtypes
from ...factory import register
from ...reduce import Normalize, Reduce, Softmax
from ..launch import Device
from .rows import NARROW, WIDEN, RowKernel, each, fold, once

_MATH = "exp, f16_bits, bf16_bits, fabs, log, maximum, minimum, sqrt"
PRELUDE = f"from {__package__.rpartition('.')[0]}.vectormath import {_MATH}\n"
INVERSE = "ptx.div(np.float32(1), ptx.sqrt(ptx.add(ptx.div(squares, np.float32(n)), <epsilon>)))"

_REAL = {  # value of an element, fold, result
    "sum": ("{}", "add", "total"),
    "mean": ("{}", "add", "ptx.div(total, np.float32(length))"),
    "max": ("{}", "max", "total"),
    "min": ("{}", "min", "total"),
    "prod": ("{}", "mul", "total"),
    "l1": ("fabs({})", "add", "total"),
    "l2": ("ptx.mul({0}, {0})", "add", "sqrt(total)"),
    "sum_square": ("ptx.mul({0}, {0})", "add", "total"),
    "log_sum": ("{}", "add", "log(total)"),
}
_WHOLE = {  # begins with, next, joins two lanes
    "sum": ("0", "total + v", "total + other"),
    "mean": ("0", "total + v", "total + other"),
    "prod": ("1", "total * v", "total * other"),
    "l1": ("0", "total + (v if v >= 0 else -v)", "total + other"),
    "sum_square": ("0", "total + v * v", "total + other"),
    "max": ("{low}", "max(total, v)", "max(total, other)"),
    "min": ("{high}", "min(total, v)", "min(total, other)"),
}


def refuses(kernel: Reduce) -> str | None:
    """Why CUDA has no such reduction, or None."""
    if kernel.dtype == "u64" and kernel.op in ("max", "min", "mean"):
        return f"{kernel.op} of u64: a 64-bit register is signed here"
    return None


def reduce_body(kernel: Reduce) -> list[str]:
    t = kernel.dtype
    if t in WIDEN:
        x = WIDEN[t].format("<x>")
        if kernel.op == "log_sum_exp":
            return [
                *fold("top", "max", x),
                "top = top if fabs(top) < np.float32(np.inf) else np.float32(0)",
                *fold("total", "add", f"exp(ptx.sub({x}, top))"),
                *once(f"<y> = {NARROW[t].format('ptx.add(log(total), top)')}"),
            ]
        value, how, result = _REAL[kernel.op]
        return [*fold("total", how, value.format(x)), *once(f"<y> = {NARROW[t].format(result)}")]
    start, step, join = _WHOLE[kernel.op]
    info = dtypes.get("u8" if t == "bool" else t)
    body = [
        f"total = np.int64({start.format(low=int(info.min), high=int(info.max))})",
        "for p in range(lane, n, 16):",
        "    v = np.int64(<x>)",
        f"    total = {step}",
    ]
    for distance in (8, 4, 2, 1):
        body += [f"other = below(total, {distance})", f"total = {join}"]
    if kernel.op == "mean":
        return body + once(
            "size = max(length, 1)",
            "quotient = total // size",
            "<y> = quotient + 1 if quotient < 0 and quotient * size != total else quotient",
        )
    return body + once("<y> = total")


def softmax_body(kernel: Softmax) -> list[str]:
    t = kernel.dtype
    x = WIDEN[t].format("<x>")
    body = [*fold("top", "max", x), *fold("total", "add", f"exp(ptx.sub({x}, top))")]
    if kernel.log:
        y = f"ptx.sub(ptx.sub({x}, top), rest)"
        return [*body, "rest = log(total)", *each(f"<y> = {NARROW[t].format(y)}")]
    y = f"ptx.mul(exp(ptx.sub({x}, top)), factor)"
    return [*body, "factor = ptx.div(np.float32(1), total)", *each(f"<y> = {NARROW[t].format(y)}")]


def normalize_body(kernel: Normalize) -> list[str]:
    t = kernel.dtype
    x = WIDEN[t].format("<x>")
    body, d = [], x
    if kernel.centre:
        body += [*fold("total", "add", x), "mean_value = ptx.div(total, np.float32(length))"]
        d = f"ptx.sub({x}, mean_value)"
    body += fold("squares", "add", f"ptx.mul({d}, {d})")
    body.append(f"inverse_value = {INVERSE}".replace("np.float32(n)", "np.float32(length)"))
    y = f"ptx.mul({d}, inverse_value)"
    if kernel.scale:
        y = f"ptx.mul({y}, {WIDEN[t].format('<scale>')})"
    if kernel.bias:
        y = f"ptx.add({y}, {WIDEN[t].format('<bias>')})"
    body += each(f"<y> = {NARROW[t].format(y)}")
    return body + (once(*(f"<{slot}> = {slot}_value" for slot in kernel.results)) if kernel.results else [])


@register("reduce", backend="cuda", requires=refuses)
def build_reduce(kernel: Reduce) -> Device:
    return RowKernel("reduce", len(kernel.axes), reduce_body(kernel), PRELUDE, places=("y",)).device()


@register("softmax", backend="cuda")
@register("logsoftmax", backend="cuda")
def build_softmax(kernel: Softmax) -> Device:
    return RowKernel("softmax", len(kernel.axes), softmax_body(kernel), PRELUDE, full=("y",)).device()


@register("normalize", backend="cuda")
def build_normalize(kernel: Normalize) -> Device:
    return RowKernel(
        "normalize",
        len(kernel.axes),
        normalize_body(kernel),
        PRELUDE,
        along=kernel.along,
        numbers=("epsilon",),
        full=("y",),
        places=kernel.results,
    ).device()
