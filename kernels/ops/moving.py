"""Steps that move data."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ...primitives import dtypes, sizes
from ...primitives.dtypes import DTypeLike
from ...primitives.errors import ArgumentError, DTypeMismatch, ShapeMismatch, SizeError, Unsupported
from ...primitives.pipeline import Pipeline, Value
from ...primitives.quantization import QuantParams
from ...primitives.sizes import SizeLike, floordiv, size
from ..cast import Cast
from ..indexing import broadcast
from ..moving.gather import Gather, GatherElements, GatherND
from ..moving.joins import Concat, Pad, PadRepeated
from ..moving.order import CumSum, OneHot, Range, TopK, Trilu
from ..moving.relative import letters, measured, relative
from ..moving.resize import Resize
from ..moving.scatter import ScatterElements, ScatterND
from ..moving.views import Expand, Rearrange, Reshape, Slice, Tile, Transpose
from .given import Operand, constant_like, dtype_of, one, only, pipeline_of, value_of
from .quantize import dequantize, quantize

LAST = 2**62  # a stop beyond every axis
NARROW = ("f16", "bf16")


def _entered(op: str, x: Operand, *others: Any) -> tuple[Pipeline, Value]:
    pipe = pipeline_of(op, x, *others)
    value = value_of(pipe, x, op, "x")
    if value.dtype is None or value.dtype.packed:
        raise Unsupported(f"{op}: x is {dtype_of(value)}, several elements to a byte; unpack it to u8 or s8 first")
    return pipe, value


def axis_of(op: str, axis: int, rank: int) -> int:
    """An axis counted from the front; ShapeMismatch outside."""
    if not -rank <= axis < rank:
        raise ShapeMismatch(f"{op}: axis {axis} is out of range for {rank} dimensions; {-rank} to {rank - 1}")
    return axis % rank


def count_of(shape: Iterable[Any]) -> Any:
    """How many elements a shape has."""
    product: Any = 1
    for n in shape:
        product = n * product
    return product


def reshape(x: Operand, shape: Sequence[SizeLike]) -> Value:
    """The elements of x, in row-major order, under another shape.

    x      any type but packed ones, any shape
    shape  sizes, ints or expressions of run-time names of x; one may be -1: whatever is left
    """
    pipe, x = _entered("reshape", x)
    wanted: list[Any] = [n if n == -1 else size(n) for n in shape]
    if wanted.count(-1) > 1:
        raise ArgumentError(f"reshape: shape {tuple(shape)} has -1 more than once")
    total = count_of(x.shape)
    open_at = next((d for d, n in enumerate(wanted) if isinstance(n, int) and n == -1), None)
    if open_at is not None:
        others = count_of(n for d, n in enumerate(wanted) if d != open_at)
        if isinstance(others, int) and others == 0:
            raise ShapeMismatch(f"reshape: shape {tuple(shape)} leaves -1 open, because another size is 0")
        if isinstance(total, int) and isinstance(others, int) and total % others:
            raise ShapeMismatch(
                f"reshape: {sizes.show(x.shape)} has {total} elements, which {tuple(shape)} does not divide"
            )
        wanted[open_at] = floordiv(total, others)
    if any(isinstance(n, int) and n < 0 for n in wanted):
        raise ArgumentError(f"reshape: shape {tuple(shape)} has a negative size")
    count = count_of(wanted)
    if isinstance(total, int) and isinstance(count, int) and total != count:
        raise ShapeMismatch(f"reshape: {sizes.show(x.shape)} has {total} elements, {sizes.show(wanted)} has {count}")
    known = [n for d, n in enumerate(wanted) if d != open_at]
    like = measured(known, x)
    target = list(relative(known, [x.shape, *(v.shape for v in like)], "reshape"))
    if open_at is not None:  # in terms of the sizes of x, whatever expressions they are
        rest = floordiv(count_of(size(letter) for letter in letters(x.ndim)), count_of(size(n) for n in target))
        target.insert(open_at, rest if isinstance(rest, int) else str(rest))
        if isinstance(wanted[open_at], int):
            target[open_at] = wanted[open_at]
    kernel = Reshape(dtype_of(x), x.ndim, tuple(target), tuple((dtype_of(v), v.ndim) for v in like))
    y = only(pipe.add(kernel, x=x, **_likes(like)))
    if x.quant is not None and x.quant.axis is None:
        y.quant = x.quant
    return y


def _likes(values: Iterable[Value]) -> dict[str, Any]:
    return {f"like{n}": v for n, v in enumerate(values)}


def flatten(x: Operand, axis: int = 1) -> Value:
    """A matrix: the axes before `axis` make its rows, the others its columns (ONNX Flatten)."""
    _, value = _entered("flatten", x)
    if not -value.ndim <= axis <= value.ndim:
        raise ShapeMismatch(f"flatten: axis {axis} is out of range for {value.ndim} dimensions")
    axis = axis + value.ndim if axis < 0 else axis
    return reshape(value, (count_of(value.shape[:axis]), count_of(value.shape[axis:])))


def squeeze(x: Operand, axes: Sequence[int] | None = None) -> Value:
    """x without axes of size 1: those given, or every one whose size is known to be 1."""
    _, value = _entered("squeeze", x)
    if axes is None:
        gone = {d for d, n in enumerate(value.shape) if n == 1}
    else:
        gone = {axis_of("squeeze", a, value.ndim) for a in axes}
        for d in gone:
            if isinstance(value.shape[d], int) and value.shape[d] != 1:
                raise ShapeMismatch(
                    f"squeeze: axis {d} of {sizes.show(value.shape)} has {value.shape[d]} elements, not 1"
                )
    return reshape(value, [n for d, n in enumerate(value.shape) if d not in gone])


def unsqueeze(x: Operand, axes: Sequence[int]) -> Value:
    """x with new axes of size 1, whose places count in the result."""
    _, value = _entered("unsqueeze", x)
    rank = value.ndim + len(axes)
    places = {axis_of("unsqueeze", a, rank) for a in axes}
    if len(places) != len(axes):
        raise ArgumentError(f"unsqueeze: axes {tuple(axes)} name one place twice")
    rest = iter(value.shape)
    return reshape(value, [1 if d in places else next(rest) for d in range(rank)])


def transpose(x: Operand, perm: Sequence[int] | None = None) -> Value:
    """x with its axes in another order: axis d of the result is axis perm[d] of x; left out: reversed."""
    pipe, x = _entered("transpose", x)
    order = tuple(reversed(range(x.ndim))) if perm is None else tuple(axis_of("transpose", p, x.ndim) for p in perm)
    if len(order) != x.ndim:
        raise ArgumentError(f"transpose: perm {order} for {x.ndim} dimensions")
    y = only(pipe.add(Transpose(dtype_of(x), order), x=x))
    if x.quant is not None and x.quant.axis is None:
        y.quant = x.quant
    return y


def slice(
    x: Operand,
    starts: Sequence[int],
    stops: Sequence[int],
    axes: Sequence[int] | None = None,
    steps: Sequence[int] | None = None,
) -> Value:
    """A part of x: from starts to before stops, in steps, along axes (ONNX Slice).

    Negative starts and stops count from the end; what lies outside is clamped; steps may be negative, not 0.
    """
    pipe, x = _entered("slice", x)
    axes = list(range(len(starts))) if axes is None else [axis_of("slice", a, x.ndim) for a in axes]
    steps = [1] * len(starts) if steps is None else list(steps)
    if not len(starts) == len(stops) == len(axes) == len(steps) or len(set(axes)) != len(axes):
        raise ArgumentError(
            f"slice: {len(starts)} starts, {len(stops)} stops, {len(steps)} steps for axes {tuple(axes)}"
        )
    cuts: list[tuple[int, int, int] | None] = [None] * x.ndim
    for axis, start, stop, step in zip(axes, starts, stops, steps, strict=True):
        cuts[axis] = (int(start), int(stop), int(step))
    y = only(pipe.add(Slice(dtype_of(x), x.ndim, tuple(cuts)), x=x))
    if x.quant is not None and x.quant.axis is None:
        y.quant = x.quant
    return y


def split(x: Operand, parts: Sequence[int] | int, axis: int = 0) -> tuple[Value, ...]:
    """x cut along an axis into parts of given sizes, or into that many of one size (the last may be smaller)."""
    _, value = _entered("split", x)
    axis = axis_of("split", axis, value.ndim)
    n = value.shape[axis]
    if isinstance(parts, int):
        if not isinstance(n, int):
            raise SizeError(f"split: axis {axis} has {n} elements, known only at run time; give the sizes of the parts")
        width = -(-n // parts) if parts > 0 else 0
        lengths = [max(0, min(width, n - p * width)) for p in range(parts)]
    else:
        lengths = [int(p) for p in parts]
    if isinstance(n, int) and sum(lengths) != n:
        raise ShapeMismatch(f"split: parts {tuple(lengths)} make {sum(lengths)}; axis {axis} has {n} elements")
    edges = [0, *np.cumsum(lengths).tolist()]
    return tuple(slice(value, [a], [b], [axis]) for a, b in itertools.pairwise(edges))


def concat(values: Sequence[Operand], axis: int = 0, to: QuantParams | None = None) -> Value:
    """Values of one type one after another along an axis; all other sizes are equal.

    to   QuantParams of the result, where the values are codes that carry quantizations of their own: those that
         differ are dequantized and quantized again before they are joined
    """
    if not values:
        raise ArgumentError("concat: nothing is given")
    pipe = pipeline_of("concat", *values)
    found = [value_of(pipe, v, "concat", f"operand {n}") for n, v in enumerate(values)]
    if to is not None:
        found = [v if v.quant == to else quantize(dequantize(v), to=to) for v in found]
    kinds = {dtype_of(v) for v in found}
    ranks = {v.ndim for v in found}
    if len(kinds) > 1 or len(ranks) > 1:
        raise DTypeMismatch(f"concat: {', '.join(map(repr, found))}; one type and one rank work")
    _entered("concat", found[0])
    axis = axis_of("concat", axis, found[0].ndim)
    if len(found) == 1:
        return found[0]
    kernel = Concat(kinds.pop(), found[0].ndim, axis, len(found))
    operands: dict[str, Any] = {f"x{n}": v for n, v in enumerate(found)}
    y = only(pipe.add(kernel, **operands))
    quants = {v.quant for v in found}
    if len(quants) == 1 and (quant := quants.pop()) is not None and quant.axis is None:
        y.quant = quant
    return y


def pad(x: Operand, widths: Sequence[tuple[int, int]], mode: str = "constant", value: Operand = 0) -> Value:
    """x with more elements around it, or fewer where a width is negative.

    widths  per axis (before, after)
    mode    constant (`value`, 0 by default), edge, reflect or wrap
    """
    pipe, x = _entered("pad", x, value)
    pairs = tuple((int(a), int(b)) for a, b in widths)
    if len(pairs) != x.ndim:
        raise ArgumentError(f"pad: {len(pairs)} pairs of widths for {x.ndim} dimensions")
    if mode == "constant":
        fill = value if isinstance(value, Value) else constant_like(value, dtype_of(x), "pad: value")
        if not isinstance(fill, Value) and dtypes.get(dtype_of(x)).numpy != fill.dtype:
            fill = fill.astype(dtypes.get(dtype_of(x)).numpy)
        return only(pipe.add(Pad(dtype_of(x), pairs), x=x, value=fill))
    if any(min(p) < 0 for p in pairs):
        cut = [(max(0, -a), -b if b < 0 else LAST) for a, b in pairs]
        x = slice(x, [a for a, _ in cut], [b for _, b in cut])
        pairs = tuple((max(0, a), max(0, b)) for a, b in pairs)
    for axis, (before, after) in enumerate(pairs):
        if before or after:
            x = only(pipe.add(PadRepeated(dtype_of(x), x.ndim, axis, before, after, mode), x=x))
    return x


def expand(x: Operand, shape: Sequence[SizeLike]) -> Value:
    """x broadcast with a shape by NumPy's rule, both ways (ONNX Expand)."""
    pipe, x = _entered("expand", x)
    wanted = tuple(size(n) for n in shape)
    common, _ = broadcast([x.shape, wanted], "expand")
    if common == x.shape:
        return x
    like = measured(common, x)
    shape_ = relative(common, [x.shape, *(v.shape for v in like)], "expand")
    kernel = Expand(dtype_of(x), x.ndim, shape_, tuple((dtype_of(v), v.ndim) for v in like))
    return only(pipe.add(kernel, x=x, **_likes(like)))


