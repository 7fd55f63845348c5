"""Reductions, softmax and normalization on the CPU: passes over rows (rows.py, passes.py).

kernels/reference/reduce/steps.py says what they compute.
"""

from __future__ import annotations

from ....primitives import dtypes
from ...factory import Whole, WithParams, register
from ...forge import Native
from ...reduce import Normalize, Reduce, Softmax
from ...reference.reduce import steps as meaning
from ..map import compiled
from .rows import RowTile

_REAL = {  # body over `src` and n
    "sum": ("value", "add", "{}"),
    "mean": ("value", "add", "{} / np.float32(n)"),
    "max": ("value", "max", "{}"),
    "min": ("value", "min", "{}"),
    "prod": ("value", "mul", "{}"),
    "l1": ("magnitude", "add", "{}"),
    "l2": ("square", "add", "sqrt({})"),
    "sum_square": ("square", "add", "{}"),
    "log_sum": ("value", "add", "log({})"),
}
_WHOLE = {  # (begins with, next, result)
    "sum": ("0", "total + v", "total"),
    "mean": ("0", "total + v", "total"),
    "prod": ("1", "total * v", "total"),
    "l1": ("0", "total + (v if v >= 0 else -v)", "total"),
    "sum_square": ("0", "total + v * v", "total"),
    "max": ("{low}", "v if v > total else total", "total"),
    "min": ("{high}", "v if v < total else total", "total"),
}


def narrowed(expression: str, dtype: str) -> str:
    """A float32 as an element that is stored."""
    return expression if dtype == "f32" else f"np.uint16({dtype}_bits({expression}))"


def imports(*names: str) -> str:
    """Module text that imports written sequences."""
    return f"from {__package__.rpartition('.')[0]}.vectormath import {', '.join(names)}\n"


def pass_text(name: str, fn: str, inputs: str, outputs: str = "", folds: str = "", numbers: int = 0) -> str:
    """Module text of a pass; types and folds separated by spaces."""
    return f"{name} = one_pass({fn}, {tuple(inputs.split())}, {tuple(outputs.split())}, {tuple(folds.split())}, {numbers})\n"


def reduce_tile(kernel: Reduce) -> RowTile:
    kept = kernel.rank - len(kernel.axes)
    t = kernel.dtype
    if t in ("f32", "f16", "bf16"):
        prelude = imports("bf16_bits", "f16_bits", "log", "sqrt")
        if kernel.op == "log_sum_exp":
            prelude += pass_text("top_of", "value", t, folds="max") + pass_text(
                "sum_of", "exponential_capped", t, "", "add", 1
            )
            body = [
                "top = top_of(n, src)",
                "shift = top if abs(top) < np.float32(np.inf) else np.float32(0)",
                f"y_value = {narrowed('log(sum_of(n, src, shift)) + top', t)}",
            ]
            return RowTile(kept, len(kernel.axes), t, body, prelude, places=("y",))
        fn, fold, result = _REAL[kernel.op]
        prelude += pass_text("folded", fn, t, folds=fold)
        prelude += (
            f"from {__package__}.columns import fold_columns\nfold_down = fold_columns({fn}, {t!r}, {fold!r}, {kept})\n"
        )
        return RowTile(
            kept,
            len(kernel.axes),
            t,
            [f"y_value = {narrowed(result.format('folded(n, src)'), t)}"],
            prelude,
            places=("y",),
            columns=[f"y_value = {narrowed(result.format('total'), t)}"],
        )
    start, step, result = _WHOLE[kernel.op]
    info = dtypes.get("u8" if t == "bool" else t)
    wide = str(info.numpy)
    if kernel.op == "mean":
        wide = "uint64" if t[0] == "u" else "int64"
    body = [
        f"total = np.{wide}({start.format(low=int(info.min), high=int(info.max))})",
        "for p in range(n):",
        f"    v = np.{wide}(get_{info.name}(src, p))",
        f"    total = np.{wide}({step})",
    ]
    if kernel.op == "mean":
        quotient = "quotient_unsigned" if t[0] == "u" else "quotient_signed"
        result = f"np.{info.numpy}({quotient}(total, n))"
    body.append(f"y_value = {result}" if t != "bool" else "y_value = total != 0")
    prelude = (
        f"from {__package__.rpartition('.')[0]}.simd import get_{info.name}\n"
        f"from {__package__.rpartition('.')[0]}.elementwise.whole import quotient_signed, quotient_unsigned\n"
    )
    return RowTile(kept, len(kernel.axes), t, body, prelude, places=("y",))


