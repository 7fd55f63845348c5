"""The arithmetic under the references: fma, rounding rules, random numbers, granularity."""

from fractions import Fraction

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from tilework.kernels.reference.arithmetic import fma32, round_f32, uniform24
from tilework.kernels.reference.granularity import spread
from tilework.kernels.rounding import ROUNDINGS

F32 = np.float32


def nearest_f32(exact: Fraction) -> np.float32:
    """The float32 nearest to a rational, ties to even; an independent way that never rounds twice."""
    guess = F32(float(exact))
    near = [np.nextafter(guess, F32(-np.inf)), guess, np.nextafter(guess, F32(np.inf))]
    near = [c for c in near if np.isfinite(c)]
    return min(near, key=lambda c: (abs(Fraction(float(c)) - exact), int(c.view(np.int32)) & 1))


def test_fma_rounds_once_where_two_roundings_differ():
    # 1 + 2**-23 + 2**-24 - tiny: in float64 the tiny part is lost, and the tie then goes the other way
    a, b, c = F32(2.0**-12 + 2.0**-30), F32(2.0**-12 - 2.0**-30), F32(1 + 2.0**-23)
    exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    twice = F32(np.float64(a) * np.float64(b) + np.float64(c))
    assert nearest_f32(exact) != twice
    assert fma32(a, b, c) == nearest_f32(exact)


def test_fma_is_correctly_rounded_on_random_and_cancelling_operands():
    rng = np.random.default_rng(0)
    a = np.ldexp(rng.integers(-(2**24), 2**24, 3000), rng.integers(-40, 10, 3000)).astype(F32)
    b = np.ldexp(rng.integers(-(2**24), 2**24, 3000), rng.integers(-40, 10, 3000)).astype(F32)
    c = np.where(rng.random(3000) < 0.5, -(a * b), np.ldexp(rng.integers(-(2**24), 2**24, 3000), -45)).astype(F32)
    c *= np.where(rng.random(3000) < 0.3, F32(2.0**23), F32(1))
    right = [
        nearest_f32(Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z)))
        for x, y, z in zip(a, b, c, strict=True)
    ]
    assert_array_equal(fma32(a, b, c), np.array(right, F32), strict=True)


def test_fma_rounds_subnormals_once():
    rng = np.random.default_rng(1)
    a = np.ldexp(rng.integers(1, 2**24, 500), -150).astype(F32)
    b = np.ldexp(rng.integers(-(2**24), 2**24, 500), -26).astype(F32)
    c = np.ldexp(rng.integers(-8, 8, 500), -149).astype(F32)
    right = [
        nearest_f32(Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z)))
        for x, y, z in zip(a, b, c, strict=True)
    ]
    assert_array_equal(fma32(a, b, c), np.array(right, F32), strict=True)


def test_fma_follows_ieee_at_infinities_zeros_and_nan():
    inf, big = np.inf, float(np.finfo(F32).max)
    rows = [(inf, 1, -inf), (0, inf, 1), (inf, 2, 5), (big, 2, -big), (1, 1, -1), (-0.0, 1, -0.0), (-0.0, 1, 0.0)]
    a, b, c = np.array(rows, F32).T
    out = fma32(a, b, c)
    assert_array_equal(out, np.array([np.nan, np.nan, inf, big, 0, -0.0, 0], F32), strict=True)
    assert_array_equal(np.signbit(out[4:]), [False, True, False])


TIES = [-2.5, -1.5, -0.5, 0.5, 1.5, 2.5]


@pytest.mark.parametrize(
    ("rounding", "right"),
    [
        ("half_even", [-2, -2, 0, 0, 2, 2]),
        ("half_away", [-3, -2, -1, 1, 2, 3]),
        ("half_up", [-2, -1, 0, 1, 2, 3]),
        ("toward_zero", [-2, -1, 0, 0, 1, 2]),
        ("floor", [-3, -2, -1, 0, 1, 2]),
    ],
)
def test_rounding_rule_on_ties(rounding, right):
    assert_array_equal(round_f32(TIES, rounding), np.array(right, F32))


@pytest.mark.parametrize("rounding", ["half_even", "half_away", "half_up"])
def test_just_below_a_half_rounds_down_and_large_numbers_stay(rounding):
    below = np.nextafter(F32(0.5), F32(0))
    x = np.array([below, -below, 8388607.5, 8388609, -16777217, 3e38], F32)
    right = np.array([0, 0, 8388608, 8388609, -16777217, 3e38], F32)
    assert_array_equal(round_f32(x, rounding), right)


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_every_rule_keeps_integers_infinities_and_nan(rounding):
    x = np.array([-3, 0, 7, np.inf, -np.inf, np.nan], F32)
    assert_array_equal(round_f32(x, rounding, 5), x)


def test_unknown_rule_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="half_even, half_away"):
        round_f32([1.0], "nearest")


def test_uniform24_is_the_documented_hash():
    def mix(z):
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
        return z ^ (z >> 31)

    gamma = 0x9E3779B97F4A7C15
    for seed in (0, 1, -1, 2**63, 12345):
        key = mix((seed + gamma) % 2**64)
        right = [(mix((key + (i + 1) * gamma) % 2**64) >> 40) / 2**24 for i in (0, 1, 2, 10**10)]
        assert_array_equal(uniform24(seed, [0, 1, 2, 10**10]), np.array(right, F32), strict=True)


def test_uniform24_is_uniform_and_seeds_are_unrelated():
    u, v = uniform24(0, np.arange(1 << 16)), uniform24(1, np.arange(1 << 16))
    assert 0 <= u.min()
    assert u.max() < 1
    counts = np.histogram(u, 16, (0, 1))[0]
    assert ((counts - 4096) ** 2 / 4096).sum() < 45  # chi-square, 15 degrees of freedom, p > 1e-4
    assert abs(np.corrcoef(u, v)[0, 1]) < 0.02


def test_stochastic_rounding_is_unbiased():
    x = np.full(1 << 16, 2.25, F32)
    r = round_f32(x, "stochastic", 3)
    assert set(np.unique(r)) == {2, 3}
    assert abs(r.mean() - 2.25) < 0.01


def test_spread_covers_every_granularity_and_a_ragged_group():
    shape = (3, 5)
    assert_array_equal(spread(7, shape, ()), np.full(shape, 7))
    assert_array_equal(spread([1, 2, 3], shape, ((0, 1),)), np.repeat([[1], [2], [3]], 5, 1))
    assert_array_equal(spread([1, 2, 3, 4, 5], shape, ((1, 1),)), np.tile([1, 2, 3, 4, 5], (3, 1)))
    assert_array_equal(spread([[1, 2, 3, 4, 5]], shape, (None, (1, 1))), np.tile([1, 2, 3, 4, 5], (3, 1)))
    assert_array_equal(spread([[1, 2, 3], [4, 5, 6], [7, 8, 9]], shape, ((0, 1), (1, 2)))[1], [4, 4, 5, 5, 6])
    assert_array_equal(spread([[1, 2], [3, 4]], shape, ((0, 2), (1, 3)))[:, 2:4], [[1, 2], [1, 2], [3, 4]])
    assert_array_equal(spread([[1], [2], [3]], shape), np.repeat([[1], [2], [3]], 5, 1))
    assert spread(np.zeros((0, 1)), (0, 3), ((0, 1), (1, 3))).shape == (0, 3)
    assert spread(7, (), ()).shape == ()
    with pytest.raises(ValueError, match=r"parameters have shape \(2,\)"):
        spread([1, 2], shape, ((1, 1),))