def tile(x: Operand, repeats: Sequence[int]) -> Value:
    """x repeated that many times along each axis."""
    pipe, x = _entered("tile", x)
    if len(repeats) != x.ndim:
        raise ArgumentError(f"tile: {len(repeats)} repeats for {x.ndim} dimensions")
    return only(pipe.add(Tile(dtype_of(x), tuple(int(r) for r in repeats)), x=x))


def depth_to_space(x: Operand, block: int, mode: str = "DCR") -> Value:
    """(N, C, H, W) to (N, C / block**2, H * block, W * block); mode DCR or CRD as in ONNX DepthToSpace."""
    pipe, x = _entered("depth_to_space", x)
    _image("depth_to_space", x, block)
    if mode not in ("DCR", "CRD"):
        raise ArgumentError(f"depth_to_space: mode {mode!r}; DCR or CRD")
    channels = (block, block, 0) if mode == "DCR" else (0, block, block)
    perm = (0, 3, 4, 1, 5, 2) if mode == "DCR" else (0, 1, 4, 2, 5, 3)
    return only(pipe.add(Rearrange(dtype_of(x), ((0,), channels, (0,), (0,)), perm, (1, 1, 2, 2)), x=x))


def space_to_depth(x: Operand, block: int, mode: str = "DCR") -> Value:
    """(N, C, H, W) to (N, C * block**2, H / block, W / block): depth_to_space of the same mode undone."""
    pipe, x = _entered("space_to_depth", x)
    _image("space_to_depth", x, block)
    if mode not in ("DCR", "CRD"):
        raise ArgumentError(f"space_to_depth: mode {mode!r}; DCR or CRD")
    perm = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    return only(pipe.add(Rearrange(dtype_of(x), ((0,), (0,), (0, block), (0, block)), perm, (1, 3, 1, 1)), x=x))


