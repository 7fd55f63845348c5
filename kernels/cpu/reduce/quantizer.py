"""Dynamic quantization of up to 16 rows at once, as LLVM IR: no row waits for another one's extremes or divisions.

The extremes of a row are found in 16 lanes, and those of 16 rows joined by one tree whose last vector has a row in each
lane, so that scales, zero points and inverses of 16 rows take the divisions of one. Then each row is multiplied by its
inverse. kernels/reference/reduce/dynamic.py says what is computed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ...floatops import INF, f32, fabs, rint, select
from ...reference.reduce.dynamic import code_range
from ..simd import I8, I32, I64, function
from ..vectormath import F32, Lanes, native_operations
from .code_runs import CodeRun, chunks, near_of
from .passes import COUNT, FOLDS, Writer

ROWS = COUNT


def _usable(scale: Any) -> Any:
    return select(scale > f32(0.0), select(scale < INF, scale, f32(1.0)), f32(1.0))


def _symmetric(low: int, high: int, middle: int) -> Callable[..., Any]:
    """(scale, zero point) of the largest magnitude."""

    def parameters(most: Any) -> tuple[Any, Any]:
        return _usable(most / f32(high - middle)), f32(middle)

    return parameters


def _affine(low: int, high: int) -> Callable[..., Any]:
    """(scale, zero point) of the least and the greatest element, and of one that is NaN if any is."""
    steps = f32(high - low)

    def parameters(least: Any, most: Any, farthest: Any) -> tuple[Any, Any]:
        ends = select(most > f32(0.0), most, f32(0.0)), select(least < f32(0.0), least, f32(0.0))
        top, bottom = (select(farthest == farthest, end, f32(0.0)) for end in ends)
        scale = (top - bottom) / steps
        scale = _usable(select(scale == INF, top / steps - bottom / steps, scale))
        at = rint(f32(low) - bottom / scale)
        return scale, select(at < f32(low), f32(low), select(at > f32(high), f32(high), at))

    return parameters


def _finder(dtype: str, symmetric: bool) -> tuple[int, int, Callable[..., Any]]:
    """The ends of the codes, and what finds scale and zero point of the folded elements."""
    low, high = code_range(dtype, symmetric)
    middle = 128 if dtype == "u8" else 0
    return low, high, _symmetric(low, high, middle) if symmetric else _affine(low, high)


@cache
def parameters(dtype: str, symmetric: bool) -> Any:
    """An intrinsic `(lo, hi) -> (scale, zero point)`, all float32."""
    *_, find = _finder(dtype, symmetric)
    pair = types.UniTuple(types.float32, 2)

    @intrinsic
    def run(typingctx: Any, lo: Any, hi: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            lanes = Writer(builder, native_operations(*context.codegen().magic_tuple()))
            least, most = (lanes.value(lanes.splat(x), "f") for x in args)
            if symmetric:
                found = find(FOLDS["farthest"][2](fabs(least), fabs(most)))
            else:
                found = find(least, most, least)
            values = [x.value if isinstance(x, Lanes) else lanes.constant(float(x)) for x in found]
            return context.make_tuple(builder, pair, [builder.extract_element(x, ir.Constant(I32, 0)) for x in values])

        return pair(types.float32, types.float32), codegen

    return run


@cache
def quantizer(source: str, dtype: str, symmetric: bool, level: str) -> Any:
    """An intrinsic `(rows, n, x, x_step, y, y_step, scale, scale_step, zero_point, zero_point_step, ahead)`.

    rows   at most 16, of n elements each
    x ..   addresses of the first row's, and bytes from one row to the next
    ahead  so many bytes on is what is read next: it is asked for while there is arithmetic to do. 0: it is not
    """

    @intrinsic
    def run(
        typingctx: Any,
        rows: Any,
        n: Any,
        x: Any,
        x_step: Any,
        y: Any,
        y_step: Any,
        scale: Any,
        scale_step: Any,
        zero: Any,
        zero_step: Any,
        ahead: Any,
    ) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            name = f"quantize_rows_{source}_{dtype}_{symmetric}"
            made = builder.module.globals.get(name)
            if made is None:
                made = function(builder.module, name, 11)
                native = native_operations(*context.codegen().magic_tuple())
                _Quantizer(made, native, source, dtype, symmetric, level).write()
            builder.call(made, args)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 11), codegen

    return run


class _Quantizer:
    """Writes the body of the function."""

    def __init__(self, made: Any, native: frozenset[str], source: str, dtype: str, symmetric: bool, level: str) -> None:
        self.b = ir.IRBuilder(made.append_basic_block("entry"))
        self.lanes = Writer(self.b, native)
        self.kind = ir.VectorType(F32, COUNT)
        self.source, self.dtype = source, dtype
        low, high, self.parameters = _finder(dtype, symmetric)
        self.folds = ("farthest",) if symmetric else ("bottom", "top", "farthest")
        names = "rows n x x_step y y_step scale scale_step zero zero_step ahead".split()
        self.run = CodeRun(self.lanes, source, dtype, low, high, level)
        self.given = dict(zip(names, made.args, strict=True))

    def write(self) -> None:
        b, given = self.b, self.given
        found = [self._buffer(ROWS) for _ in self.folds]
        for place, fold in zip(found, self.folds, strict=True):
            for r in range(ROWS):
                b.store(self.lanes.constant(FOLDS[fold][0]), self._vector(place, ir.Constant(I64, r)))
        with cgutils.for_range(b, given["rows"], intp=I64) as loop:
            self._extremes(loop.index, found)
        joined = [self._joined(place, fold) for place, fold in zip(found, self.folds, strict=True)]
        scale, zero = self.parameters(*joined)
        zero = zero if isinstance(zero, Lanes) else self.lanes.value(self.lanes.constant(float(zero)), "f")
        numbers = [self._kept(x) for x in (scale, f32(1.0) / scale, zero, near_of(scale))]
        with cgutils.for_range(b, given["rows"], intp=I64) as loop:
            self._row(loop.index, *(b.load(b.gep(place, [loop.index])) for place in numbers))
        b.ret_void()

    def _buffer(self, count: int) -> Any:
        """`count` vectors on the stack, as a pointer to the first of their float32."""
        place = cgutils.alloca_once(self.b, ir.ArrayType(self.kind, count))
        return self.b.bitcast(place, F32.as_pointer())

    def _vector(self, place: Any, n: Any) -> Any:
        """A pointer to vector n of a buffer."""
        return self.b.gep(self.b.bitcast(place, self.kind.as_pointer()), [n])

    def _kept(self, x: Any) -> Any:
        place = self._buffer(1)
        self.b.store(x.value, self._vector(place, ir.Constant(I64, 0)))
        return place

    def _at(self, name: str, row: Any) -> Any:
        return self.b.add(self.given[name], self.b.mul(row, self.given[f"{name}_step"]))

    def _extremes(self, row: Any, found: list[Any]) -> None:
        b, lanes, x = self.b, self.lanes, self._at("x", row)
        best = [cgutils.alloca_once(b, self.kind) for _ in self.folds]
        for place, fold in zip(best, self.folds, strict=True):
            b.store(lanes.constant(FOLDS[fold][0]), place)

        def each(p: Any, mask: Any) -> None:
            value = lanes.load(self.source, x, p, mask)
            for place, fold in zip(best, self.folds, strict=True):
                _, absent, join = FOLDS[fold]
                taken = fabs(value) if fold == "farthest" else value
                kept = taken.value if mask is None else b.select(mask, taken.value, lanes.constant(absent))
                b.store(join(lanes.value(b.load(place), "f"), lanes.value(kept, "f")).value, place)

        chunks(lanes, ir.Constant(I64, 0), self.given["n"], each)
        for place, to in zip(best, found, strict=True):
            b.store(b.load(place), self._vector(to, row))

    def _joined(self, place: Any, fold: str) -> Any:
        """Sixteen vectors as one: lane r is what the lanes of vector r come to."""
        b, join = self.b, FOLDS[fold][2]
        vectors = [b.load(self._vector(place, ir.Constant(I64, r))) for r in range(ROWS)]
        half = COUNT // 2
        while half:  # two vectors become one: of each run of 2 * half lanes, halves of the first, then of the second
            pairs = []
            for x, y in zip(vectors[: len(vectors) // 2], vectors[len(vectors) // 2 :], strict=True):
                runs = range(0, COUNT, 2 * half)
                near = [run + k + COUNT * other for run in runs for other in (0, 1) for k in range(half)]
                far = [k + half for k in near]
                a, c = (b.shuffle_vector(x, y, ir.Constant(ir.VectorType(I32, COUNT), order)) for order in (near, far))
                pairs.append(join(self.lanes.value(a, "f"), self.lanes.value(c, "f")).value)
            vectors, half = pairs, half // 2
        return self.lanes.value(vectors[0], "f")

    def _row(self, row: Any, scale: Any, inverse: Any, zero: Any, near: Any) -> None:
        b, lanes, given = self.b, self.lanes, self.given
        b.store(scale, b.inttoptr(self._at("scale", row), F32.as_pointer())).align = 1
        code = b.trunc(b.fptosi(zero, I32), I8)
        b.store(code, b.inttoptr(self._at("zero", row), I8.as_pointer())).align = 1
        same = [lanes.value(lanes.splat(v), "f") for v in (scale, inverse, zero)]
        self.run.write(given["n"], self._at("x", row), self._at("y", row), *same, lanes.splat(near), given["ahead"])
