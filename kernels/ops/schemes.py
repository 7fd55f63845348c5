"""Schemes inside a pipeline: activations, images and caches quantized where they are made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...primitives.errors import ArgumentError, DTypeMismatch, QuantizationError, ShapeMismatch, Unsupported
from ...primitives.pipeline import Pipeline, Value
from ...primitives.sizes import Shape, SizeLike, show, size
from .. import cache_append as appending
from ..reference.schemes import store
from ..schemes.definition import WHOLE, Definition
from ..schemes.steps import SchemeDecode, SchemeEncode, SchemeFit, SchemeQuantize
from .coded_rows import CodedRows
from .given import Operand, dtype_of, only, pipeline_of, value_of
from .moving import reshape
from .transformers import cache_append

Params = Mapping[str, Any]


def encode(x: Operand, scheme: Definition, params: Params | None = None) -> tuple[Value, ...]:
    """The codes that a scheme makes of its input, and the parameters: fitted to it at run time, or given.

    x        f32 (.., K): leading axes are rows, and a block lies within them as within weights (N, K)
    scheme   a Scheme, or a shipped one (`tw.schemes.get`), whose parameters no other scheme stores
    params   {name: values} instead of fitting them: a static scheme, calibrated beforehand (`scheme.fit_params`)
    returns  codes u8 (N, row bytes), packed as a QuantizedTensor has them; then each parameter as it is stored
    """
    return _encode("encode", x, scheme, params)[0]


def decode(codes: Value, params: Sequence[Value], scheme: Definition, columns: int) -> Value:
    """The inverse of `encode`: f32 (N, columns). params: the values that it returned behind the codes."""
    pipe = pipeline_of("decode", codes)
    if len(params) != len(scheme.stored):
        raise ArgumentError(
            f"decode: {len(params)} parameters; {scheme.name} has {', '.join(scheme.params) or 'none'}, so "
            f"{len(scheme.stored)} work"
        )
    operands: dict[str, Any] = {f"p_{p.name}": v for p, v in zip(scheme.stored, params, strict=True)}
    return only(pipe.add(SchemeDecode(scheme, columns), codes=codes, **operands))


def fake_quantize(x: Operand, scheme: Definition, params: Params | None = None) -> Value:
    """What a scheme leaves of its input: decode(encode(x)).

    x        f32 (.., K), where K is known
    scheme, params   as for `encode`
    returns  f32, of x's shape
    """
    (codes, *found), x = _encode("fake_quantize", x, scheme, params)
    columns = x.shape[-1]
    if not isinstance(columns, int):
        raise ShapeMismatch(f"fake_quantize: x is {show(x.shape)}; (.., K) with a known K works")
    y = decode(codes, found, scheme, columns)
    return y if len(x.shape) == 2 else reshape(y, x.shape)


@dataclass(frozen=True)
class SchemeCache:
    """Keys or values in a scheme's codes, which live from run to run. See `scheme_cache`."""

    scheme: Definition
    shape: Shape
    codes: Value
    params: tuple[Value, ...]

    def append(self, new: Operand, position: Operand) -> Value:
        """Quantize new rows, f32 (B, G, T, D), and write them; returns the whole cache decoded, f32 (B, G, C, D).

        position   s64: where the first new row goes. Rows behind C are an error of the run
        """
        return self.extend(new, position).decoded()

    def extend(self, new: Operand, position: Operand) -> CodedRows:
        """As append; returns the cache in its codes, for `attention`, which decodes them as it reads them."""
        B, G, C, D = self.shape
        pipe = self.codes.pipeline
        new = value_of(pipe, new, "append", "new")
        if len(new.shape) != 4 or (new.shape[0], new.shape[1], new.shape[3]) != (B, G, D) or not isinstance(D, int):
            raise ShapeMismatch(f"append: new is {show(new.shape)}; ({B}, {G}, T, {D}) works")
        codes, *params = [
            cache_append(cache, reshape(rows, (B, G, new.shape[2], cache.shape[-1])), position)
            for cache, rows in zip((self.codes, *self.params), encode(new, self.scheme), strict=True)
        ]

        def decoded(columns: int = D) -> Value:
            flat = [reshape(x, (B * G * C, x.shape[-1])) for x in (codes, *params)]
            return reshape(decode(flat[0], flat[1:], self.scheme, columns), self.shape)

        return CodedRows(self.scheme, self.shape, codes, tuple(params), decoded)


