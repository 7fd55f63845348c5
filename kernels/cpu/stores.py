"""Stores that pass the caches by, for results that are too large to be found in them again.

An ordinary store first reads the line that it writes to: a copy moves three bytes where two would do. A streamed one does
not, where whole lines are written, but what is written goes to memory. So a tile computes a piece that stays in the
nearest cache, in a buffer, and streams it from there. Whether it does is a number that comes after its operands, found
when sizes are known: nothing is compiled twice.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from . import caches
from .simd import F32, I1, I8, I32, I64, function, vector

LINE = 64
PIECE = 4096  # bytes that are computed before they are streamed
MOST_ROW = 16384  # bytes of a row that is computed as one piece
LEAST_ROW = 512  # bytes of a row that is streamed: of a shorter one too many are beside whole lines


@lru_cache(maxsize=1)
def least_bytes() -> int:
    """Of all operands of a step whose result is streamed: twice the last cache."""
    return 2 * caches.sizes()["l3"]


def streams(result: Any, operands: Any) -> int:
    """1 if the result of a step with these operands is to pass the caches by, else 0."""
    if getattr(result, "passing", False):  # only a tile of it exists, which another step reads at once
        return 0
    return int(sum(x.nbytes for x in operands) >= least_bytes())


def _stream(made: Any) -> None:
    b = ir.IRBuilder(made.append_basic_block("entry"))
    target, source, nbytes = made.args
    kind, pointer = vector(F32, LINE // 4), I8.as_pointer()
    copy = b.module.declare_intrinsic("llvm.memcpy", [pointer, pointer, I64])

    def plain(at: Any, from_: Any, n: Any) -> None:
        with b.if_then(b.icmp_signed(">", n, ir.Constant(I64, 0))):
            b.call(copy, [b.inttoptr(at, pointer), b.inttoptr(from_, pointer), n, ir.Constant(I1, 0)])

    ahead = b.and_(b.neg(target), ir.Constant(I64, LINE - 1))
    ahead = b.select(b.icmp_signed("<", ahead, nbytes), ahead, nbytes)
    plain(target, source, ahead)
    whole = b.and_(b.sub(nbytes, ahead), ir.Constant(I64, -LINE))
    to, from_ = b.add(target, ahead), b.add(source, ahead)
    with cgutils.for_range_slice(b, ir.Constant(I64, 0), whole, ir.Constant(I64, LINE)) as (p, _):
        loaded = b.load(b.inttoptr(b.add(from_, p), kind.as_pointer()))
        loaded.align = 4
        store_past(b, loaded, b.inttoptr(b.add(to, p), kind.as_pointer()))
    plain(b.add(to, whole), b.add(from_, whole), b.sub(b.sub(nbytes, ahead), whole))
    b.ret_void()


def store_past(b: Any, value: Any, pointer: Any) -> None:
    """Store a line, at a multiple of its size, past the caches."""
    stored = b.store(value, pointer)
    stored.align = LINE
    stored.set_metadata("nontemporal", b.module.add_metadata([ir.Constant(I32, 1)]))


@intrinsic
def stream(typingctx: Any, target: Any, source: Any, nbytes: Any) -> Any:
    """Copy bytes from one address to another, past the caches where they fill lines. `streamed` has to follow."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        made = builder.module.globals.get("stream_bytes")
        if made is None:
            made = function(builder.module, "stream_bytes", 3)
            _stream(made)
        builder.call(made, args)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


@intrinsic
def streamed(typingctx: Any) -> Any:
    """What was streamed before is seen by whoever sees what is stored afterwards."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if "x86" in context.codegen()._tm.triple:
            kind = ir.FunctionType(ir.VoidType(), [])
            builder.call(cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.sse.sfence"), [])
        else:
            builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def piece_buffer(typingctx: Any) -> Any:
    """The address of MOST_ROW bytes on the stack."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        with builder.goto_entry_block():
            place = builder.alloca(ir.ArrayType(I8, MOST_ROW))
        place.align = LINE
        return builder.ptrtoint(place, I64)

    return types.int64(), codegen
