"""Choosing the next token from logits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...primitives.errors import ArgumentError


@dataclass
class Sampler:
    """The most likely token, or one drawn from those that are left.

        p = softmax(logits / temperature) over the top_k most likely; of these, most likely first, as few as have
        probability top_p together; then one by its probability

    temperature  0: always the most likely token, the first of equal ones
    top_k        how many are left; 0: all
    top_p        from above 0 to 1
    seed         of NumPy's default generator: the same tokens for the same logits
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    _rng: np.random.Generator = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < np.inf:
            raise ArgumentError(f"temperature {self.temperature}; 0 or a finite number above works")
        if self.top_k < 0:
            raise ArgumentError(f"top_k {self.top_k}; 0 (all) or a number of tokens works")
        if not 0 < self.top_p <= 1:
            raise ArgumentError(f"top_p {self.top_p}; above 0, up to 1 works")
        if self.seed < 0:
            raise ArgumentError(f"seed {self.seed}; 0 or more works")
        self._rng = np.random.default_rng(self.seed)

    def __call__(self, logits: Any) -> int:
        """The token chosen by logits (vocab,)."""
        x = np.asarray(logits, np.float64)
        if np.isnan(x).any():
            raise ArgumentError("the logits have NaN in them: the weights hold NaN or infinities, or overflow")
        if self.temperature == 0:
            return int(x.argmax())
        order = np.argsort(-x, kind="stable")[: self.top_k or None]
        p = np.exp((x[order] - x[order[0]]) / self.temperature)
        total = np.cumsum(p)
        last = int(np.searchsorted(total, self.top_p * total[-1]))
        total = total[: min(last, len(total) - 1) + 1]
        drawn = int(np.searchsorted(total, self._rng.random() * total[-1], side="right"))
        return int(order[min(drawn, len(total) - 1)])
