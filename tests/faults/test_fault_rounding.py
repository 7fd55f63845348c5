"""Kinds of faults that quantize and requantize of other libraries had: ties, wraps, double rounding, NaN."""

import numpy as np
import pytest

import tilework as tw


def quantized(everywhere, x, scale, zero=0, dtype="s8"):
    return everywhere(lambda v: tw.ops.quantize(v, scale, zero, dtype), np.asarray(x))


def requantized(everywhere, acc, multiplier, zero=0, dtype="s8", **more):
    return everywhere(
        lambda v: tw.ops.requantize(v, multiplier, zero, dtype, **more), np.asarray(acc, np.int32)
    ).tolist()


def many(x, n):
    """x over and over to n values, so that vector body and tail both see each of them."""
    return np.resize(np.asarray(x), n)


@pytest.mark.parametrize("n", [8, 15, 33, 67])
def test_ties_go_to_even(everywhere, exact, n):
    x = many(np.array([0.25, 0.75, 1.25, 1.75, -0.25, -0.75, -1.25, -1.75], np.float32), n)
    assert quantized(everywhere, x, 0.5).tolist() == many([0, 2, 2, 4, 0, -2, -2, -4], n).tolist()
    for zero in (1, -3, 77):  # an odd zero point does not move the tie: it is added after rounding
        assert quantized(everywhere, x, 0.5, zero).tolist() == exact.quantize(x, 0.5, zero, -128, 127).tolist()


def test_halves_are_divided_in_float32_and_not_cut(everywhere):
    x = np.array([0.050018310546875, -0.050018310546875], np.float16)
    assert quantized(everywhere, x, np.float32(np.float16(0.0999755859375))).tolist() == [1, -1]


def test_near_ties_are_those_of_a_float32_division(everywhere):
    """-12.75 / float32(0.1) is -127.5 in float32 and a little above it in float64; the reciprocal gives others."""
    assert quantized(everywhere, np.array([-12.75], np.float32), np.float32(0.1)).tolist() == [-128]
    rng = np.random.default_rng(5)
    scale = np.float32(0.1)
    x = (rng.integers(-128, 128, 4099) + 0.5).astype(np.float32) * scale
    right = np.clip(np.rint(x / scale), -128, 127).astype(np.int8)
    assert quantized(everywhere, x, scale).tobytes() == right.tobytes()


@pytest.mark.parametrize("scale", [1e-45, 1e-40, 1.17549435e-38, 3e38])
def test_scales_at_the_ends_of_float32(everywhere, exact, scale):
    x = np.array([0.0, -0.0, 1e-45, -3e-45, 1e-38, 1.0, -1.0, 3.4e38, -3.4e38], np.float32)
    right = exact.quantize(x, np.float32(scale), 3, -128, 127)
    assert quantized(everywhere, x, np.float32(scale), 3).tolist() == right.tolist()


def test_out_of_range_saturates(everywhere):
    assert quantized(everywhere, np.array([-5.0, -25.5, 30.0], np.float32), 0.1, 0, "u8").tolist() == [0, 0, 255]
    lowest = quantized(everywhere, np.array([-129.0, -128.0, -127.0], np.float32), 1.0)
    assert lowest.tolist() == [-128, -128, -127]
    huge = np.array([3e9, -3e9, 3e38, -3e38, 2**31, -(2**31), 2**63], np.float32)
    assert quantized(everywhere, huge, 1.0).tolist() == [127, -128, 127, -128, 127, -128, 127]
    assert requantized(everywhere, [10000], 1 / 0.2, 0, "u8") == [255]
    assert requantized(everywhere, [-10000], 1 / 0.5) == [-128]


@pytest.mark.parametrize(("dtype", "zero", "right"), [
    ("u8", 133, [255, 0, 133, 134]), ("s8", 0, [127, -128, 0, 1]), ("s8", -128, [127, -128, -128, -127]),
    ("u16", 7, [65535, 0, 7, 8]), ("s16", -5, [32767, -32768, -5, -4]),
    ("u4", 9, [15, 0, 9, 10]), ("s4", -2, [7, -8, -2, -1]), ("s2", 1, [1, -2, 1, 1]),
])  # fmt: skip
@pytest.mark.parametrize("n", [4, 37])
def test_infinities_saturate_and_nan_is_real_zero(everywhere, dtype, zero, right, n):
    x = many(np.array([np.inf, -np.inf, np.nan, 1.0], np.float32), n)
    assert quantized(everywhere, x, 1.0, zero, dtype).tolist() == many(right, n).tolist()
    negative = many(np.array([np.inf, -np.inf, -np.nan, 1.0], np.float32), n)
    assert quantized(everywhere, negative, 1.0, zero, dtype).tolist() == many(right, n).tolist()


def test_fixed_point_rounds_once(everywhere):
    """11.4991 is 11, though a high multiply that rounds by itself makes 11.5 of it; 0.25 is 0."""

    def pair(acc, multiplier, shift):
        return requantized(everywhere, acc, np.int32(multiplier), shift=np.int32(shift), arithmetic="fixed")

    assert pair([7984], 1583594044, -9) == [11]
    assert pair([1, -1, 3, 5], 1 << 30, -1) == [0, 0, 1, 1]
    top = 2**31 - 1
    for acc, multiplier, shift in ((top, top, 0), (-top - 1, top, -20), (1, 1 << 30, -31), (12345, 1518500250, -7)):
        total = 31 - shift
        right = min(max((acc * multiplier + (1 << (total - 1))) >> total, -128), 127)
        assert pair([acc], multiplier, shift) == [right]


