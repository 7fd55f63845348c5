"""Which GEMMs, and which steps after them, the micro-kernels take; and the steps that they become.

A chain after a GEMM is one specialisation with run-time constants: bias, then requantize (float or fixed point), or
dequantize to f32, then relu and clip on the codes, then a residual, relu and clip again, then a table. Any other chain of
element-wise steps, a user's functions among them, is a finish generated for it (epilogues/user_finish.py). Each stage is taken in
only where the fused result is the same to the bit; `take` says why it is not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ....primitives import dtypes
from ....primitives.pipeline import Value
from ...chain import Chain
from ...elementwise import Add, AddQuantized, Clip, Relu
from ...factory import Expand, register
from ...gemm import Gemm
from ...lookup import Lookup
from ...quantize import Dequantize, Quantize
from ...requantize import Requantize
from .. import isa
from ..epilogues import quotient
from ..epilogues.epilogue import CONSTANTS, CONSTANTS_SIZE, range_constants
from ..epilogues.finish import Finish
from ..epilogues.real_epilogue import After
from ..epilogues.residual import inverse
from ..epilogues.user_finish import Stage, UserFinish, refuses, user_finish
from . import packing
from .steps import ROW_SUM, ROW_ZERO, Engine, FoldColumns, PackPanels, PanelGemm, compiled
from .tiles import TILES, given_tile, work


@dataclass
class Epilogue:
    """What the stages of a chain come to, gathered one after another by `take`."""

    out: str = "s32"
    scale: str = "none"
    code: str = ""
    zero_point: int = 0
    lo: int = 0
    hi: int = 0
    bias: Any = None
    multiplier: Any = None
    shift: Any = None
    residual: Any = None
    residual_dtype: str = ""
    sums: dict[str, float] = field(default_factory=dict)
    sum_lo: int = 0
    sum_hi: int = 0
    sum_zero_point: int = 0
    table: Any = None
    stages: list[Stage] = field(default_factory=list)  # all but the bias
    generated: bool = False
    quotient: float | None = None  # what dequantized sums are divided by before they are codes

    def take(self, kernel: Any, at: str, operands: Mapping[str, Any], rank: int) -> str | None:
        """Take in one more stage; a text says why it cannot be. operands: slot -> value, without the chained one."""
        had_bias, stage = self.bias is not None, Stage(kernel, at, operands)
        if not self.generated:
            reason = self._standard(kernel, at, operands, rank)
            if reason is None:
                if had_bias == (self.bias is not None):
                    self.stages.append(stage)
                return None
            if isinstance(kernel, Lookup):
                return reason
        reason = refuses([*self.stages, stage], rank)
        if reason is None:
            self.stages.append(stage)
            self.generated = True
        return reason

    def _standard(self, kernel: Any, at: str, operands: Mapping[str, Any], rank: int) -> str | None:
        if self.table is not None:
            return f"{kernel.name} follows a table, which comes last"
        if isinstance(kernel, Lookup):
            return self._lookup(kernel, operands)
        if isinstance(kernel, Add) and kernel.dtype == "s32":
            return self._bias(kernel, at, operands, rank)
        if isinstance(kernel, Requantize):
            return self._requantize(kernel, operands, rank)
        if isinstance(kernel, Dequantize) and kernel.source == "s32":
            return self._dequantize(kernel, operands, rank)
        if isinstance(kernel, Quantize):
            return self._quantize(kernel, operands)
        if isinstance(kernel, (Relu, Clip)):
            return self._bound(kernel, operands)
        if isinstance(kernel, AddQuantized):
            return self._residual(kernel, at, operands)
        return f"{kernel.name} is not among the stages that the epilogue has"

    def _bias(self, kernel: Add, at: str, operands: Mapping[str, Any], rank: int) -> str | None:
        other = "b" if at == "a" else "a"
        if self.scale != "none" or self.bias is not None:
            return "a bias comes first, and once"
        if getattr(kernel, at) != tuple((d, 1) for d in range(rank)) or not _per_column(getattr(kernel, other), rank):
            return "what is added varies along rows"
        self.bias = operands[other]
        return None

    def _requantize(self, kernel: Requantize, operands: Mapping[str, Any], rank: int) -> str | None:
        if self.scale != "none":
            return "it is scaled already"
        if not _per_column(kernel.multiplier, rank):
            return "multipliers vary along rows"
        names = ("multiplier", "zero_point", "lo", "hi", *(("shift",) if kernel.fixed else ()))
        if any(_constant(operands[name]) is None for name in names):
            return "its multiplier, zero point or bounds are known only at run time"
        zero_point = _one(operands["zero_point"])
        if zero_point is None:
            return "it has a zero point per channel"
        if kernel.dtype == "s32" and not kernel.fixed and zero_point:
            return "s32 codes with a zero point are not fused"
        if _constant(operands["multiplier"]).size == 0:
            return "it has no columns"
        self.scale = "fixed" if kernel.fixed else "float"
        self.out = self.code = kernel.dtype
        self.multiplier, self.shift = operands["multiplier"], operands.get("shift")
        self.zero_point, self.lo, self.hi = zero_point, _one(operands["lo"]), _one(operands["hi"])
        return None

    def _dequantize(self, kernel: Dequantize, operands: Mapping[str, Any], rank: int) -> str | None:
        if self.scale != "none":
            return "it is scaled already"
        if not _per_column(kernel.scale, rank) or _constant(operands["scale"]) is None:
            return "scales vary along rows, or are known only at run time"
        zero_point = _constant(operands["zero_point"])
        if zero_point is None or zero_point.any():
            return "the zero point of int32 sums is not 0"
        self.scale, self.out, self.multiplier = "float", "f32", operands["scale"]
        return None

    def _quantize(self, kernel: Quantize, operands: Mapping[str, Any]) -> str | None:
        if self.scale != "float" or self.code:
            return "it quantizes other numbers than dequantized sums"
        if kernel.dtype not in ("u8", "s8") or kernel.rounding != "half_even" or kernel.source != "f32":
            return f"{kernel.name} rounds {kernel.rounding} to {kernel.dtype}; half_even to 8 bits is fused"
        scale, zero_point = _constant(operands["scale"]), _one(operands["zero_point"])
        if scale is None or scale.size != 1 or zero_point is None:
            return "its scale or zero point vary, or are known only at run time"
        by, factors = float(np.asarray(scale).reshape(-1)[0]), np.abs(_constant(self.multiplier))
        if not quotient.serves(by) or not factors.size or not factors.max() < min(by * 2.0**60, 2.0**90):
            return "a division gives codes that an inverse might not"
        kind = dtypes.get(kernel.dtype)
        self.out = self.code = kernel.dtype
        self.quotient, self.zero_point, self.lo, self.hi = by, zero_point, int(kind.min), int(kind.max)
        return None

    def _bound(self, kernel: Relu | Clip, operands: Mapping[str, Any]) -> str | None:
        if not self.code:
            return "bounds are taken on codes only"
        if isinstance(kernel, Relu):
            lo, hi = _one(operands["zero_point"]), int(dtypes.get(kernel.dtype).max)
        else:
            lo, hi = _one(operands["lo"]), _one(operands["hi"])
        if lo is None or hi is None:
            return "its bounds vary, or are known only at run time"
        if self.residual is not None:
            self.sum_lo, self.sum_hi = min(max(self.sum_lo, lo), hi), min(max(self.sum_hi, lo), hi)
        else:
            self.lo, self.hi = min(max(self.lo, lo), hi), min(max(self.hi, lo), hi)
        return None

    def _residual(self, kernel: AddQuantized, at: str, operands: Mapping[str, Any]) -> str | None:
        if self.quotient is not None:
            return "what is added to quotients is added by a generated finish, which is faster here"
        if not self.code or self.residual is not None:
            return "a residual is added to codes, and once"
        if self.code not in ("u8", "s8", "u16", "s16"):
            return f"a residual is not added to {self.code}"
        other = "b" if at == "a" else "a"
        if any(index for index in kernel.params) or len(getattr(kernel, other)) != kernel.rank:
            return "scales per channel, or a residual of another rank"
        if None in getattr(kernel, other):
            return "the residual is broadcast"
        names = {
            "code_scale_f32": f"{at}_scale",
            "residual_scale_f32": f"{other}_scale",
            "residual_zero_point": f"{other}_zero_point",
            "sum_scale_f32": "scale",
        }
        if any(_constant(operands[name]) is None for name in (*names.values(), f"{at}_zero_point", "zero_point")):
            return "its scales are known only at run time"
        if _one(operands[f"{at}_zero_point"]) != self.zero_point:
            return "it reads the codes with another zero point than they were written with"
        self.sums = {name: _number(operands[slot]) for name, slot in names.items()}
        self.residual, self.residual_dtype = operands[other], getattr(kernel, f"{other}_dtype")
        self.sum_zero_point = int(_number(operands["zero_point"]))
        self.sum_lo, self.sum_hi = int(dtypes.get(kernel.dtype).min), int(dtypes.get(kernel.dtype).max)
        self.out = kernel.dtype
        return None

    def _lookup(self, kernel: Lookup, operands: Mapping[str, Any]) -> str | None:
        if self.direct and self.code:
            return "a table of codes that tiles store by themselves is a step of its own, which is faster"
        if self.out not in ("u8", "s8"):
            return "a table is read by codes of 8 bits"
        self.table, self.out = operands["table"], kernel.dtype
        return None

    @property
    def direct(self) -> bool:
        """Whether tiles store this by themselves."""
        if self.generated or self.residual is not None or self.table is not None or self.scale == "fixed":
            return False
        return self.out in ("u8", "s8") if self.code else True

    def constants(self) -> dict[str, float]:
        if not self.code:
            return {}
        found = range_constants(self.zero_point, self.lo, self.hi)
        if self.quotient is not None:
            by = np.float32(self.quotient)
            found |= {"quotient_f32": float(by), "quotient_inverse_f32": float(np.float32(1) / by)}
        if self.residual is not None:
            found |= self.sums | range_constants(self.sum_zero_point, self.sum_lo, self.sum_hi, "sum_")
            found["sum_inverse_f32"] = self.inverse or 0.0
        return found

    @property
    def inverse(self) -> float | None:
        """What a residual's sum may be multiplied by instead of being divided by its scale; None: it is divided."""
        if self.residual is None or not {self.code, self.residual_dtype, self.out} <= {"u8", "s8"}:
            return None
        kind, zero = dtypes.get(self.residual_dtype), int(self.sums["residual_zero_point"])
        return inverse(
            (self.lo - self.zero_point, self.hi - self.zero_point),
            (int(kind.min) - zero, int(kind.max) - zero),
            (self.sums["code_scale_f32"], self.sums["residual_scale_f32"], self.sums["sum_scale_f32"]),
            (self.sum_lo - self.sum_zero_point, self.sum_hi - self.sum_zero_point),
        )

    def finish(self, level: str) -> Finish:
        """What finishes tiles of int32."""
        table = self.table is not None
        return Finish(
            level, self.out, self.scale, self.residual_dtype, table, self.inverse is None, self.quotient is not None
        )

    @property
    def after(self) -> After | None:
        """What says to tiles of integers that they divide; see quotient.py."""
        return None if self.quotient is None else After(self.out)


