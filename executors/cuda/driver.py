"""A CUDA device that runs graphs: kernels compiled for it and loaded, and one CUDA graph for each run of kernels.

A CUDA graph is built node by node from the plan's, so that its edges are the plan's edges; a run is one launch of it.
Where a step of the host stands between kernels, there are several, and memory goes back and forth.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from ...kernels.cuda import compile as kernels
from ...kernels.cuda import seam
from ...primitives.errors import ArgumentError, KernelFailed, Unsupported
from ..locks import Lock
from .context import Block, Context, Held, new_stream
from .graph import OWN, Graph, Node, Place
from .memory import Loaded, Part, RunMemory, changed

Array = np.ndarray[Any, Any]


class Driver:
    """One device, through CUDA's driver interface.

    debug   every step is a CUDA graph by itself and is waited for, so that an error and a time belong to a step
    """

    def __init__(self, number: int = 0, debug: bool = False) -> None:
        seam.compiler()
        try:
            from cuda.bindings import driver
        except ImportError as error:
            raise Unsupported(f"the CUDA driver cannot be reached ({error}); {seam.EXTRA}") from None
        self.api, self.number, self.debug = driver, number, debug
        count = _devices(driver)
        if number >= count:
            raise Unsupported(f"device cuda:{number} is not there; this machine has {count}: cuda:0 and up")
        self.context = Context(driver, number)
        kind = driver.CUdevice_attribute
        major, minor = (
            self.call(driver.cuDeviceGetAttribute(a, self.context.device), "ask the device")
            for a in (
                kind.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                kind.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
            )
        )
        self.cc = (int(major), int(minor))
        with self.context.entered():
            self._stream = new_stream(self.context)
        self.stream = self._stream.handle  # on which constants are sent, and where other libraries' streams are met
        self.loaded: weakref.WeakSet[Loaded] = weakref.WeakSet()
        self.closed = False
        self._functions: dict[Any, Any] = {}
        self._modules: list[Held] = []
        self._lock = Lock()

    def __repr__(self) -> str:
        return f"<CUDA device {self.number}, sm_{self.cc[0]}{self.cc[1]}>"

    @property
    def name(self) -> str:
        return f"cuda:{self.number}"

    def call(self, result: tuple[Any, ...], what: str) -> Any:
        """What a call of the driver gave; KernelFailed, with the driver's own words, where it failed."""
        if hasattr(self, "context"):
            return self.context.call(result, what)
        code, *values = result
        if int(code) != 0:
            raise KernelFailed(f"CUDA cannot {what}: {getattr(code, 'name', code)}")
        return values[0] if len(values) == 1 else tuple(values)

    def enter(self) -> None:
        """Make the device's context this thread's, for good."""
        self.context.check()
        self.call(self.api.cuCtxSetCurrent(self.context.handle), "enter the device")

    def close(self) -> None:
        """Give back kernels, graphs, streams and the memory of every plan; arrays that runs have returned stay."""
        self.closed = True
        for loaded in list(self.loaded):
            loaded.close()
        for module in self._modules:
            module.close()
        self._functions.clear()
        self._modules.clear()
        self._stream.close()

    def entered(self) -> AbstractContextManager[None]:
        """The device's context is this thread's within."""
        return self.context.entered()

    def check(self) -> None:
        """Raise where nothing can run here any more."""
        if self.closed:
            raise ArgumentError(f"this executor of {self.name} was closed; make another one")
        self.context.check()

    # Kernels and CUDA graphs -----------------------------------------------------------------------------------------

    def function(self, node: Node) -> Any:
        """The kernel of a node, compiled for this device and loaded, once."""
        launch = node.launch
        assert launch is not None
        key = (launch.kernel, launch.parameters, launch.threads)
        with self._lock:
            if key not in self._functions:
                ptx = kernels.to_ptx(launch.kernel, launch.parameters, self.cc, launch.threads)
                module = self.call(self.api.cuModuleLoadData(ptx.encode() + b"\0"), f"load kernel {launch.name!r}")
                self._modules.append(Held(self.context, module, "cuModuleUnload"))
                found = self.api.cuModuleGetFunction(module, kernels.entry_of(ptx).encode())
                self._functions[key] = self.call(found, f"find kernel {launch.name!r}")
            return self._functions[key]

    def parts(self, graph: Graph, addresses: Sequence[int]) -> list[Part | Node]:
        """The CUDA graphs of everything but what runs once, with the steps of the host between them."""
        found: list[Part | Node] = []
        part: list[Node] = []

        def close() -> None:
            made = self.build(part, addresses)
            if made is not None:
                found.append(made)
            part.clear()

        for node in graph:
            if node.on_host:
                close()
                found.append(node)
            elif not node.once:
                if self.debug and part and part[-1].step is not node.step:
                    close()
                part.append(node)
        close()
        return found

    def build(self, nodes: Sequence[Node], addresses: Sequence[int]) -> Part | None:
        """A CUDA graph of these nodes, with the edges among them; None where there is no node."""
        if not nodes:
            return None
        api, handles = self.api, []
        graph = Held(self.context, self.call(api.cuGraphCreate(0), "make a graph"), "cuGraphDestroy")
        values = []
        by_number: dict[int, Any] = {}
        for node in nodes:
            values.append(_values(node, addresses))
            after = [by_number[n] for n in node.after if n in by_number]
            params, _alive = self._params(node, values[-1])
            added = api.cuGraphAddKernelNode(graph.handle, after, len(after), params)
            handles.append(self.call(added, f"add {node.name!r} to a graph"))
            by_number[node.number] = handles[-1]
        executable = self.call(api.cuGraphInstantiate(graph.handle, 0), "instantiate a graph")
        return Part(tuple(nodes), graph, Held(self.context, executable, "cuGraphExecDestroy"), handles, values)

    def update(self, part: Part, moved: set[int], addresses: Sequence[int]) -> None:
        """Give the nodes of a CUDA graph that point into buffers which have moved their new addresses."""
        for n, node in enumerate(part.nodes):
            if changed(node, moved):
                part.values[n] = _values(node, addresses)
                params, _alive = self._params(node, part.values[n])
                done = self.api.cuGraphExecKernelNodeSetParams(part.executable.handle, part.handles[n], params)
                self.call(done, f"give {node.name!r} other arguments")

    def _params(self, node: Node, values: list[int]) -> tuple[Any, Any]:
        """The launch of a node, and what must live until the driver has copied it. Every parameter has 8 bytes."""
        launch = node.launch
        assert launch is not None
        params = self.api.CUDA_KERNEL_NODE_PARAMS()
        params.func = self.function(node)
        params.gridDimX, params.gridDimY, params.gridDimZ = launch.grid
        params.blockDimX, params.blockDimY, params.blockDimZ = launch.block
        numbers = np.array([*values, 0], np.uint64)
        pointers = np.uint64(numbers.ctypes.data) + 8 * np.arange(numbers.size, dtype=np.uint64)
        params.kernelParams = int(pointers.ctypes.data)
        return params, (numbers, pointers)

    def launch(self, part: Part, stream: Any) -> None:
        self.call(self.api.cuGraphLaunch(part.executable.handle, stream), f"launch {part.steps}")

    def send(self, block: Block, data: Array) -> None:
        """Copy the host's bytes to the device, and wait."""
        if data.size:
            self.call(self.api.cuMemcpyHtoDAsync(block.address, data.ctypes.data, data.size, self.stream), "send")
            self.call(self.api.cuStreamSynchronize(self.stream), "send a constant")

    # What a plan asks ------------------------------------------------------------------------------------------------

    def load(self, graph: Graph, weights: dict[str, Block], complain: Callable[[RunMemory], None]) -> Loaded:
        """Send constants that are not there yet, and compute what follows from them alone."""
        self.check()
        return Loaded(self, graph, weights, complain)

    def run(
        self,
        graph: Graph,
        memory: RunMemory,
        on_host: Callable[[Node, RunMemory], None],
        times: dict[str, float] | None = None,
    ) -> None:
        """Send what was filled and launch; waits only where a step of the host does, or for `times`.

        times   takes the seconds of each step of the host and of each CUDA graph, shared out among its steps
        """
        memory.upload(memory.filled)
        if graph.may_complain:
            address, nbytes = memory.addresses[OWN - 1], graph.buffers[OWN - 1].nbytes
            self.call(self.api.cuMemsetD8Async(address, 0, nbytes, memory.stream), "clear the status of steps")
        for part in memory.parts:
            start = time.perf_counter()
            if isinstance(part, Node):
                touched = {span.buffer for span in (*part.reads, *part.writes)}
                memory.download(touched)
                memory.finish(f"what step {part.step.name!r} on the host reads")
                on_host(part, memory)
                memory.upload({span.buffer for span in part.writes})
                names = [part.step.name]
            else:
                self.launch(part, memory.stream)
                names = [node.step.name for node in part.nodes]
                if self.debug or times is not None:
                    memory.finish(part.steps)
            if times is not None:
                share = (time.perf_counter() - start) / len(names)
                for name in names:
                    times[name] = times.get(name, 0.0) + share
        if times is not None:
            for node in graph:
                times.setdefault(node.step.name, 0.0)


def _values(node: Node, addresses: Sequence[int]) -> list[int]:
    return [addresses[a.buffer] + a.offset if isinstance(a, Place) else int(a) & (2**64 - 1) for a in node.args]


def _devices(api: Any) -> int:
    """How many there are; Unsupported where no driver answers."""
    try:
        for result in (api.cuInit(0), api.cuDeviceGetCount()):
            if int(result[0]):
                raise Unsupported(
                    f"no CUDA driver answers ({getattr(result[0], 'name', result[0])}); device='interpreter' works without one"
                )
        return int(result[1])
    except RuntimeError as error:  # the bindings find no library of the driver
        raise Unsupported(f"no CUDA driver answers ({error}); device='interpreter' works without one") from None
