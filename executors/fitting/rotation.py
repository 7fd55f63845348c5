"""Rotation of channels by a Hadamard matrix, which spreads outliers: x @ r and w @ r have the product that x and w had.

Sources: Ashkboos et al., "QuaRot", 2024; Paley, "On orthogonal matrices", 1933.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...primitives.errors import ShapeMismatch, Unsupported
from ..schemes.running import Array, as_floats

LARGEST = 1 << 15  # 8 GiB while it is made
_PRIMES = (11, 19, 23, 43, 47, 59)  # Paley's matrices of one more than a prime that is 3 modulo 4


def hadamard(n: int, seed: int | None = None) -> Array:
    """An orthogonal matrix (n, n) of entries +-1 / sqrt(n), float32; with a seed, its rows have random signs.

    n  a power of two, or 12, 20, 24, 44, 48 or 60 times one; at most 32768

    Raises Unsupported for another size, with the sizes next to it that work.
    """
    if n > LARGEST:
        raise Unsupported(f"a Hadamard matrix of {n} rows and columns; at most {LARGEST} are made")
    made = _signs(n)
    if made is None:
        near = [m for step in range(1, n + 1) for m in (n - step, n + step) if m > 0 and _signs_exist(m)][:2]
        raise Unsupported(f"no Hadamard matrix of {n} is known here; {' and '.join(map(str, sorted(near)))} work")
    if seed is not None:
        made = made * np.random.default_rng(seed).choice([-1, 1], (n, 1))
    return (made / np.sqrt(n)).astype(np.float32)


def _base(n: int) -> int | None:
    while n > 1 and n % 2 == 0 and n - 1 not in _PRIMES:
        n //= 2
    return n if n == 1 or n - 1 in _PRIMES else None


def _signs_exist(n: int) -> bool:
    return n >= 1 and _base(n) is not None


def _signs(n: int) -> Array | None:
    base = _base(n) if n >= 1 else None
    if base is None:
        return None
    made = np.ones((1, 1)) if base == 1 else _paley(base - 1)
    while len(made) < n:
        made = np.block([[made, made], [made, -made]])
    return made


def _paley(p: int) -> Array:
    squares = {i * i % p for i in range(1, p)}
    character = np.array([0] + [1 if i in squares else -1 for i in range(1, p)])
    core = character[(np.arange(p)[:, None] - np.arange(p)[None, :]) % p]
    made = np.ones((p + 1, p + 1))
    made[1:, 0] = -1
    made[1:, 1:] = core + np.eye(p)
    return made


def rotate(x: Any, rotation: Array) -> Array:
    """x @ rotation along the last axis, float32; weights (N, K) and activations (.., K) alike."""
    floats, rotation = as_floats(x, "rotate: x"), as_floats(rotation, "rotate: rotation")
    if floats.ndim < 1 or rotation.ndim != 2 or floats.shape[-1] != rotation.shape[0]:
        raise ShapeMismatch(f"rotate: x is {floats.shape} and rotation {rotation.shape}; (.., K) and (K, K) are needed")
    return (floats.astype(np.float64) @ rotation.astype(np.float64)).astype(np.float32)