def _image(op: str, x: Value, block: int) -> None:
    if x.ndim != 4 or block < 1:
        raise ShapeMismatch(f"{op}: x is {sizes.show(x.shape)}, block {block}; (N, C, H, W) and a positive block work")


def gather(x: Operand, indices: Operand, axis: int = 0) -> Value:
    """x[.., indices, ..]: an axis of x replaced by the axes of the indices (ONNX Gather).

    indices  s32 or s64, any shape; negative ones count from the end; one outside is an ArgumentError at run time
    """
    pipe, x, indices = _indexed("gather", x, indices)
    axis = axis_of("gather", axis, x.ndim)
    kernel = Gather(dtype_of(x), x.ndim, axis, indices.ndim, dtype_of(indices))
    y = only(pipe.add(kernel, x=x, indices=indices))
    if x.quant is not None and x.quant.axis is None:
        y.quant = x.quant
    return y


def gather_elements(x: Operand, indices: Operand, axis: int = 0) -> Value:
    """y[i, j, ..] = x[.., indices[i, j, ..], ..], the index standing at `axis` (ONNX GatherElements)."""
    pipe, x, indices = _indexed("gather_elements", x, indices)
    if x.ndim != indices.ndim:
        raise ShapeMismatch(f"gather_elements: x has {x.ndim} dimensions, indices {indices.ndim}; as many work")
    kernel = GatherElements(dtype_of(x), x.ndim, axis_of("gather_elements", axis, x.ndim), dtype_of(indices))
    return only(pipe.add(kernel, x=x, indices=indices))


