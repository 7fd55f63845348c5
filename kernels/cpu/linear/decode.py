"""From packed codes to weights: a chunk of a panel at a time, [k][column], for the micro-kernels of real numbers.

kernels/reference/linear.py: decode says what a weight is. Where bfloat16 is multiplied, a second pass rounds the chunk.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from .. import isa
from ..simd import F32, I32, Emitter, function, vector
from .layout import VECTORS
from .loops import ARGUMENTS, Loops

SHUFFLED = 16  # levels that one vector of AVX-512 holds
PARAMETERS = {"": 0, "scale": 1, "minus": 2, "plus": 2}  # float32 that a weight takes, by Decode.then


@dataclass(frozen=True)
class Decode:
    """Units of one block: a is the target, b the codes, c the block's parameters, epilogue the table.

    bits    of a stored code
    form    number   v = code + lowest
            shuffle  v = table[code], of at most 16 float32, in a register
            table    v = table[code]
            code     the code itself, as int32
    then    scale    w = v * p0;  minus: w = (v - p1) * p0;  plus: w = v * p0 + p1;  "": w = v
    """

    level: str
    bits: int
    form: str
    then: str
    lowest: int = 0

    @property
    def name(self) -> str:
        return f"decode_{self.level}_{self.bits}{self.form}{self.then}{-self.lowest}"


@dataclass(frozen=True)
class Round:
    """Rounds float32 to bfloat16: a is the target, b the source, steps how many rows of k, or pairs of them.

    paired   two rows become one of pairs (k, k + 1), as an instruction multiplies them; else a row stays float32
    numbers  whether none of them is NaN
    """

    level: str
    paired: bool
    numbers: bool = False

    @property
    def name(self) -> str:
        return f"round_{self.level}_{'paired' if self.paired else 'plain'}{self.numbers}"


class Decoding:
    """Emits weights from vectors of codes. The table is loaded on construction where it fits a register."""

    def __init__(self, e: Emitter, what: Decode, table: Any):
        self.e, self.what, self.lanes = e, what, isa.LEVELS[what.level].lanes
        self.width = 4 * self.lanes
        self.ints, self.floats = vector(I32, self.lanes), vector(F32, self.lanes)
        self.table = e.load(table, vector(F32, SHUFFLED), 4) if what.form == "shuffle" else table

    def parameters(self, record: Any) -> list[list[Any]]:
        """Of each vector of a panel, from the address of a block's record."""
        count, e = PARAMETERS[self.what.then], self.e
        return [
            [e.load(e.offset(record, self.width * (n * VECTORS + j)), self.floats, 4) for n in range(count)]
            for j in range(VECTORS)
        ]

    def weight(self, raw: Any, place: int, byte: int, parameters: list[Any]) -> Any:
        """The weights of k = 4 * place + byte of a unit."""
        value = self._value(raw, 8 * byte + self.what.bits * place)
        b, then = self.e.b, self.what.then
        if not then:
            return value
        scale, *second = parameters
        if then == "minus":
            return b.fmul(b.fsub(value, second[0]), scale)
        value = b.fmul(value, scale)
        return b.fadd(value, second[0]) if then == "plus" else value

    def _value(self, raw: Any, shift: int) -> Any:
        what, b = self.what, self.e.b
        code = b.lshr(raw, self.e.constant(self.ints, shift)) if shift else raw
        if not (what.form == "shuffle" and what.bits == 4):  # a shuffle looks at the low 4 bits of an index only
            code = b.and_(code, self.e.constant(self.ints, (1 << what.bits) - 1))
        if what.form == "shuffle":
            return self.e.call("llvm.x86.avx512.permvar.sf.512", self.floats, self.table, code)
        if what.form == "table":
            return self._looked_up(code)
        if what.lowest:
            code = b.add(code, self.e.constant(self.ints, what.lowest))
        return code if what.form == "code" else b.sitofp(code, self.floats)

    def _looked_up(self, code: Any) -> Any:
        b, found = self.e.b, ir.Constant(self.floats, ir.Undefined)
        start = self.e.pointer(self.table, F32)
        for n in range(self.lanes):
            at = ir.Constant(I32, n)
            value = b.load(b.gep(start, [b.extract_element(code, at)]))
            found = b.insert_element(found, value, at)
        return found


def rounded(e: Emitter, bits: Any, numbers: bool) -> Any:
    """float32 bits with the low half rounded away, ties to even; NaN stays NaN, unless there is known to be none."""
    b, ints = e.b, bits.type
    odd = b.and_(b.lshr(bits, e.constant(ints, 16)), e.constant(ints, 1))
    up = b.add(b.add(bits, e.constant(ints, 0x7FFF)), odd)
    if numbers:
        return b.and_(up, e.constant(ints, -0x10000))
    nan = b.icmp_signed(">", b.and_(bits, e.constant(ints, 0x7FFFFFFF)), e.constant(ints, 0x7F800000))
    quiet = b.or_(bits, e.constant(ints, 0x400000))
    return b.and_(b.select(nan, quiet, up), e.constant(ints, -0x10000))


