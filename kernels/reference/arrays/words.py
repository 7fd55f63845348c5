"""Counts of short runs of codes: TfIdfVectorizer of ONNX."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays import array_function

Array = np.ndarray[Any, Any]


@array_function(lambda x, *, indexes, **_: [(*x[:-1], max(indexes) + 1)])
def count_runs(
    x: Array,
    shortest: int,
    longest: int,
    skips: int,
    starts: tuple[int, ...],
    indexes: tuple[int, ...],
    pool: tuple[int, ...],
    mode: str,
    weights: tuple[float, ...] = (),
) -> Array:
    """How often each run of the pool is in each row of x, (codes,) or (rows, codes).

    shortest, longest  lengths of the runs that count
    skips              codes that may be left out between two of a run
    starts             for each length from 1, where its runs begin in the pool
    indexes            the place in the result of each run of the pool, in its order
    mode               "TF" counts, "IDF" the weights of the places that count, "TFIDF" counts times weights
    """
    runs: dict[tuple[int, ...], int] = {}
    number = 0
    for length, start in enumerate(starts, 1):
        end = starts[length] if length < len(starts) else len(pool)
        for at in range(start, end - length + 1, length):
            if shortest <= length <= longest:
                runs[tuple(int(n) for n in pool[at : at + length])] = number
            number += 1
    rows = x.reshape(-1, x.shape[-1]) if x.ndim > 1 else x.reshape(1, -1)
    counts = np.zeros((len(rows), max(indexes) + 1), np.float32)
    for row, codes in zip(counts, rows.tolist(), strict=True):
        for step in range(1, skips + 2):
            for length in range(max(shortest, 1 if step == 1 else 2), longest + 1):
                for at in range(len(codes) - step * (length - 1)):
                    found = runs.get(tuple(codes[at : at + step * (length - 1) + 1 : step]))
                    if found is not None:
                        row[indexes[found]] += 1
    if mode != "TF":
        factors = np.ones(counts.shape[1], np.float32)
        factors[: len(weights)] = weights[: len(factors)]
        counts = (counts > 0 if mode == "IDF" else counts) * factors
    return counts.astype(np.float32).reshape(*x.shape[:-1], -1)
