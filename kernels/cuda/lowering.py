"""Compiler intrinsics for numba-cuda: PTX instructions as inline assembly, and written sequences as traced IR.

Only kernels/cuda/seam.py loads this, once numba-cuda is known to be there.
"""

from __future__ import annotations

import functools
import types as python_types
from typing import Any

import numpy as np
from llvmlite import ir
from numba.cuda import types
from numba.cuda.core.errors import TypingError
from numba.cuda.extending import intrinsic

from ..floatops import Traced, scale_in_halves
from ..sequence import Sequence
from .ptx import INSTRUCTIONS, Instruction

I1, I8, I32, I64, F32 = ir.IntType(1), ir.IntType(8), ir.IntType(32), ir.IntType(64), ir.FloatType()
REGISTERS = {"s32": (types.int32, I32, "r"), "s64": (types.int64, I64, "l"), "f32": (types.float32, F32, "f")}
SPACES = {"shared": (3, I32, "r"), "global": (1, I64, "l")}


@functools.cache
def instructions() -> Any:
    """A module whose functions are the instructions of ptx.py."""
    module = python_types.ModuleType("tilework_ptx_intrinsics")
    for name, instruction in INSTRUCTIONS.items():
        setattr(module, name, _intrinsic(instruction))
    return module


def _intrinsic(instruction: Instruction) -> Any:
    kinds: list[str] = []  # one for each argument of the call
    for kind in instruction.arguments:
        kinds += [kind, "index"] if kind in SPACES else [kind]

    def typed(given: tuple[Any, ...]) -> tuple[Any, Any]:
        wanted = tuple(
            t if k in SPACES else types.int64 if k == "index" else REGISTERS[k][0]
            for t, k in zip(given, kinds, strict=True)
        )
        results = [REGISTERS[k][0] for k in instruction.results]
        result = (
            types.void if not results else results[0] if len(results) == 1 else types.UniTuple(results[0], len(results))
        )

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            values, constraints = [], []
            position = 0
            for kind in instruction.arguments:
                if kind in SPACES:
                    values.append(
                        _address(context, builder, signature.args[position], *args[position : position + 2], kind)
                    )
                    constraints.append(SPACES[kind][2])
                    position += 2
                else:
                    values.append(args[position])
                    constraints.append(REGISTERS[kind][2])
                    position += 1
            outputs = ["=" + REGISTERS[k][2] for k in instruction.results]
            made = [REGISTERS[k][1] for k in instruction.results]
            returns = ir.VoidType() if not made else made[0] if len(made) == 1 else ir.LiteralStructType(made)
            clobbers = [] if instruction.pure else ["~{memory}"]
            assembly = ir.InlineAsm(
                ir.FunctionType(returns, [v.type for v in values]),
                instruction.text,
                ",".join([*outputs, *constraints, *clobbers]),
                not instruction.pure,
            )
            called = builder.call(assembly, values)
            if not made:
                return context.get_dummy_value()
            if len(made) == 1:
                return called
            return context.make_tuple(
                builder, signature.return_type, [builder.extract_value(called, n) for n in range(len(made))]
            )

        return result(*wanted), codegen

    return _named(instruction.name, len(kinds), typed)


def _named(name: str, arguments: int, typed: Any) -> Any:
    """numba-cuda reads the number of arguments from the function."""
    names = ", ".join(f"a{n}" for n in range(arguments))
    scope: dict[str, Any] = {"typed": typed}
    exec(
        f"def {name}(typingctx{', ' if names else ''}{names}):\n    return typed(({names}{',' if names else ''}))",
        scope,
    )
    return intrinsic(scope[name])


def _address(context: Any, builder: Any, kind: Any, array: Any, index: Any, space: str) -> Any:
    """The address of an element in its own space: 32 bits for shared memory, 64 for global."""
    number, width, _ = SPACES[space]
    data = array if isinstance(kind, types.CPointer) else context.make_array(kind)(context, builder, value=array).data
    at = builder.gep(data, [index])
    return builder.ptrtoint(builder.addrspacecast(at, ir.PointerType(at.type.pointee, addrspace=number)), width)


# Written sequences -------------------------------------------------------------------------------------------------------

KINDS = {"f": (types.float32, F32), "i": (types.int32, I32), "b": (types.boolean, I1)}
_FLOAT = {"fadd": "add", "fsub": "sub", "fmul": "mul", "fdiv": "div"}