def scheme_cache(pipe: Pipeline, name: str, scheme: Definition, shape: Sequence[SizeLike]) -> SchemeCache:
    """A cache for attention (B, G, C, D) whose rows are kept in a scheme's codes: `cache.append(new, position)`.

    scheme   its blocks lie within a row, and its parameters are floats, s8 or u8

    Raises Unsupported for another scheme. Its states are `name`_codes and `name`_PARAMETER.
    """
    types = [p.dtype for p in scheme.stored]
    if scheme.edges[0] != 1 or scheme.nested or any(p.table for p in scheme.stored):
        raise Unsupported(
            f"scheme_cache: {scheme.name} has block {scheme.block} and parameters {dict(scheme.params)}; blocks within a "
            f"row and plain parameters work, because rows come one by one"
        )
    if odd := [t for t in types if t not in appending.TYPES]:
        raise Unsupported(f"scheme_cache: {scheme.name} keeps {', '.join(odd)}; {', '.join(appending.TYPES)} work")
    B, G, C, D = sizes = tuple(size(n) for n in shape)
    if not isinstance(D, int):
        raise ShapeMismatch(f"scheme_cache: shape {show(sizes)}; a known D works")
    blocks = scheme.grid(1, D)[1]
    codes = pipe.state(f"{name}_codes", "u8", (B, G, C, scheme.row_bytes(D)))
    params = tuple(
        pipe.state(f"{name}_{p.name}", p.dtype, (B, G, C, blocks), initial=int(p.dtype == "e8m0fnu"))  # which has no 0
        for p in scheme.stored
    )
    return SchemeCache(scheme, sizes, codes, params)


def _encode(op: str, x: Operand, scheme: Definition, given: Params | None) -> tuple[tuple[Value, ...], Value]:
    """Codes and parameters, and what they were made of."""
    pipe = pipeline_of(op, x)
    x = value_of(pipe, x, op, "x")
    if dtype_of(x) != "f32":
        raise DTypeMismatch(f"{op}: x is {dtype_of(x)}; f32 works")
    if not x.shape:
        raise ShapeMismatch(f"{op}: x is a number; (.., K) works")
    if scheme.nested:
        raise Unsupported(
            f"{op}: {', '.join(scheme.nested)} of {scheme.name} is stored by another scheme; "
            f"scheme.quantize(array) does that outside of a pipeline"
        )
    rows = x if len(x.shape) == 2 else reshape(x, (-1, x.shape[-1]))
    slots = [f"p_{p.name}" for p in scheme.stored]
    if given is not None:
        params: list[Any] = _constants(op, pipe, rows, scheme, given)
    elif not scheme.stored:
        params = []
    elif scheme.edges[0] == 1:
        *params, codes = pipe.add(SchemeQuantize(scheme), x=rows)
        return (codes, *params), x
    else:
        fitted = pipe.add(SchemeFit(scheme), x=rows)
        params = list(fitted) if isinstance(fitted, tuple) else [fitted]
    codes = only(pipe.add(SchemeEncode(scheme), x=rows, **dict(zip(slots, params, strict=True))))
    return (codes, *params), x


def _constants(op: str, pipe: Pipeline, x: Value, scheme: Definition, given: Params) -> list[Value]:
    """Given parameters as the scheme stores them, for every block of x."""
    if set(given) != set(scheme.params):
        raise ArgumentError(
            f"{op}: parameters {', '.join(sorted(given)) or 'none'} were given; {scheme.name} has "
            f"{', '.join(scheme.params) or 'none'}"
        )
    down, across = scheme.edges
    N, K = x.shape
    if (not isinstance(N, int) and down != WHOLE) or (not isinstance(K, int) and across != WHOLE):
        raise ShapeMismatch(
            f"{op}: x is {show(x.shape)} and {scheme.name} has blocks {scheme.block}: how many parameters there are is "
            f"known at run time only; a scheme with block 'tensor' works, or known sizes"
        )
    grid = scheme.grid(N if isinstance(N, int) else 1, K if isinstance(K, int) else 1)
    made = []
    for p in scheme.stored:
        wanted = (*grid, p.table) if p.table else grid
        array = np.asarray(given[p.name], np.float32)
        try:
            array = np.ascontiguousarray(np.broadcast_to(array, wanted))
        except ValueError:
            raise ShapeMismatch(
                f"{op}: parameter {p.name!r} has shape {array.shape}; {wanted} works, or what broadcasts to it"
            ) from None
        if np.isnan(array).any():
            raise QuantizationError(f"{op}: parameter {p.name!r} has NaN in it")
        made.append(pipe.constant(np.ascontiguousarray(store(p, array))))
    return made