def _per_column(index: Any, rank: int) -> bool:
    """Whether an operand is one for all, or follows the last axis alone."""
    return all(at is None or at == (rank - 1, 1) for at in index)


def _constant(value: Any) -> Any:
    return value.data if getattr(value, "kind", None) == "constant" else None


def _number(value: Any) -> float:
    return float(np.asarray(value.data).reshape(-1)[0])


def _one(value: Any) -> int | None:
    """The number that a constant of one element is; None for anything else."""
    data = _constant(value)
    return int(np.asarray(data).reshape(-1)[0]) if data is not None and np.asarray(data).size == 1 else None


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
    """A requirement: the micro-kernels can run this GEMM and everything after it."""
    base = kernel.base if isinstance(kernel, Chain) else kernel
    if base.real:
        return "f32 has kernels of its own"
    rank = base.batch + 2
    zero = base.b_zero_point
    if zero is not None and not _per_column(zero, rank):
        return "B's zero points follow the batch"
    return gather(kernel, operands)[2]


@register(
    "expand.gemm", backend="cpu", variant="microkernel", requires=(compiled, takes), tile_params=TILES, tile_model=work
)
@register(
    "expand.fused_gemm",
    backend="cpu",
    variant="microkernel",
    requires=(compiled, takes),
    tile_params=TILES,
    tile_model=work,
)
def build(isa: str | None = None, tile: Mapping[str, int] | None = None) -> Expand:
    return Expand(lambda pipe, kernel, operands: expand(pipe, kernel, operands, isa, tile or {}))