def gather_nd(x: Operand, indices: Operand, batch: int = 0) -> Value:
    """y[b.., i..] = x[b.., *indices[b.., i..]]: rows of indices count along several axes (ONNX GatherND)."""
    pipe, x, indices = _indexed("gather_nd", x, indices)
    kernel = GatherND(dtype_of(x), x.ndim, indices.ndim, _depth("gather_nd", indices), batch, dtype_of(indices))
    return only(pipe.add(kernel, x=x, indices=indices))


def scatter_elements(x: Operand, indices: Operand, updates: Operand, axis: int = 0, reduction: str = "none") -> Value:
    """A copy of x in which y[.., indices[i, j, ..], ..] is replaced by updates[i, j, ..] or combined with it.

    reduction  none add mul max min; updates that meet are applied in row-major order (ONNX ScatterElements).
               f16 and bf16 are combined in float32 and rounded once; add and mul of bool are or and and
    """
    pipe, x, indices = _indexed("scatter_elements", x, indices, updates)
    updates = value_of(pipe, updates, "scatter_elements", "updates")
    axis = axis_of("scatter_elements", axis, x.ndim)

    def write(x: Value, updates: Value) -> Value:
        kernel = ScatterElements(dtype_of(x), x.ndim, axis, dtype_of(indices), reduction)
        return only(pipe.add(kernel, x=x, indices=indices, updates=updates))

    return _combined(x, updates, reduction, write)


