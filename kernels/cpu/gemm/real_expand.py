"""Which GEMMs of real numbers, and which steps after them, the micro-kernels take; and the steps that they become.

A chain may go on with a bias for each column, relu and clip, and a quantization with ties to even, then relu and clip
on the codes. Any other run of element-wise steps, a user's functions among them, is a finish generated for it
(epilogues/user_finish.py). expand.py is its counterpart for integers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ....primitives import dtypes
from ....primitives.pipeline import Value
from ...chain import Chain
from ...elementwise import Add, Clip, Relu
from ...factory import Expand, register
from ...gemm import Gemm
from ...quantize import Quantize
from .. import isa as levels
from ..epilogues.epilogue import CONSTANTS_SIZE
from ..epilogues.real_epilogue import CONSTANTS, After
from ..epilogues.real_finish import RealFinish
from ..epilogues.user_finish import Stage, UserFinish, refuses, user_finish
from . import packing
from .expand import _constant, _fixed, _one, _per_column, _size_of
from .steps import Engine, FoldColumns, PackPanels, PanelGemm, compiled
from .tiles import TILES, given_tile, work

CODES = ("u8", "s8", "u16", "s16")


@dataclass
class Epilogue:
    """What the stages of a chain come to, gathered one after another by `take`."""

    bias: Any = None
    bounds: tuple[str, ...] = ()
    code: str = ""
    scale: Any = None
    zero_point: int = 0
    lo: int = 0
    hi: int = 0
    numbers: dict[str, float] = field(default_factory=dict)
    stages: list[Stage] = field(default_factory=list)
    generated: bool = False

    def take(self, kernel: Any, at: str, operands: Mapping[str, Any], rank: int) -> str | None:
        """Take in one more stage; a text says why it cannot be. operands: slot -> value, without the chained one."""
        stages = [*self.stages, Stage(kernel, at, operands)]
        if self.generated or self._standard(kernel, at, operands, rank) is not None:
            reason = refuses(stages, rank)
            if reason is not None:
                return reason
            self.generated = True
        self.stages = stages
        return None

    def _standard(self, kernel: Any, at: str, operands: Mapping[str, Any], rank: int) -> str | None:
        if isinstance(kernel, Add) and kernel.dtype == "f32":
            return self._bias(kernel, at, operands, rank)
        if isinstance(kernel, (Relu, Clip)):
            return self._bound_code(kernel, operands) if self.code else self._bound(kernel, operands)
        if isinstance(kernel, Quantize):
            return self._quantize(kernel, operands, rank)
        return f"{kernel.name} is not among the stages that the epilogue has"

    def _bias(self, kernel: Add, at: str, operands: Mapping[str, Any], rank: int) -> str | None:
        other = "b" if at == "a" else "a"
        if self.bias is not None or self.bounds or self.code:
            return "a bias comes first, and once"
        if getattr(kernel, at) != tuple((d, 1) for d in range(rank)) or not _per_column(getattr(kernel, other), rank):
            return "what is added varies along rows"
        self.bias = operands[other]
        return None

    def _bound(self, kernel: Relu | Clip, operands: Mapping[str, Any]) -> str | None:
        kind, slots = ("relu", {"relu_f32": "zero_point"}), {"lo_f32": "lo", "hi_f32": "hi"}
        name, slots = kind if isinstance(kernel, Relu) else ("clip", slots)
        if name in self.bounds:
            return f"{name} is taken once"
        numbers = {key: _number(operands[slot]) for key, slot in slots.items()}
        if None in numbers.values():
            return "its bounds vary, or are known only at run time"
        self.bounds += (name,)
        self.numbers |= {key: float(x) for key, x in numbers.items() if x is not None}
        return None

    def _bound_code(self, kernel: Relu | Clip, operands: Mapping[str, Any]) -> str | None:
        if isinstance(kernel, Relu):
            lo, hi = _one(operands["zero_point"]), int(dtypes.get(kernel.dtype).max)
        else:
            lo, hi = _one(operands["lo"]), _one(operands["hi"])  # type: ignore[assignment]
        if lo is None or hi is None:
            return "its bounds vary, or are known only at run time"
        self.lo, self.hi = min(max(self.lo, lo), hi), min(max(self.hi, lo), hi)
        return None

    def _quantize(self, kernel: Quantize, operands: Mapping[str, Any], rank: int) -> str | None:
        if self.code:
            return "it is quantized already"
        if kernel.dtype not in CODES or kernel.rounding != "half_even":
            return f"codes {kernel.dtype} rounded {kernel.rounding} are not fused; {', '.join(CODES)} half_even are"
        zero_point = _one(operands["zero_point"])
        if zero_point is None or _constant(operands["scale"]) is None:
            return "its scale or zero point is known only at run time, or there is a zero point per channel"
        if not _per_column(kernel.scale, rank) or _constant(operands["scale"]).size == 0:
            return "scales vary along rows"
        self.code, self.scale, self.zero_point = kernel.dtype, operands["scale"], zero_point
        self.lo, self.hi = int(dtypes.get(kernel.dtype).min), int(dtypes.get(kernel.dtype).max)
        return None

    @property
    def after(self) -> After:
        return After(self.code or "f32", self.bias is not None, self.bounds)

    def record(self) -> Any:
        """The constants that tiles read (real_epilogue.CONSTANTS)."""
        record = np.zeros(CONSTANTS_SIZE, np.uint8)
        codes = {
            "zero_point": self.zero_point,
            "top_f32": self.hi - self.zero_point,
            "bottom_f32": self.lo - self.zero_point,
        }
        for name, value in {**codes, **self.numbers}.items():
            at, kind = CONSTANTS[name], np.float32 if name.endswith("_f32") else np.int32
            record[at : at + 4].view(kind)[0] = value
        return record


def _number(value: Any) -> Any:
    """The float32 that a constant of one element is; None for anything else."""
    data = _constant(value)
    return np.asarray(data).reshape(-1)[0] if data is not None and np.asarray(data).size == 1 else None


def gather(kernel: Any, operands: Mapping[str, Any]) -> tuple[Gemm, Epilogue, str | None]:
    """The GEMM and the epilogue of a kernel or a chain; and why the chain cannot be one kernel."""
    if isinstance(kernel, Gemm):
        return kernel, Epilogue(), None
    base, found = kernel.base, Epilogue()
    for n, (stage, at) in enumerate(kernel.stages):
        own = {slot.removeprefix(f"s{n}_"): v for slot, v in operands.items() if slot.startswith(f"s{n}_")}
        reason = found.take(stage, at, own, base.batch + 2)
        if reason is not None:
            return base, found, reason
    return base, found, None


def takes(kernel: Any, operands: Mapping[str, Any]) -> str | None:
    """A requirement: the float micro-kernels can run this GEMM and everything after it."""
    base = kernel.base if isinstance(kernel, Chain) else kernel
    if not base.real:
        return "it is for real numbers"
    return gather(kernel, operands)[2]


@register("expand.gemm", backend="cpu", variant="real", requires=(compiled, takes), tile_params=TILES, tile_model=work)
@register(
    "expand.fused_gemm", backend="cpu", variant="real", requires=(compiled, takes), tile_params=TILES, tile_model=work
)
def build(isa: str | None = None, tile: Mapping[str, int] | None = None) -> Expand:
    return Expand(lambda pipe, kernel, operands: expand(pipe, kernel, operands, isa, tile or {}))


def expand(
    pipe: Any, kernel: Any, operands: dict[str, Value], level_name: str | None, tile: Mapping[str, int]
) -> Value:
    """Add the steps of a GEMM and its epilogue to `pipe`; returns what they write."""
    base, epilogue, _ = gather(kernel, operands)
    level = levels.select(level_name)
    a, b = operands["a"], operands["b"]
    after: After | None = epilogue.after
    finish: RealFinish | UserFinish = RealFinish(level.name, epilogue.after)
    extra: list[Any] = []
    if epilogue.generated:
        finish, extra = user_finish(level.name, epilogue.stages, b.shape[-1], "f32")
        epilogue, after = Epilogue(), None
    engine = Engine(
        level.name,
        base.a_dtype,
        base.b_dtype,
        finish.out if isinstance(finish, UserFinish) else finish.after.out,
        finish=finish,
        direct=after is not None,
        after=after,
        **given_tile(level, tile),
    )
    given = {"bias": epilogue.bias, "multiplier": epilogue.scale}
    present = {slot: value for slot, value in given.items() if value is not None}
    if b.ndim == 2 and all(_constant(value) is not None for value in (b, *present.values())):
        packed, columns = _packed_now(pipe, engine, epilogue, b.data, present)
    else:
        packed, sums = pipe.add(PackPanels(engine, len(base.b_batch)), b=b)
        fold = FoldColumns(engine, len(base.b_batch), tuple(present))
        columns = pipe.add(fold, sums=sums, record=epilogue.record(), **present)
    shape = (*(_size_of(a, b, base, d) for d in range(base.batch)), a.shape[-2], b.shape[-1])
    read = tuple((value.dtype.name, index) for value, index in extra)
    panels = PanelGemm(engine, shape, base.batch, base.a_batch, base.b_batch, extra=read)
    more = {f"x{n}": value for n, (value, _) in enumerate(extra)}
    out: Value = pipe.add(panels, a=a, packed=packed, columns=columns, **more)
    return out


def _packed_now(pipe: Any, engine: Engine, epilogue: Epilogue, b: Any, given: Mapping[str, Value]) -> tuple[Any, Any]:
    """Packed B and its columns as constants, through NumPy: nothing has to be compiled for what runs once."""
    layout = engine.plan(*b.shape).layout
    columns = packing.aligned(packing.columns_bytes(layout))
    columns[:CONSTANTS_SIZE] = epilogue.record()
    for plane, slot in enumerate(("bias", "multiplier")):
        if slot in given:
            start = CONSTANTS_SIZE + plane * packing.plane_bytes(layout)
            columns[start : start + 4 * layout.N].view(np.float32)[:] = given[slot].data.reshape(-1)
    return _fixed(pipe, "packed", packing.pack(b, layout)), _fixed(pipe, "columns", columns)
