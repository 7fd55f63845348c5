"""Runs the compiled tiles of one kernel over its whole index space, here and now."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np

from ..kernels import factory, forge
from ..kernels.entry import NO_MEMORY, RAISED, OperandType, bits_view
from ..primitives import dtypes
from ..primitives.errors import KernelFailed, PipelineError, TileworkError
from ..primitives.kernel import Kernel, index_space
from ..primitives.pipeline import Step
from ..primitives.sizes import evaluate, substitute

Array = np.ndarray[Any, Any]


def facts_of(kernel: Kernel, operands: tuple[Any, ...]) -> dict[str, Any]:
    """What a builder may ask for: the kernel, and the stored types and ranks of the operands."""
    return {
        "kernel": kernel,
        "dtypes": tuple(dtypes.get(o.dtype).name if o is not None else "" for o in operands),
        "ranks": tuple(o.ndim if o is not None else 0 for o in operands),
    }


def choose(
    kernel: Kernel, backend: str, facts: Mapping[str, Any], variant: str | None = None
) -> tuple[factory.Variant, Any]:
    """The variant that serves, and what it built."""
    found = factory.find(kernel.name, backend, variant, **facts)
    return found, found.make({**facts, "name": kernel.name})


def extents(kernel: Kernel, sizes: Mapping[str, Any], env: Mapping[str, int]) -> list[int]:
    """The size of each axis of the kernel's index space, in numbers."""
    space = index_space(kernel)
    if space is None:
        raise PipelineError(
            f"kernel {kernel.name!r} sweeps, but declares no index space; give it index_space() returning an IndexSpace"
        )
    local = {name: evaluate(x, env) for name, x in sizes.items() if name != "..."}
    return [evaluate(substitute(axis.size(), local), local) for axis in space.axes]  # type: ignore[arg-type]


def run_whole(implementation: Any, operands: tuple[Any, ...], ranges: list[int], params: tuple[int, ...]) -> int:
    """Run an implementation over all of its axes; returns the status (0: all went well)."""
    if isinstance(implementation, factory.Whole):
        implementation.fn(*operands)
        return 0
    bounds = [bound for extent in ranges for bound in (0, extent)]
    if any(extent == 0 for extent in ranges):
        return 0
    leading = len(operands)
    if isinstance(implementation, factory.WithParams):
        params, leading = tuple(implementation.params(*operands)), leading - implementation.trailing
        implementation = implementation.tile
    arrays = tuple(bits_view(o) for o in operands)
    if forge.jit_disabled() or not _compilable(implementation):
        with np.errstate(all="ignore"):  # as native code: no warnings for what the step's meaning defines
            return int(forge.python_tile(implementation)(*bounds, *arrays, *params) or 0)
    compiled = _entry(implementation, len(ranges), tuple((o.dtype, o.ndim) for o in operands), len(params))
    words = [[0, a.__array_interface__["data"][0], *a.shape, *a.strides] for a in arrays]
    packed = np.array([*itertools.chain(*words[:leading], params, *words[leading:])], np.int64)
    limits = np.array(bounds, np.int64)
    function = _ENTRY(compiled.address)
    return int(function(_NO_BASES.ctypes.data, packed.ctypes.data, limits.ctypes.data))


@lru_cache(maxsize=4096)
def _entry(implementation: Any, axes: int, types: tuple[tuple[Any, int], ...], params: int) -> forge.Entry:
    operands = tuple(OperandType(dtypes.get(dtype).name, ndim) for dtype, ndim in types)
    return forge.entry(implementation, axes, operands, params)


_NO_BASES = np.zeros(1, np.int64)
_ENTRY = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


def _compilable(implementation: Any) -> bool:
    return isinstance(implementation, forge.Native) or hasattr(implementation, "py_func")


def raise_status(step: str, kernel: Kernel, status: int) -> None:
    """Turn a tile's status into the error that the kernel names for it (`statuses`: {code: (error class, text)})."""
    if status == 0:
        return
    named = getattr(kernel, "statuses", {}).get(status)
    if named is not None:
        error, message = named
        raise error(f"step {step!r}: {message}")
    if status == RAISED:
        raise KernelFailed(
            f"step {step!r} ({kernel.name}) raised an exception in native code; NUMBA_DISABLE_JIT=1 shows which"
        )
    if status == NO_MEMORY:
        raise MemoryError(f"step {step!r} ({kernel.name}) found no memory for the arrays that it works in")
    raise KernelFailed(f"step {step!r} ({kernel.name}) returned status {status}")


@contextmanager
def named(step: Step) -> Iterator[None]:
    """Whatever is raised inside names the step: the library's errors keep their type, others become KernelFailed."""
    try:
        yield
    except MemoryError:
        raise
    except TileworkError as error:
        if f"step {step.name!r}" in str(error):
            raise
        raise type(error)(f"step {step.name!r}: {error}") from error
    except Exception as error:
        raise KernelFailed(
            f"step {step.name!r} ({step.kernel.name}) failed: {type(error).__name__}: {error}"
        ) from error
