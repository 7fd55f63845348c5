"""Turns a tile function into a native entry: a generated module, compiled once and kept in the user's cache folder.

What the registers fix (types, ranks, mr, nr, rounding, the user's functions) is text of the module; what the caches
fix (sizes, strides, mc, nc, kc) are words of the block at run time, so a new batch size compiles nothing.
"""

from __future__ import annotations

import contextlib
import ctypes
import linecache
import logging
import os
import re
import struct
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import ModuleType
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from numba.core import config
from numba.core.ccallback import CFunc
from numba.core.codegen import initialize_llvm
from numba.core.compiler_lock import global_compiler_lock

from . import cache
from .entry import BUILTIN, SIGNATURE, OperandType, describe
from .machine_code import MachineCode, link_all, undefined_symbols

log = logging.getLogger("tilework")

PACKAGE = __package__.rsplit(".", 1)[0]


@dataclass(frozen=True)
class Native:
    """Source of a tile function that has to be generated.

    source   module text that defines `tile(m0, m1, ..., *operands, *params)`, decorated or not
    scope    (name, object) that the text uses and cannot import; such a tile is not kept on disk
    raw      the text defines `entry(bases, block, ranges)` itself
    parallel the text uses prange
    builtin  `entry` takes and returns three words and one, as a built-in function of Python with METH_FASTCALL does
    joined   `tile` is the last of the text, returns nothing, and names nothing `bases`, `block` or `ranges`: what it does
             becomes the text of `entry`, so that there is one function less to optimise and link
    """

    source: str
    raw: bool = False
    parallel: bool = False
    builtin: bool = False
    joined: bool = False
    scope: tuple[tuple[str, Any], ...] = field(default=(), compare=False)
    _identities: tuple[tuple[str, int], ...] = field(init=False, repr=False, default=())

    def __post_init__(self) -> None:
        """Two texts over different objects are different tiles, whether or not the objects can be compared."""
        object.__setattr__(self, "_identities", tuple((name, id(found)) for name, found in self.scope))


@dataclass(frozen=True)
class Entry:
    """A compiled tile: the address of its native entry, and where it came from."""

    address: int
    source: str
    key: str
    compiled: bool
    keep: Any = field(repr=False, compare=False, default=None)
    scope: dict[str, Any] = field(repr=False, compare=False, default_factory=dict)


class Counts:
    """How many entries this process compiled, how many of these it kept in the cache, and how many it took from there."""

    compiled = 0
    kept = 0
    loaded = 0


_entries: dict[str, Entry] = {}
_lock = threading.RLock()


def _after_fork() -> None:
    """A thread of the parent may have been compiling: in the child nobody would ever open its locks."""
    global _lock
    _lock = threading.RLock()
    lock = getattr(global_compiler_lock, "_lock", None)
    if lock is not None:
        global_compiler_lock._lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def jit_disabled() -> bool:
    """Whether NUMBA_DISABLE_JIT asks for everything to run as plain Python."""
    return bool(config.DISABLE_JIT)


def entry(tile: Any, axes: int, operands: tuple[OperandType, ...], params: int = 0) -> Entry:
    """The native entry of a tile function for these operand types; compiled, or taken from memory or the cache.

    tile     an @njit function `tile(lo, hi, ..., *operands, *params)`, or a Native
    axes     how many (lo, hi) pairs it takes
    params   how many integers follow its operands
    """
    source, scope = _module(tile, axes, operands, params)
    token = source if not scope else f"{source}\0{sorted((k, id(v)) for k, v in scope.items())}"
    with _lock:
        found = _entries.get(token)
        if found is None:
            found = _entries[token] = _compile(
                source, scope, getattr(tile, "parallel", False), getattr(tile, "builtin", False)
            )
        return found


def python_tile(tile: Any) -> Callable[..., Any]:
    """The tile function as plain Python, for NUMBA_DISABLE_JIT and for debugging.

    What a text calls that is LLVM IR may say in its attribute `plain` what it does in Python.
    """
    if isinstance(tile, Native):
        scope: dict[str, Any] = dict(tile.scope)
        exec(compile(tile.source, "<tilework tile>", "exec"), scope)
        scope.update({name: found.plain for name, found in scope.items() if hasattr(found, "plain")})
        tile = scope["tile"]
    return getattr(tile, "py_func", tile)  # type: ignore[no-any-return]


