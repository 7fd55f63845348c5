"""A stand-in for `cuda.bindings.driver`: memory of the host, kernels through the interpreter, and streams that wait.

Nothing that is asynchronous happens before something waits for it, and then only what that waiting orders: an order that
the caller forgot shows as a wrong result. Memory that was freed is poisoned, and a kernel that touches it loses the
device, as on a GPU. Every call is counted in `calls`, by name. `fail(name, code, after)` makes a later call fail.
"""

import collections
import ctypes
import enum
import itertools
import random
import threading
import types

import numpy as np

from tilework.kernels.cuda.interpreter import run
from tilework.kernels.cuda.interpreter.faults import KernelFault
from tilework.kernels.cuda.interpreter.launching import NUMPY
from tilework.primitives.memory import aligned_bytes

POISON, FREED = 0xA5, 0xDD


class CUresult(enum.IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_INVALID_CONTEXT = 201
    CUDA_ERROR_INVALID_HANDLE = 400
    CUDA_ERROR_NOT_READY = 600
    CUDA_ERROR_ILLEGAL_ADDRESS = 700
    CUDA_ERROR_LAUNCH_FAILED = 719


OK, INVALID, NO_MEMORY = CUresult(0), CUresult(1), CUresult(2)
ADDRESS = CUresult.CUDA_ERROR_ILLEGAL_ADDRESS
WORDS = {2: b"out of memory", 700: b"an illegal memory access was encountered", 719: b"unspecified launch failure"}


class CUdevice_attribute(enum.IntEnum):
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76


class CUpointer_attribute(enum.IntEnum):
    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9


class CUDA_KERNEL_NODE_PARAMS:
    def __init__(self):
        self.func = self.kernelParams = None
        self.gridDimX = self.gridDimY = self.gridDimZ = 0
        self.blockDimX = self.blockDimY = self.blockDimZ = 0


class Kernel(types.SimpleNamespace):
    """A compiled kernel: fn, parameters."""


class Stream:
    def __init__(self):
        self.todo = collections.deque()


class Op(types.SimpleNamespace):
    """Something that a stream will do: act(), on `stream`."""


def compiled(kernel, parameters, cc, threads=0):
    """In the place of kernels.to_ptx: a text that names a kernel which `cuModuleLoadData` finds again."""
    number = next(Fake.numbers)
    Fake.kernels[f"{kernel.__name__}_{number}"] = Kernel(fn=kernel, parameters=parameters)
    return f".visible .entry {kernel.__name__}_{number}("


class Fake:
    """The module. total: bytes of the device; devices: how many there are; seed: of the order of a graph's nodes."""

    CUresult, CUdevice_attribute, CUpointer_attribute = CUresult, CUdevice_attribute, CUpointer_attribute
    CUDA_KERNEL_NODE_PARAMS = CUDA_KERNEL_NODE_PARAMS
    kernels = {}  # noqa: RUF012
    numbers = itertools.count(1)

    def __init__(self, total=1 << 26, devices=2, seed=0):
        self.total, self.devices = total, devices
        self.calls = collections.Counter()
        self.memory, self.pinned, self.where = {}, {}, {}
        self.freed = []  # kept, so that their addresses are nobody else's
        self.streams = {1: Stream(), 2: Stream()}
        self.events, self.graphs, self.executables, self.modules = {}, {}, {}, {}
        self.contexts = threading.local()
        self.lost, self.failures, self.log, self.misused = OK, {}, [], []
        self.retained = 0
        self.random = random.Random(seed)
        self.handles = itertools.count(1000)
        self.lock = threading.RLock()
        for name in [name for name in dir(self) if name.startswith("cu")]:
            setattr(self, name, self._watched(name, getattr(self, name)))

    def fail(self, name, code, after=0):
        """Let a call of `name` fail with a code, after so many more that work."""
        self.failures[name] = [after, CUresult(code)]

    def _watched(self, name, act):
        def call(*args):
            with self.lock:
                self.calls[name] += 1
                if name in (
                    "cuGetErrorString",
                    "cuInit",
                    "cuDeviceGetCount",
                    "cuDeviceGet",
                    "cuDevicePrimaryCtxRetain",
                ):
                    return act(*args)
                if name not in ("cuDevicePrimaryCtxRelease", "cuCtxPushCurrent", "cuCtxPopCurrent", "cuCtxSetCurrent",
                                "cuDeviceGetAttribute") and not self._stack():  # fmt: skip
                    self.misused.append(f"{name} without a context")
                    return (CUresult.CUDA_ERROR_INVALID_CONTEXT, None)
                if self.lost and name not in ("cuCtxPushCurrent", "cuCtxPopCurrent"):
                    return (self.lost, None)
                failure = self.failures.get(name)
                if failure is not None:
                    failure[0] -= 1
                    if failure[0] < 0:
                        del self.failures[name]
                        if int(failure[1]) >= 700:
                            self.lost = failure[1]
                        return (failure[1], None)
                found = act(*args)
                return (self.lost, None) if self.lost and "Synchronize" in name else found

        return call

    def _stack(self):
        if not hasattr(self.contexts, "stack"):
            self.contexts.stack = []
        return self.contexts.stack

    # Devices and contexts ----------------------------------------------------------------------------------------------

    def cuInit(self, flags):
        return (OK,)

    def cuGetErrorString(self, code):
        return (OK, WORDS.get(int(code), b"an error"))

    def cuDeviceGetCount(self):
        return (OK, self.devices)

    def cuDeviceGet(self, number):
        return (OK, number)

    def cuDeviceGetAttribute(self, attribute, device):
        return (OK, 9 if attribute == CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR else 0)

    def cuDevicePrimaryCtxRetain(self, device):
        self.retained += 1
        return (OK, 77 + device)

    def cuDevicePrimaryCtxRelease(self, device):
        self.retained -= 1
        return (OK,)

    def cuCtxPushCurrent(self, context):
        self._stack().append(context)
        return (OK,)

    def cuCtxPopCurrent(self):
        return (OK, self._stack().pop())

    def cuCtxSetCurrent(self, context):
        self._stack()[-1:] = [context]
        return (OK,)

    # Memory ------------------------------------------------------------------------------------------------------------

    def in_use(self):
        return sum(block.size for address, block in self.memory.items() if self.where[address] == 0)

    def lend(self, array, device=0):
        """The address of a copy of an array on a device, as another library would hold it."""
        block = aligned_bytes(max(array.nbytes, 1), 256)
        block[: array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        address = block.ctypes.data
        self.memory[address], self.where[address] = block, device
        return address

    def cuMemAlloc(self, nbytes):
        if nbytes < 1:
            return (INVALID, None)
        if self.in_use() + nbytes > self.total:
            return (NO_MEMORY, None)
        address = self.lend(np.full(nbytes, POISON, np.uint8))
        return (OK, address)

    def cuMemGetInfo(self):
        return (OK, self.total - self.in_use(), self.total)

    def cuMemFree(self, address):
        self.drain_all()
        if address not in self.memory:
            self.misused.append(f"cuMemFree of {address:#x}")
            return (INVALID,)
        self.freed.append(self.memory.pop(address))
        self.freed[-1][:] = FREED
        return (OK,)

    def cuMemAllocHost(self, nbytes):
        block = aligned_bytes(nbytes, 256)
        self.pinned[block.ctypes.data] = block
        return (OK, block.ctypes.data)

    def cuMemFreeHost(self, address):
        self.drain_all()
        self.freed.append(self.pinned.pop(address))
        self.freed[-1][:] = FREED
        return (OK,)

    def cuPointerGetAttribute(self, attribute, address):
        for start, block in self.memory.items():
            if start <= address < start + block.size:
                return (OK, self.where[start])
        return (INVALID, None)

    def cuMemcpyHtoDAsync(self, target, source, nbytes, stream):
        return self._later(stream, lambda: self._copied(target, source, nbytes))

    def cuMemcpyDtoHAsync(self, target, source, nbytes, stream):
        return self._later(stream, lambda: self._copied(target, source, nbytes))

    def cuMemcpyDtoDAsync(self, target, source, nbytes, stream):
        return self._later(stream, lambda: self._copied(target, source, nbytes))

    def cuMemcpyDtoH(self, target, source, nbytes):
        self._copied(target, source, nbytes)
        return (OK,)

    def cuMemsetD8Async(self, target, value, nbytes, stream):
        return self._later(stream, lambda: ctypes.memset(target, value, nbytes))

    def _copied(self, target, source, nbytes):
        for address in (target, source):
            on_device = any(start <= address < start + block.size for start, block in self.memory.items())
            if not on_device and address in self.where:
                self.lost = ADDRESS  # it was memory of the device once
                return
        ctypes.memmove(target, source, nbytes)

    # Streams and events --------------------------------------------------------------------------------------------------

    def cuStreamCreate(self, flags):
        handle = next(self.handles)
        self.streams[handle] = Stream()
        return (OK, handle)

    def cuStreamDestroy(self, handle):
        self.drain(self.streams.pop(handle))
        return (OK,)

    def cuStreamSynchronize(self, handle):
        if handle not in self.streams:
            return (CUresult.CUDA_ERROR_INVALID_HANDLE,)
        self.drain(self.streams[handle])
        return (OK,)

    def cuStreamWaitEvent(self, handle, event, flags):
        recorded = self.events[event]
        return self._later(handle, lambda: self.drain_to(recorded))

    def cuEventCreate(self, flags):
        handle = next(self.handles)
        self.events[handle] = None
        return (OK, handle)

    def cuEventDestroy(self, handle):
        del self.events[handle]
        return (OK,)

    def cuEventRecord(self, event, handle):
        if handle not in self.streams:
            return (CUresult.CUDA_ERROR_INVALID_HANDLE,)
        op = Op(act=lambda: None, stream=self.streams[handle], done=False)
        op.stream.todo.append(op)
        self.events[event] = op
        return (OK,)

    def cuEventSynchronize(self, event):
        self.drain_to(self.events[event])
        return (OK,)

    def cuEventQuery(self, event):
        op = self.events[event]
        return (OK,) if op is None or op.done else (CUresult.CUDA_ERROR_NOT_READY,)

    def cuEventElapsedTime(self, begin, end):
        return (OK, 5.0)

    def _later(self, handle, act):
        if handle not in self.streams:
            return (CUresult.CUDA_ERROR_INVALID_HANDLE,)
        self.streams[handle].todo.append(Op(act=act, stream=self.streams[handle], done=False))
        return (OK,)

    def drain(self, stream):
        while stream.todo:
            self._next(stream)

    def drain_to(self, op):
        while op is not None and not op.done:
            self._next(op.stream)

    def drain_all(self):
        for stream in list(self.streams.values()):
            self.drain(stream)

    def _next(self, stream):
        op = stream.todo.popleft()
        if not self.lost:
            op.act()
        op.done = True

    # Kernels and graphs --------------------------------------------------------------------------------------------------

    def cuModuleLoadData(self, text):
        handle = next(self.handles)
        self.modules[handle] = text
        return (OK, handle)

    def cuModuleUnload(self, handle):
        del self.modules[handle]
        return (OK,)

    def cuModuleGetFunction(self, module, name):
        assert name.decode() in self.modules[module].decode()
        return (OK, self.kernels[name.decode()])

    def cuGraphCreate(self, flags):
        handle = next(self.handles)
        self.graphs[handle] = []
        return (OK, handle)

    def cuGraphDestroy(self, handle):
        del self.graphs[handle]
        return (OK,)

    def cuGraphAddKernelNode(self, graph, after, count, params):
        grid, block = _sizes(params)
        if len(after) != count or not all(grid) or max(grid[1:]) > 65535 or not 0 < np.prod(block) <= 1024:
            return (INVALID, None)
        known = {node.handle for node in self.graphs[graph]}
        if not known >= set(after):
            return (INVALID, None)
        node = types.SimpleNamespace(handle=next(self.handles), after=list(after), launch=_read(params))
        self.graphs[graph].append(node)
        return (OK, node.handle)

    def cuGraphInstantiate(self, graph, flags):
        handle = next(self.handles)
        nodes = [types.SimpleNamespace(**vars(node)) for node in self.graphs[graph]]
        self.executables[handle] = types.SimpleNamespace(nodes=nodes, graph=graph)
        return (OK, handle)

    def cuGraphExecDestroy(self, handle):
        del self.executables[handle]
        return (OK,)

    def cuGraphExecKernelNodeSetParams(self, executable, handle, params):
        found = self.executables[executable]
        if found.graph not in self.graphs:
            return (INVALID,)
        (node,) = [node for node in found.nodes if node.handle == handle]
        node.launch = _read(params)
        return (OK,)

    def cuGraphLaunch(self, executable, stream):
        nodes = [types.SimpleNamespace(**vars(node)) for node in self.executables[executable].nodes]
        return self._later(stream, lambda: self._run(nodes))

    def _run(self, nodes):
        left, done = list(nodes), set()
        while left and not self.lost:
            ready = [node for node in left if done >= set(node.after)]
            node = self.random.choice(ready)
            left.remove(node)
            done.add(node.handle)
            self.log.append(node.launch.kernel.fn.__name__)
            self._execute(node.launch)

    def _execute(self, launch):
        args = []
        for value, parameter in zip(launch.values, launch.kernel.parameters, strict=True):
            if not parameter.endswith("*"):
                args.append(value - (1 << 64) if value >> 63 else value)
                continue
            dtype = np.dtype(NUMPY[parameter[:-1]])
            for start, block in self.memory.items():
                if start <= value < start + block.size:
                    rest = block[value - start :]
                    args.append(rest[: rest.size // dtype.itemsize * dtype.itemsize].view(dtype))
                    break
            else:
                self.lost = ADDRESS
                return
        try:
            run(launch.kernel.fn, launch.grid, launch.block, args)
        except KernelFault:
            self.lost = ADDRESS
            raise


def _sizes(params):
    grid = (params.gridDimX, params.gridDimY, params.gridDimZ)
    return grid, (params.blockDimX, params.blockDimY, params.blockDimZ)


def _read(params):
    """A launch as the driver reads it: the values behind the pointers, at the time of the call."""
    grid, block = _sizes(params)
    count = len(params.func.parameters)
    pointers = (ctypes.c_uint64 * count).from_address(params.kernelParams)
    values = [ctypes.c_uint64.from_address(p).value for p in pointers]
    return types.SimpleNamespace(kernel=params.func, values=values, grid=grid, block=block)


class DeviceTensor:
    """Another library's array on the fake device, with __cuda_array_interface__, as Numba and CuPy give it."""

    def __init__(self, fake, array, *, stream=None, device=0, **interface):
        self.fake, self.dtype, self.shape = fake, array.dtype, array.shape
        self.address = fake.lend(array, device)
        self.__cuda_array_interface__ = {
            "version": 3, "shape": array.shape, "typestr": array.dtype.str, "data": (self.address, False),
            "strides": None, "stream": stream, **interface,
        }  # fmt: skip

    def host(self):
        """What is there now."""
        block = self.fake.memory[self.address][: int(np.prod(self.shape)) * self.dtype.itemsize]
        return block.view(self.dtype).reshape(self.shape).copy()
