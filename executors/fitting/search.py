"""Parameters of any scheme, found by clipping: the scheme's own fit sees blocks whose largest values were held back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ...kernels.schemes.definition import WHOLE
from ...primitives.errors import ArgumentError, ShapeMismatch
from ..schemes import QuantizedTensor, Scheme
from ..schemes.reporting import _kl
from ..schemes.running import Array, as_floats

METHODS = ("absmax", "minmax", "percentile", "mse", "kl")
SHARES = tuple(float(s) for s in np.linspace(1.0, 0.35, 27))


def fit(
    scheme: Scheme,
    w: Any,
    method: str = "mse",
    *,
    x: Any = None,
    percentile: float = 99.9,
    weight: Any = None,
    executor: Any = None,
) -> QuantizedTensor:
    """Quantize weights w (N, K) with parameters chosen by a rule.

    method      "absmax", "minmax": the scheme's own fit, which sees all of a block. "percentile": each block held to
                that percentile of its magnitudes. "mse": for each block, the clipping with the least squared error
                among 27 shares of its magnitude. "kl": one share for the tensor, with the least KL divergence of
                softmax(x @ w.T)
    x           activations (M, K), for "kl"
    weight      (K,) how much an error in each column counts, for "mse": mean squares of the activations, for example

    Works for schemes with parameters stored as numbers; where another scheme stores them, "mse" chooses one share for
    the tensor.
    """
    weights = as_floats(w, "fit: w")
    if weights.ndim != 2:
        raise ShapeMismatch(f"fit: w has shape {weights.shape}; weights (N, K) work")
    if method not in METHODS:
        raise ArgumentError(f"fit has no method {method!r}; it has {', '.join(METHODS)}")
    if method in ("absmax", "minmax") or not scheme.params or weights.size == 0:
        return scheme.quantize(weights, executor=executor)
    if method == "percentile":
        held = _held(scheme, weights, percentile=percentile)
        return scheme.quantize(weights, scheme.fit_params(held, executor=executor), executor=executor)
    if method == "kl":
        if x is None:
            raise ArgumentError("fit: method='kl' compares outputs; x, activations (M, K), is needed")
        acts = as_floats(x, "fit: x").astype(np.float64)
        wanted = acts @ weights.T.astype(np.float64)

        def divergence(q: QuantizedTensor) -> float:
            return _kl(wanted, acts @ q.dequantize().T.astype(np.float64))

        return min((q for _, q in _tries(scheme, weights, executor)), key=divergence)
    cost = np.ones(weights.shape[1]) if weight is None else np.asarray(weight, np.float64)
    if scheme.nested:
        return min((q for _, q in _tries(scheme, weights, executor)), key=lambda q: _errors(q, weights, cost).sum())
    return _least_squares(scheme, weights, cost, executor)


def _tries(scheme: Scheme, w: Array, executor: Any) -> Iterator[tuple[dict[str, Array], QuantizedTensor]]:
    """Parameters and tensor for each share of the blocks' magnitudes."""
    for share in SHARES:
        params = scheme.fit_params(_held(scheme, w, share=share), executor=executor)
        yield params, scheme.quantize(w, params, executor=executor)


def _least_squares(scheme: Scheme, w: Array, cost: Array, executor: Any) -> QuantizedTensor:
    best: Array | None = None
    chosen: dict[str, Array] = {}
    for params, q in _tries(scheme, w, executor):
        errors = _blocks(scheme, _errors(q, w, cost))
        if best is None:
            best, chosen = errors, {k: v.copy() for k, v in params.items()}
            continue
        better = errors < best
        best = np.where(better, errors, best)
        for name, value in params.items():
            mask = better.reshape(*better.shape, *(1,) * (value.ndim - 2))
            chosen[name] = np.where(mask, value, chosen[name])
    return scheme.quantize(w, chosen, executor=executor)


def _errors(q: QuantizedTensor, w: Array, cost: Array) -> Array:
    with np.errstate(all="ignore"):
        return np.nan_to_num((q.dequantize().astype(np.float64) - w) ** 2 * cost, nan=np.inf)  # type: ignore[no-any-return]


def _edges(scheme: Scheme, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """Where blocks begin, down and across."""
    starts = []
    for size, edge in zip(shape, scheme.edges, strict=True):
        starts.append(np.arange(0, size, size if edge == WHOLE else edge))
    return starts[0], starts[1]


def _blocks(scheme: Scheme, errors: Array) -> Array:
    """Sums over blocks."""
    down, across = _edges(scheme, errors.shape)
    return np.add.reduceat(np.add.reduceat(errors, down, axis=0), across, axis=1)  # type: ignore[no-any-return]


def _held(scheme: Scheme, w: Array, *, share: float = 1.0, percentile: float | None = None) -> Array:
    """w with every block held inside a share, or a percentile, of its largest magnitude."""
    down, across = _edges(scheme, w.shape)
    size = np.abs(np.where(np.isfinite(w), w, 0))
    if percentile is None:
        limit = np.maximum.reduceat(np.maximum.reduceat(size, down, axis=0), across, axis=1) * np.float32(share)
    else:
        ends = [*across[1:], w.shape[1]]
        limit = np.empty((len(down), len(across)), np.float32)
        for i, r in enumerate(down):
            rows = size[r : down[i + 1] if i + 1 < len(down) else w.shape[0]]
            for j, (a, b) in enumerate(zip(across, ends, strict=True)):
                limit[i, j] = np.percentile(rows[:, a:b], percentile)
    tall, wide = np.diff([*down, w.shape[0]]), np.diff([*across, w.shape[1]])
    spread = np.repeat(np.repeat(limit, tall, axis=0), wide, axis=1)
    return np.clip(w, -spread, spread).astype(np.float32)  # type: ignore[no-any-return]
