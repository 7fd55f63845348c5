"""A CUDA device as a process holds it: its primary context, how calls of the driver fail, and what is given back when.

Everything that is taken from the driver is an object here whose end gives it back: at close(), when the last reference
goes, or before the interpreter ends, whichever comes first.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Iterator
from typing import Any

from ...primitives.errors import DeviceLost, KernelFailed, OutOfDeviceMemory, Unsupported

OUT_OF_MEMORY = 2
NOT_READY = 600
# Errors after which a context answers nothing but the same error: CUDA's documentation says that the process must end.
STICKY = frozenset({4, 46, 214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 911, 999})
NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING: it does not wait for the legacy default stream
NO_TIMING = 2  # CU_EVENT_DISABLE_TIMING


class Context:
    """The primary context of one device, which other libraries in the process share.

    api    cuda.bindings.driver
    lost   why the device cannot be used any more, or ""
    """

    def __init__(self, api: Any, number: int) -> None:
        self.api, self.number, self.lost, self.pid = api, number, "", os.getpid()
        self.device = self.call(api.cuDeviceGet(number), "open the device")
        self.handle = self.call(api.cuDevicePrimaryCtxRetain(self.device), "open the device")
        self.close = weakref.finalize(self, _released, api, self.device, self.pid)

    @property
    def name(self) -> str:
        return f"cuda:{self.number}"

    def call(self, result: tuple[Any, ...], what: str) -> Any:
        """What a call of the driver gave; KernelFailed, or DeviceLost, with the driver's own words where it failed."""
        code, *values = result
        if int(code) != 0:
            _, text = self.api.cuGetErrorString(code)
            said = text.decode() if isinstance(text, bytes) else str(code)
            said = f"{said} ({getattr(code, 'name', code)})"
            if int(code) in STICKY:
                self.lost = self.lost or (
                    f"{self.name} was lost when this process had to {what}: {said}. What it was computing and its memory "
                    f"are gone, nothing was returned, and CUDA runs nothing more in this process: start another"
                )
                raise DeviceLost(self.lost)
            raise KernelFailed(f"CUDA cannot {what}: {said}")
        return values[0] if len(values) == 1 else tuple(values)

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """The context is this thread's within; what was before is again afterwards."""
        self.check()
        self.call(self.api.cuCtxPushCurrent(self.handle), "enter the device")
        try:
            yield
        finally:
            self.api.cuCtxPopCurrent()

    def check(self) -> None:
        """Raise where the device cannot be used any more."""
        if self.lost:
            raise DeviceLost(self.lost)
        if os.getpid() != self.pid:
            raise Unsupported(
                "this executor was made before the process forked, and CUDA does not outlive a fork; make the "
                "executor in the child, or start children with 'spawn'"
            )

    def wait(self, stream: Any, event: Any, other: Any) -> None:
        """What comes next on a stream waits for all that another has been given so far."""
        self.call(self.api.cuEventRecord(event, other), "order a stream behind another")
        self.call(self.api.cuStreamWaitEvent(stream, event, 0), "order a stream behind another")

    def has_finished(self, event: Any) -> bool:
        result = self.api.cuEventQuery(event)
        if int(result[0]) == NOT_READY:
            return False
        self.call(result, "ask for an event")
        return True


class Held:
    """Something of the driver's, given back by `close` or with the last reference to this object."""

    def __init__(self, context: Context, handle: Any, *giving_back: str) -> None:
        self.context, self.handle = context, handle
        self.close = weakref.finalize(self, given_back, context, handle, giving_back)


class Block(Held):
    """Bytes of a device's memory."""

    def __init__(self, context: Context, nbytes: int, name: str) -> None:
        found = context.api.cuMemAlloc(max(nbytes, 1))
        if int(found[0]) == OUT_OF_MEMORY:
            free, total = context.call(context.api.cuMemGetInfo(), "ask for free memory")
            raise OutOfDeviceMemory(
                f"buffer {name!r} asks for {nbytes} bytes on {context.name}, where {int(free)} of {int(total)} bytes are "
                f"free; smaller inputs, fewer runs at once, or close() of plans that are done need less"
            )
        address = context.call(found, f"take {nbytes} bytes for {name!r} on {context.name}")
        super().__init__(context, address, "cuMemFree")
        self.address, self.nbytes = int(address), nbytes


class Pinned(Held):
    """Bytes of the host that the device copies from and to without help."""

    def __init__(self, context: Context, nbytes: int, name: str) -> None:
        found = context.api.cuMemAllocHost(max(nbytes, 1))
        if int(found[0]) == OUT_OF_MEMORY:
            raise OutOfDeviceMemory(
                f"buffer {name!r} asks for {nbytes} bytes of pinned host memory, which the system does not give; "
                f"inputs and outputs on the device (out='device') need none"
            )
        address = context.call(found, f"pin {nbytes} bytes for {name!r}")
        super().__init__(context, address, "cuMemFreeHost")
        self.address, self.nbytes = int(address), nbytes


def new_stream(context: Context) -> Held:
    return Held(context, context.call(context.api.cuStreamCreate(NON_BLOCKING), "make a stream"), "cuStreamDestroy")


def new_event(context: Context) -> Held:
    return Held(context, context.call(context.api.cuEventCreate(NO_TIMING), "make an event"), "cuEventDestroy")


def given_back(context: Context, handle: Any, names: tuple[str, ...]) -> None:
    """Give something back, whatever thread this is; after a fork or the loss of the device there is nothing to give."""
    if context.lost or os.getpid() != context.pid:
        return
    api = context.api
    if int(api.cuCtxPushCurrent(context.handle)[0]):
        return
    try:
        for name in names:
            getattr(api, name)(handle)
    finally:
        api.cuCtxPopCurrent()


def _released(api: Any, device: Any, pid: int) -> None:
    if os.getpid() == pid:
        api.cuDevicePrimaryCtxRelease(device)
