"""linear as a pipeline step: x times the transpose of weights that stay packed codes.

kernels/reference/linear.py says what it computes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ..primitives.errors import ArgumentError, LayoutError, ShapeMismatch, Unsupported
from ..primitives.kernel import ArgSpec, Axis, IndexSpace
from ..primitives.storage import stored_as
from . import checks
from .capture import Captured, capture

BATCH = "cdefgh"  # names of the leading axes; their sizes are the same letters in upper case
KINDS = ("affine", "offset", "table", "decode")
COMPUTES = ("int8", "f32", "bf16")
REAL = ("f32", "f16", "bf16")
LARGEST = 2**31 - 1


@stored_as("code_format")
@dataclass(frozen=True)
class CodeFormat:
    """What codes of a weight matrix w (N, K) stand for, and how they lie in memory.

    bits     of a code, 1 to 8
    signed   whether codes are two's complement
    packing  "bits": each row is a stream of codes, lowest bits first: uint8 (N, ceil(K * bits / 8)).
             "bytes": one code a byte: uint8 or int8 (N, K)
    block    (rows, columns) of w that share parameters; None: the whole dimension. Neither has to divide it
    kind     affine   w = (q - zero_point) * scale             one rounding
             offset   w = q * scale + offset                   two roundings
             table    w = table[q] * scale                     q as an unsigned index
             decode   w = decode(q, *parameters)               a plain Python function
    zero_point  for affine: whether there is one; it is 0 otherwise
    decode   the function, for the kind decode
    integers which of its parameters are int32; the others are float32
    position whether its last argument is the place of the weight, n * K + k, and no parameter
    """

    bits: int = 4
    signed: bool = False
    packing: str = "bits"
    block: tuple[int | None, int | None] = (1, None)
    kind: str = "affine"
    zero_point: bool = False
    decode: Callable[..., Any] | None = None
    integers: tuple[int, ...] = ()
    position: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.bits <= 8:
            raise Unsupported(
                f"linear over codes of {self.bits} bits; 1 to 8 work: dequantize wider codes and take gemm"
            )
        checks.one_of("linear", "packing", self.packing, ("bits", "bytes"))
        checks.one_of("linear", "kind", self.kind, KINDS)
        if len(self.block) != 2 or any(n is not None and n < 1 for n in self.block):
            raise LayoutError(f"linear: block {self.block}; (rows, columns) of at least 1 each, or None for all, works")
        if (self.decode is not None) != (self.kind == "decode"):
            raise ArgumentError(
                f"linear: kind {self.kind!r} with decode={self.decode!r}; a function goes with 'decode'"
            )
        if (self.integers or self.position) and self.kind != "decode":
            raise ArgumentError(f"linear: integers and position belong to the kind 'decode', not to {self.kind!r}")
        if self.zero_point and self.kind != "affine":
            raise ArgumentError(f"linear: a zero point belongs to the kind 'affine', not to {self.kind!r}")

    @cached_property
    def captured(self) -> Captured:
        """The decode function as float32 source: what every backend runs."""
        from .capture.source import define, parameters

        assert self.decode is not None
        count = len(parameters(define(self.decode)))
        last = count - 2 if self.position else -1
        kinds = ["s32" if n in self.integers or n == last else "f32" for n in range(count - 1)]
        return capture(self.decode, ("s32", *kinds))

    @property
    def parameters(self) -> tuple[str, ...]:
        """Slots of what varies from block to block."""
        if self.kind == "affine":
            return ("scale", "zero_point") if self.zero_point else ("scale",)
        if self.kind == "offset":
            return ("scale", "offset")
        if self.kind == "table":
            return ("scale",)
        return tuple(f"p{n}" for n in range(len(self.captured.parameters) - 1 - self.position))

    def whole(self, slot: str) -> bool:
        """Whether a parameter is int32."""
        return slot == "zero_point" or slot in [f"p{n}" for n in self.integers]

    @property
    def lowest(self) -> int:
        """The least code."""
        return -(1 << (self.bits - 1)) if self.signed else 0

    @property
    def highest(self) -> int:
        return self.lowest + (1 << self.bits) - 1

    def row_bytes(self, K: int) -> int:
        return K if self.packing == "bytes" else -(-K * self.bits // 8)

    def depth(self, K: int) -> int:
        """Columns of w that share parameters; at least 1."""
        return max(1, K if self.block[1] is None else min(self.block[1], K))

    def blocks(self, N: int, K: int) -> tuple[int, int]:
        """The shape of a parameter array."""
        rows = max(1, N if self.block[0] is None else self.block[0])
        return -(-N // rows), -(-K // self.depth(K))


@stored_as("linear")
@dataclass(frozen=True)
class Linear:
    """y[.., m, n] = sum over k of x[.., m, k] * w[n, k], where w is what codes and parameters stand for.

    format      of the codes
    K           columns of w
    compute     "f32", "bf16" or "int8": what is multiplied (kernels/reference/linear.py)
    x_dtype     f32, f16 or bf16
    batch       number of leading dimensions of x
    activation  for int8: "block": x gets a scale for each row and block of w along K; "row": one for each row
    """

    format: CodeFormat
    K: int
    compute: str = "int8"
    x_dtype: str = "f32"
    batch: int = 0
    activation: str = "block"

    def __post_init__(self) -> None:
        checks.one_of("linear", "compute", self.compute, COMPUTES)
        checks.one_of("linear", "x_dtype", self.x_dtype, REAL)
        checks.one_of("linear", "activation", self.activation, ("block", "row"))
        if self.batch > len(BATCH):
            raise LayoutError(f"linear with {self.batch} leading dimensions; at most {len(BATCH)} work")
        if self.compute == "int8":
            if self.format.kind == "decode":
                raise Unsupported(
                    "linear: compute='int8' wants codes that stand for integers times a scale, and a decode function "
                    "may be anything; describe it as affine, offset or table, or use compute='f32' or 'bf16'"
                )
            deepest = LARGEST // (127 * 255)
            if self.format.depth(self.K) > deepest:
                raise Unsupported(
                    f"linear: blocks of {self.format.depth(self.K)} columns may pass int32; with compute='int8' up to "
                    f"{deepest} work: use smaller blocks, or compute='f32'"
                )

    @property
    def name(self) -> str:
        return f"linear_{self.compute}"

    @property
    def axes(self) -> tuple[str, ...]:
        return (*BATCH[: self.batch], "m", "n")

    def signature(self) -> tuple[ArgSpec, ...]:
        fmt, batch = self.format, self.axes[:-2]
        lead = tuple(axis.upper() for axis in batch)
        stored = ("u8", "s8") if fmt.packing == "bytes" and fmt.signed else "u8"
        specs = [
            ArgSpec("x", self.x_dtype, shape=(*lead, "M", self.K), follows=(*batch, "m", None)),
            ArgSpec("codes", stored, shape=("N", fmt.row_bytes(self.K)), follows=("n", None)),
        ]
        for slot in fmt.parameters:
            specs.append(ArgSpec(slot, "s32" if fmt.whole(slot) else "f32", shape=("P", fmt.blocks(1, self.K)[1])))
        if fmt.kind == "table":
            specs.append(ArgSpec("table", "f32", shape=(1 << fmt.bits,)))
        specs.append(ArgSpec("y", "f32", "write", shape=(*lead, "M", "N"), follows=self.axes))
        return tuple(specs)

    def index_space(self) -> IndexSpace:
        return IndexSpace(tuple(Axis(a, a.upper()) for a in self.axes))

    def infer(self, shapes: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
        N = shapes["codes"][0]
        if isinstance(N, int):
            wanted = self.format.blocks(N, self.K)
            for slot in self.format.parameters:
                if tuple(shapes[slot]) != wanted:
                    raise ShapeMismatch(
                        f"linear: {slot} is {tuple(shapes[slot])}; blocks of {self.format.block} over a weight of "
                        f"({N}, {self.K}) need {wanted}"
                    )
        return {}

    def execute(self, ctx: Any) -> None:
        table = ("table",) if self.format.kind == "table" else ()
        ctx.sweep(self, *(ctx.read(s) for s in ("x", "codes", *self.format.parameters, *table)), ctx.write("y"))
