"""Operators that move elements, choose some, or count them."""

from __future__ import annotations

from typing import Any

import numpy as np

from .drawing import F32, Draw, Rng, axis_of, broadcast, data, draws, kind, maybe, pick, plain, shape, whole, words


@draws("Reshape")
def reshape(rng: Rng, opset: int) -> Draw:
    x = data(rng, shape(rng, 0, 4, 6), kind(rng, "Reshape", opset))
    to = [int(n) for n in rng.permutation(x.shape)]
    if to and x.size and rng.random() < 0.5:
        to[int(rng.integers(len(to)))] = -1
    return Draw([x, words(*to)], constants=(1,))


@draws("Flatten")
def flatten(rng: Rng, opset: int) -> Draw:
    sizes = shape(rng)
    return Draw([data(rng, sizes, kind(rng, "Flatten", opset))], {"axis": axis_of(rng, len(sizes), opset, 1)})


@draws("Squeeze")
def squeeze(rng: Rng, opset: int) -> Draw:
    sizes = [int(n) for n in rng.choice([1, 1, 2, 3], int(rng.integers(0, 5)))]
    ones = [n for n, size in enumerate(sizes) if size == 1 and rng.random() < 0.6]
    axes = [n - len(sizes) * (opset >= 11 and rng.random() < 0.5) for n in ones]
    x = data(rng, sizes, kind(rng, "Squeeze", opset))
    return _with_axes(x, axes, opset) if axes else Draw([x])


@draws("Unsqueeze")
def unsqueeze(rng: Rng, opset: int) -> Draw:
    sizes, new = shape(rng, 0, 3), int(rng.integers(1, 3))
    rank = len(sizes) + new
    axes = [int(a) - rank * (opset >= 11 and rng.random() < 0.4) for a in rng.choice(rank, new, False)]
    return _with_axes(data(rng, sizes, kind(rng, "Unsqueeze", opset)), axes, opset)


def _with_axes(x: Any, axes: list[int], opset: int) -> Draw:
    return Draw([x, words(*axes)], constants=(1,)) if opset >= 13 else Draw([x], {"axes": sorted(axes)})


@draws("Transpose")
def transpose(rng: Rng, opset: int) -> Draw:
    sizes = shape(rng, 0, 5)
    order = {"perm": [int(n) for n in rng.permutation(len(sizes))]} if sizes and rng.random() < 0.8 else {}
    return Draw([data(rng, sizes, kind(rng, "Transpose", opset))], order)


@draws("Slice")
def cut_out(rng: Rng, opset: int) -> Draw:
    sizes = shape(rng, 1, 4, 6)
    axes = [int(a) for a in rng.choice(len(sizes), int(rng.integers(1, len(sizes) + 1)), False)]
    starts = [int(rng.integers(-sizes[a] - 2, sizes[a] + 3)) for a in axes]
    ends = [pick(rng, int(rng.integers(-sizes[a] - 3, sizes[a] + 4)), 2**31 - 1, -(2**31)) for a in axes]
    steps = [pick(rng, 1, 1, 2, -1, -2, 3) for _ in axes]
    named = [a - len(sizes) * (rng.random() < 0.4) for a in axes]
    of = pick(rng, np.int64, np.int64, np.int32)
    numbers = [np.array(x, of) for x in (starts, ends, named, steps)]
    return Draw([data(rng, sizes, kind(rng, "Slice", opset)), *numbers], constants=(1, 2, 3, 4))


@draws("Split")
def split(rng: Rng, opset: int) -> Draw:
    sizes = shape(rng, 1, 4, 6, 0)
    axis = axis_of(rng, len(sizes), opset)
    pieces = int(rng.integers(1, min(sizes[axis], 4) + 1))
    edges = sorted(int(n) + 1 for n in rng.choice(sizes[axis] - 1, pieces - 1, False)) if pieces > 1 else []
    lengths = [int(n) for n in np.diff([0, *edges, sizes[axis]])]
    x = data(rng, sizes, kind(rng, "Split", opset))
    if opset >= 18 and rng.random() < 0.4:
        return Draw([x], {"axis": axis, "num_outputs": pieces}, pieces)
    if opset < 13:
        return Draw([x], {"axis": axis, "split": lengths}, pieces)
    return Draw([x, words(*lengths)], {"axis": axis}, pieces, (1,))


@draws("Concat")
def concat(rng: Rng, opset: int) -> Draw:
    sizes, of = shape(rng, 1, 4), kind(rng, "Concat", opset)
    axis, parts = axis_of(rng, len(sizes), opset), []
    for _ in range(int(rng.integers(1, 4))):
        own = list(sizes)
        own[axis] = int(rng.integers(0, 4))
        parts.append(data(rng, own, of))
    return Draw(parts, {"axis": axis})