def test_ratios_of_any_size(everywhere):
    assert requantized(everywhere, [100, -7], 0.052 * 2.39 / 0.112) == [111, -8]
    assert requantized(everywhere, [5, -128], 1.0) == [5, -128]
    assert requantized(everywhere, [2**31 - 1], 2.0**-40, 7) == [7]
    assert requantized(everywhere, [3 << 23], 2.0**-24) == [2]
    assert requantized(everywhere, [1, -1], 1e9) == [127, -128]


@pytest.mark.parametrize("ratio", [1 - 2.0**-33, 1.0, 1 + 2.0**-20, 2.0**-31, 1.9999999999, 0.5 - 2.0**-34])
def test_a_mantissa_that_rounds_up_is_renormalised(everywhere, ratio):
    multiplier, shift = tw.ops.quantize_multiplier(ratio)
    assert 2**30 <= multiplier < 2**31
    assert abs(float(multiplier) * 2.0 ** (shift - 31) - ratio) <= ratio * 2.0**-30
    acc = [0, 1, -1, 100, -100]
    right = [min(max((a * int(multiplier) + (1 << (30 - shift))) >> (31 - shift), -128), 127) for a in acc]
    assert requantized(everywhere, acc, ratio, arithmetic="fixed") == right


def test_accumulator_is_converted_and_multiplied_in_float32(everywhere):
    """494078 * float32(0.00013054619) is 64.500001 in float64 and 64.5, so 64, in float32."""
    assert requantized(everywhere, [494078], np.float32(0.00013054619)) == [64]


@pytest.mark.parametrize(
    ("q", "zero", "right"), [(np.int8(127), np.int8(-128), 255.0), (np.uint8(3), np.uint8(250), -247.0)]
)
def test_a_code_less_its_zero_point_needs_nine_bits(everywhere, q, zero, right):
    y = everywhere(lambda v: tw.ops.dequantize(v, np.float32(1), zero), np.full(37, q))
    assert y.tolist() == [right] * 37


@pytest.mark.parametrize(("dtype", "codes"), [("u8", (0, 255)), ("s8", (-128, 127))])
def test_all_zero_data_has_a_scale(everywhere, dtype, codes):
    for symmetric in (False, True):
        for granularity in ("tensor", "row"):
            x = np.zeros((3, 40), np.float32)
            x[1] = np.linspace(-2, 5, 40)  # one row of zeros among others, and rows of zeros alone
            for data in (x, x[:1]):

                def parts(v, symmetric=symmetric, granularity=granularity):
                    return tw.ops.dynamic_quantize(v, dtype, symmetric, granularity)

                q, scale, zero = everywhere(parts, data)
                assert np.isfinite(scale).all()
                assert (scale > 0).all()
                assert (zero >= codes[0]).all()
                assert (zero <= codes[1]).all()
                real = (q.astype(np.float32) - zero.astype(np.float32)) * scale
                assert (real[data == 0] == 0).all()
                assert (np.abs(real - data) <= scale * np.float32(0.5001)).all()


@pytest.mark.parametrize("value", [500.0, -500.0, 2.0, 1e-3, 1e-30, 1e30])
def test_constant_data_comes_back(everywhere, value):
    x = np.full((2, 33), value, np.float32)
    q, scale, zero = everywhere(tw.ops.dynamic_quantize, x)
    assert np.isfinite(scale)
    assert scale > 0
    assert (
        np.abs((q.astype(float) - float(zero)) * float(scale) - float(np.float32(value))).max() <= float(scale) * 0.5001
    )


def test_a_row_scale_does_not_depend_on_the_batch(everywhere):
    rows = np.stack([np.full(40, 1.0), np.full(40, 100.0), np.linspace(-3, 1, 40)]).astype(np.float32)
    whole = everywhere(lambda v: tw.ops.dynamic_quantize(v, granularity="row"), rows)
    for r in range(3):
        one = everywhere(lambda v: tw.ops.dynamic_quantize(v, granularity="row"), rows[r : r + 1])
        assert [y.tobytes() for y in one] == [y[r : r + 1].tobytes() for y in whole]


def test_dynamic_ranges_include_zero_and_tie_to_even(everywhere):
    q = everywhere(lambda v: tw.ops.dynamic_quantize(v)[0], np.array([-127, 128, 0.5], np.float32))
    assert q.tolist() == [0, 255, 127]
    assert everywhere(lambda v: tw.ops.dynamic_quantize(v)[2], np.array([-253, 257, 0], np.float32)) == 126


def test_joined_parts_are_rescaled(everywhere):
    """10 at 0.1 and 10 at 0.2, joined at scale 0.2, are 5 and 10."""
    pipe = tw.Pipeline("join")
    a = pipe.input("a", "s8", (1,), quant=tw.QuantParams(0.1, 0, "s8"))
    b = pipe.input("b", "s8", (1,), quant=tw.QuantParams(0.2, 0, "s8"))
    pipe.output("y", tw.ops.concat([a, b], axis=0, to=tw.QuantParams(0.2, 0, "s8")))
    for executor in (tw.SingleThreadExecutor(backend="reference"), tw.TilingExecutor()):
        assert executor.run(pipe, {"a": np.array([10], np.int8), "b": np.array([10], np.int8)})["y"].tolist() == [5, 10]
