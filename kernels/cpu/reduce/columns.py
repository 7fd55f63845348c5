"""Columns that lie side by side, folded down without copies: one run of memory after another, as LLVM IR.

Each column keeps its sixteen lanes and its tree (passes.py), so what comes out has the bits of a row with the same
elements. Lane i of all columns is a run of float32 in the nearest cache, to which whole vectors are folded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..simd import I32, I64
from ..vectormath import F32, native_operations
from .moves import parts
from .passes import COUNT, FOLDS, Writer

COLUMNS = 256  # that are folded at once: the lanes of so many are 16 KiB
LEAST = 4  # columns below which copies of them are faster


def fold_columns(fn: Callable[..., Any], dtype: str, fold: str, first: int) -> Any:
    """An intrinsic `(array, source, count) -> address` of `count` folded float32, at most COLUMNS of them.

    fn      called with one traced float32, returns what is folded
    dtype   element type; f16 and bf16 arrive as float32
    fold    name of FOLDS
    first   the array's axes from here on are folded, in C order; neighbouring elements at `source` are columns
    """
    begins, _, join = FOLDS[fold]

    @intrinsic
    def folded(typingctx: Any, array: Any, source: Any, count: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            _, source, count = args
            sizes, strides, _ = parts(context, builder, array, args[0])
            lanes = Writer(builder, native_operations(*context.codegen().magic_tuple()))
            whole = builder.and_(count, _number(-COUNT))
            rest = builder.sub(count, whole)
            some = builder.icmp_signed(">", rest, _number(0))
            mask = lanes.first(builder.trunc(rest, I32))
            with builder.goto_entry_block():
                place = builder.alloca(ir.ArrayType(F32, COUNT * COLUMNS))
                place.align = 64
                turn = builder.alloca(I64)
            home = builder.ptrtoint(place, I64)

            def each(do: Callable[[Any, Any], None]) -> None:
                """do(p, mask) for every vector of columns."""
                with cgutils.for_range_slice(builder, _number(0), whole, _number(COUNT)) as (p, _):
                    do(p, None)
                with builder.if_then(some):
                    do(whole, mask)

            def lane(n: Any) -> Any:
                return builder.add(home, builder.mul(n, _number(4 * COLUMNS)))

            def begin(p: Any, _: Any) -> None:
                for n in range(COUNT):
                    lanes.store("f32", lane(_number(n)), p, lanes.value(lanes.constant(begins), "f"), None)

            def along(d: int, there: Any) -> None:
                if d < array.ndim:
                    with cgutils.for_range(builder, sizes[d], intp=I64) as loop:
                        along(d + 1, builder.add(there, builder.mul(loop.index, strides[d])))
                    return
                n = builder.load(turn)
                mine = lane(n)

                def one(p: Any, mask: Any) -> None:
                    value = fn(lanes.load(dtype, there, p, mask))
                    lanes.store("f32", mine, p, join(lanes.load("f32", mine, p, None), value), None)

                each(one)
                builder.store(builder.and_(builder.add(n, _number(1)), _number(COUNT - 1)), turn)

            def tree(p: Any, _: Any) -> None:
                kept = [lanes.load("f32", lane(_number(n)), p, None) for n in range(COUNT)]
                for step in (8, 4, 2, 1):
                    kept = [join(kept[n], kept[n + step]) for n in range(step)]
                lanes.store("f32", home, p, kept[0], None)

            each(begin)
            builder.store(_number(0), turn)
            along(first, source)
            each(tree)
            return home

        return types.int64(array, types.int64, types.int64), codegen

    return folded


def _number(n: int) -> Any:
    return ir.Constant(I64, n)
