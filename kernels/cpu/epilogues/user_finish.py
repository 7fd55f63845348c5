"""Finish entries generated for a chain of element-wise steps with the user's functions among them.

Like those of finish.py they take tiles of sums, still in L1, to the output, one row of a tile at a time. What happens to
an element is the text that each step's own tile function is made of (nest.py: Element), one after the other, so the
fused result has the bits of the separate steps. A row is a loop of exactly one vector's elements, which LLVM turns into
straight vector code: nothing of it is left scalar, whatever the row's length.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ....primitives import dtypes
from ...chain import written
from ...elementwise import Add, AddQuantized, Clip, Elementwise, QuantizedElementwise, Relu
from ...indexing import Index, whole
from ...map import Map
from ...quantize import Dequantize, Quantize
from ...requantize import Requantize
from .. import isa
from ..elementwise import (
    add_element,
    add_quantized_element,
    clip_element,
    elementwise_element,
    quantized_element,
    relu_element,
)
from ..gemm import driver as gemm
from ..lanes import TYPES
from ..map import map_element
from ..nest import Element
from ..quantize import dequantize_element, quantize_element
from ..requantize import requantize_element

MOST_ARRAYS = 6  # operands by column or element: as many rows as the work area has room for
ROW = 64  # where in the work area the row of the output begins that cannot be written in place
ROW_BYTES = 256

_ELEMENTS: dict[type, Callable[..., Element]] = {
    Add: add_element,
    AddQuantized: add_quantized_element,
    Clip: clip_element,
    Dequantize: dequantize_element,
    Elementwise: elementwise_element,
    QuantizedElementwise: quantized_element,
    Map: map_element,
    Quantize: quantize_element,
    Relu: relu_element,
    Requantize: requantize_element,
}


@dataclass(frozen=True)
class Stage:
    """An element-wise step of a chain. operands: slot -> value, without the one at `at`, which the chain has made."""

    kernel: Any
    at: str
    operands: Mapping[str, Any]


@dataclass(frozen=True)
class UserFinish:
    """
    out       element type of the output
    sums      element type of the tiles: s32 or f32
    operands  (type, kind) of what the steps read beside the value; the kind is "one", "row", "column" or "full"
    text      of a module part that defines `element(v0, x0, x1, ..)`: sum and operands to an element of `out`
    lanes     elements that are computed side by side
    """

    lanes: int
    out: str
    operands: tuple[tuple[str, str], ...]
    text: str
    sums: str = "s32"

    def source(self) -> str:
        """Text of the generated module (gemm.gemm_entry says what the entry's ranges are)."""
        item = item_of(self.out)
        setup, each_row, arguments = [], [], []
        at = ROW + ROW_BYTES
        for n, (dtype, kind) in enumerate(self.operands):
            word, size = gemm.WORDS + 6 * n, item_of(dtype)
            start = f"bases[block[{word}]] + block[{word + 1}]"
            if kind == "one":
                setup.append(f"x{n} = get_{dtype}({start})")
            elif kind == "row":
                each_row.append(f"x{n} = get_{dtype}({start} + m * block[{word + 4}])")
            else:
                lines = setup if kind == "column" else each_row
                row = f" + m * block[{word + 4}]" if kind == "full" else ""
                lines.append(f"x{n} = {start}{row} + n0 * block[{word + 5}]")
                lines.append(f"if not (whole and block[{word + 5}] == {size}):")
                lines.append(f"    x{n} = gathered(work + {at}, x{n}, width, block[{word + 5}], {size})")
                at += ROW_BYTES
            arguments.append(f"x{n}" if kind in ("one", "row") else f"x{n} + {size} * n")
        return _MODULE.format(
            text=self.text,
            lanes=self.lanes,
            item=item,
            out=self.out,
            operands=self.operands,
            sums=self.sums,
            row=ROW,
            setup="".join(f"    {line}\n" for line in setup),
            each_row="".join(f"        {line}\n" for line in each_row),
            arguments="".join(f", {a}" for a in arguments),
        )


_MODULE = """\
from tilework.kernels.cpu.scalar import *
from tilework.kernels.cpu.simd import address_of
from tilework.kernels.cpu.lanes import gathered, get_bool, get_f32, get_s8, get_s16, get_s32, get_u8, get_u16
from tilework.kernels.cpu.lanes import lanes, scattered

{text}

vector = lanes(element, {lanes}, {operands!r}, {out!r}, {sums!r})


def entry(bases, block, ranges):
    acc, pitch, n0, width = ranges[0], ranges[1], ranges[4], ranges[5] - ranges[4]
    out = bases[block[10]] + block[11] + n0 * block[15]
    work = address_of(ranges)
    whole = width % {lanes} == 0
    in_place = whole and block[15] == {item}
{setup}    for m in range(ranges[2], ranges[3]):
        c = out + m * block[14]
        target = c if in_place else work + {row}
{each_row}        for n in range(0, width, {lanes}):
            vector(target + {item} * n, acc + 4 * n{arguments})
        if not in_place:
            scattered(c, target, width, block[15], {item})
        acc += pitch
    return np.int32(0)
"""


def user_finish(
    level: str, stages: Sequence[Stage], columns: Any = 0, sums: str = "s32"
) -> tuple[UserFinish, list[tuple[Any, Index]]]:
    """The finish of a chain, and the operands that it reads: (value, index). columns: of the output, if known.

    Two vectors side by side hide the latency of one: 12.8 ns a vector of x * sigmoid(x) become 9.0 on Zen 4.
    """
    lanes = isa.LEVELS[level].lanes
    if not isinstance(columns, int) or columns > lanes:
        lanes *= 2
    preludes: list[str] = []
    body: list[str] = []
    operands: list[tuple[Any, Index]] = []
    kinds: list[tuple[str, str]] = []
    out = sums
    for n, stage in enumerate(stages):
        element = element_of(stage, f"user{n}")
        names = {}
        for slot, index in element.operands:
            if slot == stage.at:
                name = f"v{n}"
            else:
                name = f"x{len(operands)}"
                value = stage.operands[slot]
                operands.append((value, index))
                kinds.append((value.dtype.name, kind_of(index, element.rank)))
            names[slot] = element.widen.get(slot, "{}").format(name)
        out = written(stage.kernel).dtype
        preludes.append(element.prelude)
        body.append(f"    v{n + 1} = {_typed(element.result.format(**names), out)}")
    arguments = ", ".join(["v0", *(f"x{n}" for n in range(len(operands)))])
    text = "\n\n".join(
        [
            *dict.fromkeys(p for p in preludes if p),
            f'@njit(forceinline=True, error_model="numpy")\ndef element({arguments}):\n'
            + "\n".join([*body, f"    return v{len(stages)}"]),
        ]
    )
    return UserFinish(lanes, out, tuple(kinds), text, sums), operands


def element_of(stage: Stage, name: str) -> Element:
    """The text of a step; `name` is that of a user's function in it."""
    kernel = stage.kernel
    element = map_element(kernel, name) if isinstance(kernel, Map) else _ELEMENTS[type(kernel)](kernel)
    if isinstance(kernel, Dequantize) and kernel.source == "s32" and _is_zero(stage.operands["zero_point"]):
        operands = [(slot, index) for slot, index in element.operands if slot != "zero_point"]
        return replace(element, operands=operands, result="np.float32({x}) * {scale}")  # no int64 for x - 0
    return element


def _is_zero(value: Any) -> bool:
    return getattr(value, "kind", "") == "constant" and not value.data.any()


def item_of(dtype: str) -> int:
    return int(dtypes.get(dtype).numpy.itemsize)


def _typed(expression: str, dtype: str) -> str:
    return f"bool({expression})" if dtype == "bool" else f"np.{dtypes.get(dtype).numpy}({expression})"


def kind_of(index: Index, rank: int) -> str:
    """How an operand follows the output: "one", "row", "column" or "full"."""
    axes = {at[0] for at in index if at is not None}
    column, rows = rank - 1 in axes, bool(axes - {rank - 1})
    return ("full" if rows else "column") if column else "row" if rows else "one"


def refuses(stages: Sequence[Stage], rank: int) -> str | None:
    """Why a chain cannot be a generated finish; None if it can."""
    arrays = 0
    for stage in stages:
        kernel, name = stage.kernel, stage.kernel.name
        if type(kernel) not in _ELEMENTS:
            return f"{name} is not among the stages that the epilogue has"
        if isinstance(kernel, Quantize) and kernel.rounding != "half_even":
            return f"{name} rounds {kernel.rounding}; half_even is fused"
        if written(kernel).dtype not in TYPES:
            return f"{name} writes {written(kernel).dtype}, which is not fused"
        element = element_of(stage, "user")
        for slot, index in element.operands:
            if slot == stage.at:
                if index != whole(rank):
                    return f"{name} broadcasts what came before it"
                continue
            value = stage.operands[slot]
            if value.dtype is None or value.dtype.name not in TYPES:
                return f"{name}: {slot} is {value.dtype}, which is not fused"
            axes = [at for at in index if at is not None]
            if any(block != 1 for _, block in axes) or axes != sorted(set(axes)):
                return f"{name}: {slot} goes by blocks"
            arrays += kind_of(index, rank) in ("column", "full")
        for slots, _ in element.doubt:
            unknown = [s for s in slots if s != stage.at and getattr(stage.operands[s], "kind", "") != "constant"]
            if unknown:
                return f"{name}: {unknown[0]} is known only at run time"
    if arrays > MOST_ARRAYS:
        return f"{arrays} operands by column or element; {MOST_ARRAYS} are fused"
    return None
