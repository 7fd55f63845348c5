"""Arithmetic on sizes, done while the file is read: Shape, and what networks do with its result.

A size that only a run knows is an expression of names; adding, slicing and gathering such expressions gives
expressions again, so that none of it is left to compute when the pipeline runs. A translator here returns
NotImplemented where no size is involved, and the ordinary one takes over.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...primitives.pipeline import Value
from ...primitives.sizes import Size, floordiv, maximum
from .node import Coded, Node, Sizes

Operands = list[Any]
TABLE: dict[str, Callable[[Node, Operands], Any]] = {}


def _on(*names: str) -> Callable[[Callable[[Node, Operands], Any]], Callable[[Node, Operands], Any]]:
    def enter(translate: Callable[[Node, Operands], Any]) -> Callable[[Node, Operands], Any]:
        for name in names:
            TABLE[name] = translate
        return translate

    return enter


def _sized(operands: Operands) -> bool:
    """Whether an operand is a size and all others are known too."""
    return any(isinstance(x, Sizes) for x in operands) and all(
        x is None or isinstance(x, (Sizes, np.ndarray)) for x in operands
    )


def _objects(x: Any) -> Any:
    return x.array if isinstance(x, Sizes) else np.asarray(x).astype(object)


@_on("Shape")
def _shape(node: Node, operands: Operands) -> Any:
    x = operands[0]
    shape = list(x.array.shape if isinstance(x, Sizes) else x.shape)
    rank = len(shape)
    start, end = node.attr("start", 0), node.attr("end", rank)
    return Sizes.of(np.array([*shape[slice(*_clamped(start, end, rank))]], object).reshape(-1))


def _clamped(start: int, end: int, rank: int) -> tuple[int, int]:
    first, last = (max(0, min(n + rank if n < 0 else n, rank)) for n in (start, end))
    return first, last


@_on("Size")
def _size(node: Node, operands: Operands) -> Any:
    x = operands[0]
    product: Any = 1
    for n in x.array.shape if isinstance(x, Sizes) else x.shape:
        product = n * product
    return Sizes.of(np.array(product, object))


@_on("Identity", "Cast")
def _same(node: Node, operands: Operands) -> Any:
    if not isinstance(operands[0], Sizes):
        return (
            operands[0]
            if node.op == "Identity" and isinstance(operands[0], (np.ndarray, Value, Coded))
            else NotImplemented
        )
    return operands[0]


@_on("Gather")
def _gather(node: Node, operands: Operands) -> Any:
    if not _sized(operands) or isinstance(operands[1], Sizes):
        return NotImplemented
    found = np.take(_objects(operands[0]), operands[1], node.attr("axis", 0))
    return Sizes.of(found)


@_on("Concat")
def _concat(node: Node, operands: Operands) -> Any:
    if not _sized(operands):
        return NotImplemented
    return Sizes.of(np.concatenate([_objects(x) for x in operands], node.attr("axis")))


@_on("Squeeze", "Unsqueeze", "Reshape")
def _reshape(node: Node, operands: Operands) -> Any:
    if not isinstance(operands[0], Sizes):
        return NotImplemented
    array = operands[0].array
    if node.op == "Reshape":
        return Sizes.of(array.reshape([int(n) for n in node.known(1)]))
    axes = node.ints("axes", 1)
    if node.op == "Squeeze":
        return Sizes.of(np.squeeze(array, None if axes is None else tuple(axes)))
    return Sizes.of(np.expand_dims(array, tuple(axes or ())))


@_on("Slice")
def _slice(node: Node, operands: Operands) -> Any:
    if not isinstance(operands[0], Sizes):
        return NotImplemented
    array = operands[0].array
    starts, ends = node.ints("starts", 1) or [], node.ints("ends", 2) or []
    axes = node.ints("axes", 3, list(range(len(starts)))) or []
    steps = node.ints("steps", 4, [1] * len(starts)) or []
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if array.ndim != 1 or axis not in (0, -1):
            raise node.malformed(f"axis {axis} of sizes with {array.ndim} dimensions")
        array = array[slice(start, None if step < 0 and end < -len(array) else end, step)]
    return Sizes.of(array)


@_on("Add", "Sub", "Mul", "Div", "Max", "Min")
def _arithmetic(node: Node, operands: Operands) -> Any:
    if not _sized(operands):
        return NotImplemented
    a, b = np.broadcast_arrays(*(_objects(x) for x in operands)) if len(operands) == 2 else (None, None)
    if a is None or b is None:
        return NotImplemented
    if node.op == "Min":
        return NotImplemented
    apply: dict[str, Callable[[Any, Any], Any]] = {
        "Add": lambda x, y: x + y,
        "Sub": lambda x, y: x - y,
        "Mul": lambda x, y: x * y,
        "Div": lambda x, y: floordiv(x, y),  # of sizes, which are not negative: rounding down is rounding to zero
        "Max": lambda x, y: maximum(x, y),
    }
    found = np.empty(a.shape, object)
    for index in np.ndindex(a.shape):
        found[index] = apply[node.op](_exact(a[index]), _exact(b[index]))
    return Sizes.of(found)


def _exact(x: Any) -> int | Size:
    return x if isinstance(x, Size) else int(x)


@_on("ReduceProd")
def _product(node: Node, operands: Operands) -> Any:
    if not isinstance(operands[0], Sizes):
        return NotImplemented
    product: Any = 1
    for n in operands[0].array.flat:
        product = n * product
    keep = node.attr("keepdims", 1)
    return Sizes.of(np.array(product, object).reshape((1,) * operands[0].array.ndim if keep else ()))


@_on("Equal")
def _equal(node: Node, operands: Operands) -> Any:
    """Sizes that are one expression are equal, and a size is never negative; anything else only a run knows."""
    if not _sized(operands):
        return NotImplemented
    a, b = np.broadcast_arrays(*(_objects(x) for x in operands))
    found = np.empty(a.shape, bool)
    for index in np.ndindex(a.shape):
        x, y = a[index], b[index]
        if isinstance(x, Size) == isinstance(y, Size):
            if isinstance(x, Size) and x != y:
                return NotImplemented
            found[index] = x == y
        elif (y if isinstance(x, Size) else x) < 0:
            found[index] = False
        else:
            return NotImplemented
    return found


@_on("Where")
def _where(node: Node, operands: Operands) -> Any:
    if not _sized(operands[1:]) or not isinstance(operands[0], np.ndarray):
        return NotImplemented
    return Sizes.of(np.where(operands[0], _objects(operands[1]), _objects(operands[2])))


@_on("Expand")
def _expand(node: Node, operands: Operands) -> Any:
    if not isinstance(operands[0], Sizes):
        return NotImplemented
    shape = np.broadcast_shapes(operands[0].array.shape, tuple(int(n) for n in node.known(1)))
    return Sizes.of(np.broadcast_to(operands[0].array, shape).copy())