@draws("Pad")
def pad(rng: Rng, opset: int) -> Draw:
    sizes, of = shape(rng, 1, 4, 5, 0), kind(rng, "Pad", opset)
    mode = pick(rng, "constant", "constant", "edge", "reflect", *(["wrap"] if opset >= 19 else []))
    pads = []
    for n in sizes * 2:
        most = min(n, 3) if mode in ("reflect", "wrap") else 3
        pads.append(int(rng.integers(-1 if mode == "constant" and n > 3 else 0, most)))
    x = data(rng, sizes, of)
    if opset < 11:
        return Draw([x], {"pads": pads, "mode": mode, "value": 1.5})
    filled = mode == "constant" and rng.random() < 0.6
    operands = [x, words(*pads), *([plain(rng, [], of, 3.0)] if filled else [])]
    return Draw(operands, {"mode": mode}, constants=(1, 2))


@draws("Expand")
def expand(rng: Rng, opset: int) -> Draw:
    sizes = shape(rng)
    return Draw([data(rng, broadcast(rng, sizes), kind(rng, "Expand", opset)), words(*sizes)], constants=(1,))


@draws("Tile")
def tile(rng: Rng, opset: int) -> Draw:
    sizes = shape(rng, 1, 4, 4)
    often = words(*whole(rng, 0 if rng.random() < 0.2 else 1, 4, len(sizes)))
    return Draw([data(rng, sizes, kind(rng, "Tile", opset)), often], constants=(1,))


@draws("Gather")
def gather(rng: Rng, opset: int) -> Draw:
    sizes = shape(rng, 1, 4, 5, 0)
    axis = int(rng.integers(-len(sizes), len(sizes)))
    at = rng.integers(-sizes[axis] if opset >= 11 else 0, sizes[axis], shape(rng, 0, 3))
    x = data(rng, sizes, kind(rng, "Gather", opset))
    return Draw([x, np.asarray(at).astype(pick(rng, np.int32, np.int64))], {"axis": axis})


@draws("GatherElements")
def gather_elements(rng: Rng, opset: int) -> Draw:
    sizes = shape(rng, 1, 4, 5, 0)
    axis = int(rng.integers(-len(sizes), len(sizes)))
    wanted = [int(rng.integers(1, n + 1)) for n in sizes]
    wanted[axis] = int(rng.integers(1, 7))
    at = rng.integers(-sizes[axis], sizes[axis], wanted)
    return Draw([data(rng, sizes, kind(rng, "GatherElements", opset)), at.astype(np.int64)], {"axis": axis})


@draws("GatherND")
def gather_nd(rng: Rng, opset: int) -> Draw:
    sizes = shape(rng, 2, 4, 4, 0)
    batch = int(rng.integers(0, 2)) if opset >= 12 else 0
    depth = int(rng.integers(1, len(sizes) - batch + 1))
    lead = sizes[:batch] + shape(rng, 0 if batch else 1, 2, 3, 0)
    at = np.stack([rng.integers(-sizes[batch + n], sizes[batch + n], lead) for n in range(depth)], -1)
    attributes = {"batch_dims": batch} if opset >= 12 else {}
    return Draw([data(rng, sizes, kind(rng, "GatherND", opset)), at.astype(np.int64)], attributes)


def _reduction(rng: Rng, opset: int, of: Any) -> dict[str, Any]:
    if opset < 16 or np.dtype(of).kind == "b":
        return {}
    return {"reduction": pick(rng, "none", "add", "mul", *(["min", "max"] if opset >= 18 else []))}


@draws("ScatterElements")
def scatter_elements(rng: Rng, opset: int) -> Draw:
    sizes, of = shape(rng, 1, 3, 5, 0), kind(rng, "ScatterElements", opset)
    axis = int(rng.integers(-len(sizes), len(sizes)))
    how, part = _reduction(rng, opset, of), [int(rng.integers(1, n + 1)) for n in sizes]
    if how.get("reduction", "none") == "none":  # places differ, or what is there depends on who comes last
        full = list(part)
        full[axis] = sizes[axis]
        at = np.take(np.argsort(rng.random(full), axis), range(part[axis]), axis)
    else:
        at = rng.integers(-sizes[axis], sizes[axis], part)
    operands = [plain(rng, sizes, of, 3.0), at.astype(np.int64), plain(rng, part, of, 3.0)]
    return Draw(operands, {"axis": axis, **how})


@draws("ScatterND")
def scatter_nd(rng: Rng, opset: int) -> Draw:
    sizes, of = shape(rng, 1, 3, 5, 0), kind(rng, "ScatterND", opset)
    depth = int(rng.integers(1, len(sizes) + 1))
    places = int(np.prod(sizes[:depth]))
    chosen = rng.choice(places, int(rng.integers(1, places + 1)), False)
    at = np.stack(np.unravel_index(chosen, sizes[:depth]), -1).astype(np.int64)
    new = plain(rng, [len(chosen), *sizes[depth:]], of, 3.0)
    return Draw([plain(rng, sizes, of, 3.0), at, new], _reduction(rng, opset, of))


@draws("DepthToSpace", "SpaceToDepth")
def blocks(rng: Rng, opset: int, op: str) -> Draw:
    block, of = int(rng.integers(1, 4)), kind(rng, op, opset)
    n, c, h, w = whole(rng, 1, 3, 4)
    if op == "SpaceToDepth":
        return Draw([data(rng, [n, c, block * h, block * w], of)], {"blocksize": block})
    mode = {"mode": pick(rng, "DCR", "CRD")} if opset >= 11 else {}
    return Draw([data(rng, [n, block * block * c, h, w], of)], {"blocksize": block, **mode})


