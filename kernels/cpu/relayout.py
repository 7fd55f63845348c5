"""relayout on the CPU: an image turned in blocks that are transposed in registers."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ...primitives import dtypes
from ..factory import register
from ..forge import Native
from ..relayout import Relayout
from .integers import integers, native_entry
from .simd import I8, I32, Emitter, copy_bytes, function, vector

BLOCK = 16  # channels, or positions, that are turned at once


def _emit(module: Any, item: int, wide: int) -> Any:
    """`(target, pitch, source, stride)`: BLOCK rows of wide * BLOCK elements to wide * BLOCK rows of BLOCK elements.

    Four rounds of interleaving transpose blocks of BLOCK by BLOCK; the wide form does several side by side, in the
    128-bit lanes of longer vectors.
    """
    name = f"turn_{item}_{wide}"
    made = module.globals.get(name)
    if made is not None:
        return made
    made = function(module, name, 4)
    e = Emitter(ir.IRBuilder(made.append_basic_block("entry")))
    target, pitch, source, stride = made.args
    kind = vector(I8 if item == 1 else I32, BLOCK * wide)
    block = []
    for _ in range(BLOCK):
        block.append(e.load(source, kind, 1))
        source = e.b.add(source, stride)
    n = BLOCK * wide
    low = [x for lane in range(wide) for i in range(BLOCK // 2) for x in (lane * BLOCK + i, n + lane * BLOCK + i)]
    high = [x + BLOCK // 2 for x in low]
    for _ in range(4):
        pairs = [(block[i], block[i + 8]) for i in range(8)]
        block = [e.shuffle(x, order, y) for x, y in pairs for order in (low, high)]
    for lane in range(wide):
        for row in block:
            part = row if wide == 1 else e.shuffle(row, range(lane * BLOCK, (lane + 1) * BLOCK))
            e.store(part, target, 1)
            target = e.b.add(target, pitch)
    e.b.ret_void()
    return made


def _turner(item: int, wide: int) -> Any:
    @intrinsic
    def turn(typingctx: Any, target: Any, pitch: Any, source: Any, stride: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            builder.call(_emit(builder.module, item, wide), args)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 4), codegen

    return turn


def _mover(item: int) -> Any:
    """An intrinsic `(target, source)`: one element."""

    @intrinsic
    def move(typingctx: Any, target: Any, source: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kind = ir.IntType(8 * item).as_pointer()
            value = builder.load(builder.inttoptr(args[1], kind))
            value.align = 1
            builder.store(value, builder.inttoptr(args[0], kind)).align = 1
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), codegen

    return move


def relayout_entry(item: int) -> Any:
    """The entry for elements of `item` bytes: block of x and y, both (N, D, H, W, C). Ranges: n, d, h."""
    move = _mover(item)
    blocks = item in (1, 4)
    turn, turn_wide = (_turner(item, 1), _turner(item, 4)) if blocks else (None, None)
    wide = 4 * BLOCK if item == 1 else BLOCK

    @integers
    def each(target, t_row, t_column, source, s_row, s_column, rows, columns):
        for r in range(rows):
            for c in range(columns):
                move(target + r * t_row + c * t_column, source + r * s_row + c * s_column)

    @integers
    def turned(target, t_row, t_column, source, s_row, s_column, rows, columns):
        """rows by columns, columns contiguous in source and rows in target; both have BLOCK at least."""
        for r in range(0, rows, BLOCK):
            r = min(r, rows - BLOCK)
            c = 0
            while c < columns:
                at, place = source + r * s_row, target + r * item
                if item == 1 and columns - c >= wide:
                    turn_wide(place + c * t_column, t_column, at + c, s_row)
                    c += wide
                else:
                    first = min(c, columns - BLOCK)
                    turn(place + first * t_column, t_column, at + first * item, s_row)
                    c = first + BLOCK

    @native_entry
    def entry(bases, block, ranges):
        x, y = bases[block[0]] + block[1], bases[block[12]] + block[13]
        width, channels = block[5], block[6]
        sp, sc, tp, tc = block[10], block[11], block[22], block[23]
        rows = ranges[5] - ranges[4]
        together = rows == 1 or (block[9] == width * sp and block[21] == width * tp)
        for n in range(ranges[0], ranges[1]):
            for d in range(ranges[2], ranges[3]):
                for h in range(ranges[4], ranges[5], rows if together else 1):
                    source = x + n * block[7] + d * block[8] + h * block[9]
                    target = y + n * block[19] + d * block[20] + h * block[21]
                    places = rows * width if together else width
                    if sp == channels * item and tp == sp and sc == item and tc == item:
                        copy_bytes(target, source, places * sp)
                    elif blocks and sp == item and tc == item and min(places, channels) >= BLOCK:
                        turned(target, tc, tp, source, sc, sp, channels, places)
                    elif blocks and sc == item and tp == item and min(places, channels) >= BLOCK:
                        turned(target, tp, tc, source, sp, sc, places, channels)
                    else:
                        each(target, tp, tc, source, sp, sc, places, channels)
        return 0

    return entry


@register("relayout", backend="cpu")
def build(kernel: Relayout) -> Native:
    item = dtypes.get(kernel.dtype).numpy.itemsize
    text = f"from tilework.kernels.cpu.relayout import relayout_entry\n\nentry = relayout_entry({item})\n"
    return Native(text, raw=True)
