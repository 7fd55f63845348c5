"""Mixed precision: which layer takes which scheme, so that all together stay inside a number of bits a weight."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...primitives.errors import ArgumentError
from ..schemes import Scheme
from ..schemes.running import as_floats

STEPS = 4096  # the budget is counted in so many parts


def sensitivities(
    layers: Mapping[str, Any], schemes: Sequence[Scheme], activations: Mapping[str, Any] | None = None
) -> dict[str, dict[str, tuple[float, float]]]:
    """{layer: {scheme: (bits, error)}}: bits of the whole layer, and the squared error that it makes.

    layers       {name: weights (N, K)}
    activations  {name: (M, K)}: then errors are of x @ w.T, per row of x, and else of w
    """
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for name, given in layers.items():
        w = as_floats(given, f"layer {name!r}")
        found[name] = {}
        for scheme in schemes:
            q = scheme.quantize(w)
            error = (q.dequantize() - w).astype(np.float64)
            if activations is not None and name in activations:
                x = as_floats(activations[name], f"activations of {name!r}").reshape(-1, w.shape[1])
                error = x.astype(np.float64) @ error.T / np.sqrt(max(1, len(x)))
            found[name][scheme.name] = (8.0 * q.nbytes, float(np.square(error).sum()))
    return found


def allocate(costs: Mapping[str, Mapping[str, tuple[float, float]]], budget_bits: float) -> dict[str, str]:
    """The scheme of each layer with the least sum of errors whose bits stay within a budget.

    costs        what `sensitivities` returns
    budget_bits  for all layers together

    Exact but for rounding each layer up to 1 / 4096 of the budget. Raises ArgumentError where even the smallest schemes
    do not fit, with the bits that they need.
    """
    least = sum(min(bits for bits, _ in choices.values()) for choices in costs.values())
    if least > budget_bits:
        raise ArgumentError(f"a budget of {budget_bits:.0f} bits; the smallest schemes need {least:.0f}")
    unit = max((budget_bits - least) / STEPS, 1e-9)  # counted from the smallest choice of each layer
    size = STEPS + 1
    error = np.zeros(size)
    picked: list[tuple[str, np.ndarray[Any, Any], list[str], list[int]]] = []
    for layer, choices in costs.items():
        smallest = min(bits for bits, _ in choices.values())
        names = list(choices)
        steps = [int(np.ceil((choices[n][0] - smallest) / unit - 1e-9)) for n in names]
        best = np.full(size, np.inf)
        which = np.zeros(size, np.int64)
        for k, (name, step) in enumerate(zip(names, steps, strict=True)):
            if step >= size:
                continue
            total = np.full(size, np.inf)
            total[step:] = error[: size - step] + choices[name][1]
            better = total < best
            best, which = np.where(better, total, best), np.where(better, k, which)
        error = best
        picked.append((layer, which, names, steps))
    at = size - 1
    found = {}
    for layer, which, names, steps in reversed(picked):
        k = int(which[at])
        found[layer] = names[k]
        at -= steps[k]
    return dict(reversed(found.items()))
