"""The native calling convention: how a compiled tile finds its operands.

`int32 entry(const int64 *bases, const int64 *block, const int64 *ranges)`

bases    addresses of the run context's memory; bases[0] is 0, so an absolute address is base 0 plus an offset
block    per operand: base index, offset in bytes, sizes, strides in bytes; then the tile parameters
ranges   (lo, hi) per axis of the index space

A plan holds no addresses but those of constants: the same block serves every run, with another table of bases.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array

from ..primitives import dtypes

SIGNATURE = types.int32(types.CPointer(types.int64), types.CPointer(types.int64), types.CPointer(types.int64))
BUILTIN = types.int64(types.int64, types.int64, types.int64)
RAISED = -(2**31)  # the status of a tile function that raised an exception
NO_MEMORY = RAISED + 1  # of one that found no memory for the arrays that it makes

# What Numba sees of a stored element. Floats that it cannot compute with arrive as their bit patterns.
_NUMBA = {
    "bool": types.boolean,
    "u8": types.uint8,
    "s8": types.int8,
    "u16": types.uint16,
    "s16": types.int16,
    "u32": types.uint32,
    "s32": types.int32,
    "u64": types.uint64,
    "s64": types.int64,
    "f32": types.float32,
    "f64": types.float64,
    "f16": types.uint16,
    "bf16": types.uint16,
}


def numba_type(dtype: str) -> Any:
    """The Numba type of one stored element: f16 and bf16 are uint16 bit patterns, everything of 8 bits or less uint8."""
    return _NUMBA.get(dtype, types.uint8)


def bits_view(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array as compiled code sees it: types that Numba lacks become unsigned integers of the same size."""
    name = dtypes.get(array.dtype).name
    if name in _NUMBA and name not in ("f16", "bf16"):
        return array
    return array.view(np.uint16 if array.dtype.itemsize == 2 else np.uint8)


@dataclass(frozen=True)
class OperandType:
    """What of an operand is fixed at compile time.

    layout   "A": any strides. "C": contiguous. "R": contiguous along the innermost dimension.
    """

    dtype: str
    ndim: int
    layout: str = "A"

    @property
    def words(self) -> int:
        return 2 + 2 * self.ndim


def describe(operands: Sequence[OperandType]) -> str:
    return ", ".join(f"{o.dtype}[{o.ndim}]{o.layout}" for o in operands)


def array_at(dtype: str, ndim: int, layout: str = "A") -> Any:
    """An intrinsic `(bases, block, word) -> array`: the operand whose description begins at that word of the block."""
    element = numba_type(dtype)
    array_type = types.Array(element, ndim, "A" if layout == "R" else layout)
    itemsize = element.bitwidth // 8 if element is not types.boolean else 1

    @intrinsic
    def view(typingctx: Any, bases: Any, block: Any, word: Any) -> Any:
        signature = array_type(types.CPointer(types.int64), types.CPointer(types.int64), types.int64)

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            bases, block, word = args
            one = ir.IntType(64)

            def load(pointer: Any, index: Any) -> Any:
                return builder.load(builder.gep(pointer, [index], inbounds=True))

            def at(n: int) -> Any:
                return load(block, builder.add(word, ir.Constant(one, n)))

            base = load(bases, at(0))
            data_type = context.get_value_type(element)
            if isinstance(data_type, ir.IntType) and data_type.width == 1:
                data_type = ir.IntType(8)
            start = builder.inttoptr(base, ir.IntType(8).as_pointer())
            data = builder.bitcast(builder.gep(start, [at(1)]), context.get_data_type(element).as_pointer())
            sizes = [at(2 + d) for d in range(ndim)]
            strides = [at(2 + ndim + d) for d in range(ndim)]
            if layout in ("C", "R") and ndim:
                strides[-1] = ir.Constant(one, itemsize)
            if layout == "C":
                for d in range(ndim - 2, -1, -1):
                    strides[d] = builder.mul(strides[d + 1], sizes[d + 1])
            array = make_array(array_type)(context, builder)
            populate_array(
                array,
                data=data,
                shape=cgutils.pack_array(builder, sizes, one) if ndim else [],
                strides=cgutils.pack_array(builder, strides, one) if ndim else [],
                itemsize=ir.Constant(one, itemsize),
                meminfo=None,
            )
            return array._getvalue()

        return signature, codegen

    return view


@intrinsic
def status_of(typingctx: Any, result: Any) -> Any:
    """A tile function's result as a status: nothing is 0."""
    if isinstance(result, types.NoneType):
        return types.int32(result), lambda context, builder, signature, args: ir.Constant(ir.IntType(32), 0)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return context.cast(builder, args[0], result, types.int32)

    return types.int32(result), codegen


@intrinsic
def call_entry(typingctx: Any, address: Any, bases: Any, block: Any, ranges: Any) -> Any:
    """Call the native entry at an address; `block` and `ranges` are addresses too."""
    signature = types.int32(types.int64, types.CPointer(types.int64), types.int64, types.int64)
    word = ir.IntType(64).as_pointer()

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        function = ir.FunctionType(ir.IntType(32), [word, word, word])
        callee = builder.inttoptr(args[0], function.as_pointer())
        return builder.call(callee, [args[1], builder.inttoptr(args[2], word), builder.inttoptr(args[3], word)])

    return signature, codegen


@intrinsic
def call_entry_at(typingctx: Any, address: Any, bases: Any, block: Any, ranges: Any) -> Any:
    """Call the native entry at an address; the other three are addresses too."""
    signature = types.int32(types.int64, types.int64, types.int64, types.int64)
    word = ir.IntType(64).as_pointer()

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        function = ir.FunctionType(ir.IntType(32), [word, word, word])
        callee = builder.inttoptr(args[0], function.as_pointer())
        return builder.call(callee, [builder.inttoptr(a, word) for a in args[1:]])

    return signature, codegen