def _combined(x: Value, updates: Value, reduction: str, write: Callable[[Value, Value], Value]) -> Value:
    """Updates written into data; 16-bit floats that are combined with it are so in float32, and rounded at the end."""
    kind = dtype_of(x)
    if reduction == "none" or kind not in NARROW or dtype_of(updates) != kind:
        return write(x, updates)
    return cast(write(cast(x, "f32"), cast(updates, "f32")), kind)


def scatter_nd(x: Operand, indices: Operand, updates: Operand, reduction: str = "none") -> Value:
    """A copy of x in which y[*indices[i..]] is replaced by updates[i..] or combined with it (ONNX ScatterND)."""
    pipe, x, indices = _indexed("scatter_nd", x, indices, updates)
    updates = value_of(pipe, updates, "scatter_nd", "updates")
    depth = _depth("scatter_nd", indices)

    def write(x: Value, updates: Value) -> Value:
        kernel = ScatterND(dtype_of(x), x.ndim, indices.ndim, depth, dtype_of(indices), reduction)
        return only(pipe.add(kernel, x=x, indices=indices, updates=updates))

    return _combined(x, updates, reduction, write)


def _indexed(op: str, x: Operand, indices: Operand, *others: Any) -> tuple[Pipeline, Value, Value]:
    pipe = pipeline_of(op, x, indices, *others)
    x = value_of(pipe, x, op, "x")
    _entered(op, x)
    if isinstance(indices, (int, list, tuple)):
        indices = np.asarray(indices, np.int64)
    return pipe, x, value_of(pipe, indices, op, "indices")


def _depth(op: str, indices: Value) -> int:
    if not indices.ndim or not isinstance(indices.shape[-1], int):
        raise ShapeMismatch(
            f"{op}: indices have shape {sizes.show(indices.shape)}; their last size must be a known number"
        )
    return indices.shape[-1]


def cumsum(x: Operand, axis: int = 0, exclusive: bool = False, reverse: bool = False) -> Value:
    """Sums of the first 1, 2, .. elements along an axis, one addition after another, in x's type (ONNX CumSum).

    f16 and bf16 are added up in float32, and each sum is rounded.
    """
    pipe, x = _entered("cumsum", x)
    kind = dtype_of(x)
    if kind in NARROW:
        return cast(cumsum(cast(x, "f32"), axis, exclusive, reverse), kind)
    kernel = CumSum(dtype_of(x), x.ndim, axis_of("cumsum", axis, x.ndim), bool(exclusive), bool(reverse))
    return only(pipe.add(kernel, x=x))


def topk(x: Operand, k: int, axis: int = -1, largest: bool = True) -> tuple[Value, Value]:
    """The k largest (or smallest) elements along an axis, best first, and their places as s64 (ONNX TopK).

    Equal ones come in the order of their places; NaN counts as larger than everything.
    """
    pipe, x = _entered("topk", x)
    kind = dtype_of(x)
    if kind in NARROW:  # float32 holds them, in their order
        values, indices = topk(cast(x, "f32"), k, axis, largest)
        return cast(values, kind), indices
    axis = axis_of("topk", axis, x.ndim)
    n = x.shape[axis]
    if isinstance(n, int) and k > n:
        raise ArgumentError(f"topk: k is {k}, but axis {axis} has {n} elements")
    values, indices = pipe.add(TopK(dtype_of(x), x.ndim, axis, int(k), bool(largest)), x=x)
    return values, indices


