"""Operators that NumPy carries out on whole arrays (kernels/reference/arrays/): sampling, spectra, regions, random ones."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....kernels import ops
from ....kernels.moving.sampling import MOST_SPATIAL
from ....kernels.ops.arrays import apply_array
from ....primitives import dtypes
from ..node import Node, Sizes, axes_of
from ..scope import operator
from ..tensors import check_made, element_type
from .window import window


def kind_of(node: Node, default: str, name: str = "dtype") -> str:
    """The type that an attribute asks for."""
    asked = node.attr(name, 0)
    return dtypes.get(element_type(asked, node.label)).name if asked else default


def number(node: Node, n: int, default: Any = None) -> Any:
    """Operand n, which must be known, as one number."""
    found = node.known(n, default)
    return None if found is None else np.asarray(found).reshape(-1)[0].item()


# Sampling and regions --------------------------------------------------------------------------------------------------


@operator("GridSample")
def grid_sample(node: Node) -> Any:
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(found := node.attr("mode", "linear"), found)
    padding, align = node.attr("padding_mode", "zeros"), int(node.attr("align_corners", 0))
    x, grid = node.value(0), node.value(1)
    if x.ndim - 2 > MOST_SPATIAL or "f64" in (x.dtype, grid.dtype):
        return apply_array("grid_sample", x, grid, mode=mode, padding=padding, align=align)
    image, places = (v if v.dtype == "f32" else ops.cast(v, "f32") for v in (x, grid))
    found = ops.grid_sample(image, places, mode, padding, bool(align))
    return found if x.dtype == "f32" else ops.cast(found, str(x.dtype))


@operator("DeformConv")
def deform_conv(node: Node) -> Any:
    x, w = node.value(0), node.value(1)
    spatial = w.ndim - 2
    if spatial != 2:
        raise node.unsupported(f"{spatial} spatial dimensions; two work")
    groups = int(node.attr("offset_group", 1))
    bias, mask = node.optional(3), node.optional(4)
    if mask is not None and bias is None:
        bias = ops.expand(np.zeros((), x.dtype.numpy), (w.shape[0],))  # type: ignore[union-attr]
    more = [v for v in (bias, mask) if v is not None]
    rules = {**window(node, spatial), "offset_groups": groups}
    return apply_array("deform_conv", x, w, node.value(2), *more, **rules)


@operator("RoiAlign")
def roi_align(node: Node) -> Any:
    usual = "half_pixel" if node.version >= 16 else "output_half_pixel"
    return apply_array(
        "roi_align",
        *(node.value(n) for n in range(3)),
        height=int(node.attr("output_height", 1)),
        width=int(node.attr("output_width", 1)),
        ratio=int(node.attr("sampling_ratio", 0)),
        scale=float(node.attr("spatial_scale", 1.0)),
        mode=node.attr("mode", "avg"),
        half=int(node.attr("coordinate_transformation_mode", usual) == "half_pixel"),
    )


@operator("MaxRoiPool")
def max_roi_pool(node: Node) -> Any:
    height, width = (int(n) for n in node.attr("pooled_shape"))
    scale = float(node.attr("spatial_scale", 1.0))
    return apply_array("roi_max_pool", node.value(0), node.value(1), height=height, width=width, scale=scale)


# Windows put back ------------------------------------------------------------------------------------------------------


@operator("Col2Im")
def col2im(node: Node) -> Any:
    image, block = ([int(n) for n in np.asarray(node.known(n)).reshape(-1)] for n in (1, 2))
    rules = window(node, len(image))
    del rules["groups"]
    return apply_array("columns_to_image", node.value(0), image=image, block=block, **rules)


@operator("MaxUnpool")
def max_unpool(node: Node) -> Any:
    x, kernel = node.value(0), node.attr("kernel_shape")
    rank = len(kernel)
    strides, pads = node.attr("strides", [1] * rank), node.attr("pads", [0] * (2 * rank))
    if not all(isinstance(n, int) for n in x.shape):
        raise node.unsupported("sizes known only at run time; load with shapes= that fix them")
    inner = [(int(n) - 1) * strides[d] + kernel[d] - pads[d] - pads[d + rank] for d, n in enumerate(x.shape[2:])]
    whole = [int(n) for n in (*x.shape[:2], *inner)]
    shape = [int(n) for n in node.known(2)] if node.has(2) else whole
    return apply_array("unpooled", x, node.value(1), inner=whole, shape=shape)


# Spectra -----------------------------------------------------------------------------------------------------------------


@operator("DFT")
def dft(node: Node) -> Any:
    x = node.value(0)
    axis = node.attr("axis", 1) if node.version < 20 else number(node, 2, np.int64(-2))
    axis = axes_of([axis], x.ndim, node)[0]
    rules: dict[str, Any] = {"inverse": int(node.attr("inverse", 0)), "onesided": int(node.attr("onesided", 0))}
    return apply_array("fourier", x, axis=axis, length=number(node, 1), **rules)


@operator("STFT")
def stft(node: Node) -> Any:
    x, window_ = node.value(0), node.optional(2)
    length = number(node, 3)
    if length is None:
        if window_ is None or not isinstance(window_.shape[0], int):
            raise node.malformed("neither a window nor a frame length says how long a frame is")
        length = window_.shape[0]
    if x.ndim == 2:
        x = ops.unsqueeze(x, [2])
    more = [] if window_ is None else [window_]
    rules = {"step": number(node, 1), "length": int(length), "onesided": int(node.attr("onesided", 1))}
    return apply_array("short_time_fourier", x, *more, **rules)


@operator("MelWeightMatrix")
def mel_weights(node: Node) -> Any:
    """The triangles of a mel spectrogram, (dft_length // 2 + 1, bins); every operand must be known."""
    bins, length, rate = (int(number(node, n)) for n in range(3))
    check_made(max(bins, 0) * (max(length, 0) // 2 + 1), node.label)
    low, high = (2595 * np.log10(1 + float(number(node, n)) / 700) for n in (3, 4))
    edges = np.arange(bins + 2) * ((high - low) / (bins + 2)) + low
    at = ((length + 1) * (700 * (10 ** (edges / 2595) - 1)) // rate).astype(int)
    found = np.zeros((length // 2 + 1, bins))
    for n in range(bins):
        left, centre, right = at[n : n + 3]
        if centre == left:
            found[centre, n] = 1
        else:
            found[left : centre + 1, n] = np.arange(centre - left + 1) / (centre - left)
        if right > centre:
            found[centre:right, n] = (right - np.arange(centre, right)) / (right - centre)
    return found.astype(dtypes.get(kind_of(node, "f32", "output_datatype")).numpy)


# Algebra and rearranging ---------------------------------------------------------------------------------------------------


@operator("Det")
def det(node: Node) -> Any:
    return apply_array("determinant", node.value(0))


@operator("CumProd")
def cumprod(node: Node) -> Any:
    x = node.value(0)
    axis = axes_of([int(number(node, 1))], x.ndim, node)[0]
    rules: dict[str, Any] = {"exclusive": int(node.attr("exclusive", 0)), "reverse": int(node.attr("reverse", 0))}
    return apply_array("running_product", x, axis=axis, **rules)


@operator("ReverseSequence")
def reverse_sequence(node: Node) -> Any:
    x = node.value(0)
    batch, time = axes_of([node.attr("batch_axis", 1), node.attr("time_axis", 0)], x.ndim, node)
    return apply_array("reverse_sequences", x, node.value(1), batch_axis=batch, time_axis=time)


@operator("BitCast")
def bitcast(node: Node) -> Any:
    x, kind = node.value(0), kind_of(node, "", "to")
    if dtypes.get(kind).bits != x.dtype.bits:  # type: ignore[union-attr]
        raise node.malformed(f"{kind} and {x.dtype} are not of one size")
    return apply_array("reinterpret", x, results=[kind], dtype=kind)


@operator("TensorScatter")
def tensor_scatter(node: Node) -> Any:
    x = node.value(0)
    axis = axes_of([node.attr("axis", -2)], x.ndim, node)[0]
    more = [] if not node.has(2) else [node.value(2)]
    return apply_array(
        "write_at", x, node.value(1), *more, axis=axis, circular=int(node.attr("mode", "linear") == "circular")
    )


@operator("GlobalLpPool")
def global_lp_pool(node: Node) -> Any:
    x, p = node.value(0), np.float32(node.attr("p", 2))
    total = ops.reduce("sum", ops.pow(ops.abs(x), p), list(range(2, x.ndim)), True)
    return ops.pow(total, np.float32(1) / p)


@operator("TfIdfVectorizer")
def tfidf(node: Node) -> Any:
    if node.attr("pool_strings", None):
        raise node.unsupported("a pool of texts; one of integers works")
    return apply_array(
        "count_runs",
        node.value(0),
        results=["f32"],
        shortest=int(node.attr("min_gram_length")),
        longest=int(node.attr("max_gram_length")),
        skips=int(node.attr("max_skip_count")),
        starts=node.attr("ngram_counts"),
        indexes=node.attr("ngram_indexes"),
        pool=node.attr("pool_int64s"),
        mode=node.attr("mode"),
        weights=node.attr("weights", None) or None,
    )


# Random numbers --------------------------------------------------------------------------------------------------------------


def seed_of(node: Node) -> float:
    """The seed that the file gives; one that the node's own name gives otherwise, so that runs repeat."""
    given = node.attr("seed", None)
    return float(given) if given is not None else float(sum(node.proto.output[0].encode()))


def _filled(node: Node, like: Any, kind: str) -> Any:
    if node.op.startswith("RandomNormal"):
        mean, scale = float(node.attr("mean", 0.0)), float(node.attr("scale", 1.0))
        rules: dict[str, Any] = {"mean": mean, "scale": scale}
    else:
        rules = {"low": float(node.attr("low", 0.0)), "high": float(node.attr("high", 1.0))}
    name = "normal_like" if node.op.startswith("RandomNormal") else "uniform_like"
    return apply_array(name, like, results=[kind], seed=seed_of(node), dtype=dtypes.get(kind).numpy.name, **rules)


@operator("RandomNormalLike", "RandomUniformLike")
def random_like(node: Node) -> Any:
    x = node.value(0)
    return _filled(node, x, kind_of(node, str(x.dtype)))


@operator("RandomNormal", "RandomUniform")
def random(node: Node) -> Any:
    shape = [int(n) for n in node.attr("shape")]
    if math.prod(shape) > 1 << 31:
        raise node.malformed(f"{shape} random numbers")
    return _filled(node, ops.expand(node.scope.constant(np.zeros((), np.float32)), shape), kind_of(node, "f32"))


@operator("Bernoulli")
def bernoulli(node: Node) -> Any:
    """1 with the probability that x says, else 0. The function that ONNX writes for it has the two the other way round."""
    x = node.value(0)
    rules = {"seed": seed_of(node), "low": 0.0, "high": 1.0, "dtype": "float64"}
    drawn = apply_array("uniform_like", x, results=["f64"], **rules)[0]
    return ops.cast(ops.less(drawn, ops.cast(x, "f64")), kind_of(node, str(x.dtype)))


@operator("Multinomial")
def multinomial(node: Node) -> Any:
    kind = kind_of(node, "s32")
    rules = {"samples": int(node.attr("sample_size", 1)), "seed": seed_of(node), "dtype": dtypes.get(kind).numpy.name}
    return apply_array("draw_classes", node.value(0), results=[kind], **rules)


# Sizes that only the data say: what they are computed from has to be known -------------------------------------------------


@operator("NonZero")
def non_zero(node: Node) -> Any:
    return np.stack(np.nonzero(np.atleast_1d(node.known(0)))).astype(np.int64)


@operator("Compress")
def compress(node: Node) -> Any:
    """The slices whose condition is true; the condition must be known."""
    x, chosen = node.operand(0), np.flatnonzero(np.asarray(node.known(1)).reshape(-1)).astype(np.int64)
    axis = node.attr("axis", None)
    if isinstance(x, Sizes):
        return Sizes.of(np.take(x.array, chosen, axis))
    value = node.value(0)
    if axis is None:
        value, axis = ops.reshape(value, [-1]), 0
    return ops.gather(value, chosen, axes_of([axis], value.ndim, node)[0])


@operator("Unique")
def unique(node: Node) -> Any:
    x, axis = node.known(0), node.attr("axis", None)
    if axis is None:
        x, axis = x.reshape(-1), 0
    wide = x.astype(np.float32) if x.dtype.kind not in "biuf" else x
    _, first, inverse, counts = np.unique(wide, True, True, True, axis=axis)
    inverse = inverse.reshape(-1)
    if not node.attr("sorted", 1):
        order = np.argsort(first)
        inverse = np.argsort(order)[inverse]
        first, counts = first[order], counts[order]
    return [np.take(x, first, axis), *(n.astype(np.int64) for n in (first, inverse, counts))][: node.outputs]


@operator("NonMaxSuppression")
def non_max_suppression(node: Node) -> Any:
    """Boxes (batch, boxes, 4) of which each overlaps no better one of its class by more than a bound, best first."""
    boxes, scores = (node.known(n) for n in (0, 1))
    most = int(number(node, 2, np.int64(0)))
    overlap, least = float(number(node, 3, np.float32(0))), number(node, 4)
    corners = boxes.astype(np.float32)
    if node.attr("center_point_box", 0):
        half = corners[..., 2:] / 2
        low, high = corners[..., :2] - half, corners[..., :2] + half
    else:
        low, high = (f(corners[..., :2], corners[..., 2:]) for f in (np.minimum, np.maximum))
    area = np.prod(high - low, axis=-1)
    found = []
    for b, own in enumerate(scores):
        for c, score in enumerate(own):
            kept: list[int] = []
            for n in np.argsort(-score, kind="stable"):
                if len(kept) >= most or (least is not None and not score[n] > least):
                    break
                common = np.minimum(high[b, kept], high[b, n]) - np.maximum(low[b, kept], low[b, n])
                shared = np.where((common > 0).all(axis=-1), np.prod(common, axis=-1), np.float32(0))
                union = area[b, kept] + area[b, n] - shared
                valid = (shared > 0) & (area[b, kept] > 0) & (area[b, n] > 0) & (union > 0)
                ratio = np.divide(shared, union, out=np.zeros_like(shared), where=valid)
                if not (ratio > np.float32(overlap)).any():
                    kept.append(int(n))
            found += [(b, c, n) for n in kept]
    return np.array(found, np.int64).reshape(-1, 3)
