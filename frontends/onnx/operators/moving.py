"""Operators that move data. What only moves codes leaves a promise of real numbers (Coded) a promise."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ....kernels import ops
from ....primitives import dtypes
from ....primitives.pipeline import Value
from ....primitives.sizes import Size, floordiv
from ..node import Coded, NeedsSizes, Node, Sizes, axes_of
from ..scope import operator
from ..tensors import check_made, element_type
from . import linear

FAR = 2**62


def moved(node: Node, move: Callable[[Any], Value]) -> Any:
    """Apply a move to what operand 0 stands for: to its codes where they have one scale."""
    x = node.operand(0)
    if isinstance(x, Coded) and x.per_tensor:
        codes = move(node.scope.value(x.codes))
        return dataclasses.replace(x, codes=codes, axis=0, scale=_one(x.scale), zero_point=_one(x.zero_point))
    return move(node.scope.value(x))


def _one(parameter: Any) -> Any:
    if parameter is None or not parameter.shape:
        return parameter
    return parameter.reshape(()) if isinstance(parameter, np.ndarray) else ops.reshape(parameter, ())


@operator("Reshape")
def reshape(node: Node) -> Any:
    shape = node.sizes(1) if node.has(1) else list(node.attr("shape"))
    x = node.operand(0)
    if not node.attr("allowzero", 0):
        shape = [x.shape[d] if isinstance(n, int) and n == 0 else n for d, n in enumerate(shape)]
    return moved(node, lambda v: ops.reshape(v, shape))


@operator("Flatten")
def flatten(node: Node) -> Any:
    return moved(node, lambda v: ops.flatten(v, node.attr("axis", 1)))


@operator("Squeeze")
def squeeze(node: Node) -> Any:
    axes = node.ints("axes", 1)

    def squeezed(v: Any) -> Any:
        if axes is None and any(not isinstance(n, int) for n in v.shape):
            raise NeedsSizes(
                f"{node.label}: which sizes are 1 is known only at run time; load with shapes= that fix them"
            )
        return ops.squeeze(v, axes)

    return moved(node, squeezed)


@operator("Unsqueeze")
def unsqueeze(node: Node) -> Any:
    axes = node.ints("axes", 1)
    if axes is None:
        raise node.malformed("axes are missing")
    return moved(node, lambda v: ops.unsqueeze(v, axes))


@operator("Transpose")
def transpose(node: Node) -> Any:
    return moved(node, lambda v: ops.transpose(v, node.attr("perm", None)))


@operator("Slice")
def slice_(node: Node) -> Any:
    starts, ends = _bounds(node, "starts", 1), _bounds(node, "ends", 2)
    axes = node.ints("axes", 3, list(range(len(starts)))) or []
    steps = node.ints("steps", 4, [1] * len(starts)) or []
    axes = axes_of(axes, len(node.operand(0).shape), node)
    return moved(node, lambda v: _cut(node, v, starts, ends, axes, steps))


def _cut(node: Node, x: Value, starts: list[Any], ends: list[Any], axes: list[int], steps: list[int]) -> Value:
    """A bound that a size says is written from the end of its axis, where it differs from it by a constant."""
    plain: list[list[int]] = [[], []]
    for kept, bounds in zip(plain, (starts, ends), strict=True):
        for bound, axis in zip(bounds, axes, strict=True):
            if isinstance(bound, Size):
                rest = bound - x.shape[axis]
                if not isinstance(rest, int) or rest > 0:
                    raise node.unsupported(
                        f"bound {bound} of an axis of {x.shape[axis]}; load with shapes= that fix it"
                    )
                bound = rest if rest < 0 else FAR
            kept.append(int(bound))
    for n, axis in enumerate(axes):
        if x.shape[axis] == 0:  # nothing to take, whichever way
            plain[0][n], plain[1][n], steps = 0, 0, [*steps[:n], 1, *steps[n + 1 :]]
    return ops.slice(x, plain[0], plain[1], axes, steps)


def _bounds(node: Node, name: str, n: int) -> list[Any]:
    return node.sizes(n) if node.has(n) else list(node.attr(name))


@operator("Split")
def split(node: Node) -> Any:
    x, axis = node.value(0), node.attr("axis", 0)
    lengths = node.ints("split", 1)
    return ops.split(x, lengths if lengths is not None else node.attr("num_outputs", node.outputs), axis)


@operator("Concat")
def concat(node: Node) -> Any:
    given = [node.operand(n) for n in range(len(node))]
    first = given[0]
    if isinstance(first, Coded) and first.per_tensor:
        alike = all(
            isinstance(x, Coded)
            and x.per_tensor
            and _same(x.scale, first.scale)
            and _same(x.zero_point, first.zero_point)
            for x in given
        )
        if alike:
            codes = ops.concat([node.scope.value(x.codes) for x in given], node.attr("axis"))
            return dataclasses.replace(
                first, codes=codes, axis=0, scale=_one(first.scale), zero_point=_one(first.zero_point)
            )
    return ops.concat([node.scope.value(x) for x in given], node.attr("axis", 1))


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.dtype == b.dtype and bool((a.reshape(-1) == b.reshape(-1)).all())
    return a is b


@operator("Pad")
def pad(node: Node) -> Any:
    x = node.value(0)
    widths = node.ints("pads", 1) or [int(n) for n in node.attr("paddings")]
    axes = node.ints("axes", 3, list(range(x.ndim))) or []
    axes = axes_of(axes, x.ndim, node)
    pairs = [(0, 0)] * x.ndim
    for n, axis in enumerate(axes):
        pairs[axis] = (widths[n], widths[n + len(axes)])
    mode = node.attr("mode", "constant")
    if mode != "constant":
        return ops.pad(x, pairs, mode)
    value = node.operand(2) if node.has(2) else np.array(node.attr("value", 0.0))
    if isinstance(value, np.ndarray):
        value = value.astype(x.dtype.numpy).reshape(())  # type: ignore[union-attr]
    return ops.pad(x, pairs, "constant", value if isinstance(value, np.ndarray) else ops.reshape(value, ()))


@operator("Expand")
def expand(node: Node) -> Any:
    shape = node.sizes(1)
    return moved(node, lambda v: ops.expand(v, shape))


@operator("Tile")
def tile(node: Node) -> Any:
    return moved(node, lambda v: ops.tile(v, [int(n) for n in node.known(1)]))


@operator("Gather")
def gather(node: Node) -> Any:
    return moved(node, lambda v: ops.gather(v, node.value(1), node.attr("axis", 0)))


@operator("GatherElements")
def gather_elements(node: Node) -> Any:
    return ops.gather_elements(node.value(0), node.value(1), node.attr("axis", 0))


@operator("GatherND")
def gather_nd(node: Node) -> Any:
    return ops.gather_nd(node.value(0), node.value(1), node.attr("batch_dims", 0))


@operator("ScatterElements", "Scatter")
def scatter_elements(node: Node) -> Any:
    x, indices, updates = (node.value(n) for n in range(3))
    return ops.scatter_elements(x, indices, updates, node.attr("axis", 0), node.attr("reduction", "none"))


@operator("ScatterND")
def scatter_nd(node: Node) -> Any:
    return ops.scatter_nd(node.value(0), node.value(1), node.value(2), node.attr("reduction", "none"))


@operator("DepthToSpace")
def depth_to_space(node: Node) -> Any:
    return moved(node, lambda v: ops.depth_to_space(v, node.attr("blocksize"), node.attr("mode", "DCR")))


@operator("SpaceToDepth")
def space_to_depth(node: Node) -> Any:
    return moved(node, lambda v: ops.space_to_depth(v, node.attr("blocksize"), node.attr("mode", "DCR")))


@operator("CumSum")
def cumsum(node: Node) -> Any:
    axis = int(np.asarray(node.known(1)).reshape(-1)[0])
    return ops.cumsum(node.value(0), axis, bool(node.attr("exclusive", 0)), bool(node.attr("reverse", 0)))


@operator("TopK")
def topk(node: Node) -> Any:
    k = int(np.asarray(node.known(1) if node.has(1) else node.attr("k")).reshape(-1)[0])
    return ops.topk(node.value(0), k, node.attr("axis", -1), bool(node.attr("largest", 1)))


@operator("OneHot")
def one_hot(node: Node) -> Any:
    depth = int(np.asarray(node.known(1)).reshape(-1)[0])
    indices = node.value(0)
    if str(indices.dtype) not in ("s32", "s64"):
        indices = ops.cast(indices, "s64")
    return ops.one_hot(indices, depth, node.value(2), node.attr("axis", -1))


@operator("Trilu")
def trilu(node: Node) -> Any:
    k = int(np.asarray(node.known(1, np.zeros((), np.int64))).reshape(-1)[0])
    return ops.trilu(node.value(0), k, bool(node.attr("upper", 1)))


@operator("EyeLike")
def eye_like(node: Node) -> Any:
    x = node.operand(0)
    rows, columns = x.shape
    if not isinstance(rows, int) or not isinstance(columns, int):
        raise node.unsupported("a shape known only at run time; a constant one works")
    check_made(rows * columns, node.label)
    asked = node.attr("dtype", 0)
    kind = element_type(asked, node.label) if asked else x.dtype if isinstance(x, np.ndarray) else x.dtype.numpy
    return np.eye(rows, columns, node.attr("k", 0)).astype(kind)


@operator("Range")
def range_(node: Node) -> Any:
    start, limit, delta = (node.operand(n) for n in range(3))
    if all(isinstance(x, np.ndarray) for x in (start, limit, delta)):
        return _range(node, start.reshape(())[()], limit.reshape(())[()], delta.reshape(())[()])
    if isinstance(limit, Sizes) and isinstance(delta, np.ndarray) and _whole(start, delta):
        first: Any = start.array if isinstance(start, Sizes) else start.astype(np.int64)
        count = -floordiv(first.reshape(())[()] - limit.array.reshape(())[()], int(delta))
        like = next(v for v in node.scope.pipe.of_kind("input").values() if any(isinstance(n, Size) for n in v.shape))
        if isinstance(start, np.ndarray):
            found = ops.arange(like, count, start.reshape(()).astype(np.int64), np.int64(int(delta)))
            return ops.cast(found, dtypes.get(delta.dtype).name)
    first, last, step = (node.known(n).reshape(())[()] for n in range(3))
    return _range(node, first, last, step)


def _range(node: Node, first: Any, last: Any, step: Any) -> Any:
    """The numbers of a range whose ends are known."""
    count = (float(last) - float(first)) / float(step) if step else math.inf
    if math.isnan(count) or not step:
        raise node.malformed(f"a range from {first} to {last} by {step}")
    check_made(math.ceil(max(min(count, 1e18), 0)), node.label)
    return np.arange(first, last, step, dtype=first.dtype)


def _whole(start: Any, delta: Any) -> bool:
    """Whether a range starts at a whole number and goes up by one."""
    known = [delta, start] if isinstance(start, np.ndarray) else [delta]
    return all(float(x) == int(x) for x in known) and delta > 0


@operator("Einsum")
def einsum(node: Node) -> Any:
    values = node.values()
    return linear.as_type(ops.einsum(node.attr("equation"), *values), values[0])


@operator("Resize", "Upsample")
def resize(node: Node) -> Any:
    """One axis after another; axes whose size does not change are left alone. Codes are taken as they are where elements
    are only moved."""
    moves = node.attr("mode", "nearest") == "nearest" and (
        node.attr("coordinate_transformation_mode", "half_pixel") != "tf_crop_and_resize"
    )
    return moved(node, lambda v: _resized(node, v)) if moves else _resized(node, node.value(0))


def _resized(node: Node, x: Value) -> Value:
    if node.op == "Upsample" or node.version < 11:
        scales = node.known(1) if node.has(1) else node.attr("scales")
        sizes, region = None, None
        rules = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    else:
        scales = node.known(2) if node.has(2) else None
        sizes = node.sizes(3) if node.has(3) else None
        region = node.known(1) if node.has(1) else None
        rules = {}
    if scales is not None and not len(np.asarray(scales).reshape(-1)):
        scales = None
    coordinates = rules.get("coordinate_transformation_mode") or node.attr(
        "coordinate_transformation_mode", "half_pixel"
    )
    rounding = rules.get("nearest_mode") or node.attr("nearest_mode", "round_prefer_floor")
    axes = axes_of(node.attr("axes", None) or list(range(x.ndim)), x.ndim, node)
    factors = [1.0] * len(axes) if scales is None else [float(s) for s in np.asarray(scales).reshape(-1)]
    if sizes is not None:
        sizes, factors = _kept_ratio(node, x, axes, sizes)
    integer = not x.dtype.is_float  # type: ignore[union-attr]
    mode = node.attr("mode", "nearest")
    kind = x.dtype
    if mode != "nearest" and str(kind) != "f32":
        x = ops.cast(x, "f32")
    for n, axis in enumerate(axes):
        size = sizes[n] if sizes is not None else _scaled(node, x.shape[axis], factors[n])
        crop = coordinates == "tf_crop_and_resize" and region is not None and len(region)
        if size == x.shape[axis] and factors[n] == 1.0 and not crop:
            continue
        part = (float(region[n]), float(region[n + len(axes)])) if crop and region is not None else (0.0, 1.0)
        x = ops.resize(
            x,
            axis,
            size,
            mode,
            factors[n],
            coordinates,
            rounding,
            node.attr("cubic_coeff_a", -0.75),
            bool(node.attr("exclude_outside", 0)),
            bool(node.attr("antialias", 0)),
            part,
            node.attr("extrapolation_value", 0.0),
        )
    if x.dtype != kind:
        x = ops.cast(ops.round(x) if integer else x, str(kind))
    return x


def _scaled(node: Node, size: Any, factor: float) -> Any:
    """floor(size * factor); of a run-time size for whole factors and their reciprocals."""
    if isinstance(size, int):
        return int(np.floor(np.float64(size) * factor))
    if factor == int(factor):
        return size * int(factor)
    if 1 / factor == int(1 / factor):
        return floordiv(size, int(1 / factor))
    raise node.unsupported(f"scale {factor} of a size known only at run time; load with shapes= that fix it")


def _kept_ratio(node: Node, x: Value, axes: list[int], sizes: list[Any]) -> tuple[list[Any], list[float]]:
    """Sizes and scales, with keep_aspect_ratio_policy applied."""
    policy = node.attr("keep_aspect_ratio_policy", "stretch")
    before = [x.shape[a] for a in axes]
    if policy != "stretch":
        if not all(isinstance(n, int) for n in (*before, *sizes)):
            raise node.unsupported(f"{policy} of sizes known only at run time")
        scale = (min if policy == "not_larger" else max)(s / b for s, b in zip(sizes, before, strict=True))
        return [int(np.floor(scale * b + 0.5)) for b in before], [scale] * len(axes)
    return sizes, [
        s / b if isinstance(s, int) and isinstance(b, int) and b else 0.0 for s, b in zip(sizes, before, strict=True)
    ]
