"""A graph on a CUDA device: kernels compiled for it, buffers in its memory, one CUDA graph for each run of kernels.

The CUDA graph is built node by node from the plan's, so that its edges are the plan's edges; a run is one launch of it.
Where a step of the host stands between kernels, there are several, and memory goes back and forth.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ...kernels.cuda import compile as kernels
from ...kernels.cuda import seam
from ...primitives.errors import KernelFailed, Unsupported
from .graph import OWN, Graph, Node, Place

Array = np.ndarray[Any, Any]


class Driver:
    """One device, through CUDA's driver interface."""

    def __init__(self, number: int = 0) -> None:
        seam.compiler()
        try:
            from cuda.bindings import driver
        except ImportError as error:
            raise Unsupported(f"the CUDA driver cannot be reached ({error}); {seam.EXTRA}") from None
        self.api = driver
        try:
            self.call(driver.cuInit(0), "start the driver")
        except (KernelFailed, RuntimeError) as error:
            raise Unsupported(f"no CUDA driver answers ({error}); device='interpreter' works without one") from None
        count = self.call(driver.cuDeviceGetCount(), "count devices")
        if number >= count:
            raise Unsupported(f"device cuda:{number} is not there; this machine has {count}: cuda:0 and up")
        self.number = number
        self.device = self.call(driver.cuDeviceGet(number), "open the device")
        self.context = self.call(driver.cuDevicePrimaryCtxRetain(self.device), "open the device")
        self.enter()
        kind = driver.CUdevice_attribute
        major, minor = (
            self.call(driver.cuDeviceGetAttribute(a, self.device), "ask the device")
            for a in (
                kind.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                kind.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
            )
        )
        self.cc = (int(major), int(minor))
        self.stream = self.call(driver.cuStreamCreate(0), "make a stream")
        self._functions: dict[Any, Any] = {}
        self._modules: list[Any] = []

    def __repr__(self) -> str:
        return f"<CUDA device {self.number}, sm_{self.cc[0]}{self.cc[1]}>"

    @property
    def name(self) -> str:
        return f"cuda:{self.number}"

    def call(self, result: tuple[Any, ...], what: str) -> Any:
        """What a call of the driver gave; KernelFailed, with the driver's own words, where it failed."""
        code, *values = result
        if int(code) != 0:
            _, text = self.api.cuGetErrorString(code)
            said = text.decode() if isinstance(text, bytes) else str(code)
            raise KernelFailed(f"CUDA cannot {what}: {said} ({getattr(code, 'name', code)})")
        return values[0] if len(values) == 1 else tuple(values)

    def enter(self) -> None:
        """Make the device's context this thread's."""
        self.call(self.api.cuCtxSetCurrent(self.context), "enter the device")

    def function(self, node: Node) -> Any:
        """The kernel of a node, compiled for this device and loaded, once."""
        launch = node.launch
        assert launch is not None
        key = (launch.kernel, launch.parameters, launch.threads)
        if key not in self._functions:
            ptx = kernels.to_ptx(launch.kernel, launch.parameters, self.cc, launch.threads)
            module = self.call(self.api.cuModuleLoadData(ptx.encode() + b"\0"), f"load kernel {launch.name!r}")
            self._modules.append(module)
            found = self.api.cuModuleGetFunction(module, kernels.entry_of(ptx).encode())
            self._functions[key] = self.call(found, f"find kernel {launch.name!r}")
        return self._functions[key]

    # What a plan asks ------------------------------------------------------------------------------------------------

    def memory(self, graph: Graph) -> DeviceMemory:
        self.enter()
        return DeviceMemory(self, graph)

    def prepare(self, graph: Graph, memory: DeviceMemory) -> None:
        """Send constants, run what follows from them alone, and build the CUDA graphs of everything else."""
        self.enter()
        memory.upload(n for n, buffer in enumerate(graph.buffers) if buffer.data is not None)
        once = self.build([n for n in graph if n.once], memory)
        if once is not None:
            self.call(self.api.cuGraphLaunch(once, self.stream), "launch a graph")
            self.synchronize()
        part: list[Node] = []
        for node in graph:
            if node.on_host:
                memory.parts += [self.build(part, memory), node]
                part = []
            elif not node.once:
                part.append(node)
        memory.parts.append(self.build(part, memory))

    def build(self, nodes: list[Node], memory: DeviceMemory) -> Any:
        """An executable CUDA graph of these nodes, with the edges among them; None where there is no node."""
        if not nodes:
            return None
        api = self.api
        made = self.call(api.cuGraphCreate(0), "make a graph")
        handles: dict[int, Any] = {}
        position = {id(node): n for n, node in enumerate(memory.graph.nodes)}
        for node in nodes:
            launch = node.launch
            assert launch is not None
            params = api.CUDA_KERNEL_NODE_PARAMS()
            params.func = self.function(node)
            params.gridDimX, params.gridDimY, params.gridDimZ = launch.grid
            params.blockDimX, params.blockDimY, params.blockDimZ = launch.block
            # Every parameter has 8 bytes: a pointer or an integer.
            values = np.array([memory.address(a) if isinstance(a, Place) else a for a in node.args], np.int64)
            pointers = values.ctypes.data + 8 * np.arange(len(values), dtype=np.int64)
            params.kernelParams = int(pointers.ctypes.data)
            after = [handles[n] for n in node.after if n in handles]
            handle = self.call(
                api.cuGraphAddKernelNode(made, after, len(after), params), f"add {node.name!r} to a graph"
            )
            handles[position[id(node)]] = handle
        return self.call(api.cuGraphInstantiate(made, 0), "instantiate a graph")

    def run(
        self,
        graph: Graph,
        memory: DeviceMemory,
        on_host: Callable[[Node, DeviceMemory], None],
        times: dict[str, float] | None = None,
    ) -> None:
        """Send the inputs, launch, fetch the outputs; `times` takes the seconds of each step of the host, and of all."""
        self.enter()
        start = time.perf_counter()
        memory.upload(n for n, b in enumerate(graph.buffers) if b.kind in ("input", "argument", "state"))
        self.call(
            self.api.cuMemsetD8Async(memory.addresses[OWN - 1], 0, graph.buffers[OWN - 1].nbytes, self.stream), "clear"
        )
        for part in memory.parts:
            if isinstance(part, Node):
                touched = sorted({span.buffer for span in (*part.reads, *part.writes)})
                memory.download(touched)
                on_host(part, memory)
                memory.upload({span.buffer for span in part.writes})
            elif part is not None:
                self.call(self.api.cuGraphLaunch(part, self.stream), "launch a graph")
        memory.download([n for n, b in enumerate(graph.buffers) if b.kind in ("output", "state")] + [OWN - 1])
        if times is not None:
            share = (time.perf_counter() - start) / max(len(graph.nodes), 1)
            for node in graph:
                times[node.step.name] = times.get(node.step.name, 0.0) + share

    def synchronize(self) -> None:
        self.call(self.api.cuStreamSynchronize(self.stream), "finish what was launched")


