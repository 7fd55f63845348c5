"""Loads and stores of single elements by address, for loops that LLVM is to vectorise.

What is read and what is written carry scopes that say they do not overlap, so that no check stands before the loop. An
output may still be exactly where an input is: an element is read before its place is written, in vectors too.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, overload

from .simd import I8, I64


def compiled_here() -> bool:
    """Whether this runs as native code, where addresses mean something."""
    return False


@overload(compiled_here)
def _compiled_here() -> Any:
    return lambda: True


def memory(address: int, dtype: Any, count: int = 1, step: int = 0) -> Any:
    """Elements at an address, as an array, for what runs as plain Python."""
    interface = {"data": (address, False), "shape": (count,), "strides": (step,), "typestr": np.dtype(dtype).str}
    return np.asarray(SimpleNamespace(__array_interface__={**interface, "version": 3}))


def _plain_place(array: Any, indices: tuple[int, ...]) -> int:
    return int(array.ctypes.data) + sum(int(i) * s for i, s in zip(indices, array.strides, strict=False))


def _plain_read_at(array: Any, address: int, offset: int) -> Any:
    return memory(address + offset, array.dtype)[0]


def _plain_write_at(array: Any, address: int, offset: int, value: Any) -> None:
    memory(address + offset, array.dtype)[0] = value


def _scopes(module: Any) -> tuple[Any, Any]:
    domain = module.add_metadata(["tilework elements"])
    return tuple(module.add_metadata([module.add_metadata([name, domain])]) for name in ("read", "written"))


def _pointer(context: Any, builder: Any, dtype: Any, address: Any, index: Any) -> Any:
    """The index stays outside inttoptr: inside, it would hide the recurrence and stop vectorisation."""
    return builder.gep(builder.inttoptr(address, context.get_data_type(dtype).as_pointer()), [index])


@intrinsic
def read(typingctx: Any, array: Any, address: Any, index: Any) -> Any:
    """The element of the array's type that lies `index` elements after an address."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        inside, outside = _scopes(builder.module)
        loaded = builder.load(_pointer(context, builder, array.dtype, *args[1:]))
        loaded.align = 1
        loaded.set_metadata("alias.scope", inside)
        loaded.set_metadata("noalias", outside)
        return builder.icmp_unsigned("!=", loaded, ir.Constant(I8, 0)) if array.dtype == types.boolean else loaded

    return array.dtype(array, types.int64, types.int64), codegen


def load_at(context: Any, builder: Any, array: Any, address: Any, offset: Any) -> Any:
    """Code that reads the element of the array's type that lies `offset` bytes after an address."""
    at = builder.gep(builder.inttoptr(address, I8.as_pointer()), [offset])
    loaded = builder.load(builder.bitcast(at, context.get_data_type(array.dtype).as_pointer()))
    loaded.align = 1
    inside, outside = _scopes(builder.module)
    loaded.set_metadata("alias.scope", inside)
    loaded.set_metadata("noalias", outside)
    return builder.icmp_unsigned("!=", loaded, ir.Constant(I8, 0)) if array.dtype == types.boolean else loaded


@intrinsic
def read_at(typingctx: Any, array: Any, address: Any, offset: Any) -> Any:
    """The element of the array's type that lies `offset` bytes after an address, in any order: vectors gather it."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return load_at(context, builder, array, *args[1:])

    return array.dtype(array, types.int64, types.int64), codegen


@intrinsic
def write(typingctx: Any, array: Any, address: Any, index: Any, value: Any) -> Any:
    """Store an element of the array's type `index` elements after an address."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        inside, outside = _scopes(builder.module)
        made = context.cast(builder, args[3], signature.args[3], array.dtype)
        made = builder.zext(made, I8) if array.dtype == types.boolean else made
        stored = builder.store(made, _pointer(context, builder, array.dtype, *args[1:3]))
        stored.align = 1
        stored.set_metadata("alias.scope", outside)
        stored.set_metadata("noalias", inside)
        return context.get_dummy_value()

    return types.void(array, types.int64, types.int64, value), codegen


@intrinsic
def write_at(typingctx: Any, array: Any, address: Any, offset: Any, value: Any) -> Any:
    """Store an element of the array's type `offset` bytes after an address, in any order."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        inside, outside = _scopes(builder.module)
        made = context.cast(builder, args[3], signature.args[3], array.dtype)
        made = builder.zext(made, I8) if array.dtype == types.boolean else made
        at = builder.gep(builder.inttoptr(args[1], I8.as_pointer()), [args[2]])
        stored = builder.store(made, builder.bitcast(at, context.get_data_type(array.dtype).as_pointer()))
        stored.align = 1
        stored.set_metadata("alias.scope", outside)
        stored.set_metadata("noalias", inside)
        return context.get_dummy_value()

    return types.void(array, types.int64, types.int64, value), codegen


@intrinsic
def start_of(typingctx: Any, array: Any) -> Any:
    """The address of an array's first element."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        made = context.make_array(signature.args[0])(context, builder, args[0])
        return builder.ptrtoint(made.data, I64)

    return types.int64(array), codegen


@intrinsic
def place(typingctx: Any, array: Any, indices: Any) -> Any:
    """The address of the element at a tuple of indices, of which the last ones may be missing: they are 0.

    One call where Numba would type a product and a sum for each dimension, one after another.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        made = context.make_array(signature.args[0])(context, builder, args[0])
        strides = cgutils.unpack_tuple(builder, made.strides)
        at = builder.ptrtoint(made.data, I64)
        for n, kind in enumerate(indices):
            index = context.cast(builder, builder.extract_value(args[1], n), kind, types.int64)
            at = builder.add(at, builder.mul(index, strides[n]))
        return at

    return types.int64(array, indices), codegen


# What forge.python_tile puts in their place
place.plain, read_at.plain, write_at.plain = _plain_place, _plain_read_at, _plain_write_at
