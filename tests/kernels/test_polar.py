"""Angles and lengths: within their stated error of float64, with the zeros and infinities of IEEE 754, compiled too."""

import math

import numpy as np
import pytest
from numba import njit

from tilework.kernels import polar
from tilework.kernels.capture import capture
from tilework.kernels.cpu.vectormath import arctan2, hypot

SPECIAL = np.array([0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1e-38, 3.4e38, -3.4e38, 1, -1], np.float32)


def pairs():
    """Numbers of all sizes, and every pair of special ones."""
    rng = np.random.default_rng(0)
    found = [(np.repeat(SPECIAL, SPECIAL.size), np.tile(SPECIAL, SPECIAL.size))]
    for size in (1e-38, 1e-20, 1.0, 1e30):
        x, y = rng.standard_normal((2, 20_000)) * size
        found.append((x.astype(np.float32), (y * 10.0 ** rng.integers(-5, 6, y.size)).astype(np.float32)))
    x = rng.standard_normal(20_000).astype(np.float32)
    found.append((x, (x * (1 + 1e-6 * rng.standard_normal(x.size))).astype(np.float32)))
    return found


@pytest.mark.parametrize(("name", "ulp"), [("arctan2", 3), ("hypot", 1)])
def test_angles_and_lengths_are_as_near_as_they_say(name, ulp):
    for x, y in pairs():
        with np.errstate(all="ignore"):
            found = getattr(polar, name)(y, x)
            wanted = getattr(np, name)(y.astype(np.float64), x.astype(np.float64)).astype(np.float32)
            apart = np.abs(found.astype(np.float64) - wanted) / np.spacing(np.abs(wanted))
        numbers = np.isfinite(wanted)
        np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
        np.testing.assert_array_equal(found[np.isinf(wanted)], wanted[np.isinf(wanted)])
        np.testing.assert_array_equal(np.signbit(found[numbers]), np.signbit(wanted[numbers]))
        assert apart[numbers].max(initial=0) <= ulp


def test_compiled_angles_and_lengths_have_the_same_bits():
    @njit
    def run(x, y, angles, lengths):
        for i in range(x.size):
            angles[i] = arctan2(y[i], x[i])
            lengths[i] = hypot(x[i], y[i])

    for x, y in pairs():
        angles, lengths = np.empty_like(x), np.empty_like(x)
        run(x, y, angles, lengths)
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(angles.view(np.int32), polar.arctan2(y, x).view(np.int32))
            np.testing.assert_array_equal(lengths.view(np.int32), polar.hypot(x, y).view(np.int32))


def test_captured_functions_may_use_them_by_either_name():
    def turned(x, y):
        return math.atan2(y, x) + np.hypot(x, y)

    found = capture(turned, ("f", "f")).interpreted(3.0, 4.0)
    assert found == np.float32(polar.arctan2(4.0, 3.0) + np.float32(5))
