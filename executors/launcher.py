"""Calling a program from Python for a tenth of a microsecond.

A launcher is a built-in function made at run time: its machine code checks that the arrays are what the program was laid
out for, enters their addresses and runs the program on the calling thread. Where anything differs it does nothing and
says so, and the caller goes the ordinary way, which finds out what is wrong.

It reads CPython's and NumPy's objects in place, so it is used only where their layout is the usual one: that is tested
on samples, once per process.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ..kernels import dispatch, forge
from ..primitives.memory import address_of
from .program import Program, RunMemory, serial_address, team_address

Array = np.ndarray[Any, Any]
DONE, STOPPED, OTHERWISE = dispatch.DONE, dispatch.STOPPED, dispatch.OTHERWISE
LONG = 200_000  # a program that costs more than this (about bytes moved) lets other Python threads run meanwhile


class _MethodDef(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


_FASTCALL = 0x80


def _word(address: int) -> int:
    return ctypes.c_int64.from_address(address).value


def _object_word(x: object, n: int) -> int:
    return _word(id(x) + 8 * n)


@lru_cache(maxsize=1)
def usable() -> bool:
    """Whether objects lie in memory as the launcher's code expects: CPython with the GIL, 64 bits, NumPy's arrays."""
    if (
        sys.implementation.name != "cpython"
        or sys.maxsize < 2**62
        or not getattr(sys, "_is_gil_enabled", lambda: True)()
    ):
        return False
    if object.__basicsize__ != 16 or forge.jit_disabled():
        return False
    payload = b"\x01\x02\x03\x04\x05\x06\x07\x08"
    if ctypes.string_at(id(payload) + 32, 8) != payload:
        return False
    frozen = np.zeros(5, np.int16)
    frozen.flags.writeable = False
    for sample in (np.zeros((3, 4), np.uint8)[1:, ::2], np.ones(7, np.float32), np.zeros((), np.int64), frozen):
        sizes, strides = _object_word(sample, 4), _object_word(sample, 5)
        if (
            _object_word(sample, 1) != id(np.ndarray)
            or _object_word(sample, 2) != address_of(sample)
            or _object_word(sample, 3) & 0xFFFFFFFF != sample.ndim
            or any(_word(sizes + 8 * d) != sample.shape[d] for d in range(sample.ndim))
            or any(_word(strides + 8 * d) != sample.strides[d] for d in range(sample.ndim))
            or _object_word(sample, 7) != id(sample.dtype)
            or bool(_object_word(sample, 8) & 0x0400) != sample.flags.writeable
        ):
            return False
    return True


class Launcher:
    """A program with memory of its own, ready to be called: `launcher.call(*arrays)` returns DONE, STOPPED or OTHERWISE.

    parallel  whether to start all of the memory's workers, or run on the calling thread
    arrays  per array that a call takes: (base, dtype, shape, writable); contiguous. Without any, the addresses are in
            the bases already.
    """

    def __init__(
        self,
        program: Program,
        memory: RunMemory,
        arrays: Sequence[tuple[int, Any, tuple[int, ...], bool]],
        cost: float,
        parallel: bool,
    ) -> None:
        self.program = program
        self.memory = memory
        api = ctypes.pythonapi
        release = cost > LONG or parallel
        self.parallel = parallel
        words = {
            "loop": team_address() if self.parallel else serial_address(),
            "first": memory.team_address if self.parallel else memory.bases_address,
            "bases": memory.bases_address,
            "workers": memory.workers,
            "pitch": memory.bases.strides[0] // 8,
            "clear": program.progress_words if self.parallel else dispatch.HEAD,
            "program": program.address,
            "progress": memory.progress_address,
            "from_long": _address(api.PyLong_FromLong),
            "save_thread": _address(api.PyEval_SaveThread) if release else 0,
            "restore_thread": _address(api.PyEval_RestoreThread) if release else 0,
            "arrays": len(arrays),
            "array_type": id(np.ndarray),
        }
        block = [words[name] for name in dispatch.LAUNCHER]
        for base, dtype, shape, writable in arrays:
            sample = np.broadcast_to(np.empty((), dtype), shape)
            strides = np.empty(shape, dtype).strides if 0 in shape else _contiguous(shape, sample.itemsize)
            block += [
                base,
                id(np.dtype(dtype)),
                len(shape),
                int(writable),
                sample.size * sample.itemsize,
                *shape,
                *strides,
            ]
        self._keep = (np.array(block, np.int64).tobytes(), memory, program)
        self.call = _builtin(self._keep[0])

    def call_again(self) -> int:
        """Go on where the program stopped, with the arrays that it has."""
        return self.memory.resume(self.program, self.parallel)


def _contiguous(shape: tuple[int, ...], item: int) -> tuple[int, ...]:
    strides = []
    for n in reversed(shape):
        strides.append(item)
        item *= n
    return tuple(reversed(strides))


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


@lru_cache(maxsize=1)
def _method() -> _MethodDef:
    code = forge.entry(forge.Native(dispatch.LAUNCH, raw=True, builtin=True), 0, ())
    return _MethodDef(b"launch", code.address, _FASTCALL, b"Run a laid out program on these arrays.")


def load() -> None:
    """Compile the launcher's own code, or take it from the cache, before anything is to be launched."""
    if usable():
        _method()


def address() -> int:
    """Where the launcher's own code lies; only where it is usable."""
    return int(_method().function)


def _builtin(payload: bytes) -> Any:
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype = ctypes.py_object
    make.argtypes = (ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)
    return make(ctypes.addressof(_method()), payload, None)
