"""One pass over a row of n elements, sixteen at a time, as LLVM IR traced from a Python function.

A pass reads elements of one or more rows, computes on float32 (written sequences: kernels/vectormath.py), stores
elements of one or more rows, and folds values into results. The order in which values are folded is part of the
definition (kernels/reference/reduce/lanes.py): value i goes to lane i % 16, each lane in ascending order, and the
lanes are joined by a tree. Sixteen float32 are one AVX-512 register, two of AVX2; the bits are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ...floatops import bits, from_bits, select
from ...minifloat import bf16_bits, bf16_value, f16_bits, f16_value
from ...scalarops import maximum, minimum
from ..simd import I8, I16, I32, I64, VOID
from ..vectormath import F32, Lanes, native_operations

COUNT = Lanes.lanes
FEW = 4  # chunks that are compared together
ELEMENT = {"f32": F32, "f16": I16, "bf16": I16, "u8": I8, "s8": I8, "u16": I16, "s16": I16, "s32": I32}
BYTES = {"f32": 4, "f16": 2, "bf16": 2, "u8": 1, "s8": 1, "u16": 2, "s16": 2, "s32": 4}


def _farther(a: Any, b: Any) -> Any:
    """The larger of numbers that are not negative, by their bits: NaN is above infinity."""
    i, j = bits(a), bits(b)
    return from_bits(select(i > j, i, j))


# fold: (what lanes begin with, what an absent value is, how two are joined)
FOLDS: dict[str, tuple[float, float, Callable[..., Any]]] = {
    "add": (0.0, -0.0, lambda a, b: a + b),
    "mul": (1.0, 1.0, lambda a, b: a * b),
    "max": (-float("inf"), -float("inf"), maximum.fn),
    "min": (float("inf"), float("inf"), minimum.fn),
    "farthest": (0.0, 0.0, _farther),  # of magnitudes; one instruction a vector, where max takes four
    "top": (
        -float("inf"),
        -float("inf"),
        lambda a, b: select(a > b, a, b),
    ),  # max where what comes of NaN is NaN anyway
    "bottom": (float("inf"), float("inf"), lambda a, b: select(a < b, a, b)),  # min, alike
}


def one_pass(
    fn: Callable[..., Any],
    inputs: tuple[str, ...],
    outputs: tuple[str, ...] = (),
    folds: tuple[str, ...] = (),
    numbers: int = 0,
    whole: bool = False,
) -> Any:
    """An intrinsic `(n, input addresses.., output addresses.., numbers..)` that returns the folded results.

    fn       called with one traced value an input, then the numbers; returns the values to store, then those to fold
    inputs   element types; f16 and bf16 arrive as float32, integers as int32
    outputs  element types; float32 is rounded to f16 and bf16, and what integers take is an int32 in their range
    folds    names of FOLDS
    numbers  how many float32 parameters there are
    whole    n counts whole vectors always, so that there is no code for less

    An output may be where an input is. Results: none, one float32, or a tuple of them.
    """

    def codegen(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        native = native_operations(*context.codegen().magic_tuple())
        n, addresses, given = args[0], args[1 : 1 + len(inputs) + len(outputs)], args[1 + len(inputs) + len(outputs) :]
        lanes = Writer(builder, native)
        parameters = [lanes.value(lanes.splat(x), "f") for x in given]
        totals = [cgutils.alloca_once_value(builder, lanes.constant(FOLDS[f][0])) for f in folds]

        def join(values: list[Lanes], fold: str) -> Lanes:
            while len(values) > 1:
                values = [FOLDS[fold][2](a, b) for a, b in zip(values[::2], values[1::2], strict=True)]
            return values[0]

        def several(p: Any) -> None:
            """Four chunks at once: which of them are compared first does not matter, and their latency overlaps."""
            made = []
            for n in range(FEW):
                place = builder.add(p, ir.Constant(I64, n * COUNT))
                read = [lanes.load(dtype, at, place, None) for dtype, at in zip(inputs, addresses, strict=False)]
                found = fn(*read, *parameters)
                made.append(found if isinstance(found, tuple) else (found,))
            for fold, total, values in zip(folds, totals, zip(*made, strict=True), strict=True):
                joined = FOLDS[fold][2](lanes.value(builder.load(total), "f"), join(list(values), fold))
                builder.store(joined.value, total)

        def chunk(p: Any, mask: Any) -> None:
            read = [lanes.load(dtype, at, p, mask) for dtype, at in zip(inputs, addresses, strict=False)]
            made = fn(*read, *parameters)
            made = made if isinstance(made, tuple) else (made,)
            for dtype, at, value in zip(outputs, addresses[len(inputs) :], made, strict=False):
                lanes.store(dtype, at, p, value, mask)
            for fold, total, value in zip(folds, totals, made[len(outputs) :], strict=True):
                kept = (
                    value.value if mask is None else builder.select(mask, value.value, lanes.constant(FOLDS[fold][1]))
                )
                joined = FOLDS[fold][2](lanes.value(builder.load(total), "f"), lanes.value(kept, "f"))
                builder.store(joined.value, total)

        end = n if whole else builder.and_(n, ir.Constant(I64, -COUNT))
        begin = ir.Constant(I64, 0)
        if folds and not outputs and set(folds) <= {"max", "min", "farthest", "top", "bottom"}:
            begin = builder.and_(n, ir.Constant(I64, -FEW * COUNT))
            step = ir.Constant(I64, FEW * COUNT)
            with cgutils.for_range_slice(builder, ir.Constant(I64, 0), begin, step) as (p, _):
                several(p)
        with cgutils.for_range_slice(builder, begin, end, ir.Constant(I64, COUNT)) as (p, _):
            chunk(p, None)
        if not whole:
            rest = builder.sub(n, end)
            with builder.if_then(builder.icmp_signed(">", rest, ir.Constant(I64, 0))):
                chunk(end, lanes.first(builder.trunc(rest, I32)))
        results = [lanes.joined(builder.load(t), FOLDS[f][2]) for t, f in zip(totals, folds, strict=True)]
        if not results:
            return context.get_dummy_value()
        return results[0] if len(results) == 1 else cgutils.pack_array(builder, results)

    returned = {0: types.void, 1: types.float32}.get(len(folds)) or types.UniTuple(types.float32, len(folds))
    arguments = [types.int64] * (1 + len(inputs) + len(outputs)) + [types.float32] * numbers

    def typed(typingctx: Any) -> Any:
        return returned(*arguments), codegen

    names = ", ".join(f"a{n}" for n in range(len(arguments)))
    scope: dict[str, Any] = {"typed": typed}
    exec(f"def one_pass(typingctx, {names}):\n    return typed(typingctx)", scope)
    return intrinsic(scope["one_pass"])


class Writer:
    """Loads, stores and joins of sixteen lanes."""

    def __init__(self, builder: ir.IRBuilder, native: frozenset[str]) -> None:
        self.b, self.native = builder, native

    def value(self, x: Any, kind: str) -> Lanes:
        return Lanes(self.b, x, kind, self.native)

    def constant(self, x: float) -> Any:
        return ir.Constant(ir.VectorType(F32, COUNT), [x] * COUNT)

    def splat(self, x: Any) -> Any:
        kind = ir.VectorType(x.type, COUNT)
        one = self.b.insert_element(ir.Constant(kind, ir.Undefined), x, ir.Constant(I32, 0))
        return self.b.shuffle_vector(one, one, ir.Constant(ir.VectorType(I32, COUNT), [0] * COUNT))

    def first(self, count: Any) -> Any:
        """A mask of the first `count` lanes."""
        places = ir.Constant(ir.VectorType(I32, COUNT), list(range(COUNT)))
        return self.b.icmp_signed("<", places, self.splat(count))

    def _pointer(self, dtype: str, address: Any, p: Any) -> Any:
        start = self.b.inttoptr(address, ELEMENT[dtype].as_pointer())
        return self.b.bitcast(self.b.gep(start, [p]), ir.VectorType(ELEMENT[dtype], COUNT).as_pointer())

    def load(self, dtype: str, address: Any, p: Any, mask: Any) -> Lanes:
        pointer, kind = self._pointer(dtype, address, p), ir.VectorType(ELEMENT[dtype], COUNT)
        if mask is None:
            loaded = self.b.load(pointer)
            loaded.align = 1
        else:
            name = f"llvm.masked.load.v{COUNT}{'f32' if dtype == 'f32' else f'i{ELEMENT[dtype].width}'}.p0"
            function = ir.FunctionType(kind, [pointer.type, I32, mask.type, kind])
            zero = ir.Constant(kind, [0.0 if dtype == "f32" else 0] * COUNT)
            called = cgutils.get_or_insert_function(self.b.module, function, name)
            loaded = self.b.call(called, [pointer, ir.Constant(I32, 1), mask, zero])
        if dtype == "f32":
            return self.value(loaded, "f")
        if dtype != "s32":
            extend = self.b.sext if dtype[0] == "s" else self.b.zext
            loaded = extend(loaded, ir.VectorType(I32, COUNT))
        whole = self.value(loaded, "i")
        return {"f16": f16_value.fn, "bf16": bf16_value.fn}.get(dtype, lambda x: x)(whole)

    def store(self, dtype: str, address: Any, p: Any, value: Lanes, mask: Any) -> None:
        stored = {"f16": f16_bits.fn, "bf16": bf16_bits.fn}.get(dtype, lambda x: x)(value).value
        kind = ir.VectorType(ELEMENT[dtype], COUNT)
        if stored.type != kind:
            stored = self.b.trunc(stored, kind)
        pointer = self._pointer(dtype, address, p)
        if mask is None:
            self.b.store(stored, pointer).align = 1
            return
        name = f"llvm.masked.store.v{COUNT}{'f32' if dtype == 'f32' else f'i{ELEMENT[dtype].width}'}.p0"
        function = ir.FunctionType(VOID, [kind, pointer.type, I32, mask.type])
        called = cgutils.get_or_insert_function(self.b.module, function, name)
        self.b.call(called, [stored, pointer, ir.Constant(I32, 1), mask])

    def joined(self, lanes: Any, join: Callable[..., Any]) -> Any:
        """Sixteen lanes as one number: lane i with lane i + 8, then i + 4, i + 2 and i + 1."""
        order = ir.VectorType(I32, COUNT)
        for step in (8, 4, 2, 1):
            moved = self.b.shuffle_vector(lanes, lanes, ir.Constant(order, [(i + step) % COUNT for i in range(COUNT)]))
            lanes = join(self.value(lanes, "f"), self.value(moved, "f")).value
        return self.b.extract_element(lanes, ir.Constant(I32, 0))


__all__ = ["BYTES", "COUNT", "FOLDS", "Writer", "one_pass"]
