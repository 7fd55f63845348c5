"""The real micro-kernel of linear for few rows of x: weights are decoded in registers, and never stored.

A sum is one chain of fused multiply-adds over ascending k, so what fills the pipeline is columns: where rows are very
few, two panels are read side by side. Where the processor multiplies pairs of bfloat16, one instruction rounds two
weights, and the chain is that of many rows; it takes subnormal weights as zeros, as the product does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .. import isa
from ..gemm.dot import DOTS
from ..simd import BF16, F32, I16, I32, function, vector
from .decode import PARAMETERS, Decode, Decoding, Round, rounded
from .layout import VECTORS
from .loops import ARGUMENTS, Loops


@dataclass(frozen=True)
class FewRows:
    """
    rows    of x
    panels  side by side
    x_item  bytes of an element of x: 4, or 2 for bfloat16
    round   what rounds weights to bfloat16, in pairs where pairs are multiplied; None leaves them as they are
    """

    decode: Decode
    rows: int
    panels: int
    x_item: int = 4
    round: Round | None = None

    @property
    def level(self) -> str:
        return self.decode.level

    @property
    def paired(self) -> bool:
        return self.round is not None and self.round.paired

    @property
    def name(self) -> str:
        return f"few_{self.decode.name}_{self.rows}x{self.panels}_{self.x_item}{self.round.name if self.round else ''}"


class _FewRows(Loops):
    def __init__(self, tile: FewRows, made: Any):
        super().__init__(made, ARGUMENTS)
        self.tile, self.level = tile, isa.LEVELS[tile.level]
        self.decoding = Decoding(self, tile.decode, self.arg["epilogue"])
        self.lanes, self.width = self.level.lanes, 4 * self.level.lanes
        self.vectors = VECTORS * tile.panels
        self.header = 4 * self.lanes * VECTORS * PARAMETERS[tile.decode.then]

    def spaced(self, first: Any, step: Any, count: int) -> list[Any]:
        found = [first]
        for _ in range(count - 1):
            found.append(self.b.add(found[-1], step))
        return found

    def build(self) -> None:
        arg, n = self.arg, self.vectors
        rows = self.spaced(arg["c"], arg["ldc"], self.tile.rows)
        sums = [self.load(self.offset(row, self.width * j), self.decoding.floats, 4) for row in rows for j in range(n)]

        def block(now: list[Any]) -> list[Any]:
            x, record, *sums = now
            records = self.spaced(record, arg["plane"], self.tile.panels)
            parameters = [p for at in records for p in self.decoding.parameters(at)]
            start = [x, self.offset(record, self.header), *sums]
            x, _, *sums = self.repeat(arg["steps"], start, lambda state: self.unit(state, parameters))
            return [x, self.b.add(record, arg["pitch"]), *sums]

        sums = self.repeat(arg["segments"], [arg["a"], arg["b"], *sums], block)[2:]
        for k, total in enumerate(sums):
            self.store(total, self.offset(rows[k // n], self.width * (k % n)), 4)
        self.b.ret_void()

    def unit(self, now: list[Any], parameters: list[list[Any]]) -> list[Any]:
        x, codes, *sums = now
        tile, n, places = self.tile, self.vectors, 8 // self.tile.decode.bits
        rows = self.spaced(x, self.arg["lda"], tile.rows)
        raw = [
            self.load(self.offset(at, self.width * j), self.decoding.ints, 4)
            for at in self.spaced(codes, self.arg["plane"], tile.panels)
            for j in range(VECTORS)
        ]
        step, dot = (2, DOTS["vdpbf16ps"]) if tile.paired else (1, DOTS["fma"])
        for k in range(0, 4 * places, step):
            place, byte = divmod(k, 4)
            weight = self.pair if tile.paired else self.weight
            weights = [weight(raw[j], place, byte, parameters[j]) for j in range(n)]
            for i, row in enumerate(rows):
                value = self.x_value(self.offset(row, tile.x_item * k))
                for j in range(n):
                    sums[i * n + j] = dot.emit(self, sums[i * n + j], value, weights[j])
        return [self.offset(x, 4 * places * tile.x_item), self.offset(codes, self.width * VECTORS), *sums]

    def weight(self, raw: Any, place: int, byte: int, parameters: list[Any]) -> Any:
        weight = self.decoding.weight(raw, place, byte, parameters)
        if self.tile.round is None:
            return weight
        bits = rounded(self, self.b.bitcast(weight, self.decoding.ints), self.tile.round.numbers)
        return self.b.bitcast(bits, self.decoding.floats)

    def pair(self, raw: Any, place: int, byte: int, parameters: list[Any]) -> Any:
        """The weights of two values of K as bfloat16 beside each other."""
        first, second = (self.decoding.weight(raw, place, byte + n, parameters) for n in range(2))
        name = "llvm.x86.avx512bf16.cvtne2ps2bf16.512"
        both = self.b.bitcast(self.call(name, vector(BF16, 2 * self.lanes), second, first), vector(I16, 2 * self.lanes))
        order = [n // 2 + self.lanes * (n % 2) for n in range(2 * self.lanes)]
        return self.b.bitcast(self.shuffle(both, order), self.decoding.ints)

    def x_value(self, address: Any) -> Any:
        return self.splat(self.load(address, I32 if self.tile.paired else F32, 2), self.lanes)


def emit(module: Any, what: FewRows, attributes: tuple[str, ...] = ()) -> Any:
    """The tile as an internal function of the module, made once."""
    made = module.globals.get(what.name)
    if made is None:
        made = function(module, what.name, len(ARGUMENTS), attributes)
        _FewRows(what, made).build()
    return made


__all__ = ["Decode", "FewRows", "Round", "emit"]
