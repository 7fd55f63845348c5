"""lookup on the CPU: 64 elements at a time where the processor permutes bytes, else one by one.

kernels/reference/lookup.py says what it computes.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ..factory import WithParams, register
from ..indexing import whole
from ..lookup import Lookup
from . import isa as levels
from .nest import Element, nest
from .simd import I8, I64, Emitter, function, vector

GROUP = 64  # bytes of a vector
PERMUTES = "avx512vbmi"  # the feature that has a permutation of bytes across a vector


def permutes(level: levels.Level) -> bool:
    """Whether code for this level may permute bytes: the target has it, and the level is not held below its best."""
    best = level.name == levels.available()[-1].name
    return best and level.vector_bytes == GROUP and levels.has(PERMUTES)


@register("lookup", backend="cpu")
def build(kernel: Lookup, isa: str | None = None) -> WithParams:
    wide = permutes(levels.select(isa))
    return nest(
        Element(
            kernel.rank,
            [("x", whole(kernel.rank))],
            result="{table}[np.uint8({x})]",
            tables=("table",),
            prelude=f"from {__name__} import look_up" if wide else "",
            groups=(GROUP, "look_up") if wide and kernel.rank else None,
        )
    )


def _emit(module: Any, group: int) -> Any:
    """`(length, target, source, table)`: whole groups of codes, among `length` of them, replaced by their entries.

    Four vectors hold the table. A permutation of two of them goes by the lowest seven bits of a code; the highest bit
    chooses between the lower and the upper half of the table.
    """
    name = f"look_up_{group}"
    made = module.globals.get(name)
    if made is not None:
        return made
    made = function(module, name, 4)
    e = Emitter(ir.IRBuilder(made.append_basic_block("entry")))
    b, entry = e.b, e.b.block
    length, target, source, table = made.args
    kind = vector(I8, GROUP)
    parts = [e.load(e.offset(table, GROUP * n), kind, 1) for n in range(4)]
    end = b.and_(length, e.i64(-group))
    body, done = made.append_basic_block("group"), made.append_basic_block("done")
    b.cbranch(b.icmp_signed(">", end, e.i64(0)), body, done)
    b.position_at_end(body)
    at = b.phi(I64)
    at.add_incoming(e.i64(0), entry)
    codes = e.load(b.add(source, at), vector(I8, group), 1)
    if group < GROUP:
        codes = e.shuffle(codes, [n % group for n in range(GROUP)])
    low, high = (
        e.call("llvm.x86.avx512.vpermi2var.qi.512", kind, first, codes, second)
        for first, second in (parts[:2], parts[2:])
    )
    found = b.select(b.icmp_signed("<", codes, e.constant(kind, 0)), high, low)
    e.store(found if group == GROUP else e.shuffle(found, range(group)), b.add(target, at), 1)
    following = b.add(at, e.i64(group))
    at.add_incoming(following, body)
    b.cbranch(b.icmp_signed("<", following, end), body, done)
    b.position_at_end(done)
    b.ret_void()
    return made


def _looker(group: int) -> Any:
    @intrinsic
    def look_up(typingctx: Any, length: Any, target: Any, source: Any, table: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            builder.call(_emit(builder.module, group), args)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 4), codegen

    return look_up


look_up, look_up_16 = _looker(GROUP), _looker(16)