def expand(
    pipe: Any, kernel: Any, operands: dict[str, Value], level_name: str | None, tile: Mapping[str, int]
) -> Value:
    """Add the steps of a GEMM and its epilogue to `pipe`; returns what they write."""
    base, epilogue, _ = gather(kernel, operands)
    level = isa.select(level_name)
    a, b = operands["a"], operands["b"]
    a_zero, b_zero = operands.get("a_zero_point"), operands.get("b_zero_point")
    per_row = a_zero is not None and any(at is not None for at in base.a_zero_point or ())
    fits = packing.pairs_fit(b.data) if b.kind == "constant" and b.ndim == 2 and a.dtype == "u8" else False
    finish: Finish | UserFinish = epilogue.finish(level.name)
    extra: list[Any] = []
    if epilogue.generated:
        finish, extra = user_finish(level.name, epilogue.stages, b.shape[-1])
        epilogue = Epilogue(out=finish.out, bias=epilogue.bias, generated=True)
    engine = Engine(
        level.name,
        base.a_dtype,
        base.b_dtype,
        epilogue.out,
        finish=finish,
        direct=epilogue.direct,
        pairs_fit=fits,
        after=epilogue.after if epilogue.direct else None,
        **given_tile(level, tile),
    )
    shift = engine.plan(4, 64).b_shift
    known = np.zeros((), np.int64) if b_zero is None else _constant(b_zero)
    asymmetric = known is None or bool(np.any(known.astype(np.int64) + shift))
    terms = (ROW_ZERO if per_row else 0) + (ROW_SUM if asymmetric else 0)
    engine = Engine(**{**engine.__dict__, "terms": terms})
    batch_of_b = len(base.b_batch)
    given = {"bias": epilogue.bias, "multiplier": epilogue.multiplier, "shift": epilogue.shift}
    given |= {"a_zero_point": None if per_row else a_zero, "b_zero_point": b_zero}
    present = {slot: value for slot, value in given.items() if value is not None}
    if b.ndim == 2 and all(_constant(value) is not None for value in (b, *present.values())):
        packed, columns = _packed_now(pipe, engine, epilogue, b.data, present)
    else:
        packed, sums = pipe.add(PackPanels(engine, batch_of_b), b=b)
        fold = FoldColumns(engine, batch_of_b, tuple(present), epilogue.scale == "fixed")
        columns = pipe.add(fold, sums=sums, record=_record(epilogue), **present)
    batch = tuple(_size_of(a, b, base, d) for d in range(base.batch))
    panels = PanelGemm(
        engine,
        (*batch, a.shape[-2], b.shape[-1]),
        base.batch,
        base.a_batch,
        base.b_batch,
        row_zero_points=per_row,
        residual=epilogue.residual_dtype,
        table="" if epilogue.table is None else epilogue.table.dtype.name,
        extra=tuple((value.dtype.name, index) for value, index in extra),
    )
    more = {"row_zero_points": a_zero} if per_row else {}
    if epilogue.residual is not None:
        more["residual"] = epilogue.residual
    if epilogue.table is not None:
        more["table"] = epilogue.table
    more |= {f"x{n}": value for n, (value, _) in enumerate(extra)}
    out: Value = pipe.add(panels, a=a, packed=packed, columns=columns, **more)
    return out


