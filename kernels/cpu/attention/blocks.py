"""Blocks of rows as LLVM IR: copied between any strides, packed side by side, and multiplied.

As text of a tile these loops take Numba longer than all that attention computes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ...attention import KEYS, LANES
from ..gemm.wide_pack import transposer
from ..simd import I1, I8, I64, function

WORD = 4


def _given(n: int) -> Any:
    return ir.Constant(I64, n)


def _intrinsic(arguments: tuple[str, ...], write: Callable[[Any, str], None], name: str) -> Any:
    """An intrinsic of int64, which `write` writes as a function of its own: (function, features of the target)."""

    def typed(typingctx: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            made = builder.module.globals.get(name)
            if made is None:
                made = function(builder.module, name, len(arguments))
                write(made, context.codegen().magic_tuple())
            builder.call(made, args)
            return context.get_dummy_value()

        return types.void(*[types.int64] * len(arguments)), codegen

    scope: dict[str, Any] = {"typed": typed}
    exec(f"def run(typingctx, {', '.join(arguments)}):\n    return typed(typingctx)", scope)
    return intrinsic(scope["run"])


def _pair(b: Any, size: int, target: Any, source: Any) -> None:
    kind = ir.IntType(8 * size).as_pointer()
    loaded = b.load(b.inttoptr(source, kind))
    loaded.align = 1
    b.store(loaded, b.inttoptr(target, kind)).align = 1


def _copy(size: int) -> Any:
    """`(target, pitch, step, source, row_step, item_step, rows, count)`: rows of `count` elements of `size` bytes.

    pitch, step          bytes from row to row, and from element to element, of the target
    row_step, item_step  of the source
    """

    def write(made: Any, _: Any) -> None:
        b = ir.IRBuilder(made.append_basic_block("entry"))
        target, pitch, step, source, row_step, item_step, rows, count = made.args
        runs = [b.icmp_signed("==", by, _given(size)) for by in (step, item_step)]
        pointer = I8.as_pointer()
        memcpy = b.module.declare_intrinsic("llvm.memcpy", [pointer, pointer, I64])
        with b.if_else(b.and_(*runs)) as (together, apart):
            with together, cgutils.for_range(b, rows, intp=I64) as row:
                ends = [b.add(target, b.mul(row.index, pitch)), b.add(source, b.mul(row.index, row_step))]
                near, far = (b.inttoptr(x, pointer) for x in ends)
                b.call(memcpy, [near, far, b.mul(count, _given(size)), ir.Constant(I1, 0)])
            with apart, cgutils.for_range(b, rows, intp=I64) as row, cgutils.for_range(b, count, intp=I64) as item:
                near = b.add(b.add(target, b.mul(row.index, pitch)), b.mul(item.index, step))
                far = b.add(b.add(source, b.mul(row.index, row_step)), b.mul(item.index, item_step))
                _pair(b, size, near, far)
        b.ret_void()

    names = ("target", "pitch", "step", "source", "row_step", "item_step", "rows", "count")
    return _intrinsic(names, write, f"attention_copy_{size}")


copy_1, copy_4 = _copy(1), _copy(4)


def _pack(made: Any, _: Any) -> None:
    b = ir.IRBuilder(made.append_basic_block("entry"))
    target, source, step, count, words = made.args
    transpose = transposer(b.module)
    rows, whole = (b.and_(x, _given(-LANES)) for x in (count, words))
    pitch = _given(WORD * KEYS)

    def place(n: Any, p: Any) -> Any:
        return b.add(target, b.add(b.mul(p, pitch), b.mul(n, _given(WORD))))

    def far(n: Any, p: Any) -> Any:
        return b.add(source, b.add(b.mul(n, step), b.mul(p, _given(WORD))))

    across = _given(LANES)
    with (
        cgutils.for_range_slice(b, _given(0), rows, across) as (n, _),
        cgutils.for_range_slice(b, _given(0), whole, across) as (p, _),
    ):
        b.call(transpose, [place(n, p), pitch, far(n, p), step])
    with cgutils.for_range(b, count, intp=I64) as row:
        first = b.select(b.icmp_signed("<", row.index, rows), whole, _given(0))
        with cgutils.for_range_slice(b, first, words, _given(1)) as (p, _):
            _pair(b, WORD, place(row.index, p), far(row.index, p))
    pointer = I8.as_pointer()
    fill = b.module.declare_intrinsic("llvm.memset", [pointer, I64])
    rest = b.mul(b.sub(_given(KEYS), count), _given(WORD))
    with cgutils.for_range(b, words, intp=I64) as word:
        b.call(fill, [b.inttoptr(place(count, word.index), pointer), ir.Constant(I8, 0), rest, ir.Constant(I1, 0)])
    b.ret_void()


# KEYS rows of words side by side for each word, of which `count` are there: target[p, n] = source[n, p], then zeros
pack_words = _intrinsic(("target", "source", "step", "count", "words"), _pack, "attention_pack_words")


def multiplier(name: str, tile: Callable[[Any, Any, int], Any], rows_of_tile: int, more: tuple[str, ...] = ()) -> Any:
    """`(rows, width, depth, c, ldc, a, lda, b, ldb, ..)`: whole groups of rows by whole vectors of columns.

    tile   (module, target, vectors) -> a function `(depth, c, ldc, a, lda, b, ldb, ..)` of one group of rows
    """

    def write(made: Any, target: Any) -> None:
        b = ir.IRBuilder(made.append_basic_block("entry"))
        rows, width, depth, c, ldc, a, lda, right, ldb, *others = made.args
        wide = b.and_(width, _given(-4 * LANES))
        with cgutils.for_range_slice(b, _given(0), rows, _given(rows_of_tile)) as (r, _):
            near, far = b.add(c, b.mul(r, ldc)), b.add(a, b.mul(r, lda))
            for vectors, first, end in ((4, _given(0), wide), (1, wide, width)):
                with cgutils.for_range_slice(b, first, end, _given(vectors * LANES)) as (n, _):
                    by = b.mul(n, _given(WORD))
                    b.call(
                        tile(b.module, target, vectors),
                        [depth, b.add(near, by), ldc, far, lda, b.add(right, by), ldb, *others],
                    )
        b.ret_void()

    names = ("rows", "width", "depth", "c", "ldc", "a", "lda", "b", "ldb", *more)
    return _intrinsic(names, write, name)


@intrinsic
def within(typingctx: Any, n: Any, most: Any) -> Any:
    """n, at least 0 and at most `most`."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        n = builder.select(builder.icmp_signed("<", args[0], args[1]), args[0], args[1])
        return builder.select(builder.icmp_signed(">", n, _given(0)), n, _given(0))

    return types.int64(types.int64, types.int64), codegen
