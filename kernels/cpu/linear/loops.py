"""Functions over addresses whose loops carry vectors from turn to turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir

from ..simd import Emitter

# Arguments of the functions here, all int64: as many as a tile of gemm/microkernel.py takes, so that `call` calls both.
ARGUMENTS = (
    "a",  # rows of x; for a function that prepares a panel, where it writes
    "lda",  # bytes between rows, or between records as written
    "steps",  # units of a block
    "tail",
    "b",  # the panel's first record, or the codes of a block
    "pitch",  # bytes of a record
    "c",  # float32 sums, which are added to; for a function that decodes, a block's parameters
    "ldc",  # bytes between rows of sums
    "columns",
    "plane",  # bytes of a panel
    "rows",
    "epilogue",  # the table
    "valid",
    "segments",  # how many blocks
    "stride",  # bytes of a block of x
    "own",
)


class Loops(Emitter):
    """Writes the body of a function whose arguments have names, with counted loops."""

    def __init__(self, made: Any, arguments: Sequence[str]):
        super().__init__(ir.IRBuilder(made.append_basic_block("entry")))
        self.function = made
        self.arg = dict(zip(arguments, made.args, strict=True))

    def repeat(self, count: Any, state: list[Any], body: Callable[[list[Any]], list[Any]]) -> list[Any]:
        """`count` times, at least once."""
        before = self.b.block
        block, end = self.function.append_basic_block("turn"), self.function.append_basic_block("done")
        self.b.branch(block)
        self.b.position_at_end(block)
        phis = [self.b.phi(x.type) for x in [count, *state]]
        for phi, x in zip(phis, [count, *state], strict=True):
            phi.add_incoming(x, before)
        made = body(phis[1:])
        left = self.b.sub(phis[0], self.i64(1))
        for phi, x in zip(phis, [left, *made], strict=True):
            phi.add_incoming(x, self.b.block)
        self.b.cbranch(self.b.icmp_unsigned("!=", left, self.i64(0)), block, end)
        self.b.position_at_end(end)
        return made
