"""requantize: float32 multipliers as ONNX Runtime has them, and fixed point with one rounding."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from tilework.kernels.reference.requantize import requantize_fixed, requantize_float
from tilework.kernels.requantize import Requantize
from tilework.kernels.rounding import quantize_multiplier
from tilework.primitives.errors import ArgumentError, DTypeMismatch, QuantizationError

F32, S32 = np.float32, np.int32
CODES = {"u8": np.uint8, "s8": np.int8, "u16": np.uint16, "s16": np.int16, "s32": np.int32}
LIMITS = {k: (S32(max(np.iinfo(t).min, -(2**31))), S32(min(np.iinfo(t).max, 2**31 - 1))) for k, t in CODES.items()}


def scaled(run, acc, multiplier, zero_point=0, dtype="s8", lo=None, hi=None):
    low, high = LIMITS[dtype]
    bounds = (low if lo is None else S32(lo), high if hi is None else S32(hi))
    return run(Requantize(dtype, 1), S32(acc), F32(multiplier), CODES[dtype](zero_point), *bounds).tolist()


def fixed(run, acc, multiplier, shift, zero_point=0, dtype="s8"):
    kernel = Requantize(dtype, 1, arithmetic="fixed")
    return run(kernel, S32(acc), S32(multiplier), S32(shift), CODES[dtype](zero_point), *LIMITS[dtype]).tolist()


def exactly(acc, multiplier, shift, zero_point, low, high):
    """The definition in Python integers, which never overflow."""
    t = 31 - int(shift)
    return min(max(((int(acc) * int(multiplier) + (1 << (t - 1))) >> t) + int(zero_point), int(low)), int(high))


def test_float_ties_go_to_even_and_zero_points_are_added_after(run):
    assert scaled(run, [-3, -1, 1, 3, 5], 0.5) == [-2, 0, 0, 2, 2]
    assert scaled(run, [-3, -1, 1, 3, 5], 0.5, 7) == [5, 7, 7, 9, 9]


def test_float_results_saturate_instead_of_wrapping(run):
    assert scaled(run, [10000], 1 / 0.2, 0, "u8") == [255]
    assert scaled(run, [-10000], 1 / 0.5) == [-128]
    assert scaled(run, [2**31 - 1, -(2**31)], 3e38, 5, "s32") == [2**31 - 1, -(2**31)]
    assert scaled(run, [2**31 - 1, -(2**31)], 1, 2**31 - 1, "s32") == [2**31 - 1, -1]


def test_float_ratios_of_every_size(run):
    assert scaled(run, [100, -7], 0.052 * 2.39 / 0.112) == [111, -8]
    assert scaled(run, [5, -128], 1) == [5, -128]
    assert scaled(run, [2**31 - 1], 2.0**-40, 7) == [7]
    assert scaled(run, [3 << 23], 2.0**-24) == [2]
    assert scaled(run, [1], 1e9) == [127]
    assert scaled(run, [5, 2**31 - 1], 0, 3) == [3, 3]


def test_the_accumulator_is_rounded_to_float32_first(run):
    assert scaled(run, [494078], F32(0.00013054619)) == [64]  # 64.5 in float32; float64 has 64.500001 and rounds to 65
    assert scaled(run, [16777217, 16777219], 1, 0, "s32") == [16777216, 16777220]


def test_bounds_narrow_the_range(run):
    assert scaled(run, [-9, 0, 9, 300], 1, 3, "u8", lo=3) == [3, 3, 12, 255]  # a relu
    assert scaled(run, [-9, 0, 9, 300], 1, 3, "u8", lo=3, hi=9) == [3, 3, 9, 9]


def test_per_channel_as_worked_by_hand(run):
    acc = S32([[760, 80]])
    kernel = Requantize("u8", 2, ((1, 1),))
    ratio = F32([0.05 * 0.02 / 0.1] * 2)
    assert run(kernel, acc, ratio, np.uint8(128), *LIMITS["u8"]).tolist() == [[136, 129]]


@pytest.mark.parametrize("dtype", CODES)
@pytest.mark.parametrize("at", [(), ((1, 1),), ((0, 1),), ((0, 1), None)], ids=["tensor", "columns", "rows", "kept"])
def test_float_tiles_have_the_bits_of_the_reference(same, dtype, at):
    rng = np.random.default_rng(0)
    acc = rng.integers(-(2**31), 2**31, (7, 37)).astype(S32)
    acc[:3] >>= 20
    shape = tuple(1 if a is None else (7, 37)[a[0]] for a in at)
    multiplier = (2.0 ** rng.uniform(-20, 2, shape)).astype(F32)
    low, high = LIMITS[dtype]
    zero = rng.integers(int(low), int(high) + 1, shape).astype(CODES[dtype])
    found = same(Requantize(dtype, 2, at, at), acc, multiplier, zero, low, high)
    spread = [np.reshape(p, (-1, 1)) if at and at[0] == (0, 1) else p for p in (multiplier, zero)]
    r = np.rint(acc.astype(F32) * spread[0]).astype(np.float64)
    assert_array_equal(found, np.clip(r + spread[1].astype(float), int(low), int(high)))


def test_fixed_point_rounds_once(run):
    assert fixed(run, [7984], 1583594044, -9) == [11]  # exactly 11.4991; two roundings give 12
    assert fixed(run, [1, -1, 3, 5], 1 << 30, -1) == [0, 0, 1, 1]  # .25 -.25 .75 1.25; two roundings give 1 0 1 2


def test_fixed_point_ties_go_up(run):
    assert fixed(run, [-3, -1, 1, 3], 1 << 30, 0) == [-1, 0, 1, 2]


@pytest.mark.parametrize("dtype", CODES)
def test_fixed_point_is_exact_at_every_shift(same, dtype):
    rng = np.random.default_rng(1)
    shifts = np.arange(-31, 31).astype(S32)
    acc = np.concatenate([[-(2**31), 2**31 - 1, -1, 0, 1], rng.integers(-(2**31), 2**31, 20)]).astype(S32)
    acc = np.repeat(acc[:, None], shifts.size, 1)
    acc[9:15] >>= 24
    low, high = LIMITS[dtype]
    zero = CODES[dtype](int(high) // 3)
    for edge in (1 << 30, (1 << 31) - 1, 1583594044):
        multiplier = np.full(shifts.size, edge, S32)
        kernel = Requantize(dtype, 2, ((1, 1),), (), "fixed")
        found = same(kernel, acc, multiplier, shifts, zero, low, high)
        right = [[exactly(a, edge, s, zero, low, high) for a, s in zip(line, shifts, strict=True)] for line in acc]
        assert_array_equal(found, right)


def test_fixed_point_per_tensor_has_the_bits_of_the_reference(same):
    acc = np.random.default_rng(2).integers(-(2**31), 2**31, (3, 5, 7)).astype(S32)
    kernel = Requantize("u8", 3, (), (), "fixed")
    same(kernel, acc, S32(1583594044), S32(-22), np.uint8(100), *LIMITS["u8"])


def test_zero_sizes_and_strides(same):
    same(Requantize("s8", 2), np.zeros((0, 3), S32), F32(1), np.int8(0), *LIMITS["s8"])
    acc = np.arange(-40, 40, dtype=S32).reshape(8, 10)
    for view in (acc.T, acc[::-2, ::3], np.broadcast_to(acc[0], (4, 10)), np.broadcast_to(S32(7), (4, 5))):
        same(Requantize("s8", 2), view, F32(0.3), np.int8(3), *LIMITS["s8"])
    same(Requantize("s8", 0), S32(7), F32(0.3), np.int8(3), *LIMITS["s8"])


@pytest.mark.parametrize(
    ("real", "pair"),
    [
        (1, (1 << 30, 1)),
        (0.5, (1 << 30, 0)),
        (0.75, (3 << 29, 0)),
        (1 - 2.0**-33, (1 << 30, 1)),  # the mantissa rounds up to 2**31 and is renormalized
        (2.0**30 * (1 - 2.0**-31), ((1 << 31) - 1, 30)),
        (2.0**-32, (1 << 30, -31)),
        (2.0**-40, (1 << 30, -31)),
        (5e-324, (1 << 30, -31)),
    ],
)
def test_a_ratio_becomes_multiplier_and_shift(real, pair):
    assert quantize_multiplier(real) == pair


def test_multipliers_are_nearest_and_in_range():
    for real in 2.0 ** np.random.default_rng(3).uniform(-32, 30, 2000):
        multiplier, shift = quantize_multiplier(real)
        assert 1 << 30 <= multiplier < 1 << 31
        assert -31 <= shift <= 30
        assert abs(multiplier * 2.0 ** (shift - 31) - real) <= 2.0 ** (shift - 32)


def test_a_tiny_ratio_gives_zero_for_every_accumulator(run):
    multiplier, shift = quantize_multiplier(2.0**-40)
    assert fixed(run, [2**31 - 1, -(2**31), 0], multiplier, shift, 7) == [7, 7, 7]


@pytest.mark.parametrize("real", [0, -1, np.nan, np.inf, 2.0**30, 1e300])
def test_a_ratio_out_of_range_is_refused(real):
    with pytest.raises(QuantizationError):
        quantize_multiplier(real)


@pytest.mark.parametrize(("multiplier", "shift"), [((1 << 30) - 1, 0), (-(1 << 30), 0), (1 << 30, 31), (1 << 30, -32)])
def test_fixed_point_parameters_out_of_range_are_refused(multiplier, shift, run_on):
    with pytest.raises(ValueError, match="is outside"):
        requantize_fixed([1], multiplier, shift, lo=0, hi=255, dtype=np.uint8)
    kernel = Requantize("s8", 1, arithmetic="fixed")
    with pytest.raises(AssertionError, match="status 1"):
        run_on("cpu", kernel, S32([1]), S32(multiplier), S32(shift), np.int8(0), *LIMITS["s8"])


@pytest.mark.parametrize("bad", [-1, np.nan, np.inf])
def test_a_bad_multiplier_is_refused(bad, run_on):
    with pytest.raises(ValueError, match="negative or not finite"):
        requantize_float([1], bad, lo=0, hi=255, dtype=np.uint8)
    with pytest.raises(AssertionError, match="status 1"):
        run_on("cpu", Requantize("s8", 1), S32([1]), F32(bad), np.int8(0), *LIMITS["s8"])


def test_types_and_arithmetic_that_do_not_exist_are_refused():
    with pytest.raises(DTypeMismatch, match="it has u8, s8"):
        Requantize("f32")
    with pytest.raises(ArgumentError, match="float, fixed"):
        Requantize(arithmetic="double")
