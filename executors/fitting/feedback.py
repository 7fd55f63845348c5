"""Error feedback: columns are quantized one after another, and each one's error is made good by those that follow.

Source: Frantar, Ashkboos, Hoefler and Alistarh, "GPTQ: accurate post-training quantization for generative pre-trained
transformers", 2023.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...kernels.schemes.definition import WHOLE
from ...primitives.errors import ArgumentError, ShapeMismatch, Unsupported
from ..schemes import QuantizedTensor, Scheme
from ..schemes.running import Array, as_floats

LAZY = 128  # columns whose updates of the rest are made at once


def hessian(x: Any) -> Array:
    """x.T @ x / M of activations (.., K), float64 (K, K): sums of several batches may be added up."""
    acts = as_floats(x, "hessian: x")
    if not acts.ndim:
        raise ShapeMismatch("hessian: x is one number; activations (.., K) are needed")
    acts = acts.reshape(math.prod(acts.shape[:-1]), acts.shape[-1]).astype(np.float64)
    return acts.T @ acts / max(1, len(acts))  # type: ignore[no-any-return]


def error_feedback(
    scheme: Scheme,
    w: Any,
    h: Any,
    *,
    damping: float = 0.01,
    order: str = "given",
    executor: Any = None,
) -> QuantizedTensor:
    """Quantize weights w (N, K) so that x @ w.T stays near.

    h        `hessian` of the activations, (K, K)
    damping  share of the mean of h's diagonal that is added to it
    order    "given": columns as they come

    Parameters of a block are fitted when its first column is reached, on the weights as they are then. Works for blocks
    inside a row (a number, or "row"); raises Unsupported for others and for codes of several weights.
    """
    weights = as_floats(w, "error_feedback: w")
    if weights.ndim != 2 or np.shape(h) != (weights.shape[1],) * 2:
        raise ShapeMismatch(
            f"error_feedback: w is {weights.shape} and h is {np.shape(h)}; weights (N, K) and (K, K) work"
        )
    if scheme.edges[0] != 1 or scheme.encode is None or scheme.encode_takes_index or scheme.nested:
        raise Unsupported(
            f"error_feedback: {scheme.name} has blocks {scheme.block}; schemes work that encode one weight at a time, "
            f"with blocks inside a row and parameters stored as numbers"
        )
    if order != "given":
        raise ArgumentError(f"error_feedback: order {order!r}; 'given' works: permute w and x for another")
    spread = _factor(np.asarray(h, np.float64), damping)
    block = weights.shape[1] if scheme.edges[1] == WHOLE else scheme.edges[1]
    column = scheme.replace(name=f"{scheme.name}_column", block=(1, 1))
    rest = weights.astype(np.float64)
    made = np.empty_like(weights)
    params: dict[str, Array] = {}
    fitted: list[dict[str, Array]] = []
    for start in range(0, weights.shape[1], LAZY):
        stop = min(start + LAZY, weights.shape[1])
        errors = np.zeros((len(rest), stop - start))
        for j in range(start, stop):
            if j % block == 0:
                ahead = rest[:, j : j + block].copy()
                if j + block > stop:  # columns behind this batch have not had its updates yet
                    ahead[:, stop - j :] -= errors[:, : j - start] @ spread[start:j, stop : j + block]
                params = scheme.replace(name=f"{scheme.name}_block", block="row").fit_params(
                    ahead.astype(np.float32), executor=executor
                )
                fitted.append(params)
            now = np.ascontiguousarray(rest[:, j : j + 1], np.float32)
            made[:, j] = column.quantize(now, params, executor=executor).dequantize()[:, 0]
            error = (rest[:, j] - made[:, j]) / spread[j, j]
            rest[:, j:stop] -= np.outer(error, spread[j, j:stop])
            errors[:, j - start] = error
        rest[:, stop:] -= errors @ spread[start:stop, stop:]
    joined = {name: np.concatenate([p[name] for p in fitted], axis=1) for name in scheme.params}
    return scheme.quantize(made, joined, executor=executor)


def _factor(h: Array, damping: float) -> Array:
    """The upper Cholesky factor of the inverse of h; columns that are never active get a diagonal of 1."""
    h = h.copy()
    dead = np.diag(h) <= 0
    h[dead, dead] = 1.0
    h[np.diag_indices_from(h)] += damping * float(np.mean(np.diag(h)))
    inverse = np.linalg.inv(h)
    inverse = (inverse + inverse.T) / 2
    return np.linalg.cholesky(inverse).T  # type: ignore[no-any-return]