def _module(tile: Any, axes: int, operands: tuple[OperandType, ...], params: int) -> tuple[str, dict[str, Any]]:
    """The generated module's text, and the objects that it needs but cannot import."""
    scope: dict[str, Any] = {}
    if isinstance(tile, Native):
        body, name = tile.source, "tile"
        scope = dict(tile.scope)
        if tile.raw:
            return _HEADER.format(what="a native entry") + body, scope
    else:
        home, name = tile.__module__, tile.__name__
        if home.startswith(f"{PACKAGE}.") and "<locals>" not in tile.__qualname__:
            body = f"from {home} import {name} as tile\n"
        else:
            body, scope = "", {"tile": tile}
    views, arguments, word = [], [f"ranges[{n}]" for n in range(2 * axes)], 0
    for n, operand in enumerate(operands):
        views.append(f'_at{n} = array_at("{operand.dtype}", {operand.ndim}, "{operand.layout}")')
        arguments.append(f"_at{n}(bases, block, {word})")
        word += operand.words
    arguments += [f"block[{word + n}]" for n in range(params)]
    raised = ""
    if config.BOUNDSCHECK or (scope and not isinstance(tile, Native)):
        raised = "RAISED"  # every index is checked, or somebody's own function may raise
    elif isinstance(tile, Native) and allocates(tile.source):
        raised = "NO_MEMORY"
    call = f"status_of(tile(\n        {', '.join(arguments)}\n    ))"
    inner = ""
    if raised and len(arguments) > MOST_IN_TRY:
        inner, call = _CALLED.format(call=call), "_called(bases, block, ranges)"
    if raised:  # a C function would print the exception and forget it
        run = (
            f"    try:\n        status = {call}\n    except Exception:\n        status = {raised}\n    return status\n"
        )
    elif isinstance(tile, Native) and tile.joined:
        body, run = _joined(body, arguments)
    else:
        run = f"    return {call}\n"
    needed = f"{raised}, array_at, status_of" if raised else "array_at, status_of"
    text = (
        _HEADER.format(what=f"{name} over {axes} axes of {describe(operands)}")
        + f"from {PACKAGE}.kernels.entry import {needed}\n{body}\n"
        + "\n".join(views)
        + inner
        + "\n\n\ndef entry(bases, block, ranges):\n"
        + run
    )
    return text, scope


def _joined(source: str, arguments: Sequence[str]) -> tuple[str, str]:
    """The text before `tile`, and the statements of an entry that does what `tile` does with these arguments."""
    found = _TILE.search(source)
    if found is None:
        raise ValueError("a text that is to be joined with its entry defines no tile")
    given = zip(found[1].split(", "), arguments, strict=True)
    sets = "".join(f"    {name} = {argument}\n" for name, argument in given)
    return source[: found.start()], f"{sets}{source[found.end() :].rstrip()}\n    return status_of(None)\n"


_CALLED = """

from numba import njit


@njit(nogil=True, error_model="numpy")
def _called(bases, block, ranges):
    return {call}
"""
MOST_IN_TRY = 30  # arguments of a call inside of try: Python unpacks more from a list, which Numba does not read there
_TILE = re.compile(r"^@njit\(.*\)\ndef tile\((.*)\):\n", re.MULTILINE)


def allocates(text: str) -> bool:
    """Whether a tile's text makes arrays, and so may raise MemoryError."""
    return _ALLOCATES.search(text) is not None


_ALLOCATES = re.compile(r"\b(np\.(empty|zeros|ones|full)|zeros_(f32|i32))\(")
_HEADER = '"""Generated by tilework: {what}. Edit the template, not this file."""\n\n'


@global_compiler_lock  # type: ignore[untyped-decorator]
def _compile(source: str, scope: dict[str, Any], parallel: bool, builtin: bool) -> Entry:
    key = cache.key(source)
    if not scope:
        if parallel:
            _launch_threads()  # compiling does it; code from the cache would call into a layer that is not there
        loaded = _load(key, source)
        if loaded is not None:
            Counts.loaded += 1
            return loaded
    filename = f"<tilework {key}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    module = _home(key)
    module.__dict__.update(scope, __file__=filename)
    exec(compile(source, filename, "exec"), module.__dict__)
    signature = BUILTIN if builtin else SIGNATURE
    function = CFunc(module.entry, (signature.args, signature.return_type), {}, {**_OPTIONS, "parallel": parallel})
    result = function._compile_uncached()
    Counts.compiled += 1
    name = result.fndesc.llvm_cfunc_wrapper_name
    address = result.library.get_pointer_to_function(name)
    if not scope:
        file = result.library.serialize_using_object_code()[2][0]
        Counts.kept += cache.write(key, MachineCode(file, name, undefined_symbols(file)).dumps(), source)
    # The objects in scope live as long as their entry: another one with the same id would be taken for them.
    return Entry(address, source, key, True, result.library, scope)


@dataclass(frozen=True)
class Table:
    """Addresses of functions that live inside an entry's module, which the entry writes down when it is called.

    words   int64; they stay where they are, so that code may be given the address of one
    """

    words: Any
    entry: Entry


@dataclass(frozen=True)
class Kept:
    """An entry as it is kept outside of the kernel cache: its generated source, its name there, its machine code."""

    source: str
    key: str
    code: MachineCode


def kept(made: Entry) -> Kept | None:
    """The entry as it may be kept; None where the cache does not have it, or it holds what belongs to this process."""
    content = None if made.scope else cache.read(made.key)
    if content is None:
        return None
    code = MachineCode.loads(content)
    return None if code.needs is None else Kept(made.source, made.key, code)