@draws("TopK")
def topk(rng: Rng, opset: int) -> Draw:
    sizes = shape(rng, 1, 4, 7, 0)
    axis, count = int(rng.integers(-len(sizes), len(sizes))), int(np.prod(sizes))
    of = kind(rng, "TopK", opset) if count < 120 else F32  # all numbers differ
    most = words(int(rng.integers(0 if rng.random() < 0.1 else 1, sizes[axis] + 1)))
    attributes = {"axis": axis, **({"largest": int(rng.integers(2))} if opset >= 11 else {})}
    return Draw([rng.permutation(count).reshape(sizes).astype(of), most], attributes, 2, (1,))


@draws("OneHot")
def one_hot(rng: Rng, opset: int) -> Draw:
    sizes, depth = shape(rng, 0, 3), int(rng.integers(1, 6))
    at = np.asarray(rng.integers(-depth if opset >= 11 else 0, depth, sizes)).astype(pick(rng, np.int64, np.int32, F32))
    axis = int(rng.integers(-len(sizes) - 1, len(sizes) + 1)) if opset >= 11 else -1
    values = plain(rng, [2], kind(rng, "OneHot", opset, 2), 3.0)
    return Draw([at, pick(rng, np.array(depth), words(depth)), values], {"axis": axis}, constants=(1, 2))


@draws("Trilu")
def triangle(rng: Rng, opset: int) -> Draw:
    by = maybe(rng, np.array(int(rng.integers(-4, 5)), np.int64))
    x = data(rng, shape(rng, 2, 4), kind(rng, "Trilu", opset))
    return Draw([x, by], {"upper": int(rng.integers(2))}, constants=(1,))


@draws("EyeLike")
def eye(rng: Rng, opset: int) -> Draw:
    attributes = {"k": int(rng.integers(-3, 4)), **({"dtype": pick(rng, 1, 6, 7, 11)} if rng.random() < 0.5 else {})}
    return Draw([plain(rng, shape(rng, 2, 2, 5, 0), kind(rng, "EyeLike", opset))], attributes)


@draws("Range")
def arange(rng: Rng, opset: int) -> Draw:
    of = pick(rng, F32, np.int32, np.int64, np.float64, np.int16)
    ends = [int(rng.integers(-3, high)) for high in (3, 12)]
    return Draw([np.array(x, of) for x in (*ends, pick(rng, 1, 2, 3))], constants=(0, 1, 2))


@draws("ConstantOfShape")
def constant(rng: Rng, opset: int) -> Draw:
    from onnx import numpy_helper

    value = numpy_helper.from_array(np.array([3], pick(rng, F32, np.int64, np.int8, np.float16)))
    return Draw([words(*shape(rng))], {"value": value} if rng.random() < 0.7 else {}, constants=(0,))


@draws("Shape")
def shape_of(rng: Rng, opset: int) -> Draw:
    attributes = {"start": int(rng.integers(-5, 5))} if opset >= 15 else {}
    if attributes and rng.random() < 0.5:
        attributes["end"] = int(rng.integers(-5, 6))
    return Draw([data(rng, shape(rng), kind(rng, "Shape", opset))], attributes)


@draws("Size")
def size_of(rng: Rng, opset: int) -> Draw:
    return Draw([data(rng, shape(rng), kind(rng, "Size", opset))])


@draws("NonZero")
def non_zero(rng: Rng, opset: int) -> Draw:
    return Draw([rng.integers(0, 3, shape(rng, 1, 3)).astype(kind(rng, "NonZero", opset))])


@draws("Compress")
def compress(rng: Rng, opset: int) -> Draw:
    sizes = shape(rng, 1, 3)
    attributes = {"axis": axis_of(rng, len(sizes), opset)} if rng.random() < 0.7 else {}
    most = sizes[attributes["axis"]] if attributes else int(np.prod(sizes))
    chosen = rng.random(int(rng.integers(0, most + 1))) < 0.5
    return Draw([data(rng, sizes, kind(rng, "Compress", opset)), chosen], attributes)


@draws("Unique")
def unique(rng: Rng, opset: int) -> Draw:
    sizes, attributes = shape(rng, 1, 3, 5, 0), {"sorted": int(rng.integers(2))}
    if attributes["sorted"] and rng.random() < 0.4:
        attributes["axis"] = int(rng.integers(-len(sizes), len(sizes)))
    return Draw([rng.integers(0, 4, sizes).astype(pick(rng, F32, np.int64, np.int8, np.float64))], attributes, 4)


@draws("ReverseSequence")
def reverse(rng: Rng, opset: int) -> Draw:
    sizes, time = shape(rng, 2, 4, 5, 0), int(rng.integers(2))
    lengths = rng.integers(1, sizes[time] + 1, sizes[1 - time]).astype(np.int64)
    x = data(rng, sizes, kind(rng, "ReverseSequence", opset))
    return Draw([x, lengths], {"time_axis": time, "batch_axis": 1 - time})
