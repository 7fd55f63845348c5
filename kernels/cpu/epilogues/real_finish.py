"""The finish entry of float32 sums: takes tiles, still in L1, to the output where a tile cannot store by itself.

That is: K in several passes, and ends of rows where the instruction set has no masked store. finish.py is its
counterpart for integers; gemm.gemm_entry says what its ranges are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .. import isa
from ..simd import F32, I64, Emitter, address_of, copy_bytes, function, vector
from .epilogue import CONSTANTS_SIZE
from .real_epilogue import After, Finisher

_ROW = 64  # where in the work area rows begin that cannot be written in place
_ARGUMENTS = ("acc", "target", "columns", "plane", "constants", "vectors")


@dataclass(frozen=True)
class RealFinish:
    level: str
    after: After


def _emit(finish: RealFinish, made: Any) -> None:
    """One row: `vectors` vectors of sums to `target`."""
    e = Emitter(ir.IRBuilder(made.append_basic_block("entry")))
    b, level = e.b, isa.LEVELS[finish.level]
    lanes, kind = level.lanes, vector(F32, level.lanes)
    arg = dict(zip(_ARGUMENTS, made.args, strict=True))
    finished = Finisher(e, finish.after, lanes, level.arch or isa.host_arch(), arg["constants"])
    before, body, end = b.block, made.append_basic_block("vector"), made.append_basic_block("done")
    b.branch(body)
    b.position_at_end(body)
    j = b.phi(I64)
    j.add_incoming(e.i64(0), before)
    first = b.mul(j, e.i64(lanes))
    at = b.shl(first, e.i64(2))

    def column(plane: int) -> Any:
        return e.load(b.add(b.add(arg["columns"], at), b.mul(arg["plane"], e.i64(plane))), kind, 4)

    x = finished(e.load(b.add(arg["acc"], at), kind, 4), column)
    e.store(x, b.add(arg["target"], b.mul(first, e.i64(finish.after.item))), 1)
    following = b.add(j, e.i64(1))
    j.add_incoming(following, b.block)
    b.cbranch(b.icmp_unsigned("<", following, arg["vectors"]), body, end)
    b.position_at_end(end)
    b.ret_void()


def _row(finish: RealFinish) -> Any:
    def emit(module: Any) -> Any:
        name = f"finish_{finish.level}_{finish.after.name}"
        made = module.globals.get(name)
        if made is None:
            made = function(module, name, len(_ARGUMENTS), isa.restriction(isa.LEVELS[finish.level]))
            _emit(finish, made)
        return made

    @intrinsic
    def row(typingctx: Any, acc: Any, target: Any, columns: Any, plane: Any, constants: Any, n: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            builder.call(emit(builder.module), args)
            return context.get_dummy_value()

        return types.void(*[types.int64] * len(_ARGUMENTS)), codegen

    return row


def finish_entry(finish: RealFinish) -> Callable[..., Any]:
    """The finish entry."""
    row, lanes, item = _row(finish), isa.LEVELS[finish.level].lanes, finish.after.item

    def entry(bases, block, ranges):
        acc, n0, width = ranges[0], ranges[4], ranges[5] - ranges[4]
        constants = bases[block[16]] + block[17]
        out = bases[block[10]] + block[11] + n0 * block[15]
        in_place = width % lanes == 0 and block[15] == item
        beside = address_of(ranges) + _ROW
        vectors = (width + lanes - 1) // lanes
        for m in range(ranges[2], ranges[3]):
            c = out + m * block[14]
            target = c if in_place else beside
            row(acc, target, constants + CONSTANTS_SIZE + 4 * n0, block[50], constants, vectors)
            if not in_place:
                if block[15] == item:
                    copy_bytes(c, target, width * item)
                else:
                    for n in range(width):
                        copy_bytes(c + n * block[15], target + n * item, item)
            acc += ranges[1]
        return np.int32(0)

    return entry
