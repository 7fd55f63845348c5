"""Steps that move data: views, joins, gathers, scatters, orders, resizing."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...kernels import ops
from .draw import Cell, Draw, Family, cells

# Data is moved by its bytes; a type of each width, and those that are compared with numbers
ANY = ("u8", "s8", "f8e4m3fn", "s16", "u16", "f16", "bf16", "f32", "s32", "u32", "f64", "s64", "u64", "bool")
WIDE = ("f64", "f32", "s64", "s32", "s16", "s8", "u64", "u32", "u16", "u8")


def _shaped(draw: Draw, cell: Cell, rank: int | None = None, least: int = 0) -> Any:
    return draw.input(cell.dtype, draw.shape(int(draw.rng.integers(1, 5)) if rank is None else rank, least, 5_000))


def _known(draw: Draw) -> tuple[int, ...]:
    return tuple(draw.inputs["x0"].shape)


def _pair(two: Any) -> tuple[int, int]:
    return int(two[0]), int(two[1])


def _view(draw: Draw, cell: Cell) -> Any:
    step = cell.step
    if step in ("depth_to_space", "space_to_depth"):
        block = int(draw.pick(1, 2, 3))
        n, c, h, w = (draw.size(1, 8) for _ in range(4))
        image = (n, c * block**2, h, w) if step == "depth_to_space" else (n, c, h * block, w * block)
        x = draw.input(cell.dtype, image)
        return getattr(ops, step)(x, block, draw.pick("DCR", "CRD"))
    x = _shaped(draw, cell)
    shape = _known(draw)
    rank = len(shape)
    array = draw.inputs["x0"]
    if step == "transpose":
        order = [int(d) for d in draw.rng.permutation(rank)]
        draw.numpy = (np.transpose(array, order),)
        return ops.transpose(x, order)
    if step == "reshape":
        sizes = [int(n) for n in draw.pick((int(np.prod(shape)),), (1, *shape), (*shape, 1), shape[::-1])]
        draw.numpy = (np.reshape(array, sizes),)
        return ops.reshape(x, sizes)
    if step == "slice":
        starts = [int(draw.numbers.integers(-n - 1, n + 2)) for n in shape]
        ends = [int(draw.numbers.integers(-n - 1, n + 2)) for n in shape]
        return ops.slice(x, starts, ends, list(range(rank)), [int(draw.pick(1, 1, 2, 3, -1, -2)) for _ in shape])
    if step == "expand":
        sizes = [int(draw.pick(1, 2, 3)), *shape]
        draw.numpy = (np.broadcast_to(array, sizes),)
        return ops.expand(ops.unsqueeze(x, [0]), sizes)
    if step == "tile":
        times = [int(draw.pick(0, 1, 2, 3)) for _ in shape]
        draw.numpy = (np.tile(array, times),)
        return ops.tile(x, times)
    if step == "split":
        axis = int(draw.rng.integers(rank))
        at = int(draw.numbers.integers(0, shape[axis] + 1))
        draw.numpy = tuple(np.split(array, [at], axis))
        return ops.split(x, [at, shape[axis] - at], axis)
    if step == "trilu":
        return ops.trilu(ops.unsqueeze(x, [0]), int(draw.numbers.integers(-5, 6)), draw.maybe())
    mode = draw.pick("constant", "constant", "edge", "reflect", "wrap")
    if mode == "constant":
        return ops.pad(x, [_pair(draw.numbers.integers(-1 if n > 1 else 0, 4, 2)) for n in shape])
    return ops.pad(x, [_pair(draw.numbers.integers(0, max(1, min(n, 4)), 2)) for n in shape], mode)


def _join(draw: Draw, cell: Cell) -> Any:
    shape = draw.shape(int(draw.rng.integers(1, 4)), elements=5_000)
    axis = int(draw.rng.integers(len(shape)))
    parts = [tuple(draw.size(0, 20) if d == axis else n for d, n in enumerate(shape)) for _ in range(2)]
    draw.layout = draw.pick(draw.layout, "contiguous")
    values = [
        draw.input(cell.dtype, s, array=draw.laid(lambda t: draw.values(cell.dtype, t), s)) for s in (shape, *parts)
    ]
    draw.numpy = (np.concatenate(list(draw.inputs.values()), axis),)
    return ops.concat(values, axis)


def _indices(draw: Draw, n: int, shape: tuple[int, ...]) -> Any:
    dtype = draw.pick("s32", "s64")
    array = draw.numbers.integers(-n, max(n, 1), shape).astype(np.int32 if dtype == "s32" else np.int64)
    return draw.input(dtype, shape, array=array)


def _gather(draw: Draw, cell: Cell) -> Any:
    x = _shaped(draw, cell, int(draw.rng.integers(1, 4)), 1)
    shape = _known(draw)
    axis = int(draw.rng.integers(len(shape)))
    if cell.step == "gather":
        return ops.gather(x, _indices(draw, shape[axis], draw.shape(int(draw.rng.integers(0, 3)), elements=64)), axis)
    if cell.step == "gather_elements":
        return ops.gather_elements(
            x, _indices(draw, shape[axis], (*shape[:axis], draw.size(0, 9), *shape[axis + 1 :])), axis
        )
    if cell.step == "gather_nd":
        return ops.gather_nd(x, _indices(draw, min(shape[:2]), (draw.size(0, 9), min(2, len(shape)))))
    reductions = ("none", "add", "mul", "max", "min")
    few = (*shape[:axis], min(shape[axis], draw.size(0, 9)), *shape[axis + 1 :])
    if cell.step == "scatter_elements":
        indices = _indices(draw, shape[axis], few)
        return ops.scatter_elements(
            x,
            indices,
            draw.input(cell.dtype, few, array=draw.values(cell.dtype, few, tame=True)),
            axis,
            draw.pick(*reductions),
        )
    count, deep = draw.size(0, 9), min(2, len(shape))
    indices = _indices(draw, min(shape[:deep]), (count, deep))
    given = (count, *shape[deep:])
    return ops.scatter_nd(
        x,
        indices,
        draw.input(cell.dtype, given, array=draw.values(cell.dtype, given, tame=True)),
        draw.pick(*reductions),
    )


def _order(draw: Draw, cell: Cell) -> Any:
    x = _shaped(draw, cell, int(draw.rng.integers(1, 4)), 1)
    shape = _known(draw)
    axis = int(draw.rng.integers(len(shape)))
    if cell.step == "cumsum":
        return ops.cumsum(x, axis, draw.maybe(), draw.maybe())
    return ops.topk(x, int(draw.numbers.integers(0, shape[axis] + 1)), axis, draw.maybe())


def _one_hot(draw: Draw, cell: Cell) -> Any:
    shape = draw.shape(int(draw.rng.integers(1, 3)), elements=500)
    depth = draw.size(1, 20)
    off, on = draw.values(cell.dtype, (2,), tame=True)
    return ops.one_hot(_indices(draw, depth, shape), depth, np.array([off, on]))


def _resize(draw: Draw, cell: Cell) -> Any:
    x = _shaped(draw, cell, int(draw.rng.integers(1, 4)), 1)
    shape = _known(draw)
    axis = int(draw.rng.integers(len(shape)))
    mode = cell.step.removeprefix("resize ")
    coordinates = draw.pick("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric")
    more = (
        {"rounding": draw.pick("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")} if mode == "nearest" else {}
    )
    return ops.resize(x, axis, draw.size(1, 40), mode, coordinates=coordinates, **more)


def _found(draw: Draw, cell: Cell) -> Any:
    """Many equal elements; how many results there are is known when it runs."""
    shape = draw.shape(int(draw.rng.integers(1, 4)), 1, 800)
    few = draw.values(cell.dtype, (draw.size(1, 9),))
    x = draw.input(cell.dtype, shape, array=draw.laid(lambda s: few[draw.rng.integers(0, len(few), s)], shape))
    if cell.step == "non_zero":
        return ops.non_zero(x)
    axis = int(draw.rng.integers(len(shape))) if draw.maybe(0.4) else None
    return ops.unique(x, axis, draw.maybe(0.7))


def _grid(draw: Draw, cell: Cell) -> Any:
    spatial = int(draw.pick(1, 2, 2, 3))
    most = {1: 40, 2: 12, 3: 5}[spatial]
    batch = draw.size(0, 2)
    x = draw.input(cell.dtype, (batch, draw.size(1, 9), *(draw.size(1, most) for _ in range(spatial))))
    grid = (batch, *(draw.size(0, 4) for _ in range(spatial - 1)), draw.size(1, 70), spatial)
    return ops.grid_sample(
        x,
        draw.input(cell.dtype, grid, tame=draw.maybe(0.7)),
        cell.step.removeprefix("grid_sample "),
        draw.pick("zeros", "border", "reflection"),
        draw.maybe(),
    )


FAMILIES = (
    Family(
        cells(
            (
                "transpose",
                "reshape",
                "slice",
                "expand",
                "tile",
                "split",
                "trilu",
                "pad",
                "depth_to_space",
                "space_to_depth",
            ),
            ANY,
        ),
        _view,
    ),
    Family(cells(("concat",), ANY), _join),
    Family(cells(("gather", "gather_elements", "gather_nd"), ANY), _gather),
    Family(cells(("scatter_elements", "scatter_nd"), (*WIDE, "f16", "bf16", "bool")), _gather),
    Family(cells(("cumsum", "topk"), (*WIDE, "f16", "bf16")), _order),
    Family(cells(("one_hot",), ANY), _one_hot),
    Family(cells(("non_zero", "unique"), (*WIDE, "f16", "bf16", "bool")), _found),
    Family(cells([f"grid_sample {mode}" for mode in ("nearest", "linear", "cubic")], ("f32",)), _grid),
    Family((*cells(("resize nearest",), ANY), *cells(("resize linear", "resize cubic"), ("f32",))), _resize),
)
