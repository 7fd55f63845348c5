"""What a kernel sees while it runs: five calls, behind which the executor decides everything else.

The context also holds what a borrow checker would: one writer or many readers of every buffer, and nothing read
before it was written.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from .arena import BufferId
from .errors import AliasError, ArgumentError, BufferAccessError, PipelineError, UnwrittenRead
from .kernel import ArgSpec, Kernel
from .memory import aligned_bytes

Array = np.ndarray[Any, Any]
Sweep = Callable[[Kernel, tuple[Any, ...]], None]


class ExecContext:
    """Buffers by handle, arguments by name, scratch per thread, and the state that lives from run to run.

    A kernel calls `read`, `write`, `arg`, `scratch` and `sweep`, and nothing else. The executor calls the rest:
    `bind` puts memory behind a handle, and `entered` opens one step.

    sweep   runs the compiled tiles of a kernel over operands; the executor brings it
    """

    def __init__(self, sweep: Sweep | None = None) -> None:
        self._arrays: dict[BufferId, Array] = {}
        self._objects: dict[BufferId, Any] = {}
        self._written: set[BufferId] = set()
        self._sweep = sweep
        self._step: _OpenStep | None = None
        self._scratch = threading.local()

    # For the executor --------------------------------------------------------------------------------------------

    def bind(self, handle: BufferId, array: Any, written: bool = False) -> None:
        """Put memory, or for an argument a function, behind a handle; `written`: it has its content already."""
        if isinstance(array, np.ndarray):
            self._arrays[handle] = array
        else:
            self._objects[handle] = array
        if written:
            self._written.add(handle)
        else:
            self._written.discard(handle)

    def array(self, handle: BufferId) -> Array:
        """The memory behind a handle."""
        return self._arrays[handle]

    def is_written(self, handle: BufferId) -> bool:
        return handle in self._written

    @contextmanager
    def entered(
        self, name: str, kernel: Kernel, specs: tuple[ArgSpec, ...], slots: Mapping[str, BufferId]
    ) -> Iterator[ExecContext]:
        """Open a step: inside, the five calls speak of its slots. What it wrote counts as written afterwards."""
        if self._step is not None:
            raise PipelineError(
                f"step {name!r} was entered while {self._step.name!r} is open; a context runs one at a time"
            )
        self._step = step = _OpenStep(name, kernel, {spec.slot: spec for spec in specs}, dict(slots))
        try:
            yield self
            self._written.update(step.slots[slot] for slot in step.writing)
        finally:
            self._step = None

    # For kernels -------------------------------------------------------------------------------------------------

    def read(self, slot: str) -> Any:
        """The read-only array at a slot; None where an optional slot is empty.

        Raises UnwrittenRead if no step wrote it, AliasError if this step has it for writing.
        """
        step, spec = self._open(slot)
        if not spec.reads:
            raise BufferAccessError(f"{step.name!r} reads slot {slot!r}, which it declares as {spec.access!r}")
        handle = step.slots.get(slot)
        if handle is None:
            return None
        if handle in self._objects:
            return self._objects[handle]
        if handle not in self._written:
            raise UnwrittenRead(f"{step.name!r} reads slot {slot!r} before anything was written there")
        self._borrow(step, slot, handle, writing=False)
        view = self._arrays[handle].view()
        view.flags.writeable = False
        return view

    def write(self, slot: str) -> Any:
        """The writable array at a slot. Raises BufferAccessError for a read-only one, AliasError for one being read."""
        step, spec = self._open(slot)
        if not spec.writes:
            raise BufferAccessError(f"{step.name!r} writes slot {slot!r}, which it declares as {spec.access!r}")
        handle = step.slots.get(slot)
        if handle is None:
            return None
        array = self._arrays[handle]
        if not array.flags.writeable:
            raise BufferAccessError(
                f"{step.name!r} writes slot {slot!r}, whose buffer is read-only; give it a writable one"
            )
        self._borrow(step, slot, handle, writing=True)
        step.writing.add(slot)
        return array

    def arg(self, name: str, type: Any = float) -> Any:
        """A small operand as a Python value: float, int, bool, tuple (a shape), np.ndarray, or callable."""
        value = self.read(name)
        if type is callable or type is Callable:
            if not callable(value):
                raise ArgumentError(f"argument {name!r} is {value!r}; a function is asked for")
            return value
        if value is None:
            return None
        if callable(value):
            raise ArgumentError(f"argument {name!r} is a function; {getattr(type, '__name__', type)} is asked for")
        array = np.asarray(value)
        if type is tuple:
            if array.ndim != 1 or array.dtype.kind not in "iu":
                raise ArgumentError(
                    f"argument {name!r} is {array.dtype} of shape {array.shape}; a shape is a 1-D array of ints"
                )
            return tuple(int(n) for n in array)
        if type is np.ndarray:
            return array
        if array.size != 1:
            raise ArgumentError(f"argument {name!r} has shape {array.shape}; one {type.__name__} is asked for")
        item = array.reshape(())[()]
        if type is int and not (np.isfinite(item) and int(item) == item):
            raise ArgumentError(f"argument {name!r} is {item}; an int is asked for")
        return type(item)

    def scratch(self, nbytes: int) -> Array:
        """`nbytes` of memory of arbitrary content, uint8, aligned to 64 bytes: the thread's own until the step ends.

        Every call gives other memory; what a step took is used again by the next.
        """
        if nbytes < 0:
            raise ArgumentError(f"scratch of {nbytes} bytes; 0 or more")
        mine = self._scratch
        if getattr(mine, "step", mine) is not self._step:
            mine.step, mine.used = self._step, 0
        block: Array | None = getattr(mine, "block", None)
        start = -(-mine.used // 64) * 64
        if block is None or block.size < start + nbytes:  # the views that the step has keep the old block alive
            block = mine.block = aligned_bytes(max(nbytes, 2 * mine.used), 64)
            start = 0
        mine.used = start + nbytes
        return block[start : start + nbytes]

    def sweep(self, kernel: Kernel, *operands: Any) -> None:
        """Run the kernel's compiled tiles over its whole index space, as the executor sees fit.

        operands   what `read` and `write` returned, or views of it, in the order that the tile function takes
        """
        if self._step is None:
            raise PipelineError(f"{kernel.name!r} sweeps outside a step; sweep is called from execute(ctx)")
        if self._sweep is None:
            raise PipelineError(f"{kernel.name!r} sweeps, but this context has no executor; run it with one")
        self._sweep(kernel, operands)

    # Inside ------------------------------------------------------------------------------------------------------

    def _open(self, slot: str) -> tuple[_OpenStep, ArgSpec]:
        step = self._step
        if step is None:
            raise PipelineError(f"slot {slot!r} was asked for outside a step; the executor opens one with entered(...)")
        if slot not in step.specs:
            raise PipelineError(f"{step.name!r} has no slot {slot!r}; it has {', '.join(step.specs)}")
        return step, step.specs[slot]

    def _borrow(self, step: _OpenStep, slot: str, handle: BufferId, writing: bool) -> None:
        array = self._arrays[handle]
        for other, (borrowed, others_writing) in step.borrowed.items():
            if other == slot or not (writing or others_writing) or not np.may_share_memory(array, borrowed):
                continue
            reader, writer = (other, slot) if writing else (slot, other)
            same = array.size == 0 or (
                array.__array_interface__["data"][0] == borrowed.__array_interface__["data"][0]
                and array.shape == borrowed.shape
                and array.strides == borrowed.strides
                and array.itemsize == borrowed.itemsize
            )
            if same and reader in step.specs[writer].in_place:
                continue
            if _share(array, borrowed):
                raise AliasError(
                    f"{step.name!r} has slots {reader!r} (read) and {writer!r} (written) in the same memory; "
                    f"give the output memory of its own"
                )
        writing = writing or step.borrowed.get(slot, (array, False))[1]  # a slot that was written stays so
        step.borrowed[slot] = (array, writing)


def _share(a: Array, b: Array) -> bool:
    """Whether two arrays share a byte; exact where that is cheap to find out, else as if they did."""
    try:
        return bool(np.shares_memory(a, b, max_work=100_000))  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


class _OpenStep:
    """The step that a context is running: its slots, and which of them it holds in what way."""

    def __init__(self, name: str, kernel: Kernel, specs: dict[str, ArgSpec], slots: dict[str, BufferId]) -> None:
        self.name = name
        self.kernel = kernel
        self.specs = specs
        self.slots = slots
        self.borrowed: dict[str, tuple[Array, bool]] = {}
        self.writing: set[str] = set()


__all__ = ["ExecContext", "Sweep"]