def _packed_now(pipe: Any, engine: Engine, epilogue: Epilogue, b: Any, given: Mapping[str, Value]) -> tuple[Any, Any]:
    """Packed B and folded columns as constants, through NumPy: nothing has to be compiled for what runs once."""
    plan = engine.plan(*b.shape)
    data = {slot: value.data.reshape(-1) for slot, value in given.items()}
    a_zero = data.get("a_zero_point")
    folded = packing.fold(
        plan.layout,
        packing.column_sums(b, plan.layout.group),
        a_zero_point=None if engine.terms & ROW_ZERO else int(a_zero[0]) if a_zero is not None else 0,
        b_zero_point=data.get("b_zero_point", 0),
        a_shift=plan.a_shift,
        b_shift=plan.b_shift,
        bias=data.get("bias"),
        multiplier=data.get("multiplier"),
        shift=31 - data["shift"] if "shift" in data else None,
        constants=epilogue.constants(),
    )
    return _fixed(pipe, "packed", packing.pack(b, plan.layout)), _fixed(pipe, "columns", folded.data)


def _fixed(pipe: Any, name: str, data: Any) -> Any:
    """A constant that keeps the array as it is, with its alignment."""
    value = pipe._declare(pipe._fresh(name), dtypes.get("u8"), data.shape, "constant")
    data.flags.writeable = False
    value.data = data
    return value


def _size_of(a: Value, b: Value, base: Gemm, d: int) -> Any:
    """The size of a batch axis: that of whichever operand follows it."""
    for operand, follows in ((a, base.a_batch), (b, base.b_batch)):
        if d in follows:
            return operand.shape[follows.index(d)]
    return 1


def _record(epilogue: Epilogue) -> Any:
    """The bytes of constants that tiles read (epilogue.CONSTANTS)."""
    record = np.zeros(CONSTANTS_SIZE, np.uint8)
    for name, value in {"flip": packing.FLIP, **epilogue.constants()}.items():
        kind = np.float32 if name.endswith("_f32") else np.int32
        at = CONSTANTS[name]
        record[at : at + 4].view(kind)[0] = value
    return record
