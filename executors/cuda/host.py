"""A graph on the interpreter: buffers in the host's memory, nodes one after another, each kernel checked as it runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from ...kernels.cuda.interpreter import run
from ...kernels.cuda.interpreter.launching import NUMPY
from ...kernels.cuda.launch import At, Status
from ...primitives.errors import ArgumentError
from ...primitives.memory import aligned_bytes
from ..locks import Lock
from .graph import ARENA, OWN, SHARED, Graph, Node, Place, orders

Array = np.ndarray[Any, Any]
POISON = 0xA5


class HostMemory:
    """The buffers of a graph as bytes of the host, poisoned where nothing was written.

    shared   of other memories of the graph: constants, and what follows from them
    """

    def __init__(self, graph: Graph, shared: Mapping[int, Array]) -> None:
        self.graph = graph
        self.buffers = []
        for n, buffer in enumerate(graph.buffers):
            block = shared[n] if n in shared else aligned_bytes(max(buffer.nbytes, 1), graph.align)[: buffer.nbytes]
            if n not in shared:
                block[:] = POISON
            self.buffers.append(block)

    def view(self, position: int, shape: tuple[int, ...], dtype: Any) -> Array:
        """A buffer as an array."""
        return self.buffers[position].view(dtype).reshape(shape)

    def fill(self, position: int, array: Array) -> None:
        """Give a buffer its content for the run that begins."""
        self.view(position, array.shape, array.dtype)[...] = array

    def begin(self) -> None:
        """Before a run: intermediates and outputs hold nothing, and no step has complained."""
        for n, buffer in enumerate(self.graph.buffers):
            if buffer.kind == "output" or n == ARENA:
                self.buffers[n][:] = POISON
        self.buffers[OWN - 1][:] = 0

    def status(self, offset: int) -> int:
        return int(self.buffers[OWN - 1].view(np.int32)[offset // 4])

    def download(self, positions: Any) -> None:
        """Everything is here."""

    def finish(self, what: str) -> None:
        """Everything has happened."""

    def abandon(self) -> None:
        """The next run begins anew."""


class HostLoaded:
    """A graph on the interpreter: constants that all runs share, and memory for each run.

    complain   raises what a finished run left in its status buffer
    """

    def __init__(self, graph: Graph, shared: Mapping[int, Array], complain: Callable[[HostMemory], None]) -> None:
        self.graph, self.shared, self.complain, self.closed = graph, shared, complain, False
        self._memories: list[HostMemory] = []
        self._lock = Lock()

    def take(self, lent: Mapping[int, int], stream: Any | None) -> HostMemory:
        with self._lock:
            if self.closed:
                raise ArgumentError("this plan was closed; compile the pipeline again")
            memory = self._memories.pop() if self._memories else HostMemory(self.graph, self.shared)
        memory.begin()
        return memory

    def give(self, memory: HostMemory) -> None:
        with self._lock:
            self._memories.append(memory)

    def synchronize(self) -> None:
        """Every run was waited for."""

    def close(self) -> None:
        with self._lock:
            self.closed, self._memories = True, []


class Interpreter:
    """Runs graphs without a device.

    seed   of the order in which nodes, blocks and warps run, within what the graph allows; None: one fixed order
    """

    name = "interpreter"

    def __init__(self, seed: int | None = None) -> None:
        self.seed = seed

    def entered(self) -> AbstractContextManager[None]:
        """Nothing is entered."""
        return nullcontext()

    def check(self) -> None:
        """It is there."""

    def close(self) -> None:
        """It has nothing to give back."""

    def load(self, graph: Graph, weights: dict[str, Array], complain: Callable[[HostMemory], None]) -> HostLoaded:
        """Lay out constants, and compute what follows from them alone."""
        for buffer in graph.buffers:
            if buffer.data is not None and buffer.name not in weights:
                block = aligned_bytes(max(buffer.nbytes, 1), graph.align)[: buffer.nbytes]
                block[:] = np.ascontiguousarray(buffer.data).reshape(-1).view(np.uint8)
                weights[buffer.name] = block
        shared = {n: weights[b.name] for n, b in enumerate(graph.buffers) if b.data is not None}
        memory = HostMemory(graph, shared)
        for node in graph:
            if node.once:
                self._launch(node, memory)
        return HostLoaded(graph, {**shared, SHARED: memory.buffers[SHARED]}, complain)

    def run(
        self,
        graph: Graph,
        memory: HostMemory,
        on_host: Callable[[Node, HostMemory], None],
        times: dict[str, float] | None = None,
    ) -> None:
        """Run every node; `times` takes the seconds of each step."""
        for n in orders(graph.nodes, self.seed):
            node, start = graph.nodes[n], time.perf_counter()
            if node.on_host:
                on_host(node, memory)
            elif not node.once:
                self._launch(node, memory)
            if times is not None:
                times[node.step.name] = times.get(node.step.name, 0.0) + time.perf_counter() - start

    def _launch(self, node: Node, memory: HostMemory) -> None:
        assert node.launch is not None
        args = [arg if isinstance(arg, int) else self._array(node, n, arg, memory) for n, arg in enumerate(node.args)]
        run(node.launch.kernel, node.launch.grid, node.launch.block, args, seed=self.seed)

    @staticmethod
    def _array(node: Node, n: int, place: Place, memory: HostMemory) -> Array:
        """What a pointer argument may reach: the operand, or the temporary memory that it points to."""
        assert node.launch is not None
        dtype, given = NUMPY[node.launch.parameters[n][:-1]], node.launch.args[n]
        block = memory.buffers[place.buffer]
        if isinstance(given, At):
            operand = node.operands[given.operand]
            array = np.ndarray(operand.shape, dtype, block, place.offset, operand.strides)
        else:
            nbytes = 4 if isinstance(given, Status) else node.temporaries[given.index]  # type: ignore[union-attr]
            array = block[place.offset : place.offset + nbytes].view(dtype)
        if n not in node.launch.writes:
            array = array.view()
            array.flags.writeable = False
        return array