class _Decode(Loops):
    def __init__(self, what: Decode, made: Any):
        super().__init__(made, ARGUMENTS)
        self.places = 8 // what.bits
        self.decoding = Decoding(self, what, self.arg["epilogue"])
        self.width = self.decoding.width
        self.parameters = self.decoding.parameters(self.arg["c"])

    def build(self) -> None:
        self.repeat(self.arg["steps"], [self.arg["a"], self.arg["b"]], self.unit)
        self.b.ret_void()

    def unit(self, now: list[Any]) -> list[Any]:
        target, source = now
        raw = [self.load(self.offset(source, self.width * j), self.decoding.ints, 4) for j in range(VECTORS)]
        for place in range(self.places):
            for byte in range(4):
                row = (4 * place + byte) * VECTORS
                for j in range(VECTORS):
                    value = self.decoding.weight(raw[j], place, byte, self.parameters[j])
                    self.store(value, self.offset(target, self.width * (row + j)), 4)
        return [self.offset(target, self.width * VECTORS * 4 * self.places), self.offset(source, self.width * VECTORS)]


class _Round(Loops):
    def __init__(self, what: Round, made: Any):
        super().__init__(made, ARGUMENTS)
        self.what, self.lanes = what, isa.LEVELS[what.level].lanes
        self.width = 4 * self.lanes
        self.ints = vector(I32, self.lanes)

    def build(self) -> None:
        rows = 2 if self.what.paired else 1

        def turn(now: list[Any]) -> list[Any]:
            target, source = now
            for j in range(VECTORS):
                words = [
                    rounded(
                        self,
                        self.load(self.offset(source, self.width * (r * VECTORS + j)), self.ints, 4),
                        self.what.numbers,
                    )
                    for r in range(rows)
                ]
                whole = words[0]
                if self.what.paired:
                    whole = self.b.or_(self.b.lshr(whole, self.constant(self.ints, 16)), words[1])
                self.store(whole, self.offset(target, self.width * j), 4)
            return [self.offset(target, self.width * VECTORS), self.offset(source, self.width * VECTORS * rows)]

        self.repeat(self.arg["steps"], [self.arg["a"], self.arg["b"]], turn)
        self.b.ret_void()


def emit(module: Any, what: Decode | Round, attributes: tuple[str, ...] = ()) -> Any:
    """What decodes, or rounds, as an internal function of the module, made once."""
    made = module.globals.get(what.name)
    if made is None:
        made = function(module, what.name, len(ARGUMENTS), attributes)
        (_Decode(what, made) if isinstance(what, Decode) else _Round(what, made)).build()
    return made


def user_source(level: str, captured: Any, position: bool = False) -> str:
    """Text of a module whose entry decodes rows of codes by a captured function.

    position   whether its last argument is the place of a weight; then the last parameter is that of a block's first one

    Its ranges: addresses of the target, of int32 codes and of the parameters, all rows of nr; how many rows; which row of
    a block the first one is.
    """
    nr = isa.LEVELS[level].lanes * VECTORS
    count = len(captured.parameters) - 1
    names = [f"x{n}" for n in range(count)]
    from ..map import converted

    kinds = [("s32" if kind == "i" else "f32", "column") for kind in captured.arg_kinds[1:]]
    values, arguments, row = ["v", *names], ["v", *names], ""
    if position:
        values[-1] = f"np.int32({names[-1]} + row)"
        arguments.append("row")
        kinds.append(("s32", "one"))
        row = ", np.int32(ranges[4] + k)"
    places = "".join(f", ranges[2] + {4 * nr * n}" for n in range(count))
    called = f"user({', '.join(values)})"
    return "\n".join(
        [
            "from tilework.kernels.cpu.scalar import *",
            "from tilework.kernels.cpu.lanes import lanes",
            "from tilework.kernels.cpu.vectormath import to_int",
            captured.prelude,
            captured.emit("user"),
            '@njit(forceinline=True, error_model="numpy")',
            f"def element({', '.join(arguments)}):",
            f"    return {converted(called, captured.returns, 'f32')}",
            "",
            f"vector = lanes(element, {nr}, {tuple(kinds)!r}, 'f32', 's32')",
            "",
            "",
            "def entry(bases, block, ranges):",
            "    for k in range(ranges[3]):",
            f"        vector(ranges[0] + {4 * nr} * k, ranges[1] + {4 * nr} * k{places}{row})",
            "    return np.int32(0)",
            "",
        ]
    )


__all__ = ["Decode", "Round", "emit", "user_source"]
