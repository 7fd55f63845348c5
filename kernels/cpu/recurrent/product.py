"""The product of a state with a panel of recurrent weights, its sums in registers, as LLVM IR."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ..attention.product import dot_codes
from ..simd import F32, I32, I64, Emitter, function, vector
from ..vectormath import Lanes, native_operations

LANES = Lanes.lanes


def product(rows: int, gates: int, blocks: int, codes: bool) -> Any:
    """An intrinsic `(depth, c, ldc, gate, a, lda, panel)`: `rows` rows of sums of gates * blocks vectors, from zero.

        c[r, g, n] = sum over p of a[r, p] * panel[p, g, n]            float32: fused, in ascending p
        c[r, g, n] = sum over p and i < 4 of a[r, 4 p + i] * panel[p, g, n, i]    codes: u8 and s8, exact in int32

    c, a, panel  addresses; n counts the blocks * 16 units of a panel; ldc, lda: bytes from row to row
    gate         bytes in c from gate to gate
    """
    vectors = gates * blocks

    def emit(module: Any, target: tuple[str, str, str]) -> Any:
        name = f"recurrent_product_{rows}_{gates}_{blocks}_{'codes' if codes else 'real'}"
        made = module.globals.get(name)
        if made is not None:
            return made
        made = function(module, name, 7)
        b = ir.IRBuilder(made.append_basic_block("entry"))
        e = Emitter(b)
        depth, c, ldc, gate, a, lda, panel = made.args
        native, vnni = native_operations(*target), "+avx512vnni" in target[2].split(",")
        kind = vector(I32 if codes else F32, LANES)
        before, loop, done = b.block, made.append_basic_block("loop"), made.append_basic_block("done")
        starts = [b.add(a, b.mul(lda, ir.Constant(I64, r))) for r in range(rows)]
        b.branch(loop)
        b.position_at_end(loop)
        p, right = b.phi(I64), b.phi(I64)
        p.add_incoming(ir.Constant(I64, 0), before)
        right.add_incoming(panel, before)
        sums = [b.phi(kind) for _ in range(rows * vectors)]
        for phi in sums:
            phi.add_incoming(e.constant(kind, 0 if codes else 0.0), before)
        columns = [e.load(e.offset(right, 4 * LANES * j), kind, 4) for j in range(vectors)]
        new = []
        for r in range(rows):
            place = b.add(starts[r], b.shl(p, ir.Constant(I64, 2)))
            factor = e.splat(e.load(place, I32 if codes else F32, 1), LANES)
            for j in range(vectors):
                total = sums[r * vectors + j]
                if codes:
                    new.append(dot_codes(e, total, factor, columns[j], vnni))
                else:
                    x, y, z = (Lanes(b, v, "f", native) for v in (factor, columns[j], total))
                    new.append(x.primitive("fma", x, y, z).value)
        following = b.add(p, ir.Constant(I64, 1))
        p.add_incoming(following, b.block)
        right.add_incoming(e.offset(right, 4 * LANES * vectors), b.block)
        for phi, value in zip(sums, new, strict=True):
            phi.add_incoming(value, b.block)
        b.cbranch(b.icmp_signed("<", following, depth), loop, done)
        b.position_at_end(done)
        for n, value in enumerate(new):
            r, j = divmod(n, vectors)
            place = b.add(b.add(c, b.mul(ldc, ir.Constant(I64, r))), b.mul(gate, ir.Constant(I64, j // blocks)))
            e.store(value, e.offset(place, 4 * LANES * (j % blocks)), 4)
        b.ret_void()
        return made

    @intrinsic
    def run(typingctx: Any, depth: Any, c: Any, ldc: Any, gate: Any, a: Any, lda: Any, panel: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            builder.call(emit(builder.module, context.codegen().magic_tuple()), args)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 7), codegen

    return run
