"""Convolutions with weights that are codes of a scheme: what of them is decoded where.

Of real numbers, weights are decoded and packed when a plan is made: the pipeline holds codes. A window of one position
is a product, whose weights stay packed codes (ops.linear). Of codes, the codes of the weights are multiplied, where
they stand for integers times one scale for each output.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ...primitives.errors import ArgumentError, ShapeMismatch, Unsupported
from ...primitives.pipeline import Pipeline, Value
from ...primitives.quantization import QuantParams
from .moving import reshape
from .schemes import decode

COMPUTES = ("f32", "bf16", "int8")


def is_coded(w: Any) -> bool:
    """Whether these weights are a QuantizedTensor, or something like one."""
    return hasattr(w, "linear_weights") and hasattr(w, "dequantize")


def full_shape(op: str, q: Any, order: str, spatial: str, kernel: Any) -> tuple[int, ...]:
    """The shape of the weights in the layout `order`, from a matrix (O, K) and `kernel`, or from a tensor of all axes.

    order, spatial  as "OIHW" and "HW"
    """
    shape = tuple(q.shape)
    if len(shape) == len(order):
        return shape
    if len(shape) != 2:
        raise ShapeMismatch(f"{op}: the quantized weights are {shape}; ({', '.join(order)}), or a matrix (O, K), works")
    if order[0] != "O":
        raise ShapeMismatch(
            f"{op}: a matrix of quantized weights has a row for each output; w_layout {order!r} has not"
        )
    if kernel is None:
        raise ArgumentError(f"{op}: a matrix (O, K) of quantized weights does not tell its taps; give kernel=")
    taps = (kernel,) * len(spatial) if isinstance(kernel, int) else tuple(int(k) for k in kernel)
    if len(taps) != len(spatial) or min(taps) < 1 or shape[1] % prod(taps):
        raise ShapeMismatch(
            f"{op}: kernel={kernel!r} with weights {shape}: {len(spatial)} taps of at least 1 whose product divides "
            f"{shape[1]} work"
        )
    sizes = dict(zip(spatial, taps, strict=True)) | {"O": shape[0], "I": shape[1] // prod(taps)}
    return tuple(sizes[axis] for axis in order)


def decoded(pipe: Pipeline, q: Any, shape: tuple[int, ...]) -> Value:
    """The weights in float32: a step over constant codes, which is done when a plan is made."""
    scheme, params = q.scheme, q.params
    if scheme.nested or any(hasattr(p, "dequantize") for p in params.values()):
        return pipe.constant(np.ascontiguousarray(q.dequantize()).reshape(shape))
    codes = pipe.constant(np.ascontiguousarray(q.codes))
    given = [pipe.constant(np.ascontiguousarray(params[p.name])) for p in scheme.stored]
    y = decode(codes, given, scheme, q.shape[-1])
    return y if tuple(y.shape) == shape else reshape(y, shape)


def integers(pipe: Pipeline, op: str, q: Any, order: str, shape: tuple[int, ...]) -> tuple[Value, Any]:
    """The codes as s8 or u8 weights that carry their scale, and their zero points: one, or one for each output.

    Raises Unsupported where codes do not stand for integers times a scale that all weights of an output share.
    """
    instead = "dequantize x and take it in f32, which works with every scheme"
    found = q.as_matrix().linear_weights("int8")
    name, rows = q.scheme.name, prod(q.shape[:-1])
    if found is None or found[0].kind != "affine":
        kind = "decoded one by one" if found is None else found[0].kind
        raise Unsupported(
            f"{op} of codes with weights of {name}, whose codes are {kind}; integers times one scale for each output "
            f"work, like those of int8_channel: {instead}"
        )
    scale, zero = found[1]["scale"], found[1].get("zero_point")
    outputs = shape[order.index("O")]
    scales, zeros = (_of_outputs(p, rows, outputs, order) for p in (scale, zero))
    if scales is None or (zero is not None and zeros is None):
        raise Unsupported(
            f"{op} of codes with weights of {name} in blocks of {found[0].block}: sums of codes need one scale for all "
            f"weights of an output: {instead}"
        )
    codes = q.integer_codes().reshape(shape)
    dtype = np.int8 if q.scheme.signed else np.uint8
    info = np.iinfo(dtype)
    if zeros is not None and (zeros.min(initial=0) < info.min or zeros.max(initial=0) > info.max):
        raise Unsupported(
            f"{op}: zero points of {name} go from {zeros.min()} to {zeros.max()}, and {np.dtype(dtype).name} is what "
            f"its codes are: {instead}"
        )
    weights = codes.astype(dtype)
    axis = None if scales.size == 1 else order.index("O")
    quant = QuantParams(scales.reshape(()) if scales.size == 1 else scales, 0, "s8" if q.scheme.signed else "u8", axis)
    value = pipe.constant(weights)
    value.quant = quant
    return value, 0 if zeros is None else zeros.astype(dtype)


def _of_outputs(given: Any, rows: int, outputs: int, order: str) -> Any:
    """Parameters (blocks down, blocks across) as one, or one for each output; None where an output has several."""
    if given is None:
        return None
    given = np.asarray(given)
    if given.size == 1 or (given == given.flat[0]).all():
        return given.reshape(-1)[:1]
    if order[0] != "O" or given.shape[0] not in (rows, outputs):
        return None
    each = given.reshape(outputs, -1)
    return each[:, 0] if (each == each[:, :1]).all() else None
