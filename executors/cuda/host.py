"""A graph on the interpreter: buffers in the host's memory, nodes one after another, each kernel checked as it runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ...kernels.cuda.interpreter import run
from ...kernels.cuda.interpreter.launching import NUMPY
from ...kernels.cuda.launch import At, Status
from ...primitives.memory import aligned_bytes
from .graph import OWN, Graph, Node, Place, orders

Array = np.ndarray[Any, Any]
POISON = 0xA5


class HostMemory:
    """The buffers of a graph as bytes of the host, poisoned where nothing was written."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.buffers = []
        for buffer in graph.buffers:
            block = aligned_bytes(max(buffer.nbytes, 1), graph.align)[: buffer.nbytes]
            block[:] = POISON
            if buffer.data is not None:
                block[:] = np.ascontiguousarray(buffer.data).reshape(-1).view(np.uint8)
            self.buffers.append(block)

    def view(self, position: int, shape: tuple[int, ...], dtype: Any) -> Array:
        """A buffer as an array."""
        return self.buffers[position].view(dtype).reshape(shape)

    def begin(self) -> None:
        """Before a run: intermediates and outputs hold nothing, and no step has complained."""
        for buffer, block in zip(self.graph.buffers, self.buffers, strict=True):
            if buffer.kind == "output" or buffer.name == "arena":
                block[:] = POISON
        self.buffers[OWN - 1][:] = 0

    def status(self, offset: int) -> int:
        return int(self.buffers[OWN - 1].view(np.int32)[offset // 4])


class Interpreter:
    """Runs graphs without a device.

    seed   of the order in which nodes, blocks and warps run, within what the graph allows; None: one fixed order
    """

    name = "interpreter"

    def __init__(self, seed: int | None = None) -> None:
        self.seed = seed

    def memory(self, graph: Graph) -> HostMemory:
        return HostMemory(graph)

    def prepare(self, graph: Graph, memory: HostMemory) -> None:
        """Run what follows from constants alone."""
        for node in graph:
            if node.once:
                self._launch(node, memory)

    def run(
        self,
        graph: Graph,
        memory: HostMemory,
        on_host: Callable[[Node, HostMemory], None],
        times: dict[str, float] | None = None,
    ) -> None:
        """Run every node; `times` takes the seconds of each step."""
        memory.begin()
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
