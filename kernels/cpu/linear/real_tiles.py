"""The real micro-kernel of linear for few rows of x: weights are decoded in registers, and never stored.

A sum is one chain of fused multiply-adds over ascending k, so what fills the pipeline is columns: where rows are very
few, two panels are read side by side.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .. import isa
from ..dot import DOTS
from ..simd import F32, I16, I32, function
from .decode import PARAMETERS, Decode, Decoding, Round, rounded
from .layout import VECTORS
from .loops import ARGUMENTS, Loops


@dataclass(frozen=True)
class FewRows:
    """
    rows    of x
    panels  side by side
    x_item  bytes of an element of x: 4, or 2 for bfloat16
    round   what rounds weights to bfloat16; None leaves them as they are
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
        for place in range(places):
            for byte in range(4):
                weights = [self.weight(raw[j], place, byte, parameters[j]) for j in range(n)]
                for i, row in enumerate(rows):
                    value = self.x_value(self.offset(row, tile.x_item * (4 * place + byte)))
                    for j in range(n):
                        sums[i * n + j] = DOTS["fma"].emit(self, sums[i * n + j], value, weights[j])
        return [self.offset(x, 4 * places * tile.x_item), self.offset(codes, self.width * VECTORS), *sums]

    def weight(self, raw: Any, place: int, byte: int, parameters: list[Any]) -> Any:
        weight = self.decoding.weight(raw, place, byte, parameters)
        if self.tile.round is None:
            return weight
        bits = rounded(self, self.b.bitcast(weight, self.decoding.ints), self.tile.round.numbers)
        return self.b.bitcast(bits, self.decoding.floats)

    def x_value(self, address: Any) -> Any:
        if self.tile.x_item == 4:
            return self.splat(self.load(address, F32, 4), self.lanes)
        bits = self.b.shl(self.b.zext(self.load(address, I16, 2), I32), I32(16))
        return self.splat(self.b.bitcast(bits, F32), self.lanes)


def emit(module: Any, what: FewRows, attributes: tuple[str, ...] = ()) -> Any:
    """The tile as an internal function of the module, made once."""
    made = module.globals.get(what.name)
    if made is None:
        made = function(module, what.name, len(ARGUMENTS), attributes)
        _FewRows(what, made).build()
    return made


__all__ = ["Decode", "FewRows", "Round", "emit"]