class DeviceMemory:
    """The buffers of a graph on a device, each with a pinned mirror on the host."""

    def __init__(self, driver: Driver, graph: Graph) -> None:
        self.driver, self.graph = driver, graph
        self.parts: list[Any] = []
        self.addresses: list[int] = []
        self.mirrors: list[Array] = []
        for buffer in graph.buffers:
            nbytes = max(buffer.nbytes, 1)
            what = f"take {nbytes} bytes for {buffer.name!r} on {driver.name}"
            self.addresses.append(int(driver.call(driver.api.cuMemAlloc(nbytes), what)))
            mirror = self._pinned(nbytes)[: buffer.nbytes]
            if buffer.data is not None:
                mirror[:] = np.ascontiguousarray(buffer.data).reshape(-1).view(np.uint8)
            self.mirrors.append(mirror)

    def _pinned(self, nbytes: int) -> Array:
        address = self.driver.call(self.driver.api.cuMemAllocHost(nbytes), f"pin {nbytes} bytes")
        return np.frombuffer(memoryview((ctypes.c_uint8 * nbytes).from_address(int(address))), np.uint8)

    def address(self, place: Place) -> int:
        return self.addresses[place.buffer] + place.offset

    def view(self, position: int, shape: tuple[int, ...], dtype: Any) -> Array:
        return self.mirrors[position].view(dtype).reshape(shape)

    def status(self, offset: int) -> int:
        return int(self.mirrors[OWN - 1].view(np.int32)[offset // 4])

    def upload(self, positions: Iterable[int]) -> None:
        api, stream = self.driver.api, self.driver.stream
        for n in positions:
            if self.mirrors[n].size:
                copied = api.cuMemcpyHtoDAsync(
                    self.addresses[n], self.mirrors[n].ctypes.data, self.mirrors[n].size, stream
                )
                self.driver.call(copied, f"send {self.graph.buffers[n].name!r}")

    def download(self, positions: Iterable[int]) -> None:
        api, stream = self.driver.api, self.driver.stream
        for n in positions:
            if self.mirrors[n].size:
                copied = api.cuMemcpyDtoHAsync(
                    self.mirrors[n].ctypes.data, self.addresses[n], self.mirrors[n].size, stream
                )
                self.driver.call(copied, f"fetch {self.graph.buffers[n].name!r}")
        self.driver.synchronize()
