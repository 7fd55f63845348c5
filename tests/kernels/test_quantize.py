"""quantize and dequantize: the formula, ties, saturation, every granularity, rounding and type."""

import ml_dtypes
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from tilework.executors import TilingExecutor
from tilework.kernels import ops
from tilework.kernels.quantize import Dequantize, Quantize
from tilework.kernels.reference.arithmetic import uniform24
from tilework.kernels.reference.quantize import dequantize, quantize
from tilework.kernels.rounding import ROUNDINGS
from tilework.primitives.errors import ArgumentError, DTypeMismatch
from tilework.primitives.pipeline import Pipeline

F32 = np.float32
CODES = {"u8": np.uint8, "s8": np.int8, "u16": np.uint16, "s16": np.int16, "s32": np.int32}
SMALL = {"u4": (np.uint8, 0, 15), "s4": (np.int8, -8, 7), "u2": (np.uint8, 0, 3), "s2": (np.int8, -2, 1)}
EVERY = {**{k: (t, np.iinfo(t).min, np.iinfo(t).max) for k, t in CODES.items()}, **SMALL}


def row(run, values, scale, zero_point, dtype="s8", **kernel):
    """Quantize one row, per tensor."""
    storage = EVERY[dtype][0]
    return run(Quantize("f32", dtype, 1, **kernel), F32(values), F32(scale), storage(zero_point)).tolist()


def test_ties_go_to_even(run):
    assert row(run, [0.25, 0.75, 1.25, 1.75, -0.25, -0.75, -1.25, -1.75], 0.5, 0) == [0, 2, 2, 4, 0, -2, -2, -4]


def test_an_odd_zero_point_does_not_move_a_tie(run):
    assert row(run, [-1.5, -0.5, 0.5, 1.5, 2.5], 1, 7) == [5, 7, 7, 9, 9]
    assert row(run, [-1.5, -0.5, 0.5, 1.5, 2.5], 1, 133, "u8") == [131, 133, 133, 135, 135]


def test_codes_saturate_at_both_ends(run):
    assert row(run, [-5, -25.5, 30], 0.1, 0, "u8") == [0, 0, 255]
    assert row(run, [-129, -128, -127, 127, 128, 200, 3e9, -3e9], 1, 0) == [-128, -128, -127, 127, 127, 127, 127, -128]
    assert row(run, [1e30, -1e30], 1, 128, "u8") == [255, 0]
    assert row(run, [3e38, -3e38, 3e9, -3e9], 1, 5, "s32") == [2**31 - 1, -(2**31), 2**31 - 1, -(2**31)]


def test_the_division_is_float32(run):
    assert row(run, [-12.75], 0.1, 0) == [-128]  # float64 division gives -127
    assert row(run, [12.75], 0.1, 0, "s16") == [128]


def test_nan_gives_the_zero_point_and_infinities_saturate(run):
    specials = [np.inf, -np.inf, np.nan, 1]
    assert row(run, specials, 1, 133, "u8") == [255, 0, 133, 134]
    assert row(run, specials, 1, 0) == [127, -128, 0, 1]
    assert row(run, specials, 1, -7, "s32") == [2**31 - 1, -(2**31), -7, -6]
    assert row(run, specials, 1, 9, "u4") == [15, 0, 9, 10]
    assert row(run, [np.nan] * 67, 1, 3) == [3] * 67  # in the vector body and in the tail


def test_overflow_of_the_division_saturates(run):
    assert row(run, [3e38, -3e38, 0], 1e-3, 4) == [127, -128, 4]
    assert row(run, [1, -1, 0], float(np.finfo(F32).smallest_subnormal), 4) == [127, -128, 4]