class Value(Traced):
    """One IR value of kind "f", "i" or "b". Float operations are instructions that are never contracted."""

    __hash__ = None  # type: ignore[assignment]
    __slots__ = ("builder", "kind", "value")

    def __init__(self, builder: Any, value: Any, kind: str) -> None:
        self.builder, self.value, self.kind = builder, value, kind

    def _of(self, x: Any, kind: str) -> Any:
        if isinstance(x, Value):
            if x.kind != kind:
                raise TypeError(f"kind {x.kind!r} where {kind!r} is needed")
            return x.value
        return ir.Constant(KINDS[kind][1], float(x) if kind == "f" else int(x))

    def _call(self, name: str, *args: Any) -> Value:
        instruction = INSTRUCTIONS[name]
        kinds = ["f" if k == "f32" else "i" for k in instruction.arguments]
        given = [self._of(a, k) for a, k in zip(args, kinds, strict=True)]
        (result,) = instruction.results
        letters = [REGISTERS[k][2] for k in (result, *instruction.arguments)]
        assembly = ir.InlineAsm(
            ir.FunctionType(REGISTERS[result][1], [g.type for g in given]), instruction.text, "=" + ",".join(letters)
        )
        return Value(self.builder, self.builder.call(assembly, given), "f" if result == "f32" else "i")

    def _binary(self, other: Any, on_float: str | None, on_int: str | None, reflected: bool = False) -> Value:
        op = on_float if self.kind == "f" else on_int
        if op is None:
            raise TypeError(f"this operator is not defined on kind {self.kind!r}")
        pair = (other, self) if reflected else (self, other)
        if op in _FLOAT:
            return self._call(_FLOAT[op], *pair)
        return Value(self.builder, getattr(self.builder, op)(*(self._of(x, self.kind) for x in pair)), self.kind)

    def __add__(self, other: Any) -> Value:
        return self._binary(other, "fadd", "add")

    def __radd__(self, other: Any) -> Value:
        return self._binary(other, "fadd", "add", True)

    def __sub__(self, other: Any) -> Value:
        return self._binary(other, "fsub", "sub")

    def __rsub__(self, other: Any) -> Value:
        return self._binary(other, "fsub", "sub", True)

    def __mul__(self, other: Any) -> Value:
        return self._binary(other, "fmul", "mul")

    def __rmul__(self, other: Any) -> Value:
        return self._binary(other, "fmul", "mul", True)

    def __truediv__(self, other: Any) -> Value:
        return self._binary(other, "fdiv", None)

    def __rtruediv__(self, other: Any) -> Value:
        return self._binary(other, "fdiv", None, True)

    def __and__(self, other: Any) -> Value:
        return self._binary(other, None, "and_")

    def __or__(self, other: Any) -> Value:
        return self._binary(other, None, "or_")

    def __xor__(self, other: Any) -> Value:
        return self._binary(other, None, "xor")

    def __lshift__(self, other: Any) -> Value:
        return self._binary(other, None, "shl")

    def __rshift__(self, other: Any) -> Value:
        return self._binary(other, None, "ashr")

    def __neg__(self) -> Value:
        if self.kind == "f":  # the sign bit alone
            return self._from_bits(self._bits(self) ^ -(2**31))
        return Value(self.builder, self.builder.neg(self.value), "i")

    def _compare(self, op: str, other: Any) -> Value:
        b = self._of(other, self.kind)
        if self.kind != "f":
            return Value(self.builder, self.builder.icmp_signed(op, self.value, b), "b")
        compare = self.builder.fcmp_unordered if op == "!=" else self.builder.fcmp_ordered
        return Value(self.builder, compare(op, self.value, b), "b")

    def __lt__(self, other: Any) -> Value:
        return self._compare("<", other)

    def __le__(self, other: Any) -> Value:
        return self._compare("<=", other)

    def __gt__(self, other: Any) -> Value:
        return self._compare(">", other)

    def __ge__(self, other: Any) -> Value:
        return self._compare(">=", other)

    def __eq__(self, other: Any) -> Value:  # type: ignore[override]
        return self._compare("==", other)

    def __ne__(self, other: Any) -> Value:  # type: ignore[override]
        return self._compare("!=", other)

    def primitive(self, name: str, *args: Any) -> Value:
        if name in ("fma", "sqrt", "rint", "floor", "trunc", "to_int", "to_float"):
            return self._call(name, *args)
        if name == "scale":
            return scale_in_halves(*args)
        return getattr(self, f"_{name}")(*args)

    def _ceil(self, x: Any) -> Value:
        return -self._call("floor", -Value(self.builder, self._of(x, "f"), "f"))

    def _fabs(self, x: Any) -> Value:
        return self._from_bits(self._bits(x) & 0x7FFFFFFF)

    def _copysign(self, x: Any, sign: Any) -> Value:
        return self._from_bits((self._bits(x) & 0x7FFFFFFF) | (self._bits(sign) & -(2**31)))

    def _select(self, condition: Any, yes: Any, no: Any) -> Value:
        like = next((v.kind for v in (yes, no) if isinstance(v, Value)), None)
        kind = like or ("f" if isinstance(yes, (float, np.floating)) else "i")
        test = self._of(condition, "b")
        return Value(self.builder, self.builder.select(test, self._of(yes, kind), self._of(no, kind)), kind)

    def _bits(self, x: Any) -> Value:
        return Value(self.builder, self.builder.bitcast(self._of(x, "f"), I32), "i")

    def _from_bits(self, i: Any) -> Value:
        return Value(self.builder, self.builder.bitcast(self._of(i, "i"), F32), "f")

    def _int_divide(self, a: Any, b: Any) -> Value:
        a, b = Value(self.builder, self._of(a, "i"), "i"), Value(self.builder, self._of(b, "i"), "i")
        zero, minus = b == 0, b == -1
        safe = self._select(zero, 1, self._select(minus, 1, b))
        q = Value(self.builder, self.builder.sdiv(a.value, safe.value), "i")
        return self._select(zero, 0, self._select(minus, -a, q))


_sequences: dict[str, Any] = {}


def sequence(found: Sequence) -> Any:
    """The intrinsic that writes a sequence where it is called."""
    if found.name not in _sequences:
        _sequences[found.name] = _traced(found)
    return _sequences[found.name]


def _traced(found: Sequence) -> Any:
    def typed(given: tuple[Any, ...]) -> tuple[Any, Any]:
        given = tuple(types.unliteral(t) for t in given)
        match = [s for s in found.signatures if given == tuple(KINDS[k][0] for k in s[0])]
        if not match:
            wanted = " or ".join(f"({', '.join(str(KINDS[k][0]) for k in kinds)})" for kinds, _ in found.signatures)
            raise TypingError(f"{found.name} takes {wanted}; ({', '.join(map(str, given))}) was given")
        kinds, result = match[0]

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return found.fn(*(Value(builder, a, k) for a, k in zip(args, kinds, strict=True))).value

        return KINDS[result][0](*given), codegen

    return _named(found.name, len(found.signatures[0][0]), typed)
