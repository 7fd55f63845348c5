"""Scheme: a definition that can quantize, measure, prove and explain itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...kernels.schemes import shipped
from ...kernels.schemes.definition import Definition, as_matrix
from ...primitives.errors import ArgumentError
from . import running
from .tensor import QuantizedTensor

if TYPE_CHECKING:
    from .checking import Check
    from .reporting import Report


@dataclass(frozen=True, eq=False, repr=False)
class Scheme(Definition):
    """A quantization scheme made of plain functions: Scheme(name, bits, block, params, fit, encode, decode).

    kernels/schemes/definition.py says what each means, docs/schemes.md shows how one is invented and measured.
    The functions are compiled when they are first needed, and kept on disk.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        shipped.protect(self)

    @classmethod
    def of(cls, definition: Definition) -> Scheme:
        """A definition as something to call."""
        if isinstance(definition, cls):
            return definition
        return cls(**{f.name: getattr(definition, f.name) for f in dataclasses.fields(Definition)})

    def replace(self, **changes: Any) -> Scheme:
        """A variant: the same scheme but for what is named. One of a shipped scheme is called `.._variant`."""
        if shipped.is_shipped(self.name) and "name" not in changes and changes:
            changes["name"] = f"{self.name}_variant"
        return super().replace(**changes)  # type: ignore[no-any-return]

    # Codes ---------------------------------------------------------------------------------------------------------

    def quantize(self, x: Any, params: Mapping[str, Any] | None = None, *, executor: Any = None) -> QuantizedTensor:
        """Quantize a tensor: weights (N, K), activations (.., tokens, K), a cache (.., T, D).

        x         real numbers; leading dimensions are rows. "row" is a channel of weights, a token of activations
        params    {name: values} instead of fitting: a static scheme, calibrated beforehand (see `fit_params`)
        executor  what runs it; by default a TilingExecutor on all threads. The bits are the same for every one
        """
        array = running.as_floats(x, f"{self.name}: what is quantized")
        rows, columns = as_matrix(array.shape, f"{self.name}: what is quantized")
        on = running.default_executor() if executor is None else executor
        given = None if params is None else running.given_params(self, params, rows, columns, on)
        encoded = running.quantize(self, array.reshape(rows, columns), on, given)
        return QuantizedTensor(self, encoded, array.shape, executor)

    def fit_params(self, x: Any, *, executor: Any = None) -> dict[str, np.ndarray[Any, Any]]:
        """What `fit` makes of a tensor, as numbers {name: (blocks down, blocks across)}, rounded as they are stored."""
        array = running.as_floats(x, f"{self.name}: what is fitted")
        rows, columns = as_matrix(array.shape, f"{self.name}: what is fitted")
        on = running.default_executor() if executor is None else executor
        made = running.fit(self, array.reshape(rows, columns), on)
        from ...kernels.reference.schemes import load

        kept = running.loaded(self, made, rows, columns, on) if made else []
        return {p.name: load(p, a) for p, a in zip(self.stored, kept, strict=False)}

    def fake_quantize(self, x: Any, params: Mapping[str, Any] | None = None, *, executor: Any = None) -> Any:
        """What is left of a tensor after quantizing it: float32 of the same shape."""
        return self.quantize(x, params, executor=executor).dequantize()

    # Measures ------------------------------------------------------------------------------------------------------

    def report(self, w: Any, x: Any = None, *, timings: bool = True) -> Report:
        """Error figures on weights w (N, K), and on outputs x @ w.T for activations x (M, K), random where left out."""
        from .reporting import report

        return report(self, w, x, timings=timings)

    def check(self, w: Any = None, *, levels: Any = None, rows: int | None = None) -> Check:
        """Prove that plain Python and every instruction set agree on w, to the bit; see checking.check."""
        from .checking import check

        return check(self, w, levels=levels, rows=rows)

    def __reduce__(self) -> tuple[Any, ...]:
        """A shipped scheme by its name, another one as what it was made of: a pickle holds the names of functions."""
        if _made.get(self.name) is self:
            return get, (self.name,)
        return _rebuilt, (type(self), {f.name: getattr(self, f.name) for f in dataclasses.fields(self)})

    def explain(self) -> str:
        """The path that products take and why, what the functions became, and where the compiled code is."""
        from .explaining import explain

        return explain(self)

    def kernels(self, backend: str = "cpu") -> dict[str, str]:
        """The generated source of each step on a backend: {step: text}."""
        from .explaining import kernels

        return kernels(self, backend)


def _rebuilt(kind: type[Scheme], fields: dict[str, Any]) -> Scheme:
    return kind(**fields)


def get(name: str) -> Scheme:
    """A shipped scheme by name. Raises ArgumentError with near names."""
    if name not in _made:
        _made[name] = Scheme.of(shipped.definition(name))
    return _made[name]


_made: dict[str, Scheme] = {}


def names() -> tuple[str, ...]:
    """The names of all shipped schemes."""
    return shipped.names()


__all__ = ["ArgumentError", "Scheme", "get", "names"]
