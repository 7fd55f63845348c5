"""The written sequences on the CPU: each is an intrinsic whose LLVM IR is traced from kernels/vectormath.py.

Nothing is approximated, reordered or contracted here. A loop that calls these vectorises, because there is neither a
branch nor a library call in them. Where the target has no instruction for fma (x86 before FMA3) or for rint, floor,
ceil and trunc (before SSE4.1), the same result is computed from the operations that it has.

    from tilework.kernels.cpu.vectormath import exp, fma, sigmoid      # in a module that Numba compiles

Arguments must be float32, int32 or bool exactly; anything else is a typing error, never a silent float64.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.errors import TypingError
from numba.extending import intrinsic

from .. import activations, minifloat, polar, powers, scalarops, trigonometry, vectormath  # noqa: F401  (they register)
from ..floatops import Traced, scale_in_halves
from ..sequence import SEQUENCES, Sequence

F32, F64, I32, I64 = ir.FloatType(), ir.DoubleType(), ir.IntType(32), ir.IntType(64)
IR_TYPE = {"f": F32, "i": I32, "b": ir.IntType(1)}
NUMBA_TYPE = {"f": types.float32, "i": types.int32, "b": types.boolean}
ROUNDINGS = ("rint", "floor", "ceil", "trunc")

f32, i32 = np.float32, np.int32


_PROBES = {  # operation: (LLVM intrinsic, types of its arguments, what its code says if there is no instruction)
    "fma": ("llvm.fma.f32", "float, float, float", "fmaf"),
    "rint": ("llvm.rint.f32", "float", "rintf"),
    "floor": ("llvm.floor.f32", "float", "floorf"),
    "ceil": ("llvm.ceil.f32", "float", "ceilf"),
    "trunc": ("llvm.trunc.f32", "float", "truncf"),
    "scale": ("llvm.ldexp.f32.i32", "float, i32", "ldexpf"),
}


@functools.lru_cache(maxsize=16)
def native_operations(triple: str, cpu: str, features: str) -> frozenset[str]:
    """Return which operations the target has instructions for, by asking LLVM to compile one of each."""
    machine = llvm.Target.from_triple(triple).create_target_machine(cpu=cpu, features=features or "")
    found = set()
    for operation, (name, kinds, library_call) in _PROBES.items():
        arguments = kinds.replace("float", "float %x").replace("i32", "i32 %n")
        text = (
            f'target triple = "{triple}"\ndeclare float @{name}({kinds})\n'
            f"define float @f(float %x, i32 %n) {{\n %y = call float @{name}({arguments})\n ret float %y\n}}\n"
        )
        try:
            code = machine.emit_assembly(llvm.parse_assembly(text))
        except RuntimeError:  # an LLVM that does not know the intrinsic
            continue
        if library_call not in code:
            found.add(operation)
    return frozenset(found)


class Value(Traced):
    """One LLVM value of kind "f", "i" or "b" in the function that `builder` is writing."""

    __hash__ = None  # type: ignore[assignment]
    __slots__ = ("builder", "kind", "native", "value")
    lanes = 0  # of a vector (Lanes); 0: one number

    def __init__(self, builder: ir.IRBuilder, value: ir.Value, kind: str, native: frozenset[str]) -> None:
        self.builder, self.value, self.kind, self.native = builder, value, kind, native

    def _new(self, value: ir.Value, kind: str) -> Value:
        return type(self)(self.builder, value, kind, self.native)

    def _type(self, element: ir.Type) -> ir.Type:
        return ir.VectorType(element, self.lanes) if self.lanes else element

    def _constant(self, element: ir.Type, x: Any) -> ir.Constant:
        return ir.Constant(self._type(element), [x] * self.lanes if self.lanes else x)

    def _name(self, name: str) -> str:
        return name.replace(".f32", f".v{self.lanes}f32").replace(".i32", f".v{self.lanes}i32") if self.lanes else name

    def _operand(self, x: Any, kind: str) -> ir.Value:
        if isinstance(x, Value):
            if x.kind != kind:
                raise TypeError(f"kind {x.kind!r} where {kind!r} is needed")
            return x.value
        return self._constant(IR_TYPE[kind], float(x) if kind == "f" else int(x))

    def _binary(self, other: Any, on_float: str | None, on_int: str | None, reflected: bool = False) -> Value:
        op = on_float if self.kind == "f" else on_int
        if op is None:
            raise TypeError(f"this operator is not defined on kind {self.kind!r}")
        a, b = self.value, self._operand(other, self.kind)
        return self._new(getattr(self.builder, op)(*((b, a) if reflected else (a, b))), self.kind)

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
        return self._new(self.builder.fneg(self.value) if self.kind == "f" else self.builder.neg(self.value), self.kind)

    def _compare(self, op: str, other: Any) -> Value:
        b = self._operand(other, self.kind)
        if self.kind != "f":
            return self._new(self.builder.icmp_signed(op, self.value, b), "b")
        compare = self.builder.fcmp_unordered if op == "!=" else self.builder.fcmp_ordered
        return self._new(compare(op, self.value, b), "b")

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
        if name in ROUNDINGS and name not in self.native:
            return self._round_by_adding(name, *args)
        if name == "fma" and name not in self.native:
            return self._fma_in_float64(*args)
        if name in ("fma", "sqrt", "fabs", "copysign", *ROUNDINGS):
            return self._call(f"llvm.{name}.f32", "f", *(self._operand(a, "f") for a in args))
        if name == "scale":
            x, k = args
            if name in self.native:
                return self._call("llvm.ldexp.f32.i32", "f", self._operand(x, "f"), self._operand(k, "i"))
            return scale_in_halves(x, k)
        return getattr(self, f"_{name}")(*args)

    def _call(self, name: str, kind: str, *args: ir.Value) -> Value:
        function_type = ir.FunctionType(self._type(IR_TYPE[kind]), [a.type for a in args])
        function = cgutils.get_or_insert_function(self.builder.module, function_type, self._name(name))
        return self._new(self.builder.call(function, args), kind)

    def _select(self, condition: Any, yes: Any, no: Any) -> Value:
        like = next((v.kind for v in (yes, no) if isinstance(v, Value)), None)
        kind = like or ("f" if isinstance(yes, (float, np.floating)) else "i")
        test = self._operand(condition, "b")
        return self._new(self.builder.select(test, self._operand(yes, kind), self._operand(no, kind)), kind)

    def _bits(self, x: Any) -> Value:
        return self._new(self.builder.bitcast(self._operand(x, "f"), self._type(I32)), "i")

    def _from_bits(self, i: Any) -> Value:
        return self._new(self.builder.bitcast(self._operand(i, "i"), self._type(F32)), "f")

    def _to_float(self, i: Any) -> Value:
        return self._new(self.builder.sitofp(self._operand(i, "i"), self._type(F32)), "f")

    def _to_int(self, x: Any) -> Value:
        """What int32 holds is converted where it is chosen, so that code that asks for no more takes one instruction.

        x86 takes a vector of LLVM's own llvm.fptosi.sat apart.
        """
        x = self._new(self._operand(x, "f"), "f")
        limit = np.float32(2.0**31)
        edge = self._select(x >= limit, 2**31 - 1, self._select(x <= -limit, -(2**31), 0))
        made = self._new(self.builder.fptosi(x.value, self._type(I32)), "i")
        return self._select(self.primitive("fabs", x) < limit, made, edge)

    def _nearest_int(self, x: Any) -> Value:
        """The nearest integer, ties to even, of what int32 holds; of anything else one whose low bytes are 0 or 255.

        One instruction on x86.
        """
        name = f"llvm.lrint.v{self.lanes}i32.v{self.lanes}f32" if self.lanes else "llvm.lrint.i32.f32"
        value = self._operand(x, "f")
        found = cgutils.get_or_insert_function(
            self.builder.module, ir.FunctionType(self._type(I32), [value.type]), name
        )
        return self._new(self.builder.call(found, [value]), "i")

    def _int_divide(self, a: Any, b: Any) -> Value:
        a, b = self._new(self._operand(a, "i"), "i"), self._new(self._operand(b, "i"), "i")
        zero, minus = b == 0, b == -1
        safe = self._select(zero, 1, self._select(minus, 1, b))  # INT_MIN / -1 traps
        q = self._new(self.builder.sdiv(a.value, safe.value), "i")
        return self._select(zero, 0, self._select(minus, -a, q))

    def _round_by_adding(self, name: str, x: Value) -> Value:
        """rint, floor, ceil and trunc by adding 2**23, below which float32 has a fraction."""
        big = np.float32(8388608.0)
        a = self.primitive("fabs", x)
        r = (a + big) - big
        if name == "trunc":
            r = r - self._select(r > a, np.float32(1), np.float32(0))
        elif name != "rint":
            r = self.primitive("copysign", r, x)
            wrong = r > x if name == "floor" else r < x
            r = r - self._select(wrong, np.float32(1 if name == "floor" else -1), np.float32(0))
        return self._select(a < big, self.primitive("copysign", r, x), x)

    def _fma_in_float64(self, x: Any, y: Any, z: Any) -> Value:
        """a * b + c with one rounding, by rounding the float64 sum to odd; see floatops.fma."""
        b = self.builder
        wide_x, wide_y, q = (b.fpext(self._operand(v, "f"), self._type(F64)) for v in (x, y, z))
        p = b.fmul(wide_x, wide_y)
        s = b.fadd(p, q)
        t = b.fsub(s, p)
        e = b.fadd(b.fsub(p, b.fsub(s, t)), b.fsub(q, t))
        zero, one = self._constant(F64, 0.0), self._constant(I64, 1)
        code = b.bitcast(s, self._type(I64))
        same_sign = b.icmp_signed("==", b.fcmp_ordered(">", e, zero), b.fcmp_ordered(">", s, zero))
        step = b.select(same_sign, one, self._constant(I64, -1))
        inexact = b.fcmp_ordered("!=", e, zero)
        even = b.icmp_signed("==", b.and_(code, one), self._constant(I64, 0))
        odd = b.bitcast(b.select(b.and_(inexact, even), b.add(code, step), code), self._type(F64))
        return self._new(b.fptrunc(odd, self._type(F32)), "f")


class Lanes(Value):
    """Sixteen float32, int32 or bool side by side, as one LLVM vector: two or four registers where those are shorter."""

    __slots__ = ()
    lanes = 16


def _intrinsic_of(sequence: Sequence) -> Any:
    """Return the Numba intrinsic that writes `sequence` where it is called."""

    def typed(given: tuple[types.Type, ...]) -> tuple[Any, Callable[..., Any]]:
        given = tuple(types.unliteral(t) for t in given)
        found = [s for s in sequence.signatures if given == tuple(NUMBA_TYPE[k] for k in s[0])]
        if not found:
            wanted = " or ".join(
                f"({', '.join(str(NUMBA_TYPE[k]) for k in kinds)})" for kinds, _ in sequence.signatures
            )
            raise TypingError(f"{sequence.name} takes {wanted}; ({', '.join(map(str, given))}) was given")
        arg_kinds, result_kind = found[0]

        def codegen(context: Any, builder: ir.IRBuilder, signature: Any, args: tuple[ir.Value, ...]) -> ir.Value:
            native = native_operations(*context.codegen().magic_tuple())
            values = [Value(builder, a, k, native) for a, k in zip(args, arg_kinds, strict=True)]
            return sequence.fn(*values).value

        return NUMBA_TYPE[result_kind](*given), codegen

    names = ", ".join(f"a{i}" for i in range(len(sequence.signatures[0][0])))
    scope: dict[str, Any] = {"typed": typed}
    exec(f"def {sequence.name}(typingctx, {names}):\n    return typed(({names},))", scope)
    scope[sequence.name].__doc__ = sequence.__doc__
    return intrinsic(scope[sequence.name])


globals().update({name: _intrinsic_of(sequence) for name, sequence in SEQUENCES.items()})
__all__ = ["f32", "i32", *SEQUENCES]
