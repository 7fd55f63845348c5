"""Functions over addresses whose loops carry vectors from turn to turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir

from ..simd import Emitter


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
