"""A graph loaded on a device: what its runs share, and for each run at the same time memory and CUDA graphs of its own.

A CUDA graph is built once for a run's memory. Where a later run lends other memory for an input or output, the nodes
that touch it get new pointers (cuGraphExecKernelNodeSetParams); nothing is built again.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...primitives.errors import ArgumentError
from ..locks import Lock
from .context import Block, Held, Pinned, given_back, new_event, new_stream
from .graph import OWN, SHARED, Graph, Node, Place

if TYPE_CHECKING:
    from .driver import Driver

Array = np.ndarray[Any, Any]
AT_ONCE = 2  # runs of one plan that nobody waited for; the next one waits for the first
IDLE = 16  # memories that are kept for later runs


@dataclass
class Part:
    """One CUDA graph.

    graph, executable  of the driver
    handles            of its nodes
    values             per node what its kernel's parameters are now
    """

    nodes: Sequence[Node]
    graph: Held
    executable: Held
    handles: list[Any]
    values: list[list[int]]

    @property
    def steps(self) -> str:
        """The names of its steps, for messages."""
        return steps_of(self.nodes)


class RunMemory:
    """What one run needs for itself: buffers on the device, pinned mirrors on the host, a stream, CUDA graphs."""

    def __init__(
        self, driver: Driver, graph: Graph, shared: Mapping[int, Block], complain: Callable[[RunMemory], None]
    ) -> None:
        self.driver, self.graph, self.context = driver, graph, driver.context
        self.shared, self.complain = shared, complain
        self.blocks: dict[int, Block] = {}
        self.pinned: dict[int, Pinned] = {}
        self.mirrors: dict[int, Array] = {}
        self.addresses: list[int] = []
        self.parts: list[Part | Node] = []
        self.filled: set[int] = set()
        self.keeps: list[Any] = []  # what must live until the run has finished
        self.pending = False  # whether a run is under way that nobody has waited for
        self.own = new_stream(self.context)
        self.done, self.order = new_event(self.context), new_event(self.context)
        self.stream: Any = self.own.handle
        self._finish = weakref.finalize(self, given_back, self.context, self.done.handle, ("cuEventSynchronize",))

    # Where things are ------------------------------------------------------------------------------------------------

    def begin(self, lent: Mapping[int, int], stream: Any | None) -> None:
        """Before a run: `lent` has addresses of the caller's for some buffers; every other one is this memory's own."""
        graph, driver = self.graph, self.driver
        self.stream = self.own.handle if stream is None else stream
        self.filled.clear()
        before = self.addresses
        self.addresses = [
            lent[n] if n in lent else self.shared[n].address if n in self.shared else self._block(n)
            for n in range(len(graph.buffers))
        ]
        if not before:
            self.parts = driver.parts(graph, self.addresses)
        elif before != self.addresses:
            moved = {n for n, (a, b) in enumerate(zip(before, self.addresses, strict=True)) if a != b}
            for part in self.parts:
                if isinstance(part, Part):
                    driver.update(part, moved, self.addresses)

    def _block(self, n: int) -> int:
        if n not in self.blocks:
            self.blocks[n] = Block(self.context, self.graph.buffers[n].nbytes, self.graph.buffers[n].name)
        return self.blocks[n].address

    def _mirror(self, n: int) -> Array:
        if n not in self.mirrors:
            buffer = self.graph.buffers[n]
            pinned = self.pinned[n] = Pinned(self.context, buffer.nbytes, buffer.name)
            raw = (ctypes.c_uint8 * max(buffer.nbytes, 1)).from_address(pinned.address)
            self.mirrors[n] = np.frombuffer(memoryview(raw), np.uint8)[: buffer.nbytes]
        return self.mirrors[n]

    def view(self, position: int, shape: tuple[int, ...], dtype: Any) -> Array:
        """A buffer as the host holds it."""
        data = self.graph.buffers[position].data
        return (self._mirror(position) if data is None else _bytes(data)).view(dtype).reshape(shape)

    def fill(self, position: int, array: Array) -> None:
        """Give a buffer its content for the run that begins."""
        self.view(position, array.shape, array.dtype)[...] = array
        self.filled.add(position)

    def status(self, offset: int) -> int:
        return int(self._mirror(OWN - 1).view(np.int32)[offset // 4])

    # Moving it -------------------------------------------------------------------------------------------------------

    def after(self, stream: Any) -> None:
        """The run waits for what a stream has been given so far."""
        if int(stream) != int(self.stream):
            self.context.wait(self.stream, self.order.handle, stream)

    def upload(self, positions: Iterable[int]) -> None:
        for n in sorted(positions):
            mirror = self._mirror(n)
            if mirror.size:
                copied = self.context.api.cuMemcpyHtoDAsync(
                    self.addresses[n], mirror.ctypes.data, mirror.size, self.stream
                )
                self.context.call(copied, f"send {self.graph.buffers[n].name!r}")

    def download(self, positions: Iterable[int]) -> None:
        """Ask for buffers; they are there when the stream has been waited for."""
        for n in sorted(positions):
            mirror = self._mirror(n) if self.graph.buffers[n].data is None else None
            if mirror is not None and mirror.size:
                copied = self.context.api.cuMemcpyDtoHAsync(
                    mirror.ctypes.data, self.addresses[n], mirror.size, self.stream
                )
                self.context.call(copied, f"fetch {self.graph.buffers[n].name!r}")

    def copy(self, position: int, address: int, nbytes: int) -> None:
        """Copy a buffer to memory of the caller's on the device."""
        if nbytes:
            copied = self.context.api.cuMemcpyDtoDAsync(address, self.addresses[position], nbytes, self.stream)
            self.context.call(copied, f"copy {self.graph.buffers[position].name!r}")

    def finish(self, what: str) -> None:
        """Wait for all that the run's stream was given."""
        self.context.call(self.context.api.cuStreamSynchronize(self.stream), f"finish {what}")

    def leave(self, keeps: list[Any]) -> None:
        """Go on without waiting; `keeps` live until the run has finished."""
        self.keeps, self.pending = keeps, True
        self.context.call(self.context.api.cuEventRecord(self.done.handle, self.stream), "record an event")

    def settle(self, *, wait: bool) -> bool:
        """Whether no run is under way here any more. Raises what a run that nobody waited for complains of."""
        if not self.pending:
            return True
        if wait:
            called = self.context.api.cuEventSynchronize(self.done.handle)
            self.context.call(called, f"finish {steps_of(self.graph.nodes)}")
        elif not self.context.has_finished(self.done.handle):
            return False
        self.pending, self.keeps = False, []
        try:
            self.complain(self)
        except Exception as error:
            error.args = (f"{error} (in an earlier run of this plan, which nobody had waited for)",)
            raise
        return True

    def abandon(self) -> None:
        """Wait for what was begun, after something failed."""
        if not self.context.lost:
            self.context.api.cuStreamSynchronize(self.stream)

    def close(self) -> None:
        self._finish()
        for part in self.parts:
            if isinstance(part, Part):
                part.executable.close()
                part.graph.close()
        self.mirrors.clear()
        for held in (*self.blocks.values(), *self.pinned.values(), self.done, self.order, self.own):
            held.close()


