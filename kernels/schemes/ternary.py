"""Ternary weights: -1, 0 and 1 times a scale."""

import numpy as np

from .definition import Definition as Scheme


def fit(x):
    """Threshold 0.7 times the mean magnitude; the scale is the mean magnitude of what lies above it."""
    total = np.float32(0)
    for v in x:
        total += abs(v)
    threshold = 0.7 * total / len(x)
    kept = np.float32(0)
    count = 0
    for v in x:
        if abs(v) > threshold:
            kept += abs(v)
            count += 1
    return (kept / count if count > 0 else np.float32(1),)


def encode(x, scale):
    return 1 if x > 0.5 * scale else -1 if x < -0.5 * scale else 0


def decode(q, scale):
    return q * scale


# Source of the rule: Li, Zhang and Liu, "Ternary weight networks", 2016.
SCHEMES = [
    Scheme("ternary", 2, "row", {"scale": "f32"}, fit, encode, decode, signed=True),
    *(Scheme(f"ternary_g{g}", 2, g, {"scale": "f32"}, fit, encode, decode, signed=True) for g in (64, 128)),
]
