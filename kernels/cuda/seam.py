"""The one place that touches numba-cuda, so that another CUDA compiler for Python can take its place.

A kernel is a plain Python function that names three kinds of things from around it: `cuda`, the placeholder below
(cuda.threadIdx.x, cuda.shared.array, ..); `ptx`, the table of instructions; and device functions, marked by `device`.
It imports neither a compiler nor an interpreter. `lowered(fn)` makes the same code object over numba-cuda's objects.

numba-cuda is imported on the first use, never before.
"""

from __future__ import annotations

import contextlib
import dis
import importlib
import types as python_types
from collections.abc import Callable, Iterator
from typing import Any

from ...primitives.errors import Unsupported
from ..sequence import Sequence
from . import ptx

EXTRA = "pip install 'tilework[cuda13]'"


class Name:
    """A dotted name that stands for an object of the CUDA compiler: `cuda.threadIdx.x`."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __getattr__(self, part: str) -> Name:
        if part.startswith("__"):
            raise AttributeError(part)
        return Name(f"{self._path}.{part}")

    def __repr__(self) -> str:
        return self._path


cuda = Name("cuda")


def device(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a function that kernels call: compiled into them, and interpreted with them."""
    fn.__tilework_device__ = True  # type: ignore[attr-defined]
    return fn


def is_device(found: Any) -> bool:
    return isinstance(found, python_types.FunctionType) and getattr(found, "__tilework_device__", False)


def compiler() -> Any:
    """numba-cuda's `numba.cuda`; Unsupported, naming the extra that brings it, where it is not there."""
    try:
        from numba import cuda as found
    except Exception as error:  # it raises errors of its own where the toolkit's libraries are missing
        raise Unsupported(f"numba-cuda cannot be imported ({error}); {EXTRA} brings it") from None
    if getattr(found, "implementation", "") != "NVIDIA":
        raise Unsupported(f"numba-cuda is not installed: Numba's own CUDA target lacks what is needed; {EXTRA}")
    return found


@contextlib.contextmanager
def without_driver(cc: tuple[int, int]) -> Iterator[None]:
    """Compile for an architecture whatever the machine has.

    numba-cuda asks the current device for its architecture when it compiles a device function, and NVRTC, which is
    large and otherwise not needed, for the name of an architecture and the place of the toolkit. All is answered here.
    """
    paths = importlib.import_module("numba.cuda.cuda_paths")
    answers = {
        ("numba.cuda.dispatcher", "get_current_device"): lambda: python_types.SimpleNamespace(compute_capability=cc),
        ("numba.cuda.cudadrv.nvrtc", "get_arch_option"): lambda major, minor, arch="": f"compute_{major}{minor}{arch}",
        ("numba.cuda.cuda_paths", "_get_nvrtc_path"): lambda: paths._env_path_tuple("not needed", None),
    }
    held = []
    for (module, name), answer in answers.items():
        home = importlib.import_module(module)
        held.append((home, name, getattr(home, name)))
        setattr(home, name, answer)
    try:
        yield
    finally:
        for home, name, original in held:
            setattr(home, name, original)


_lowered: dict[Any, Any] = {}


def lowered(fn: Callable[..., Any]) -> Any:
    """The function's own code over numba-cuda's objects; device functions become dispatchers, inlined by LLVM."""
    if fn in _lowered:
        return _lowered[fn]
    compiled = compiler()
    scope = dict(fn.__globals__)
    for name in _names(fn.__code__) & scope.keys():
        scope[name] = _replaced(scope[name], compiled)
    cells = tuple(python_types.CellType(_replaced(cell.cell_contents, compiled)) for cell in fn.__closure__ or ())
    made: Any = python_types.FunctionType(fn.__code__, scope, fn.__name__, fn.__defaults__, cells)
    made.__module__ = fn.__module__
    if is_device(fn):
        made = compiled.jit(device=True, forceinline=True)(made)
    _lowered[fn] = made
    return made


def _names(code: Any) -> set[str]:
    """The global names that code reads; an attribute of the same name is none."""
    found = {i.argval for i in dis.get_instructions(code) if i.opname == "LOAD_GLOBAL"}
    for constant in code.co_consts:
        if isinstance(constant, python_types.CodeType):
            found |= _names(constant)
    return found


def _replaced(found: Any, compiled: Any) -> Any:
    if found is cuda:
        return compiled
    if found is ptx:
        return instructions()
    if isinstance(found, ptx.Instruction):
        return getattr(instructions(), found.name)
    if isinstance(found, Sequence):
        return importlib.import_module(f"{__package__}.lowering").sequence(found)
    if is_device(found):
        return lowered(found)
    return found


def instructions() -> Any:
    """The module of compiler intrinsics that stands for `ptx`."""
    return importlib.import_module(f"{__package__}.lowering").instructions()