def one_hot(indices: Operand, depth: int, values: Operand = (0.0, 1.0), axis: int = -1) -> Value:
    """A new axis of `depth` places: values[1] where the index is the place or depth below it, else values[0]."""
    pipe = pipeline_of("one_hot", indices, values)
    indices = value_of(pipe, indices, "one_hot", "indices")
    if isinstance(values, tuple):
        values = np.asarray(values, np.float32)
    values = value_of(pipe, values, "one_hot", "values")
    if values.dtype is not None and values.dtype.packed:
        raise Unsupported(f"one_hot: values are {values.dtype}, several to a byte; types with whole bytes work")
    axis = axis_of("one_hot", axis, indices.ndim + 1)
    kernel = OneHot(dtype_of(values), indices.ndim, axis, int(depth), dtype_of(indices))
    return only(pipe.add(kernel, indices=indices, values=values))


def trilu(x: Operand, k: int = 0, upper: bool = True) -> Value:
    """The upper (or lower) triangle of the last two axes from diagonal k on; zero elsewhere (ONNX Trilu)."""
    pipe, x = _entered("trilu", x)
    return only(pipe.add(Trilu(dtype_of(x), x.ndim, int(k), bool(upper)), x=x))


def arange(like: Operand, count: SizeLike, start: Operand = 0, step: Operand = 1, dtype: DTypeLike = "s64") -> Value:
    """start, start + step, ..: `count` of them, a number or an expression of the sizes of `like`."""
    pipe, like = _entered("arange", like, start, step)
    kind = dtypes.get(dtype).name
    many = relative([count], [like.shape], "arange")[0]
    kernel = Range(kind, many, dtype_of(like), like.ndim)
    first, width = (
        v if isinstance(v, Value) else one(np.asarray(v, dtypes.get(kind).numpy), f"arange: {name}")
        for name, v in (("start", start), ("step", step))
    )
    return only(pipe.add(kernel, start=first, step=width, like=like))


def resize(
    x: Operand,
    axis: int,
    size: SizeLike,
    mode: str = "nearest",
    scale: float = 0.0,
    coordinates: str = "half_pixel",
    rounding: str = "round_prefer_floor",
    cubic_a: float = -0.75,
    exclude_outside: bool = False,
    antialias: bool = False,
    region: tuple[float, float] = (0.0, 1.0),
    outside: float = 0.0,
) -> Value:
    """x resampled along one axis to `size` elements (ONNX Resize, one axis of it).

    x            f32; with mode nearest any type
    scale        elements afterwards for one before, where it is not exactly size / the axis' size
    mode         nearest linear cubic
    coordinates  half_pixel half_pixel_symmetric pytorch_half_pixel align_corners asymmetric tf_crop_and_resize
                 tf_half_pixel_for_nn
    rounding     of nearest: round_prefer_floor round_prefer_ceil floor ceil
    region       for tf_crop_and_resize, in parts of the axis; `outside` is what lies outside x
    """
    pipe, x = _entered("resize", x)
    axis = axis_of("resize", axis, x.ndim)
    times = int(scale)  # of a size that only a run knows, what it becomes may be no expression of the operand's sizes
    whole = times == scale and times > 0 and not isinstance(x.shape[axis], int) and size == x.shape[axis] * times
    kernel = Resize(
        dtype_of(x),
        x.ndim,
        axis,
        f"{times}*I{axis}" if whole else relative([size], [x.shape], "resize")[0],
        float(scale),
        mode,
        coordinates,
        rounding,
        float(cubic_a),
        bool(exclude_outside),
        bool(antialias),
        float(region[0]),
        float(region[1]),
        float(outside),
    )
    return only(pipe.add(kernel, x=x))


def cast(x: Operand, dtype: DTypeLike, saturate: bool = True, scale_rounding: str = "half_up") -> Value:
    """x in another type, element by element (ONNX Cast; kernels/reference/cast.py has every rule).

    x         any type that is not packed
    dtype     any; u4 s4 u2 s2 are written one code an element, in u8 or s8
    saturate  whether small floats hold what is too large for them at their largest finite value
    scale_rounding  of e8m0fnu: half_up, up or down
    """
    pipe, x = _entered("cast", x)
    kind = dtypes.get(dtype).name
    if kind == dtype_of(x):
        return x
    return only(pipe.add(Cast(dtype_of(x), kind, x.ndim, bool(saturate), scale_rounding), x=x))
