"""Values of a small float32 table by their codes, in registers: a permutation where the table fits one or two vectors.

A gather fetches every element from memory by itself: 35 cycles for 16 of them on Zen 4, where a permutation takes two.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from . import isa
from .simd import F32, I32, I64, Emitter, vector


def most_entries(level: isa.Level) -> int:
    """The largest table that is looked up in registers; 0: none is."""
    if level.arch != "x86_64":
        return 0
    return {64: 32, 32: 16}.get(level.vector_bytes, 0)


def _looked_up(e: Emitter, parts: list[Any], codes: Any) -> Any:
    """One vector of values: `parts` are the table, in vectors."""
    kind = parts[0].type
    if kind.count == 16 and len(parts) == 1:
        return e.call("llvm.x86.avx512.permvar.sf.512", kind, parts[0], codes)
    if kind.count == 16:
        return e.call("llvm.x86.avx512.vpermi2var.ps.512", kind, parts[0], codes, parts[1])
    low, high = (e.call("llvm.x86.avx2.permps", kind, part, codes) for part in parts)
    eighth = e.b.and_(codes, e.constant(codes.type, 8))
    return e.b.select(e.b.icmp_unsigned("!=", eighth, e.constant(codes.type, 0)), high, low)


@cache
def picker(level_name: str, entries: int, scaled: bool = True) -> Any:
    """`pick(table, codes, scale, out)`: out[i] = table[codes[i]] * scale for all of out; not `scaled`, without the scale.

    table   float32 array with as many entries as the level permutes, at least `entries` of them in use
    codes   uint8 or int32 array, each below `entries`
    """
    level = isa.LEVELS[level_name]
    permutes = level in isa.available()  # text for this level may be compiled for a lesser processor, to compare
    lanes = level.vector_bytes // 4
    count = -(-entries // lanes)

    @intrinsic
    def pick(typingctx: Any, table: Any, codes: Any, scale: Any, out: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            e, b = Emitter(builder), builder
            values, indices, target = (
                make_array(kind)(context, builder, value)
                for kind, value in zip((table, codes, out), (args[0], args[1], args[3]), strict=True)
            )
            floats, code = vector(F32, lanes), context.get_data_type(codes.dtype)
            (n,) = cgutils.unpack_tuple(b, target.shape)
            factor = args[2]

            def loaded(data: Any, at: Any, kind: Any, align: int) -> Any:
                place = b.gep(data, [at], inbounds=True)
                found = b.load(b.bitcast(place, kind.as_pointer()))
                found.align = align
                return found

            def widened(x: Any, kind: Any) -> Any:
                return b.zext(x, kind) if code.width < 32 else x

            parts = [loaded(values.data, e.i64(lanes * k), floats, 4) for k in range(count)]
            if scaled:
                parts = [b.fmul(part, e.splat(factor, lanes)) for part in parts]
            turns = b.udiv(n, e.i64(lanes)) if permutes else e.i64(0)
            if permutes:
                with cgutils.for_range(b, turns, intp=I64) as loop:
                    at = b.mul(loop.index, e.i64(lanes))
                    taken = widened(loaded(indices.data, at, vector(code, lanes), 1), vector(I32, lanes))
                    place = b.bitcast(b.gep(target.data, [at]), floats.as_pointer())
                    b.store(_looked_up(e, parts, taken), place).align = 4
            whole = b.mul(turns, e.i64(lanes))
            with cgutils.for_range(b, b.sub(n, whole), intp=I64) as loop:
                at = b.add(whole, loop.index)
                index = b.zext(b.load(b.gep(indices.data, [at])), I64)
                index = b.and_(index, e.i64(count * lanes - 1))
                value = b.load(b.gep(values.data, [index]))
                b.store(b.fmul(value, factor) if scaled else value, b.gep(target.data, [at]))
            return context.get_dummy_value()

        return types.void(table, codes, types.float32, out), codegen

    return pick


__all__ = ["most_entries", "picker"]