class Loaded:
    """A graph on a device: constants, what follows from them alone, and memory for runs.

    weights   {constant: its memory}, which graphs of other sizes share
    complain  raises what a finished run left in its status buffer
    """

    def __init__(
        self, driver: Driver, graph: Graph, weights: dict[str, Block], complain: Callable[[RunMemory], None]
    ) -> None:
        self.driver, self.graph, self.complain = driver, graph, complain
        self.shared: dict[int, Block] = {}
        self.closed = False
        self._lock = Lock()
        self._memories: list[RunMemory] = []  # that no run has now
        context = driver.context
        with context.entered():
            taken: list[Block] = []
            try:
                for n, buffer in enumerate(graph.buffers):
                    if buffer.data is not None:
                        if buffer.name not in weights:
                            taken.append(Block(context, buffer.nbytes, buffer.name))
                            driver.send(taken[-1], _bytes(buffer.data))
                            weights[buffer.name] = taken[-1]
                        self.shared[n] = weights[buffer.name]
                taken.append(Block(context, graph.buffers[SHARED].nbytes, graph.buffers[SHARED].name))
                self.shared[SHARED] = taken[-1]
                addresses = [self.shared[n].address if n in self.shared else 0 for n in range(len(graph.buffers))]
                once = driver.build([node for node in graph if node.once], addresses)
                if once is not None:
                    driver.launch(once, driver.stream)
                    context.call(context.api.cuStreamSynchronize(driver.stream), f"finish {once.steps}")
            except BaseException:
                for block in taken:
                    block.close()
                for name in [name for name, block in weights.items() if block in taken]:
                    del weights[name]
                raise
        driver.loaded.add(self)

    def take(self, lent: Mapping[int, int], stream: Any | None) -> RunMemory:
        """Memory for one run, which must be given back."""
        while True:
            with self._lock:
                if self.closed:
                    raise ArgumentError("this plan was closed; compile the pipeline again")
                free = [m for m in self._memories if m.settle(wait=False)]
                waiting = [m for m in self._memories if m.pending]
                if free:
                    memory = free[-1]
                elif len(waiting) >= AT_ONCE:
                    memory = waiting[0]
                else:
                    memory = RunMemory(self.driver, self.graph, self.shared, self.complain)
                    break
                self._memories.remove(memory)
            try:
                memory.settle(wait=True)
            except Exception:
                self.give(memory)
                raise
            break
        try:
            memory.begin(lent, stream)
        except BaseException:
            memory.close()
            raise
        return memory

    def give(self, memory: RunMemory) -> None:
        with self._lock:
            if not self.closed and len(self._memories) < IDLE:
                self._memories.append(memory)
                return
        memory.close()

    def synchronize(self) -> None:
        """Wait for every run that was left under way; raise the first complaint."""
        with self._lock:
            memories = list(self._memories)
            for memory in memories:
                memory.settle(wait=True)

    def close(self) -> None:
        """Free everything that no run is using now; what is in use goes when its run ends."""
        with self._lock:
            self.closed = True
            memories, self._memories = self._memories, []
            self.shared = {}
        for memory in memories:
            memory.close()


def steps_of(nodes: Sequence[Node]) -> str:
    """The names of the steps of nodes, for messages."""
    names = list(dict.fromkeys(node.step.name for node in nodes))
    shown = ", ".join(repr(name) for name in names[:8])
    return f"step{'s' if len(names) > 1 else ''} {shown}" + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def changed(node: Node, moved: set[int]) -> bool:
    """Whether a node points into one of these buffers."""
    return any(isinstance(a, Place) and a.buffer in moved for a in node.args)


def _bytes(data: Array) -> Array:
    return np.ascontiguousarray(data).reshape(-1).view(np.uint8)
