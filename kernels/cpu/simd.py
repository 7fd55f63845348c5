"""Helpers to write vector code as LLVM IR, and the intrinsics through which compiled Python reaches memory by address.

Addresses are int64 throughout: they come from the words of a block and are only turned into pointers where a load or
a store happens.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.numpy_support import as_dtype

I1, I8, I16, I32, I64 = (ir.IntType(n) for n in (1, 8, 16, 32, 64))
F32, F64 = ir.FloatType(), ir.DoubleType()
VOID = ir.VoidType()


def vector(element: Any, n: int) -> Any:
    return ir.VectorType(element, n)


class _BFloat16(ir.Type):
    """bfloat16, which llvmlite has no type for."""

    def __str__(self) -> str:
        return "bfloat"


BF16 = _BFloat16()


class Emitter:
    """An IR builder with the vector operations that the kernels are made of."""

    def __init__(self, builder: ir.IRBuilder):
        self.b = builder
        self.module = builder.module

    def i64(self, n: int) -> Any:
        return ir.Constant(I64, n)

    def offset(self, address: Any, n: int) -> Any:
        return self.b.add(address, self.i64(n)) if n else address

    def pointer(self, address: Any, element: Any) -> Any:
        return self.b.inttoptr(address, element.as_pointer())

    def load(self, address: Any, element: Any, align: int) -> Any:
        value = self.b.load(self.pointer(address, element))
        value.align = align
        return value

    def store(self, value: Any, address: Any, align: int) -> None:
        self.b.store(value, self.pointer(address, value.type)).align = align

    def masked_store(self, value: Any, address: Any, align: int, mask: Any) -> None:
        kind = value.type
        letter = "f" if kind.element == F32 else "i"
        bits = 32 if kind.element == F32 else kind.element.width
        name = f"llvm.masked.store.v{kind.count}{letter}{bits}.p0"
        arguments = [kind, kind.as_pointer(), I32, mask.type]
        function = cgutils.get_or_insert_function(self.module, ir.FunctionType(VOID, arguments), name)
        self.b.call(function, [value, self.pointer(address, kind), ir.Constant(I32, align), mask])

    def splat(self, scalar: Any, n: int) -> Any:
        kind = vector(scalar.type, n)
        undefined = ir.Constant(kind, ir.Undefined)
        one = self.b.insert_element(undefined, scalar, ir.Constant(I32, 0))
        return self.b.shuffle_vector(one, undefined, ir.Constant(vector(I32, n), [0] * n))

    def constant(self, kind: Any, value: Any) -> Any:
        return ir.Constant(kind, [value] * kind.count)

    def shuffle(self, x: Any, order: Any, y: Any = None) -> Any:
        order = list(order)
        return self.b.shuffle_vector(x, x if y is None else y, ir.Constant(vector(I32, len(order)), order))

    def concat(self, values: list[Any]) -> Any:
        """Vectors of one type joined end to end; their number is a power of two."""
        while len(values) > 1:
            n = 2 * values[0].type.count
            values = [self.shuffle(x, range(n), y) for x, y in zip(values[::2], values[1::2], strict=True)]
        return values[0]

    def call(self, name: str, result: Any, *arguments: Any) -> Any:
        kind = ir.FunctionType(result, [x.type for x in arguments])
        return self.b.call(cgutils.get_or_insert_function(self.module, kind, name), list(arguments))

    def prefetch(self, address: Any, write: bool = False, keep: int = 3) -> None:
        """Ask for a cache line. keep: 3 brings it into L1, 2 into L2."""
        pointer = self.pointer(address, I8)
        words = (ir.Constant(I32, n) for n in (int(write), keep, 1))
        self.call("llvm.prefetch.p0", VOID, pointer, *words)

    def smin(self, x: Any, y: Any) -> Any:
        return self.b.select(self.b.icmp_signed("<", x, y), x, y)

    def smax(self, x: Any, y: Any) -> Any:
        return self.b.select(self.b.icmp_signed(">", x, y), x, y)

    def fmin(self, x: Any, y: Any) -> Any:
        """The smaller of two numbers, y if x is NaN."""
        return self.b.select(self.b.fcmp_ordered("<", x, y), x, y)

    def fmax(self, x: Any, y: Any) -> Any:
        """The larger of two numbers, y if x is NaN."""
        return self.b.select(self.b.fcmp_ordered(">", x, y), x, y)

    def round_to_int(self, x: Any, arch: str) -> Any:
        """float32 to int32, ties to even. What does not fit becomes INT_MIN on x86 and saturates on AArch64."""
        n = x.type.count
        result = vector(I32, n)
        if arch == "x86_64":
            if n == 16:
                zero, all_lanes, current = ir.Constant(result, [0] * 16), ir.Constant(I16, -1), ir.Constant(I32, 4)
                return self.call("llvm.x86.avx512.mask.cvtps2dq.512", result, x, zero, all_lanes, current)
            return self.call({8: "llvm.x86.avx.cvt.ps2dq.256", 4: "llvm.x86.sse2.cvtps2dq"}[n], result, x)
        if arch == "aarch64":
            return self.call(f"llvm.aarch64.neon.fcvtns.v{n}i32.v{n}f32", result, x)
        rounded = self.call(f"llvm.rint.v{n}f32", x.type, x)
        return self.call(f"llvm.fptosi.sat.v{n}i32.v{n}f32", result, rounded)


def function(module: Any, name: str, arguments: int, attributes: tuple[str, ...] = ()) -> Any:
    """A new internal function `void name(int64, ...)`. It is never inlined, so call sites share its code."""
    made = ir.Function(module, ir.FunctionType(VOID, [I64] * arguments), name)
    made.linkage = "internal"
    for attribute in ("noinline", "nounwind"):
        made.attributes.add(attribute)
    for attribute in attributes:
        set.add(made.attributes, attribute)  # llvmlite knows no string attributes; they print as they are
    return made


def _memory(address: int, dtype: Any) -> Any:
    """The element at an address, for what runs as plain Python."""
    return np.frombuffer((ctypes.c_char * dtype.itemsize).from_address(address), dtype)


def _getter(element: Any, result: Any) -> Any:
    @intrinsic
    def get(typingctx: Any, address: Any, index: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            # the index stays outside inttoptr: inside, it would hide the recurrence and stop vectorisation
            pointer = builder.gep(builder.inttoptr(args[0], element.as_pointer()), [args[1]])
            value = builder.load(pointer)
            value.align = 1
            return value

        return result(types.int64, types.int64), codegen

    kind = as_dtype(result)
    get.plain = lambda address, index: _memory(address + index * kind.itemsize, kind)[0].item()
    return get


def _setter(element: Any, kind: Any) -> Any:
    @intrinsic
    def put(typingctx: Any, address: Any, index: Any, value: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pointer = builder.gep(builder.inttoptr(args[0], element.as_pointer()), [args[1]])
            builder.store(args[2], pointer).align = 1
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, kind), codegen

    stored = as_dtype(kind)

    def plain(address: int, index: int, value: Any) -> None:
        _memory(address + index * stored.itemsize, stored)[0] = value

    put.plain = plain
    return put


get_u8, get_s8 = _getter(I8, types.uint8), _getter(I8, types.int8)
get_s16, get_s32 = _getter(I16, types.int16), _getter(I32, types.int32)
get_u16, get_u32, get_u64 = _getter(I16, types.uint16), _getter(I32, types.uint32), _getter(I64, types.uint64)
get_s64, get_f32 = _getter(I64, types.int64), _getter(F32, types.float32)
put_u8, put_s8 = _setter(I8, types.uint8), _setter(I8, types.int8)
put_s16, put_s32 = _setter(I16, types.int16), _setter(I32, types.int32)
put_s64, put_f32 = _setter(I64, types.int64), _setter(F32, types.float32)


@intrinsic
def copy_bytes(typingctx: Any, target: Any, source: Any, n: Any) -> Any:
    """memcpy between two addresses."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = I8.as_pointer()
        copy = builder.module.declare_intrinsic("llvm.memcpy", [pointer, pointer, I64])
        ends = [builder.inttoptr(args[n], pointer) for n in (0, 1)]
        builder.call(copy, [*ends, args[2], ir.Constant(I1, 0)])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


