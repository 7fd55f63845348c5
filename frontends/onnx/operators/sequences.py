"""Sequences and optionals: lists of operands while the file is read, of which no pipeline knows."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....kernels import ops
from ..node import Node, Sizes, axes_of
from ..scope import operator
from . import control


def _list(node: Node, n: int = 0) -> list[Any]:
    found = node.operand(n)
    if not isinstance(found, list):
        raise node.malformed(f"operand {n} is no sequence")
    return found


def _place(node: Node, n: int, length: int, default: int | None = None) -> int:
    """A place of a sequence, counted from the end where negative."""
    place = int(np.asarray(node.known(n, np.int64(default) if default is not None else None)).reshape(-1)[0])
    if not -length <= place < max(length, 1) + (default is not None):
        raise node.malformed(f"place {place} of a sequence of {length}")
    return place % length if place < 0 else place


@operator("SequenceEmpty")
def empty(node: Node) -> Any:
    return ([],)


@operator("SequenceConstruct")
def construct(node: Node) -> Any:
    return ([node.operand(n) for n in range(len(node))],)


@operator("SequenceInsert")
def insert(node: Node) -> Any:
    found = list(_list(node))
    place = _place(node, 2, len(found), len(found)) if node.has(2) else len(found)
    return ([*found[:place], node.operand(1), *found[place:]],)


@operator("SequenceErase")
def erase(node: Node) -> Any:
    found = list(_list(node))
    if not found:
        raise node.malformed("an empty sequence has nothing to erase")
    del found[_place(node, 1, len(found)) if node.has(1) else -1]
    return (found,)


@operator("SequenceAt")
def at(node: Node) -> Any:
    found = _list(node)
    return found[_place(node, 1, len(found))]


@operator("SequenceLength")
def length(node: Node) -> Any:
    return np.array(len(_list(node)), np.int64)


@operator("SplitToSequence")
def split(node: Node) -> Any:
    x, keep = node.operand(0), bool(node.attr("keepdims", 1))
    x = x if isinstance(x, np.ndarray) else node.value(0)
    axis = axes_of([node.attr("axis", 0)], x.ndim, node)[0]
    size = x.shape[axis]
    if not node.has(1):
        lengths = None
    else:
        lengths = node.known(1)
    if not isinstance(size, int):
        raise node.unsupported(f"an axis of {size} elements, known only at run time; load with shapes= that fix it")
    if lengths is None:
        counts = [1] * size
    elif not lengths.ndim:
        step = int(lengths)
        if step < 1:
            raise node.malformed(f"pieces of {step} elements")
        counts = [min(step, size - start) for start in range(0, size, step)]
    else:
        counts = [int(n) for n in lengths]
    if not counts:
        return ([],)
    flat = lengths is None and not keep
    if isinstance(x, np.ndarray):
        parts = np.split(x, np.cumsum(counts)[:-1], axis)
        return ([p.squeeze(axis) if flat else p for p in parts],)
    pieces = ops.split(x, counts, axis) if len(counts) > 1 else [x]
    return ([ops.squeeze(p, [axis]) if flat else p for p in pieces],)


@operator("ConcatFromSequence")
def concat(node: Node) -> Any:
    found = _list(node)
    if not found:
        raise node.malformed("an empty sequence has nothing to join")
    if node.attr("new_axis", 0):
        return control.stacked(node, found, node.attr("axis"))
    if all(isinstance(x, np.ndarray) for x in found):
        return np.concatenate(found, node.attr("axis"))
    if all(isinstance(x, (Sizes, np.ndarray)) for x in found):
        return Sizes.of(np.concatenate([x.array if isinstance(x, Sizes) else x.astype(object) for x in found]))
    return ops.concat([node.scope.value(x) for x in found], node.attr("axis"))


@operator("SequenceMap")
def sequence_map(node: Node) -> Any:
    """A graph for each element: of every sequence the same place, and other operands as they are."""
    body, first = node.attr("body"), _list(node)
    rest = [node.operand(n) for n in range(1, len(node))]
    rounds = [
        node.scope.graph(body, [x, *(r[n] if isinstance(r, list) else r for r in rest)]) for n, x in enumerate(first)
    ]
    return [[found[n] for found in rounds] for n in range(node.outputs)]


@operator("Optional")
def optional(node: Node) -> Any:
    return (node.operand(0) if node.has(0) else None,)


@operator("OptionalHasElement")
def has_element(node: Node) -> Any:
    return np.array(node.has(0) and node.operand(0) is not None)


@operator("OptionalGetElement")
def get_element(node: Node) -> Any:
    found = node.operand(0)
    if found is None:
        raise node.malformed("an empty optional has no element")
    return (found,)
