"""A bound plan on CUDA as data: nodes, what each waits for, grids, and what goes into each argument.

Nothing here needs a device. The interpreter executes exactly this, and so does a CUDA graph (driver.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from ...kernels.cuda.launch import At, Launch, Status, Temp
from ...primitives.pipeline import Step
from ..recording import Operand

Array = np.ndarray[Any, Any]
ALIGN = 256  # bytes, of every buffer: what a device's allocator gives


@dataclass(frozen=True)
class Buffer:
    """Memory of the device.

    name     of the value, "arena" for intermediates, "temporaries", "packed" for what follows from constants alone, or
             "status"
    kind     "input", "argument", "state", "constant", "output" or "own"
    nbytes   its size
    data     what a constant holds
    """

    name: str
    kind: str
    nbytes: int
    data: Array | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class Place:
    """A pointer: a buffer by position, and bytes from its start."""

    buffer: int
    offset: int


@dataclass(frozen=True)
class Span:
    """Bytes low to high of a buffer."""

    buffer: int
    low: int
    high: int

    def touches(self, other: Span) -> bool:
        return self.buffer == other.buffer and self.low < other.high and other.low < self.high


@dataclass(frozen=True)
class Node:
    """One kernel launch, or a step that the host runs because CUDA has no kernel for it.

    name       of the step; launches of one step are numbered
    launch     None for a step of the host
    args       per parameter of the kernel a Place or a number
    operands   what the launch's arguments were made from
    reads      bytes that it looks at; writes: bytes that it stores
    after      positions of the nodes that must have finished
    once       it computes from constants alone: it runs when the plan is made, and never again
    reason     why the host runs it
    status     byte position of what it may complain in, of the buffer "status"; -1: it never complains
    temporaries  bytes of each of the step's temporary buffers
    number     its position in the graph
    """

    name: str
    step: Step
    kernel: Any
    launch: Launch | None
    args: tuple[Place | int, ...]
    operands: tuple[Operand, ...]
    reads: tuple[Span, ...]
    writes: tuple[Span, ...]
    after: tuple[int, ...] = ()
    once: bool = False
    reason: str = ""
    status: int = -1
    temporaries: tuple[int, ...] = ()
    number: int = 0

    @property
    def on_host(self) -> bool:
        return self.launch is None


@dataclass(frozen=True)
class Graph:
    """Nodes in an order that respects `after`, over buffers, each of which begins at a multiple of `align` bytes."""

    nodes: tuple[Node, ...]
    buffers: tuple[Buffer, ...]
    align: int = ALIGN

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {buffer.name: n for n, buffer in enumerate(self.buffers) if n >= OWN}

    def position(self, name: str) -> int:
        """Of the buffer of the value with this name."""
        return self._positions[name]

    def has(self, name: str) -> bool:
        """Whether a value has a buffer of its own."""
        return name in self._positions

    @cached_property
    def may_complain(self) -> bool:
        """Whether any step can leave a status."""
        return any(node.status >= 0 for node in self.nodes)

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)

    def branches(self) -> int:
        """The largest number of nodes that may run at once, level by level."""
        level: list[int] = []
        for node in self.nodes:
            level.append(max((level[n] + 1 for n in node.after), default=0))
        return max((level.count(n) for n in set(level)), default=0)

    def table(self) -> list[str]:
        """One line for each node, for `explain()`."""
        lines = []
        for n, node in enumerate(self.nodes):
            waits = ", ".join(map(str, node.after)) or "-"
            if node.launch is None:
                lines.append(f"  {n:4} {node.name:32} on the host: {node.reason:30} after {waits}")
                continue
            grid = " x ".join(str(size) for size in node.launch.grid)
            block = " x ".join(str(size) for size in node.launch.block if size > 1) or "1"
            when = "once  " if node.once else ""
            args = ", ".join(self._shown(a) for a in node.args)
            lines.append(
                f"  {n:4} {node.name:32} {node.launch.name:12} {when}grid {grid}, block {block}, after {waits}\n"
                f"       {args}"
            )
        return lines

    def _shown(self, arg: Place | int) -> str:
        if isinstance(arg, int):
            return str(arg)
        return self.buffers[arg.buffer].name + (f"+{arg.offset}" if arg.offset else "")


class Assembly:
    """A graph while its nodes are added, in running order."""

    def __init__(self, buffers: Sequence[Buffer]) -> None:
        self.buffers = list(buffers)
        self.nodes: list[Node] = []
        self._taken = {_TEMPORARIES: 0, SHARED: 0}  # bytes
        self._statuses = 0

    def add(
        self, step: Step, kernel: Any, launches: Sequence[Launch], temporaries: Sequence[int], operands: Any
    ) -> None:
        """Add a step's launches, but for those over nothing.

        Its temporary memory is its own; what in it follows from constants alone (packed weights) stays from run to run.
        """
        once, packed = _once(launches, operands)
        places = []
        for index, nbytes in enumerate(temporaries):
            buffer = SHARED if index in packed else _TEMPORARIES
            places.append(Place(buffer, self._taken[buffer]))
            self._taken[buffer] += -(-nbytes // ALIGN) * ALIGN
        status = -1
        if any(isinstance(a, Status) for launch in launches for a in launch.args):
            status = 4 * self._statuses
            self._statuses += 1
        for launch, constant in zip(launches, once, strict=True):
            if 0 in launch.grid:
                continue
            name = step.name if len(launches) == 1 else f"{step.name}.{launch.name}"
            args: list[Place | int] = []
            reads: list[Span] = []
            writes: list[Span] = []
            for position, arg in enumerate(launch.args):
                if isinstance(arg, int):
                    args.append(arg)
                    continue
                if isinstance(arg, At):
                    operand = operands[arg.operand]
                    args.append(Place(operand.base, operand.offset))
                    span = span_of(operand)
                elif isinstance(arg, Temp):
                    place = places[arg.index]
                    args.append(place)
                    span = Span(place.buffer, place.offset, place.offset + temporaries[arg.index])
                else:
                    args.append(Place(_STATUS, status))
                    span = Span(_STATUS, status, status + 4)
                (writes if position in launch.writes else reads).append(span)
            self._append(
                Node(
                    name,
                    step,
                    kernel,
                    launch,
                    tuple(args),
                    tuple(operands),
                    tuple(reads),
                    tuple(writes),
                    once=constant,
                    status=status,
                    temporaries=tuple(temporaries),
                )
            )

    def add_host(self, step: Step, reads: Sequence[Span], writes: Sequence[Span], reason: str) -> None:
        self._append(Node(step.name, step, step.kernel, None, (), (), tuple(reads), tuple(writes), reason=reason))

    def _append(self, node: Node) -> None:
        """Find what it must wait for: whoever wrote what it touches, or reads what it writes."""
        found: set[int] = set()
        implied: set[int] = set()
        for n in range(len(self.nodes) - 1, -1, -1):
            other = self.nodes[n]
            if n not in implied and _conflict(node, other):
                found.add(n)
                implied |= self._before(n)
        self.nodes.append(replace(node, after=tuple(sorted(found)), number=len(self.nodes)))

    def _before(self, n: int) -> set[int]:
        seen: set[int] = set()
        todo = list(self.nodes[n].after)
        while todo:
            m = todo.pop()
            if m not in seen:
                seen.add(m)
                todo += self.nodes[m].after
        return seen

    def graph(self, align: int = ALIGN) -> Graph:
        buffers = list(self.buffers)
        buffers[_TEMPORARIES] = Buffer("temporaries", "own", self._taken[_TEMPORARIES])
        buffers[SHARED] = Buffer("packed", "own", self._taken[SHARED])
        buffers[_STATUS] = Buffer("status", "own", 4 * max(self._statuses, 1))
        return Graph(tuple(self.nodes), tuple(buffers), align)


def _once(launches: Sequence[Launch], operands: Any) -> tuple[list[bool], set[int]]:
    """Per launch whether it computes from constants alone, and the temporaries that hold what such launches leave."""
    once: list[bool] = []
    packed: set[int] = set()
    for launch in launches:
        constant = True
        for position, arg in enumerate(launch.args):
            written = position in launch.writes
            if isinstance(arg, At):
                constant &= operands[arg.operand].constant is not None and not written
            elif isinstance(arg, Temp):
                constant &= written or arg.index in packed
            elif not isinstance(arg, int):
                constant = False
        once.append(constant)
        if constant:
            packed |= {a.index for p, a in enumerate(launch.args) if isinstance(a, Temp) and p in launch.writes}
    return once, packed


# The first buffers of every graph; all but the packed one belong to a run.
ARENA, _TEMPORARIES, SHARED, _STATUS = range(4)
OWN = 4


def own_buffers(arena_bytes: int) -> list[Buffer]:
    sizes = {"arena": arena_bytes, "temporaries": 0, "packed": 0, "status": 4}
    return [Buffer(name, "own", nbytes) for name, nbytes in sizes.items()]


def _conflict(a: Node, b: Node) -> bool:
    """Whether two nodes touch a byte that one of them writes."""
    return any(
        x.touches(y)
        for mine, others in ((a.writes, (*b.writes, *b.reads)), (a.reads, b.writes))
        for x in mine
        for y in others
    )


def span_of(operand: Operand) -> Span:
    """The bytes from an operand's first to its last."""
    low = high = operand.offset
    for size, stride in zip(operand.shape, operand.strides, strict=True):
        if size == 0:
            return Span(operand.base, operand.offset, operand.offset)
        low += min(0, stride * (size - 1))
        high += max(0, stride * (size - 1))
    return Span(operand.base, low, high + operand.itemsize)


def orders(nodes: Sequence[Node], seed: int | None) -> list[int]:
    """Positions of the nodes in an order that respects their dependencies: as they stand, or drawn from a seed."""
    if seed is None:
        return list(range(len(nodes)))
    rng = np.random.default_rng(seed)
    waiting: Mapping[int, set[int]] = {n: set(node.after) for n, node in enumerate(nodes)}
    done: list[int] = []
    left = set(waiting)
    while left:
        ready = sorted(n for n in left if waiting[n] <= set(done))
        n = int(rng.choice(ready))
        done.append(n)
        left.remove(n)
    return done
