"""Products with quantized weights: what codes look like to the step `linear`, and plans kept beside the weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...kernels import ops
from ...kernels.linear import CodeFormat
from ...kernels.schemes.definition import WHOLE
from ...kernels.schemes.probe import Decoding, decoded, factors, probe
from ...primitives.errors import ArgumentError, ShapeMismatch
from ...primitives.pipeline import Pipeline
from .running import Array, as_floats

if TYPE_CHECKING:
    from .tensor import QuantizedTensor

MOST_VALUES = 256  # of an integer parameter that plain Python is asked about
COMPUTES = ("auto", "f32", "bf16", "int8")


def matmul(a: Any, q: QuantizedTensor, compute: str = "auto") -> Array:
    """a @ w.T, float32 (.., M, N); the plan is made once for a tensor and a way of computing."""
    if compute not in COMPUTES:
        raise ArgumentError(f"compute={compute!r}; {', '.join(COMPUTES)} work")
    compute = "f32" if compute == "auto" else compute
    if q.ndim != 2:
        raise ShapeMismatch(f"matmul with weights of shape {q.shape}; a matrix (N, K) works")
    x = as_floats(a, "matmul: a")
    if x.ndim == 0 or x.shape[-1] != q.shape[1]:
        raise ShapeMismatch(f"a is {x.shape} but the weights are {q.shape}: both end in K")
    rows = x.reshape(-1, x.shape[-1])
    if rows.size == 0 or q.size == 0:
        return np.zeros((*x.shape[:-1], q.shape[0]), np.float32)
    y = plan(q, compute).run({"x": rows})["y"]
    return y.reshape(*x.shape[:-1], q.shape[0])  # type: ignore[no-any-return]


def plan(q: QuantizedTensor, compute: str) -> Any:
    """The plan of x @ w.T for any number of rows."""
    plans: dict[str, Any] = q.__dict__.setdefault("_plans", {})
    if compute not in plans:
        pipe = Pipeline(f"{q.scheme.name}_linear")
        x = pipe.input("x", "f32", ("M", q.shape[1]))
        pipe.output("y", ops.linear(x, q, compute=compute))
        plans[compute] = q.executor.compile(pipe)
    return plans[compute]


def weights_of(q: QuantizedTensor, compute: str) -> tuple[CodeFormat, dict[str, Array]] | None:
    """Codes and parameters as the step `linear` takes them; None where only decoded weights will do."""
    scheme = q.scheme
    if scheme.grouped is not None:
        from .splitting import weights_of_groups

        return weights_of_groups(q)
    if scheme.decode is None or scheme.vector > 1 or scheme.bits > 8:
        return None
    found = probe(scheme)
    params = list(q.loaded_params().values())
    grid = scheme.grid(*q.shape)
    common: dict[str, Any] = {
        "bits": scheme.bits,
        "signed": scheme.signed,
        "block": tuple(None if n == WHOLE else n for n in scheme.edges),
    }
    scale = np.ones(grid, np.float32) if found.scale is None else params[found.scale]  # "scaled": not the scale yet
    slots: dict[str, Array] = {"codes": q.codes, "scale": scale}
    if found.kind == "affine":
        return _affine(q, found, common, slots, params, compute)
    if found.kind == "offset":
        assert found.offset is not None
        return CodeFormat(kind="offset", **common), {**slots, "offset": params[found.offset]}
    if found.kind == "table":
        assert found.table is not None
        return CodeFormat(kind="table", **common), {**slots, "table": _by_index(scheme, found.table)}
    if found.kind == "scaled" and (factor := _factors(q, found, params)) is not None:
        assert found.table is not None
        return CodeFormat(kind="table", **common), {**slots, "scale": factor, "table": _by_index(scheme, found.table)}
    if grid == (1, 1) and not scheme.decode_takes_index:  # whatever decode is, one block has one table
        values = [
            p[0, 0] if p.ndim == 2 and p.dtype.kind == "f" else int(p[0, 0]) if p.ndim == 2 else p[0, 0] for p in params
        ]
        table = _by_index(scheme, decoded(scheme, values))
        return CodeFormat(kind="table", **common), {
            "codes": q.codes,
            "scale": np.ones(grid, np.float32),
            "table": table,
        }
    return _decode(q, common, params)


def _affine(
    q: QuantizedTensor,
    found: Decoding,
    common: dict[str, Any],
    slots: dict[str, Array],
    params: list[Array],
    compute: str,
) -> tuple[CodeFormat, dict[str, Array]] | None:
    if found.zero is None:
        if not found.constant:
            return CodeFormat(kind="affine", **common), slots
        zero: Array = np.full(slots["scale"].shape, found.constant, np.int32)
    else:
        zero = params[found.zero]
        whole = np.isfinite(zero).all() and (zero == np.rint(zero)).all() and (np.abs(zero) <= 1 << 16).all()
        if not whole and compute == "int8":
            with np.errstate(all="ignore"):
                offset = (-zero * slots["scale"]).astype(np.float32)
            return CodeFormat(kind="offset", **common), {**slots, "offset": offset}
        if not whole:
            return _decode(q, common, params)
    return (
        CodeFormat(kind="affine", zero_point=True, **common),
        {**slots, "zero_point": np.ascontiguousarray(zero, np.int32)},
    )


def _factors(q: QuantizedTensor, found: Decoding, params: list[Array]) -> Array | None:
    """The scales that an integer parameter stands for; None where they are not exact, or take long to find."""
    values, index = np.unique(params[found.scale or 0], return_inverse=True)
    made = factors(q.scheme, found, values.tolist()) if len(values) <= MOST_VALUES else None
    return None if made is None else made[index].reshape(params[found.scale or 0].shape)


def _decode(
    q: QuantizedTensor, common: dict[str, Any], params: list[Array]
) -> tuple[CodeFormat, dict[str, Array]] | None:
    scheme = q.scheme
    if any(p.table for p in scheme.stored):
        return None
    slots = {"codes": q.codes}
    for n, (p, array) in enumerate(zip(scheme.stored, params, strict=True)):
        slots[f"p{n}"] = array.astype(np.int32) if p.kind == "i" else array
    integers = tuple(n for n, p in enumerate(scheme.stored) if p.kind == "i")
    return CodeFormat(
        kind="decode", decode=scheme.decode, integers=integers, position=scheme.decode_takes_index, **common
    ), slots


def _by_index(scheme: Any, table: Array) -> Array:
    """A table whose first entry is the lowest code, by the bits of the code."""
    return np.roll(table, 1 << (scheme.bits - 1)) if scheme.signed else table
