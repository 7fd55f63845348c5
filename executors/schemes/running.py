"""Runs a scheme's steps over whole matrices, on all threads: plans are made once for a scheme and a width."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...kernels.schemes.definition import Definition
from ...kernels.schemes.steps import SchemeDecode, SchemeEncode, SchemeFit, SchemeQuantize
from ...primitives.archives import holdable
from ...primitives.errors import ArgumentError, DTypeMismatch, QuantizationError, ShapeMismatch
from ...primitives.given import array_of
from ...primitives.pipeline import Pipeline
from ..locks import Lock
from ..tiling import TilingExecutor

Array = np.ndarray[Any, Any]
PLANS = 256  # kept, the least recently used go first
_plans: OrderedDict[tuple[Any, ...], Any] = OrderedDict()
_lock = Lock()


@dataclass
class Encoded:
    """A matrix in codes, without a scheme.

    codes    uint8 (N, row bytes), packed
    params   {name: array of the stored type (blocks down, blocks across), or Encoded where another scheme stores it}
    columns  K
    """

    codes: Array
    params: dict[str, Array | Encoded]
    columns: int

    @property
    def nbytes(self) -> int:
        return int(self.codes.nbytes + sum(p.nbytes for p in self.params.values()))


def default_executor() -> Any:
    return TilingExecutor()


def as_floats(x: Any, what: str) -> Array:
    """Data as contiguous float32; wider floats are rounded, integers too where float32 does not hold them."""
    array = array_of(x, what)
    if array.dtype.kind not in "fiub" and array.dtype.name not in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        raise DTypeMismatch(f"{what} is an array of {array.dtype}; real numbers are quantized")
    with np.errstate(all="ignore"):
        return np.asarray(array, np.float32, order="C")


def _plan(scheme: Definition, key: tuple[Any, ...], make: Callable[[], Pipeline], executor: Any) -> Any:
    settings = (type(executor), getattr(executor, "threads", 0), executor.backend, getattr(executor, "isa", None))
    full = (scheme, *key, *settings)
    with _lock:
        if full in _plans:
            _plans.move_to_end(full)
            return _plans[full]
    plan = executor.compile(make())
    with _lock:
        _plans[full] = plan
        while len(_plans) > PLANS:
            _plans.popitem(last=False)
    return plan


def _pipeline(kernel: Any, fixed: Mapping[str, Any], outputs: Sequence[str]) -> Pipeline:
    """One step as a pipeline: what it reads are inputs, what it writes are outputs."""
    pipe = Pipeline(kernel.name)
    specs = kernel.signature()
    values: dict[str, Any] = {s.slot: pipe.input(s.slot, s.dtype, fixed.get(s.slot, s.shape)) for s in specs if s.reads}
    written = pipe.add(kernel, **values)
    for slot, value in zip(outputs, written if isinstance(written, tuple) else (written,), strict=True):
        pipe.output(slot, value)
    return pipe


def fit(scheme: Definition, x: Array, executor: Any) -> dict[str, Array | Encoded]:
    """The stored parameters of a matrix, those of other schemes encoded."""
    return _nest(scheme, fit_raw(scheme, x, executor), executor)


def fit_raw(scheme: Definition, x: Array, executor: Any) -> dict[str, Array]:
    """What `fit` makes of a matrix: the stored parameters, and float32 for those of other schemes."""
    if scheme.captured_fit is None:
        return {}
    slots = [f"p_{p.name}" for p in scheme.stored]
    if x.size == 0:
        found = {
            s: np.empty(shape, p.numpy) for s, p, shape in zip(slots, scheme.stored, _shapes(scheme, x), strict=True)
        }
    else:
        plan = _plan(scheme, ("fit",), lambda: _pipeline(SchemeFit(scheme), {}, slots), executor)
        found = plan.run({"x": x})
    return {s[2:]: found[s] for s in slots}


def _shapes(scheme: Definition, x: Array) -> list[tuple[int, ...]]:
    grid = scheme.grid(*x.shape)
    return [(*grid, p.table) if p.table else grid for p in scheme.stored]


def _nest(scheme: Definition, params: dict[str, Array], executor: Any) -> dict[str, Array | Encoded]:
    """Parameters that another scheme stores, quantized by it: one after another where its blocks lie along a row."""
    made: dict[str, Array | Encoded] = dict(params)
    for name, inner in scheme.nested.items():
        made[name] = quantize(inner, _flat(inner, params[name]), executor)
    return made


def _flat(inner: Definition, raw: Array) -> Array:
    return raw.reshape(1, -1) if isinstance(inner.block, int) else raw


def loaded(
    scheme: Definition, params: Mapping[str, Array | Encoded], rows: int, columns: int, executor: Any
) -> list[Array]:
    """Parameters as the steps take them: stored arrays, and float32 for what another scheme stores."""
    grid = scheme.grid(rows, columns)
    found = []
    for parameter in scheme.stored:
        kept = params[parameter.name]
        if isinstance(kept, Encoded):
            inner = scheme.nested[parameter.name]
            kept = dequantize(inner, kept, executor).reshape(grid)
        found.append(kept)
    return found


def quantize(
    scheme: Definition, x: Array, executor: Any, params: Mapping[str, Array | Encoded] | None = None
) -> Encoded:
    """A float32 matrix in codes; `params` are taken where they are given, and fitted where not."""
    rows, columns = x.shape
    if x.size == 0:
        codes = np.empty((rows, scheme.row_bytes(columns)), np.uint8)
        return Encoded(codes, fit(scheme, x, executor) if params is None else dict(params), columns)
    slots = [f"p_{p.name}" for p in scheme.stored]
    if params is None and scheme.edges[0] == 1 and not scheme.nested and scheme.params:
        plan = _plan(scheme, ("quantize",), lambda: _pipeline(SchemeQuantize(scheme), {}, [*slots, "codes"]), executor)
        found = plan.run({"x": x})
        return Encoded(found["codes"], {s[2:]: found[s] for s in slots}, columns)
    made = fit(scheme, x, executor) if params is None else dict(params)
    given = dict(zip(slots, loaded(scheme, made, rows, columns, executor), strict=True))
    plan = _plan(scheme, ("encode",), lambda: _pipeline(SchemeEncode(scheme), {}, ["codes"]), executor)
    return Encoded(plan.run({"x": x, **given})["codes"], made, columns)


def dequantize(scheme: Definition, encoded: Encoded, executor: Any, out: Array | None = None) -> Array:
    """The weights, float32 (N, K)."""
    rows, columns = encoded.codes.shape[0], encoded.columns
    if rows == 0 or columns == 0:
        if not holdable((rows, columns), 4):
            raise ShapeMismatch(f"{scheme.name}: {rows} x {columns} weights; no array has so many")
        return np.empty((rows, columns), np.float32) if out is None else out
    slots = [f"p_{p.name}" for p in scheme.stored]
    given = dict(zip(slots, loaded(scheme, encoded.params, rows, columns, executor), strict=True))
    plan = _plan(scheme, ("decode", columns), lambda: _pipeline(SchemeDecode(scheme, columns), {}, ["y"]), executor)
    target = None if out is None else {"y": out}
    return plan.run({"codes": np.ascontiguousarray(encoded.codes), **given}, out=target)["y"]  # type: ignore[no-any-return]


def given_params(
    scheme: Definition, given: Mapping[str, Any], rows: int, columns: int, executor: Any
) -> dict[str, Array | Encoded]:
    """Parameters that the caller brings (a static scheme), stored as the scheme stores them.

    Raises ArgumentError for other names, ShapeMismatch where a shape does not broadcast to the blocks.
    """
    if set(given) != set(scheme.params):
        raise ArgumentError(
            f"{scheme.name}: parameters {', '.join(sorted(given)) or 'none'} were given; "
            f"{', '.join(scheme.params) or 'none'} are needed"
        )
    from ...kernels.reference.schemes import store

    grid = scheme.grid(rows, columns)
    made: dict[str, Array] = {}
    for parameter in scheme.stored:
        wanted = (*grid, parameter.table) if parameter.table else grid
        array = np.asarray(given[parameter.name], np.float32)
        try:
            array = np.ascontiguousarray(np.broadcast_to(array, wanted))
        except ValueError:
            raise ShapeMismatch(
                f"{scheme.name}: parameter {parameter.name!r} has shape {array.shape}; {rows} x {columns} in blocks "
                f"{scheme.block} takes {wanted}, or what broadcasts to it"
            ) from None
        if np.isnan(array).any():
            raise QuantizationError(f"{scheme.name}: parameter {parameter.name!r} has NaN in it")
        made[parameter.name] = np.ascontiguousarray(store(parameter, array))
    return _nest(scheme, made, executor)