@intrinsic
def zero_bytes(typingctx: Any, target: Any, n: Any) -> Any:
    """memset to zero at an address."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = I8.as_pointer()
        fill = builder.module.declare_intrinsic("llvm.memset", [pointer, I64])
        builder.call(fill, [builder.inttoptr(args[0], pointer), ir.Constant(I8, 0), args[1], ir.Constant(I1, 0)])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@intrinsic
def ask_for(typingctx: Any, address: Any) -> Any:
    """Prefetch the cache line of an address into L2."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        Emitter(builder).prefetch(args[0], keep=2)
        return context.get_dummy_value()

    return types.void(types.int64), codegen


@intrinsic
def ask_near(typingctx: Any, address: Any) -> Any:
    """Prefetch the cache line of an address into L1; it need not be memory of this process."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        Emitter(builder).prefetch(args[0], keep=3)
        return context.get_dummy_value()

    return types.void(types.int64), codegen


@intrinsic
def address_of(typingctx: Any, pointer: Any) -> Any:
    """The address that a C pointer holds."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ptrtoint(args[0], I64)

    return types.int64(pointer), codegen


@intrinsic
def call_entry(typingctx: Any, entry: Any, bases: Any, block: Any, ranges: Any) -> Any:
    """Call a native entry (kernels/entry.py) by address; its status."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(I32, [I64] * 3)
        return builder.call(builder.inttoptr(args[0], kind.as_pointer()), args[1:])

    return types.int32(types.int64, types.int64, types.int64, types.int64), codegen