@global_compiler_lock  # type: ignore[untyped-decorator]
def adopt(groups: Sequence[Sequence[Kept]]) -> list[list[Entry]]:
    """Entries of groups of code that each can be linked at once; those that this process has already are taken as they are.

    Raises ValueError, RuntimeError where one cannot be linked.
    """
    initialize_llvm()
    with _lock:
        for group in groups:
            new = [each for each in group if each.source not in _entries]
            if new:
                _supply([each.code for each in new])
                addresses = link_all([each.code for each in new])
                for each, address in zip(new, addresses, strict=True):
                    _entries[each.source] = Entry(address, each.source, each.key, False)
                Counts.loaded += len(new)
        return [[_entries[each.source] for each in group] for group in groups]


_tables: dict[str, Table] = {}
# Bytes: code that counts from 1, or from a first tile, is given an address before its table. So far, a table owns the
# memory before its words: such an address lies in no other one.
BEFORE = 4096


def table(source: str, count: int) -> Table:
    """The table of `count` addresses that the raw entry of `source` writes at bases[0]; made once."""
    return table_of(entry(Native(source, raw=True), 0, ()), count)


def table_of(made: Entry, count: int) -> Table:
    """The table of `count` addresses that an entry writes."""
    with _lock:
        found = _tables.get(made.source)
        if found is None:
            words = np.zeros(BEFORE // 8 + count, np.int64)[BEFORE // 8 :]
            bases = np.array([words.ctypes.data], np.int64)
            fill = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 3)(made.address)
            fill(bases.ctypes.data, words.ctypes.data, words.ctypes.data)
            found = _tables[made.source] = Table(words, made)
        return found


def known() -> tuple[dict[int, Entry], list[Table]]:
    """Every entry of this process by its address, and every table: what the words of a program may point to."""
    with _lock:
        return {found.address: found for found in _entries.values()}, list(_tables.values())


@global_compiler_lock  # type: ignore[untyped-decorator]
def llvm_ir(made: Entry) -> tuple[str, str]:
    """The entry's module after optimisation, as LLVM's text, and the name of its native function (Numba's own ABI).

    It is compiled anew: what the cache keeps is machine code.
    """
    module = ModuleType(f"tilework_exported_{made.key}")
    filename = f"<tilework {made.key}>"
    linecache.cache[filename] = (len(made.source), None, made.source.splitlines(keepends=True), filename)
    sys.modules[module.__name__] = module
    try:
        module.__dict__.update(made.scope, __file__=filename)
        exec(compile(made.source, filename, "exec"), module.__dict__)
        result = CFunc(module.entry, (SIGNATURE.args, SIGNATURE.return_type), {}, dict(_OPTIONS))._compile_uncached()
        result.library.get_pointer_to_function(result.fndesc.llvm_cfunc_wrapper_name)  # finishes the module
        return result.library.get_llvm_str(), result.fndesc.llvm_func_name
    finally:
        del sys.modules[module.__name__]


def _home(key: str) -> ModuleType:
    """The module that a generated function says it lives in; Numba looks it up, compiling and loading."""
    name = f"tilework_generated_{key}"
    return sys.modules.setdefault(name, ModuleType(name))


_OPTIONS = {"nopython": True, "error_model": "numpy", "boundscheck": None}


def _load(key: str, source: str) -> Entry | None:
    content = cache.read(key)
    if content is None:
        return None
    try:
        code = MachineCode.loads(content)
        _supply([code])
        address = code.link()
    except (ValueError, KeyError, TypeError, struct.error, RuntimeError) as error:  # the entry is compiled anew
        cache.discard(key, f"{type(error).__name__}: {error}")
        return None
    return Entry(address, source, key, False)


def _supply(codes: Sequence[MachineCode]) -> None:
    """Load what code needs; ValueError where something is nowhere. What takes long is not done where less is enough."""
    needs = {name for code in codes for name in code.needs or ()}
    lacking: list[str] = []
    for load in (_add_runtime_symbols, _add_helpers, _target_context, _refresh):
        load()
        lacking = sorted(name for name in needs if not llvm.address_of_symbol(name))
        if not lacking and all(code.needs is not None for code in codes):
            return
    if lacking:
        raise ValueError(f"it needs {', '.join(lacking)}, which this process does not have")


@lru_cache(maxsize=1)
def _add_helpers() -> None:
    """What Numba and Python themselves export: the first engine of a process makes the latter known."""
    with contextlib.suppress(ImportError, AttributeError):  # another version; its context has them
        from numba.core.base import _load_global_helpers

        _load_global_helpers()
    llvm.create_mcjit_compiler(
        llvm.parse_assembly(""), llvm.Target.from_default_triple().create_target_machine(jit=True)
    )


def _refresh() -> None:
    """Everything that compiling would have loaded."""
    _target_context().refresh()


@lru_cache(maxsize=1)
def _add_runtime_symbols() -> None:
    """What Numba's runtime for reference counts exports; all code that may raise names some of it."""
    try:
        from numba.core.runtime._nrt_python import c_helpers
    except ImportError:  # another version; refreshing the context adds them, slowly
        return
    for name, address in c_helpers.items():
        llvm.add_symbol(name if name.startswith("_") else f"NRT_{name}", address)


def _launch_threads() -> None:
    from numba.np.ufunc.parallel import _launch_threads

    _launch_threads()


def _target_context() -> Any:
    from numba.core.registry import cpu_target

    return cpu_target.target_context