def softmax_tile(kernel: Softmax) -> RowTile:
    t = kernel.dtype
    # what comes of NaN is NaN, whichever element the largest is
    prelude = imports("log") + pass_text("top_of", "value", t, folds="top")
    body = ["top = top_of(n, src)"]
    if kernel.log:
        prelude += pass_text("sum_of", "exponential", t, folds="add", numbers=1) + pass_text(
            "finish", "below", t, t, numbers=2
        )
        body.append("finish(n, src, y_at, top, log(sum_of(n, src, top)))")
    elif t == "f32":
        prelude += pass_text("sum_of", "exponential_kept", t, t, "add", 1) + pass_text(
            "finish", "times", t, t, numbers=1
        )
        body += ["total = sum_of(n, src, y_at, top)", "finish(n, y_at, y_at, np.float32(1) / total)"]
    else:  # an element has no room for the exponential; it is computed again
        prelude += pass_text("sum_of", "exponential", t, folds="add", numbers=1)
        prelude += pass_text("finish", "exponential_times", t, t, numbers=2)
        body.append("finish(n, src, y_at, top, np.float32(1) / sum_of(n, src, top))")
    return RowTile(kernel.rank - len(kernel.axes), len(kernel.axes), t, body, prelude, full=(("y", t),))


def normalize_tile(kernel: Normalize) -> RowTile:
    t, along = kernel.dtype, kernel.along
    types = " ".join([t] * (1 + len(along)))
    at = "".join(f", {slot}_at" for slot in along)
    prelude = imports("sqrt")
    if kernel.centre:
        fn = ("centred", "centred_scaled", "centred_affine")[len(along)]
        prelude += pass_text("sum_of", "value", t, folds="add") + pass_text(
            "squares_of", "square_from", t, "", "add", 1
        )
        prelude += pass_text("finish", fn, types, t, numbers=2)
        body = [
            "mean_value = sum_of(n, src) / np.float32(n)",
            "inverse_value = np.float32(1) / sqrt(squares_of(n, src, mean_value) / np.float32(n) + epsilon)",
            f"finish(n, src{at}, y_at, mean_value, inverse_value)",
        ]
    else:
        fn = ("times", "scaled", "affine")[len(along)]
        prelude += pass_text("squares_of", "square", t, folds="add") + pass_text("finish", fn, types, t, numbers=1)
        body = [
            "inverse_value = np.float32(1) / sqrt(squares_of(n, src) / np.float32(n) + epsilon)",
            f"finish(n, src{at}, y_at, inverse_value)",
        ]
    return RowTile(
        kernel.rank - len(kernel.axes),
        len(kernel.axes),
        t,
        body,
        prelude,
        along=tuple((slot, t) for slot in along),
        numbers=("epsilon",),
        full=(("y", t),),
        places=kernel.results,
    )


@register("reduce", backend="cpu", requires=compiled)
def build_reduce(kernel: Reduce) -> Native:
    return reduce_tile(kernel).native()


@register("softmax", backend="cpu", requires=compiled)
@register("logsoftmax", backend="cpu", requires=compiled)
def build_softmax(kernel: Softmax) -> Native:
    return softmax_tile(kernel).native()


@register("normalize", backend="cpu", requires=compiled)
def build_normalize(kernel: Normalize) -> Native | WithParams:
    # Three passes keep a core busy while its stores go to memory by themselves: streamed, they would wait for it (-10 %).
    tile = normalize_tile(kernel)
    return tile.native() if kernel.centre else tile.streamed()


@register("reduce", backend="cpu", variant="interpreted", priority=-100)
def interpreted_reduce(kernel: Reduce) -> Whole:
    """Whole arrays under plain Python."""
    return meaning.reduce_step(kernel)


@register("softmax", backend="cpu", variant="interpreted", priority=-100)
@register("logsoftmax", backend="cpu", variant="interpreted", priority=-100)
def interpreted_softmax(kernel: Softmax) -> Whole:
    """Whole arrays under plain Python."""
    return meaning.softmax_step(kernel)


@register("normalize", backend="cpu", variant="interpreted", priority=-100)
def interpreted_normalize(kernel: Normalize) -> Whole:
    """Whole arrays under plain Python."""
    return meaning.normalize_step(kernel)