@pytest.mark.parametrize("dtype", EVERY)
@pytest.mark.parametrize("rounding", ["half_even", "stochastic"])
def test_every_code_type_has_the_bits_of_the_reference(same, dtype, rounding):
    storage, low, high = EVERY[dtype]
    rng = np.random.default_rng(0)
    wide = min(high - low, 70000)
    x = np.concatenate(
        [rng.standard_normal(40) * wide, [np.nan, np.inf, -np.inf, -0.0, low, high, low - 1.0, high + 1.0]]
    )
    middle = storage((low + high + 1) // 2)
    seed = (np.uint64(3),) if rounding == "stochastic" else ()
    found = same(Quantize("f32", dtype, 1, rounding=rounding), x.astype(F32), F32(0.75), middle, *seed)
    assert found.dtype == storage
    assert low <= found.min()
    assert found.max() <= high


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_every_rounding_rule_has_the_bits_of_the_reference(same, rounding):
    ties = np.arange(-40, 40, dtype=F32) / 8
    near = np.concatenate(
        [np.nextafter(ties, F32(-99)), ties, np.nextafter(ties, F32(99)), [1e-30, -1e-30, 0.49999997]]
    )
    seed = (np.uint64(2**63 + 11),) if rounding == "stochastic" else ()
    same(Quantize("f32", "s8", 1, rounding=rounding), near.astype(F32), F32(1), np.int8(1), *seed)


@pytest.mark.parametrize(
    ("rounding", "right"),
    [
        ("half_away", [-3, -2, -1, 1, 2, 3]),
        ("half_up", [-2, -1, 0, 1, 2, 3]),
        ("toward_zero", [-2, -1, 0, 0, 1, 2]),
        ("floor", [-3, -2, -1, 0, 1, 2]),
    ],
)
def test_rounding_of_ties_worked_by_hand(run, rounding, right):
    assert row(run, [-2.5, -1.5, -0.5, 0.5, 1.5, 2.5], 1, 10, rounding=rounding) == [10 + r for r in right]


def test_stochastic_draws_depend_on_seed_and_position_only(run):
    x = np.full((5, 7), 2.25, F32)
    kernel = Quantize("f32", "s8", 2, rounding="stochastic")
    found = run(kernel, x, F32(1), np.int8(0), np.uint64(42))
    right = 2 + (uniform24(42, np.arange(35)) < 0.25).reshape(5, 7)
    assert_array_equal(found, right)
    assert (run(kernel, x, F32(1), np.int8(0), np.uint64(43)) != found).any()
    assert_array_equal(run(kernel, np.asfortranarray(x)[::-1], F32(1), np.int8(0), np.uint64(42)), right)


GRANULARITIES = {
    "tensor": ((), ()),
    "tensor of shape (1,)": ((None,), (1,)),
    "channel of axis 0": (((0, 1),), (4,)),
    "channel of axis 1": (((1, 1),), (7,)),
    "channel of axis 2": (((2, 1),), (5,)),
    "channel, kept": ((None, (1, 1), None), (1, 7, 1)),
    "groups of 2 along axis 2, ragged": (((0, 1), (1, 1), (2, 2)), (4, 7, 3)),
    "groups of 3 along axis 1, ragged": (((0, 1), (1, 3), (2, 1)), (4, 3, 5)),
    "one group longer than the axis": (((0, 1), (1, 1), (2, 64)), (4, 7, 1)),
    "blocks of 2 by 4": (((0, 1), (1, 2), (2, 4)), (4, 4, 2)),
}


@pytest.mark.parametrize("name", GRANULARITIES)
def test_every_granularity_uses_the_scale_of_its_element(same, name):
    index, shape = GRANULARITIES[name]
    rng = np.random.default_rng(1)
    scale = rng.choice([0.25, 0.5, 1, 2, 4], shape).astype(F32)
    zero_point = rng.integers(100, 150, shape).astype(np.uint8)
    x = (rng.standard_normal((4, 7, 5)) * 20).astype(F32)
    found = same(Quantize("f32", "u8", 3, index, index), x, scale, zero_point)
    back = same(Dequantize("u8", 3, index, index), found, scale, zero_point)
    for at in np.ndindex(x.shape):
        place = tuple(0 if a is None else at[a[0]] // a[1] for a in index)
        s, z = scale[place], int(zero_point[place])
        assert found[at] == np.clip(np.rint(x[at] / s) + z, 0, 255)
        assert back[at] == (int(found[at]) - z) * s


def test_scale_and_zero_point_may_have_different_granularity(same):
    x = np.arange(12, dtype=F32).reshape(3, 4)
    found = same(Quantize("f32", "u8", 2, ((1, 1),), ()), x, F32([1, 2, 4, 8]), np.uint8(3))
    assert found.tolist() == [[3, 3, 3, 3], [7, 5, 5, 4], [11, 7, 5, 4]]


def test_a_transposed_view_takes_the_scales_of_its_own_axis(same):
    memory = np.arange(2 * 3 * 4 * 5, dtype=F32).reshape(2, 4, 5, 3)  # NHWC memory
    x = memory.transpose(0, 3, 1, 2)
    found = same(Quantize("f32", "s8", 4, ((1, 1),)), x, F32([0.5, 1, 2]), np.int8(0))
    right = np.stack([quantize(x[:, c], s, lo=-128, hi=127, dtype=np.int8) for c, s in enumerate((0.5, 1.0, 2.0))], 1)
    assert_array_equal(found, right)


def test_per_channel_after_a_transpose(run):
    w, s = np.arange(1, 10, dtype=np.int8).reshape(3, 3), F32([1, 10, 100])
    right = [[1, 4, 7], [20, 50, 80], [300, 600, 900]]
    assert run(Dequantize("s8", 2, ((1, 1),)), w, s, np.int8(0)).T.tolist() == right
    assert run(Dequantize("s8", 2, ((0, 1),)), w.T, s, np.int8(0)).tolist() == right


@pytest.mark.parametrize("view", [np.s_[::-1], np.s_[::2], np.s_[1:4, ::-2]])
def test_any_strides(same, view):
    x = (np.random.default_rng(2).standard_normal((6, 9)) * 50).astype(F32)[view]
    same(Quantize("f32", "s8", 2), x, F32(0.5), np.int8(3))
    same(Quantize("f32", "s8", 2), np.broadcast_to(x[0], x.shape), F32(0.5), np.int8(3))
    q = np.arange(54, dtype=np.uint8).reshape(6, 9)[view]
    same(Dequantize("u8", 2), q, F32(0.5), np.uint8(3))


@pytest.mark.parametrize("n", [127, 128, 129])
def test_elements_that_are_not_neighbours_are_copied_together_in_pieces_of_128(same, n):
    x = (np.random.default_rng(n).integers(-300, 300, 2 * n) * 0.25).astype(F32)  # many ties
    same(Quantize("f32", "s8", 1), x[::2], F32(0.5), np.int8(3))
    same(Quantize("f32", "s8", 1), x[::-2], F32(0.3), np.int8(-128))


def test_any_rank(same):
    for shape in [(), (0,), (5,), (1, 1, 1, 1), (2, 1, 2, 3, 2)]:
        x = np.linspace(-9, 9, int(np.prod(shape)), dtype=F32).reshape(shape)
        same(Quantize("f32", "s8", x.ndim), x, F32(0.5), np.int8(3))


@pytest.mark.parametrize("source", ["f16", "bf16"])
def test_half_floats_are_widened_exactly(same, source):
    numpy = np.float16 if source == "f16" else ml_dtypes.bfloat16
    every = np.arange(1 << 16).astype(np.uint16).view(numpy).reshape(256, 256)
    found = same(Quantize(source, "s16", 2), every, F32(2.0**-10), np.int16(1))
    assert_array_equal(found, quantize(every.astype(F32), 2.0**-10, 1, lo=-(2**15), hi=2**15 - 1, dtype=np.int16))


@pytest.mark.parametrize("rounding", ["half_even", "half_away", "half_up"])
@pytest.mark.parametrize("dtype", ["u8", "s8"])
def test_runs_that_are_multiplied_by_the_inverse_have_the_bits_of_the_division(dtype, rounding):
    storage, low, high = EVERY[dtype]
    rng = np.random.default_rng(1)
    pipe = Pipeline("runs")
    x, scale = pipe.input("x", "f32", ("n",)), pipe.input("scale", "f32", ())
    zero_point = pipe.input("zero_point", dtype, ())
    pipe.output("y", ops.quantize(x, scale, zero_point=zero_point, dtype=dtype, rounding=rounding))
    plan = TilingExecutor(1).compile(pipe)
    ordinary = [F32(s) for s in (0.1, 1 / 3, 0.75, 7.3, *rng.lognormal(0, 3, 6))]
    for s in (*ordinary, F32(1e-45), F32(2.0**-127), F32(2.0**-100), F32(2.0**100), F32(3e38)):
        with np.errstate(over="ignore"):
            ties = ((np.arange(-300, 300) + 0.5) * np.float64(s)).astype(F32)
        near = [ties]
        for way in (F32(-np.inf), F32(np.inf)):
            moved = ties
            for _ in range(3):
                moved = np.nextafter(moved, way)
                near.append(moved)
        odd = F32([np.nan, np.inf, -np.inf, -0.0, 1e-45, 3e38, -3e38])
        values = np.concatenate([*near, (rng.standard_normal(700) * 60 * min(float(s), 1e36)).astype(F32), odd])
        for n in (127, 128, 129, 513, len(values)):
            chosen = rng.permutation(values)[:n]
            for zero in (low, high, 0, 3):
                given = {"x": chosen, "scale": s, "zero_point": storage(zero)}
                right = quantize(chosen, s, zero, lo=low, hi=high, dtype=storage, rounding=rounding)
                assert_array_equal(plan.run(given)["y"], right)


def test_float16_ties_are_not_truncated(run):
    h = np.array([0.050018310546875, -0.050018310546875], np.float16)
    scale = F32(np.float16(0.0999755859375))
    assert run(Quantize("f16", "s8", 1), h, scale, np.int8(0)).tolist() == [1, -1]


def test_zeros_come_back_as_zeros(run):
    x = np.zeros((2, 3), F32)
    for zero_point in (0, 5, 255):
        q = run(Quantize(), x, F32(1), np.uint8(zero_point))
        assert not run(Dequantize(), q, F32(1), np.uint8(zero_point)).any()


@pytest.mark.parametrize("c", [500, -500, 2, 1e-3, -1e-30])
def test_a_constant_comes_back_within_half_a_step(run, c):
    low, high = min(0, c), max(0, c)
    scale = F32((high - low) / 255)
    zero = np.uint8(np.clip(np.rint(-low / scale), 0, 255))
    q = run(Quantize("f32", "u8", 1), F32([c]), scale, zero)
    assert abs(run(Dequantize("u8", 1), q, scale, zero)[0] - F32(c)) <= scale / 2 * F32(1 + 1e-6)


def test_dequantize_subtracts_in_a_wider_type(run):
    def one(dtype, q, zero_point, scale=1):
        return run(Dequantize(dtype, 1), CODES[dtype]([q]), F32(scale), CODES[dtype](zero_point))[0]

    assert one("s8", 127, -128) == 255
    assert one("u8", 3, 250) == -247
    assert one("u16", 0, 65535) == -65535
    assert one("s16", -32768, 32767) == -65535
    assert one("s32", 2**31 - 1, -(2**31)) == F32(2**32 - 1)
    assert one("s32", 16777217, 0) == 16777216  # rounded once, to even


@pytest.mark.parametrize("dtype", CODES)
def test_dequantize_has_the_bits_of_the_reference(same, dtype):
    info = np.iinfo(CODES[dtype])
    rng = np.random.default_rng(3)
    q = rng.integers(info.min, info.max + 1, (9, 33)).astype(CODES[dtype])
    scale = (rng.random(33) * 1e-3).astype(F32) + F32(1e-30)
    zero = rng.integers(info.min, info.max + 1, 33).astype(CODES[dtype])
    same(Dequantize(dtype, 2, ((1, 1),), ((1, 1),)), q, scale, zero)


@pytest.mark.parametrize("dtype", SMALL)
def test_small_codes_come_back(run, dtype):
    storage, low, high = SMALL[dtype]
    q = np.arange(low, high + 1).astype(storage)
    zero = storage(high)
    real = run(Dequantize(dtype, 1), q, F32(0.5), zero)
    assert_array_equal(real, (q.astype(int) - high) * 0.5)
    assert_array_equal(run(Quantize("f32", dtype, 1), real, F32(0.5), zero), q, strict=True)


def test_zero_points_of_four_bits_are_stored_as_they_are(run):
    q, z = np.array([0, 5, 8, 15], np.uint8), np.array([0, 1, 8, 15], np.uint8)
    assert run(Dequantize("u4", 1, (), ((0, 1),)), q, F32(0.5), z).tolist() == [0, 2, 0, 0]


@pytest.mark.parametrize("group", [16, 32, 64, 100, 256])
def test_every_group_size_is_right(run, group):
    k, n = 256, 5
    q = ((np.arange(k)[:, None] * 3 + np.arange(n)) % 16).astype(np.uint8)
    groups = -(-k // group)
    scale = (2.0 ** -(np.arange(groups)[:, None] % 4 + np.arange(n) % 2)).astype(F32)
    index = ((0, group), (1, 1))
    found = run(Dequantize("u4", 2, index), q, scale, np.uint8(8))
    assert_array_equal(found, (q.astype(int) - 8) * np.repeat(scale, group, 0)[:k])


@pytest.mark.parametrize("bad", [0, -1, np.nan, np.inf])
def test_a_bad_scale_is_refused(bad):
    with pytest.raises(ValueError, match="not finite and positive"):
        quantize([1.0], bad, lo=0, hi=255, dtype=np.uint8)
    with pytest.raises(ValueError, match="not finite and positive"):
        dequantize(np.uint8([1, 2]), [1, bad])


@pytest.mark.parametrize("bad", [0, -1, np.nan, np.inf])
@pytest.mark.parametrize("channel", [False, True])
def test_tiles_return_a_status_for_a_bad_scale(bad, channel, run_on):
    scale = F32([1, 1, bad, 1]) if channel else F32(bad)
    at = ((1, 1),) if channel else ()
    x = np.ones((2, 4), F32)
    with pytest.raises(AssertionError, match="status 1"):
        run_on("cpu", Quantize("f32", "u8", 2, at), x, scale, np.uint8(0))
    with pytest.raises(AssertionError, match="status 1"):
        run_on("cpu", Dequantize("u8", 2, at), x.astype(np.uint8), scale, np.uint8(0))


def test_types_and_rules_that_do_not_exist_are_refused():
    with pytest.raises(DTypeMismatch, match="it has f32, f16, bf16"):
        Quantize("f64")
    with pytest.raises(DTypeMismatch, match="it has u8, s8"):
        Quantize("f32", "f32")
    with pytest.raises(DTypeMismatch, match="it has u8, s8"):
        Dequantize("f32")
    with pytest.raises(ArgumentError, match="half_even, half_away"):
        Quantize(rounding="nearest")
