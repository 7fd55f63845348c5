"""Convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...primitives import sizes
from ...primitives.errors import ArgumentError, DTypeMismatch, ShapeMismatch, Unsupported
from ...primitives.pipeline import Value
from ...primitives.quantization import QuantParams
from .. import checks
from .. import elementwise as steps
from ..conv import Conv, weight_layouts
from ..gemm import PARTNERS, REAL
from ..window import SPATIAL, Window, layout, paddings, per_axis, same
from .coded import COMPUTES, decoded, full_shape, is_coded
from .coded import integers as coded_integers
from .given import Operand, dtype_of, integers, only, pipeline_of, reals, value_of, zero_points
from .linear import linear

Pads = int | Sequence[int] | str


def conv(
    x: Operand,
    w: Operand,
    bias: Operand = None,
    *,
    strides: int | Sequence[int] = 1,
    pads: Pads = 0,
    dilations: int | Sequence[int] = 1,
    groups: int = 1,
    a_zero_point: Operand = None,
    b_zero_point: Operand = None,
    layout: str | None = None,
    out_layout: str | None = None,
    w_layout: str | None = None,
    kernel: int | Sequence[int] | None = None,
    compute: str = "f32",
) -> Value:
    """Convolution in one, two or three spatial axes: sums over a window of (x - a_zero_point) * (w - b_zero_point).

    x             u8, s8, s16, f32, f16 or bf16 image: (N, C, H, W), or as `layout` says
    w             u8 or s8 where x is one of them, s16 where x is, else f32, f16 or bf16: (O, C / groups, kH, kW), or as
                  `w_layout` says; the spatial axes are one, two or three, as many as w has. Or a QuantizedTensor, of
                  this shape or a matrix: of any scheme where x is real, of one scale an output where x is codes
    bias          (O,) of the result's type, in its units
    strides, dilations  one number, or one for each spatial axis
    pads          one number; one for each spatial axis; before each and then behind each (ONNX's order); or
                  "same_upper", "same_lower". What is padded is a_zero_point, which stands for real 0
    groups        channels and outputs are in so many groups, which do not mix; C groups are a depthwise convolution
    a_zero_point  one of x's type; left out: that of the quantization x carries, or 0
    b_zero_point  one or (O,) of w's type; left out: likewise
    layout        NCHW (the default) or NHWC, with W or DHW for HW; left out: the axes that x has, if it has any
    out_layout    of the result; left out: as x
    w_layout      OIHW (the default), HWIO, OHWI and the like
    kernel        taps, where w is a matrix (O, K) of a scheme: its rows are w_layout without the O
    compute       for such weights and real x: "f32", or "bf16" and "int8" as in `linear`, for windows of one position
    returns       s32 (exact modulo 2**32) or f32 (one chain of fused multiply-adds over taps, then channels); it
                  carries scale_x * scale_w where both operands carry a quantization of the tensor or of each output
    """
    if is_coded(w):
        point = strides, pads, dilations, groups, layout, out_layout
        found = _coded_product("conv", x, w, bias, w_layout, kernel, compute, point)
        if found is not None:
            return found
        w, b_zero_point = _coded_weights("conv", x, w, w_layout, kernel, b_zero_point, "OI")
    elif kernel is not None or compute != "f32":
        raise ArgumentError("conv: kernel= and compute= go with weights of a scheme; w is an array or a value")
    given = _Given("conv", x, w, bias, strides, dilations, groups, layout, out_layout, w_layout, "OI")
    window = Window(given.kernel, given.strides, (0,) * given.spatial, (0,) * given.spatial, given.dilations)
    before, after = _pads("conv", pads, given, window)
    made = Conv(
        dtype_of(given.x),
        dtype_of(given.w),
        given.kernel,
        given.strides,
        before,
        after,
        given.dilations,
        (),
        groups,
        given.layout,
        given.out_layout,
        given.w_layout,
    )
    return _add("conv", given, made, bias, a_zero_point, b_zero_point)


def conv_transpose(
    x: Operand,
    w: Operand,
    bias: Operand = None,
    *,
    strides: int | Sequence[int] = 1,
    pads: int | Sequence[int] = 0,
    out_pads: int | Sequence[int] = 0,
    dilations: int | Sequence[int] = 1,
    groups: int = 1,
    a_zero_point: Operand = None,
    b_zero_point: Operand = None,
    layout: str | None = None,
    out_layout: str | None = None,
    w_layout: str | None = None,
    kernel: int | Sequence[int] | None = None,
) -> Value:
    """Transposed convolution: each element of x adds its multiple of w to a window of the result.

    w         (C, O / groups, kH, kW), or as `w_layout` says (IOHW the default)
    strides   positions of the result from one element of x to the next
    pads      what is cut off the result before and behind each spatial axis
    out_pads  positions that are added behind each spatial axis
    Everything else is as in `conv`. Size of the result: (n - 1) * stride + (k - 1) * dilation + 1 - pads + out_pads.
    """
    if is_coded(w):
        w, b_zero_point = _coded_weights("conv_transpose", x, w, w_layout, kernel, b_zero_point, "IO")
    elif kernel is not None:
        raise ArgumentError("conv_transpose: kernel= goes with weights of a scheme; w is an array or a value")
    given = _Given("conv_transpose", x, w, bias, strides, dilations, groups, layout, out_layout, w_layout, "IO")
    lead, trail = paddings(pads, given.spatial, "conv_transpose: pads")
    more = per_axis(out_pads, given.spatial, "conv_transpose: out_pads", 0)
    reach = [(k - 1) * step + 1 for k, step in zip(given.kernel, given.dilations, strict=True)]
    made = Conv(
        dtype_of(given.x),
        dtype_of(given.w),
        given.kernel,
        (1,) * given.spatial,
        tuple(r - 1 - p for r, p in zip(reach, lead, strict=True)),
        tuple(r - 1 - p + q for r, p, q in zip(reach, trail, more, strict=True)),
        given.dilations,
        given.strides,
        groups,
        given.layout,
        given.out_layout,
        given.w_layout,
        transposed=True,
    )
    return _add("conv_transpose", given, made, bias, a_zero_point, b_zero_point)


def _coded_weights(
    op: str, x: Operand, q: Any, w_layout: str | None, kernel: Any, b_zero_point: Operand, order: str
) -> tuple[Value, Operand]:
    """Weights of a scheme as a value, and their zero points."""
    pipe = pipeline_of(op, x)
    x = value_of(pipe, x, op, "x")
    inner = _spatial_axes(op, x)
    order = w_layout or f"{order}{inner}"
    shape = full_shape(op, q, order, inner, kernel)
    if dtype_of(x) in REAL:
        return decoded(pipe, q, shape), b_zero_point
    if b_zero_point is not None:
        raise ArgumentError(f"{op}: weights of {q.scheme.name} have zero points of their own; leave b_zero_point out")
    if dtype_of(x) not in ("u8", "s8"):
        raise DTypeMismatch(f"{op}: x is {dtype_of(x)}; with weights of a scheme u8, s8, {', '.join(REAL)} work")
    return coded_integers(pipe, op, q, order, shape)


def _coded_product(
    op: str, x: Operand, q: Any, bias: Operand, w_layout: str | None, kernel: Any, compute: str, given: tuple[Any, ...]
) -> Value | None:
    """A window of one position, channels last: a product with weights that stay packed. None where it is no such.

    given  strides, pads, dilations, groups, layout, out_layout
    """
    checks.one_of(op, "compute", compute, COMPUTES)
    pipe = pipeline_of(op, x, bias)
    value = value_of(pipe, x, op, "x")
    inner = _spatial_axes(op, value)
    order = w_layout or f"OI{inner}"
    shape = full_shape(op, q, order, inner, kernel)
    strides, pads, _, groups, x_layout, out_layout = given
    x_layout = layout(x_layout or value.axes or f"NC{inner}", len(inner))
    alone = all(shape[order.index(a)] == 1 for a in inner) and groups == 1 and not isinstance(pads, str)
    alone = alone and not np.any(pads) and np.all(np.equal(strides, 1)) and order[0] == "O"
    last = x_layout[-1] == "C" and (out_layout or x_layout) == x_layout and q.shape[-1] == shape[order.index("I")]
    if dtype_of(value) not in REAL or not alone or not last:
        if compute != "f32":
            raise Unsupported(
                f"{op}: compute={compute!r} with weights of {q.scheme.name} is for windows of one position, real x, channels "
                f"last and strides of 1; compute='f32' works here, or x in codes and weights of one scale an output"
            )
        return None
    y = linear(value, q.as_matrix(), compute)
    y.axes = x_layout
    if bias is None:
        return y
    if not isinstance(bias, Value):
        bias = reals(bias, f"{op}: bias")
    if tuple(bias.shape) != (shape[0],):
        raise ShapeMismatch(f"{op}: bias has shape {sizes.show(bias.shape)}; ({shape[0]},), one for each output, works")
    rank = len(value.shape)
    whole = tuple((d, 1) for d in range(rank))
    y = only(pipe.add(steps.Add("f32", rank, whole, ((rank - 1, 1),)), a=y, b=bias))
    y.axes = x_layout
    return y


def _spatial_axes(op: str, x: Value) -> str:
    """Letters of the spatial axes that an image of this rank has."""
    if len(x.shape) - 2 not in SPATIAL:
        raise ShapeMismatch(f"{op}: x is {sizes.show(x.shape)}; three, four or five dimensions work")
    return SPATIAL[len(x.shape) - 2]


class _Given:
    """The operands as values, and what their shapes and layouts say."""

    def __init__(
        self,
        op: str,
        x: Operand,
        w: Operand,
        bias: Operand,
        strides: Any,
        dilations: Any,
        groups: int,
        x_layout: str | None,
        out_layout: str | None,
        w_layout: str | None,
        order: str,
    ) -> None:
        self.pipe = pipeline_of(op, x, w, bias)
        self.x, self.w = value_of(self.pipe, x, op, "x"), value_of(self.pipe, w, op, "w")
        if dtype_of(self.w) not in PARTNERS.get(dtype_of(self.x), ()):
            raise DTypeMismatch(
                f"{op}: x is {dtype_of(self.x)} and w is {dtype_of(self.w)}; u8 or s8 and u8 or s8, s16 and s16, or f32, "
                f"f16 or bf16 and f32, f16 or bf16 work"
            )
        rank = len(self.w.shape)
        self.spatial = rank - 2
        if self.spatial not in SPATIAL or len(self.x.shape) != rank:
            raise ShapeMismatch(
                f"{op}: x is {sizes.show(self.x.shape)} and w {sizes.show(self.w.shape)}; both have three, four or five "
                f"dimensions, one, two or three of them spatial"
            )
        if isinstance(groups, bool) or not isinstance(groups, int) or groups < 1:
            raise ArgumentError(f"{op}: groups is {groups!r}; a positive integer works")
        inner = SPATIAL[self.spatial]
        self.w_layout = w_layout or f"{order}{inner}"
        if self.w_layout not in weight_layouts(self.spatial):
            raise ArgumentError(
                f"{op}: w_layout {self.w_layout!r}; {', '.join(weight_layouts(self.spatial))} work for "
                f"{self.spatial} spatial axes"
            )
        self.layout = layout(x_layout or self.x.axes or f"NC{inner}", self.spatial)
        self.out_layout = layout(out_layout or self.layout, self.spatial)
        kernel = tuple(self.w.shape[self.w_layout.index(a)] for a in inner)
        if not all(isinstance(k, int) and k > 0 for k in kernel):
            raise ShapeMismatch(
                f"{op}: w is {sizes.show(self.w.shape)} ({self.w_layout}); its taps are known when the pipeline is "
                f"made, and there is one at least along each axis"
            )
        self.kernel: tuple[int, ...] = tuple(int(k) for k in kernel)
        self.strides = per_axis(strides, self.spatial, f"{op}: strides")
        self.dilations = per_axis(dilations, self.spatial, f"{op}: dilations")


def _pads(op: str, pads: Pads, given: _Given, window: Window) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if not isinstance(pads, str):
        return paddings(pads, given.spatial, f"{op}: pads")
    if pads not in ("same_upper", "same_lower", "valid"):
        raise ArgumentError(f"{op}: pads {pads!r}; numbers, 'same_upper', 'same_lower' or 'valid' work")
    if pads == "valid":
        return (0,) * given.spatial, (0,) * given.spatial
    shape = [given.x.shape[given.layout.index(a)] for a in SPATIAL[given.spatial]]
    return same(given.spatial, shape, window, pads == "same_upper", f"{op}: pads")


def _add(op: str, given: _Given, kernel: Conv, bias: Operand, a_zero: Operand, b_zero: Operand) -> Value:
    kernel.check(given.x.shape, given.w.shape)
    outputs = kernel.outputs(given.w.shape)
    operands: dict[str, Any] = {"x": given.x, "w": given.w}
    for slot, zero, carried in (
        ("a_zero_point", a_zero, _tensor_zero(given.x, op)),
        ("b_zero_point", b_zero, _weight_zero(given.w, kernel, op)),
    ):
        zero = carried if zero is None else zero
        operand = given.x if slot[0] == "a" else given.w
        if not isinstance(zero, Value):
            if kernel.symmetric and np.any(zero):
                raise DTypeMismatch(f"{op} of {dtype_of(operand)} has no zero points; leave {slot} out")
            zero = zero_points(zero, dtype_of(operand), f"{op}: {slot}") if not kernel.symmetric else np.zeros(())
            if not zero.any():
                continue
        elif kernel.symmetric:
            raise DTypeMismatch(f"{op} of {dtype_of(operand)} has no zero points; leave {slot} out")
        one = all(n == 1 for n in zero.shape)
        if not one and (slot[0] == "a" or len(zero.shape) != 1):
            works = "one works" if slot[0] == "a" else f"one, or ({outputs},): one for each output, works"
            raise ShapeMismatch(f"{op}: {slot} has shape {sizes.show(zero.shape)}; {works}")
        if one and not isinstance(zero, Value):
            zero = zero.reshape(())
        elif one and slot[0] == "b" and zero.shape and outputs == 1:
            one = False
        elif one and zero.shape:
            raise ShapeMismatch(f"{op}: {slot} is a value of shape {sizes.show(zero.shape)}; () works for one")
        if slot[0] == "a":
            kernel = replace(kernel, a_zero_point=True)
        else:
            kernel = replace(kernel, b_zero_point="one" if one else "each")
        operands[slot] = zero
    acc = given.pipe.add(kernel, **operands)
    acc.axes = kernel.y_layout
    if not kernel.real:
        acc.quant = _product_scale(given.x.quant, given.w.quant, kernel, len(given.w.shape))
    return _biased(op, given, kernel, only(acc), bias, outputs)


def _biased(op: str, given: _Given, kernel: Conv, acc: Value, bias: Operand, outputs: Any) -> Value:
    if bias is None:
        return acc
    if not isinstance(bias, Value):
        what = f"{op}: bias"
        bias = reals(bias, what) if kernel.real else integers(bias, "s32", what)
    rank, channel = len(acc.shape), kernel.y_layout.index("C")
    if len(bias.shape) != 1 or (
        isinstance(bias.shape[0], int) and isinstance(outputs, int) and bias.shape[0] != outputs
    ):
        raise ShapeMismatch(f"{op}: bias has shape {sizes.show(bias.shape)}; ({outputs},), one for each output, works")
    if isinstance(bias, Value) and dtype_of(bias) != kernel.acc_dtype:
        raise DTypeMismatch(f"{op}: bias is {dtype_of(bias)}; {kernel.acc_dtype} works, the type of the sums")
    whole = tuple((d, 1) for d in range(rank))
    index = ((channel, 1),)
    y = only(given.pipe.add(steps.Add(kernel.acc_dtype, rank, whole, index), a=acc, b=bias))
    y.quant, y.axes = acc.quant, acc.axes
    return y


def _tensor_zero(x: Value, op: str) -> Any:
    if x.quant is None or not x.quant.zero_point.any():
        return 0
    if x.quant.axis is None and x.quant.block is None:
        return x.quant.zero_point.reshape(())
    raise Unsupported(
        f"{op}: {x.name!r} carries zero points along axis {x.quant.axis}, block {x.quant.block}; an image has one: give "
        f"a_zero_point=, or dequantize and use f32"
    )


def _weight_zero(w: Value, kernel: Conv, op: str) -> Any:
    if w.quant is None or not w.quant.zero_point.any():
        return 0
    quant = w.quant
    if quant.axis is None and quant.block is None:
        return quant.zero_point.reshape(())
    if quant.block is None and _along_outputs(quant, kernel, len(w.shape)):
        return quant.zero_point
    raise Unsupported(
        f"{op}: {w.name!r} carries zero points along axis {quant.axis}, block {quant.block}; one, or one for each output "
        f"(axis {kernel.w_layout.index('O')}) works: give b_zero_point=, or dequantize and use f32"
    )


def _along_outputs(quant: QuantParams, kernel: Conv, rank: int) -> bool:
    at = quant.axis
    plain = kernel.groups == 1 or not kernel.transposed
    return isinstance(at, int) and at % rank == kernel.w_layout.index("O") and plain


def _product_scale(x: QuantParams | None, w: QuantParams | None, kernel: Conv, rank: int) -> QuantParams | None:
    """scale_x * scale_w in float32, where it is one for the tensor or one for each output."""
    if x is None or w is None or x.block is not None or w.block is not None or x.axis is not None:
        return None
    axis = None
    if w.axis is not None:
        if not _along_outputs(w, kernel, rank):
            return None
        axis = kernel.y_layout.index("C")
    with np.errstate(all="ignore"):
        scale = x.scale.astype(np.float32) * w.scale.astype(np.float32)
    if not ((scale > 0) & np.isfinite(scale)).all():
        return None
    return QuantParams(scale, 0, "s32", axis)
