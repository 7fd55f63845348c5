"""Constants and control flow: branches are chosen and loops unrolled while the file is read, where that can be."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....kernels import ops
from ....primitives.errors import TileworkError
from ....primitives.pipeline import Value
from ....primitives.sizes import Size
from ..node import NeedsSizes, NeedsValues, Node, Sizes
from ..scope import operator
from ..tensors import MOST_FOLDED, check_size

LONGEST = 4096  # rounds of a loop that are unrolled


@operator("Constant")
def constant(node: Node) -> Any:
    for name, dtype in (
        ("value_int", np.int64),
        ("value_ints", np.int64),
        ("value_float", np.float32),
        ("value_floats", np.float32),
    ):
        found = node.attr(name, None)
        if found is not None:
            return np.asarray(found, dtype)
    found = node.attr("value", None)
    if found is None:
        raise node.unsupported("a constant of strings or a sparse one; a dense one of numbers works")
    return found


@operator("ConstantOfShape")
def constant_of_shape(node: Node) -> Any:
    fill = np.asarray(node.attr("value", np.zeros(1, np.float32))).reshape(-1)
    shape = node.sizes(0)
    if any(isinstance(n, Size) for n in shape) or check_size(shape, node.label) > MOST_FOLDED:
        return ops.expand(node.scope.constant(fill.reshape(())), shape)
    return np.full([int(n) for n in shape], fill[0], fill.dtype)


@operator("If")
def branch(node: Node) -> Any:
    condition = node.scope.settle(node.operand(0))
    if isinstance(condition, np.ndarray):
        return node.scope.graph(node.attr("then_branch" if condition.reshape(-1)[0] else "else_branch"), [])
    if node.scope.only_sizes(condition):
        node.known(0)
    try:
        then, other = (node.scope.graph(node.attr(name), []) for name in ("then_branch", "else_branch"))
        pairs = [tuple(node.scope.value(x) for x in pair) for pair in zip(then, other, strict=True)]
        alike = all(a.shape == b.shape and a.dtype == b.dtype for a, b in pairs)
    except (TileworkError, NeedsValues, AttributeError):
        alike = False  # a branch that is not taken may be impossible for these inputs
    if alike:
        return [ops.where(node.value(0), a, b) for a, b in pairs]
    taken_ = np.asarray(node.known(0)).reshape(-1)[0]  # which branch, then, has to be known
    return node.scope.graph(node.attr("then_branch" if taken_ else "else_branch"), [])


@operator("Loop")
def loop(node: Node) -> Any:
    trips, go = node.operand(0), node.operand(1)
    body = node.attr("body")
    states: list[Any] = [node.operand(n) for n in range(2, len(node))]
    limit = int(np.asarray(node.known(0)).reshape(-1)[0]) if trips is not None else None
    collected: list[list[Any]] = [[] for _ in range(len(body.output) - 1 - len(states))]
    going = True if go is None else bool(np.asarray(node.known(1)).reshape(-1)[0])
    n = 0
    while going and (limit is None or n < limit):
        if n == LONGEST:
            raise node.unsupported(f"more than {LONGEST} rounds")
        results = node.scope.graph(body, [np.array(n, np.int64), np.array(True), *states])
        condition = node.scope.settle(results[0])
        if not isinstance(condition, np.ndarray):
            condition = _condition(node, condition)
        going = bool(condition.reshape(-1)[0])
        states = results[1 : 1 + len(states)]
        for kept, found in zip(collected, results[1 + len(states) :], strict=True):
            kept.append(found)
        n += 1
    return [*states, *(stacked(node, kept, 0) for kept in collected)]


def _condition(node: Node, condition: Any) -> Any:
    """Whether a loop goes on, where the values of this run's inputs say it."""
    found = node.scope.computed(condition)
    if found is not None:
        return found
    where = f"{node.label}: its condition"
    if node.scope.only_sizes(condition):
        raise NeedsSizes(f"{where} follows from sizes known only at run time; load with shapes= that fix them")
    raise NeedsValues(where, node.scope.inputs_of(condition))


@operator("Scan")
def scan(node: Node) -> Any:
    body, count = node.attr("body"), int(node.attr("num_scan_inputs"))
    if node.version < 9:
        raise node.unsupported("Scan of operator set 8; 9 and newer work")
    states: list[Any] = [node.operand(n) for n in range(len(node) - count)]
    sequences = [node.operand(n) for n in range(len(node) - count, len(node))]
    axes = node.attr("scan_input_axes", [0] * count)
    backwards = node.attr("scan_input_directions", [0] * count)
    rounds = {sequence.shape[axis] for sequence, axis in zip(sequences, axes, strict=True)}
    if len(rounds) != 1 or not isinstance(length := rounds.pop(), int) or length > LONGEST:
        raise node.unsupported(f"sequences of {rounds or length} elements; one constant length to {LONGEST} works")
    outputs = len(body.output) - len(states)
    collected: list[list[Any]] = [[] for _ in range(outputs)]
    for n in range(length):
        slices = [
            taken(node, x, length - 1 - n if back else n, axis)
            for x, axis, back in zip(sequences, axes, backwards, strict=True)
        ]
        results = node.scope.graph(body, [*states, *slices])
        states = results[: len(states)]
        for kept, found in zip(collected, results[len(states) :], strict=True):
            kept.append(found)
    out_axes = node.attr("scan_output_axes", [0] * outputs)
    reverse = node.attr("scan_output_directions", [0] * outputs)
    return [
        *states,
        *(
            stacked(node, kept[::-1] if back else kept, axis)
            for kept, axis, back in zip(collected, out_axes, reverse, strict=True)
        ),
    ]


def taken(node: Node, x: Any, n: int, axis: int) -> Any:
    """Element n along an axis, without that axis."""
    if isinstance(x, Sizes):
        return Sizes.of(np.take(x.array, n, axis))
    if isinstance(x, np.ndarray):
        return np.take(x, n, axis)
    value: Value = node.scope.value(x)
    axis %= value.ndim
    cut = ops.slice(value, [n], [n + 1], [axis])
    return ops.reshape(cut, [s for d, s in enumerate(value.shape) if d != axis])


def stacked(node: Node, kept: list[Any], axis: int) -> Any:
    """What the rounds of a loop collected, along a new axis."""
    if not kept:
        raise node.unsupported("an output that collects over no round at all")
    if all(isinstance(x, np.ndarray) for x in kept):
        return np.stack(kept, axis)
    if all(isinstance(x, (Sizes, np.ndarray)) for x in kept):
        return Sizes.of(np.stack([x.array if isinstance(x, Sizes) else x.astype(object) for x in kept], axis))
    values = [node.scope.value(x) for x in kept]
    rank = values[0].ndim + 1
    axis %= rank
    return ops.concat([ops.reshape(v, [*v.shape[:axis], 1, *v.shape[axis:]]) for v in values], axis)
