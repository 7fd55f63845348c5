import copy
import json
import pickle

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from tilework.primitives import dtypes
from tilework.primitives.errors import DTypeMismatch, QuantizationError, ShapeMismatch
from tilework.primitives.quantization import QuantParams


def dequantize(q, params):
    scale, zero_point = params.expand(np.shape(q))
    return scale * (np.asarray(q) - zero_point).astype(np.float32)


def quantize(x, params):
    scale, zero_point = params.expand(np.shape(x))
    q = np.rint(np.asarray(x, np.float32) / scale).astype(np.float64) + zero_point
    return np.clip(q, params.dtype.min, params.dtype.max).astype(np.int64)


def test_one_scale_for_a_tensor():
    params = QuantParams(0.5, 3)
    assert params.granularity == "tensor"
    assert params.dtype == "u8"
    assert params.scale.dtype == np.float32
    assert params.scale.shape == params.zero_point.shape == ()
    assert params.zero_point.dtype == np.uint8
    assert dequantize(np.array([0, 3, 255], np.uint8), params).tolist() == [-1.5, 0, 126]
    assert QuantParams([0.5], [3]) == params
    assert not params.is_symmetric
    assert QuantParams(0.5).is_symmetric


@pytest.mark.parametrize(
    ("axis", "shape"), [(0, (3, 4)), (1, (4, 3)), (-1, (4, 3)), (-2, (3, 4)), (1, (2, 3, 4, 5)), (0, (3,))]
)
def test_one_scale_for_a_channel(axis, shape):
    params = QuantParams([1.0, 10.0, 100.0], [1, 2, 3], "s8", axis=axis)
    assert params.granularity == "channel"
    q = np.ones(shape, np.int8)
    real = np.moveaxis(dequantize(q, params), axis, -1)
    assert_array_equal(real, np.broadcast_to(np.array([0, -10, -200], np.float32), real.shape), strict=True)


@pytest.mark.parametrize("group", [16, 32, 64, 128, 256, -1])
def test_every_group_size_along_an_axis(group):
    depth, n = 256, 5
    q = (np.arange(depth)[:, None] * 3 + np.arange(n)) % 16
    g = depth if group == -1 else group
    s = 2.0 ** -(np.arange(depth // g)[:, None] % 4 + np.arange(n) % 2)
    params = QuantParams(s, 8, "u4", axis=0, block=group)
    assert params.granularity == "group"
    params.validate_for((depth, n))
    assert_array_equal(dequantize(q, params), ((q - 8) * np.repeat(s, g, 0)).astype(np.float32), strict=True)


@pytest.mark.parametrize("depth", [1, 15, 16, 17, 31, 100])
def test_the_last_group_may_be_shorter(depth):
    groups = -(-depth // 16)
    scale = np.arange(1, groups + 1, dtype=np.float32)[None].repeat(2, 0)
    params = QuantParams(scale, 0, "s8", axis=-1, block=16)
    found = np.broadcast_to(params.expand((2, depth))[0], (2, depth))
    assert_array_equal(found, np.repeat(scale, 16, 1)[:, :depth], strict=True)
    with pytest.raises(QuantizationError, match=rf"needs scales of shape \(2, {groups + 1}\); found \(2, {groups}\)"):
        params.validate_for((2, groups * 16 + 1))


def test_blocks_in_two_dimensions():
    scale = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
    params = QuantParams(scale, dtype="f8e4m3fn", block=(2, 3))
    assert params.granularity == "block"
    assert params.axis == (0, 1)
    right = np.repeat(np.repeat(scale, 2, 0), 3, 1)[:3, :7]
    assert_array_equal(params.expand((3, 7))[0], right, strict=True)
    batched = QuantParams(scale[None], dtype="s8", axis=(-2, -1), block=(2, -1))
    assert batched.axis == (1, 2)
    with pytest.raises(
        QuantizationError, match=r"shape \(1, 4, 7\) needs scales of shape \(1, 2, 1\); found \(1, 2, 3\)"
    ):
        batched.validate_for((1, 4, 7))


@pytest.mark.parametrize("scale", [0.0, -1.0, np.nan, np.inf, -np.inf, 1e-50, 1e39, -0.0])
def test_scales_are_finite_and_positive_as_stored(scale):
    with pytest.raises(QuantizationError, match="finite and greater than 0"):
        QuantParams(scale)
    with pytest.raises(QuantizationError, match=r"at \(1,\).*finite and greater than 0"):
        QuantParams([1.0, scale, 2.0], axis=0)


def test_a_scale_that_does_not_fit_f32_says_so():
    with pytest.raises(QuantizationError, match=r"scale 1e-50, which is 0\.0 as f32"):
        QuantParams(1e-50)


@pytest.mark.parametrize(
    ("scale", "name"),
    [
        (0.1, "f32"),
        (2, "f32"),
        (np.float64(0.1), "f32"),
        (np.float16(0.1), "f16"),
        (ml_dtypes.bfloat16(0.1), "bf16"),
        (np.array([1.5, 448], ml_dtypes.float8_e4m3fn), "f8e4m3fn"),
        (np.array([2.0**-127, 1, 2.0**127], ml_dtypes.float8_e8m0fnu), "e8m0fnu"),
        (np.array([0.5], ">f4"), "f32"),
        (np.array([1.5, 2], ml_dtypes.float8_e5m2), "f32"),
    ],
)
def test_scales_keep_their_small_types(scale, name):
    params = QuantParams(scale, dtype="s8", axis=0 if np.size(scale) > 1 else None)
    assert params.scale_dtype == name
    assert_array_equal(params.expand((np.size(scale),))[0].ravel(), np.ravel(scale).astype(np.float32))


def test_e8m0_nan_is_no_scale():
    with pytest.raises(QuantizationError, match="scale nan"):
        QuantParams(np.array([127, 255], np.uint8).view(ml_dtypes.float8_e8m0fnu), dtype="f4e2m1fn", axis=0)


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("u8", (0, 255), (-1, 256)),
        ("s8", (-128, 127), (-129, 128)),
        ("u4", (0, 15), (16, -1)),
        ("s4", (-8, 7), (8, -9)),
        ("s2", (-2, 1), (2,)),
        ("u16", (0, 65535), (65536,)),
        ("s32", (-(2**31), 2**31 - 1), (2**31,)),
        ("f8e5m2", (0,), (1, -1)),
    ],
)
def test_zero_points_are_codes(name, good, bad):
    for zero_point in good:
        assert int(QuantParams(1.0, zero_point, name).zero_point) == zero_point
    for zero_point in bad:
        with pytest.raises(QuantizationError, match=f"zero_point {zero_point} is outside {name}, which"):
            QuantParams(1.0, zero_point, name)
        with pytest.raises(QuantizationError, match=rf"zero_point {zero_point} at \(1,\)"):
            QuantParams([1.0, 1.0], [0, zero_point], name, axis=0)


def test_zero_points_may_come_in_the_type_of_the_codes():
    assert QuantParams(1.0, ml_dtypes.int4(-3), "s4").zero_point == -3
    assert QuantParams(1.0, ml_dtypes.float8_e4m3fn(0), "f8e4m3fn").zero_point == 0
    assert QuantParams(1.0, np.uint8(128)).zero_point == 128


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"scale": [1.0, 2.0]}, QuantizationError, r"shape \(2,\) but no axis; give axis="),
        ({"scale": 1.0, "zero_point": [1, 2]}, QuantizationError, "there is one scale; give one zero point"),
        ({"scale": 1.0, "axis": 0}, QuantizationError, "one-dimensional, one a channel"),
        ({"scale": [[1.0, 2.0]], "axis": 0}, QuantizationError, "one-dimensional, one a channel"),
        ({"scale": [1.0, 2.0], "axis": (0, 1)}, QuantizationError, r"needs block=\(rows, columns\)"),
        (
            {"scale": [1.0, 2.0], "zero_point": [1, 2, 3], "axis": 0},
            QuantizationError,
            r"has the shape of scale, \(2,\)",
        ),
        ({"scale": [1.0], "axis": 1.0}, QuantizationError, "axis is an int"),
        ({"scale": [1.0], "axis": True}, QuantizationError, "axis is an int"),
        ({"scale": [[1.0]], "axis": 2, "block": 4}, QuantizationError, "axis 2 is out of range"),
        ({"scale": [[1.0]], "axis": -3, "block": 4}, QuantizationError, "axis -3 is out of range"),
        ({"scale": [[1.0]], "block": 4}, QuantizationError, "needs the one axis that it goes along; found axis None"),
        ({"scale": [[1.0]], "axis": 0, "block": (4, 4)}, QuantizationError, "needs two axes; found axis 0"),
        ({"scale": [[1.0]], "axis": (0, -2), "block": (4, 4)}, QuantizationError, "two different axes"),
        ({"scale": [1.0], "block": (4, 4)}, QuantizationError, "axis -2 is out of range"),
        ({"scale": 1.0, "dtype": "f32"}, DTypeMismatch, "codes of type f32 cannot be quantized values; u2, s2"),
        ({"scale": 1.0, "dtype": "s64"}, DTypeMismatch, "codes of type s64"),
        ({"scale": 1.0, "dtype": "bool"}, DTypeMismatch, "codes of type bool"),
        ({"scale": 1.0, "dtype": "e8m0"}, DTypeMismatch, "codes of type e8m0fnu"),
        ({"scale": 1j}, DTypeMismatch, "scale is complex128"),
        ({"scale": "1"}, DTypeMismatch, "made of real numbers"),
        ({"scale": None}, DTypeMismatch, "scale is object"),
        ({"scale": 1.0, "zero_point": 1.0}, DTypeMismatch, "zero_point is f64; it is an integer"),
        ({"scale": 1.0, "zero_point": np.nan}, DTypeMismatch, "zero_point is f64"),
    ],
)
def test_what_stands_for_nothing_is_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        QuantParams(**arguments)


@pytest.mark.parametrize("block", [0, -2, -32, 2**64, 2**31, 16.0, "16", True, (4,), (4, 0), (1, 2, 3), (2**64, 1)])
def test_absurd_blocks_are_refused(block):
    with pytest.raises(QuantizationError, match="block"):
        QuantParams(np.ones((2, 2)), dtype="s8", axis=0 if not isinstance(block, tuple) else (0, 1), block=block)


def test_a_block_that_does_not_divide_needs_a_scale_for_the_rest():
    params = QuantParams(np.ones((256 // 12, 5)), dtype="u4", axis=0, block=12)
    with pytest.raises(
        QuantizationError,
        match=r"group 12 along axis 0 of shape \(256, 5\) needs scales of shape \(22, 5\); found \(21, 5\)",
    ):
        params.validate_for((256, 5))


def test_lengths_are_checked_against_a_shape():
    params = QuantParams([1.0, 2.0], dtype="s8", axis=1)
    params.validate_for((7, 2))
    with pytest.raises(QuantizationError, match=r"axis 1 of shape \(2, 3, 1, 1\) has 3 channels.*found 2"):
        params.validate_for((2, 3, 1, 1))
    with pytest.raises(QuantizationError, match=r"axis 1 is out of range for shape \(2,\); it goes from -1 to 0"):
        params.validate_for((2,))
    with pytest.raises(QuantizationError, match="has 3 channels"):
        params.expand((4, 3))


def test_empty_tensors_have_empty_parameters():
    params = QuantParams(np.ones(0, np.float32), dtype="s8", axis=0)
    assert params.expand((0, 3))[0].shape == (0, 1)
    groups = QuantParams(np.ones((0, 3), np.float32), dtype="s8", axis=0, block=16)
    assert groups.expand((0, 3))[0].shape == (0, 3)


def test_the_difference_to_the_zero_point_does_not_wrap():
    assert dequantize(np.array([127], np.int8), QuantParams(1.0, -128, "s8")).tolist() == [255]
    assert dequantize(np.array([3], np.uint8), QuantParams(1.0, 250)).tolist() == [-247]
    big = QuantParams(1.0, -(2**31), "s32").expand((1,))[1]
    assert (np.array([2**31 - 1], np.int32) - big).tolist() == [2**32 - 1]


def test_transposing_moves_the_axis():
    w = np.arange(1, 10, dtype=np.int8).reshape(3, 3)
    for axis in (1, -1):
        params = QuantParams([1.0, 10.0, 100.0], dtype="s8", axis=axis)
        turned = params.transposed((1, 0))
        assert turned.axis == 0
        assert dequantize(w.T, turned).tolist() == [[1, 4, 7], [20, 50, 80], [300, 600, 900]]
    assert QuantParams(2.0).transposed((1, 0)) == QuantParams(2.0)
    with pytest.raises(ShapeMismatch, match="not a permutation"):
        params.transposed((0, 0))


@given(st.permutations(range(3)), st.sampled_from(["channel", "group", "block"]), st.integers(-3, 2))
def test_dequantizing_and_transposing_commute(perm, granularity, axis):
    rng = np.random.default_rng(0)
    shape = (4, 6, 5)
    q = rng.integers(0, 255, shape)
    if granularity == "channel":
        params = QuantParams(rng.uniform(1, 2, shape[axis]), rng.integers(0, 255, shape[axis]), axis=axis)
    elif granularity == "group":
        scales = list(shape)
        scales[axis] = -(-shape[axis] // 4)
        params = QuantParams(rng.uniform(1, 2, scales), rng.integers(0, 255, scales), axis=axis, block=4)
    else:
        params = QuantParams(rng.uniform(1, 2, (2, 6, 2)), 7, axis=(0, 2), block=(2, 4))
    assert_array_equal(dequantize(q.transpose(perm), params.transposed(perm)), dequantize(q, params).transpose(perm))


def test_slices_take_their_scales_along():
    params = QuantParams(np.arange(1.0, 9).reshape(4, 2), dtype="s8", axis=0, block=16)
    shape = (60, 2)
    q = np.ones(shape, np.int8)
    for start, stop in ((0, 60), (16, 32), (32, 60), (16, 16)):
        cut = params.sliced(0, start, stop, shape)
        assert_array_equal(dequantize(q[start:stop], cut), dequantize(q, params)[start:stop], strict=True)
    assert_array_equal(dequantize(q[:, 1:], params.sliced(-1, 1, 2, shape)), dequantize(q, params)[:, 1:], strict=True)
    for start, stop in ((8, 32), (0, 8)):
        with pytest.raises(QuantizationError, match="cut at multiples of its block 16 only"):
            params.sliced(0, start, stop, shape)
    channels = QuantParams([1.0, 2.0], [3, 4], axis=1)
    assert channels.sliced(1, 1, 2, shape) == QuantParams([2.0], [4], axis=1)
    assert channels.sliced(0, 1, 2, shape) is channels


RANGES = [(0, 0), (-1, 1), (0.5, 2), (-3, -1), (500, 500), (-500, -500), (1e-3, 1e-3), (2, 2), (-0.1, 7.3)]
RANGES += [(-1e38, 1e38), (0, 3.4e38), (-1e-45, 0), (0, 1e-40)]


@pytest.mark.parametrize("name", ["u8", "s8", "u4", "s4", "u16", "s16", "u2"])
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("low_high", RANGES)
def test_a_range_gives_exact_zero_and_half_a_step(name, symmetric, low_high):
    low, high = low_high
    params = QuantParams.from_range(low, high, name, symmetric)
    scale = float(params.scale)
    assert np.isfinite(scale)
    assert scale > 0
    assert dequantize(quantize(np.zeros(3), params), params).tolist() == [0, 0, 0]
    x = np.linspace(low, high, 101).astype(np.float32)
    with np.errstate(over="ignore"):
        error = np.abs(dequantize(quantize(x, params), params).astype(np.float64) - x)
    # Half a step, and what rounding the scale and the product to float32 may add at the far end.
    assert error.max() <= scale / 2 + 2 * float(np.abs(x).max()) * 2.0**-23
    if symmetric:
        assert params.zero_point == (0 if name[0] == "s" else 2 ** (dtypes.get(name).bits - 1))


def test_ranges_of_channels_may_hold_one_that_is_zero():
    params = QuantParams.from_range([-1, 0, 2], [1, 0, 4], "u8", axis=0)
    assert params.scale.tolist() == [np.float32(2 / 255), 1.0, np.float32(4 / 255)]
    assert params.zero_point.tolist() == [128, 0, 0]
    groups = QuantParams.symmetric(np.array([[0.0], [12.7]]), "s8", axis=1, block=32)
    assert groups.scale.tolist() == [[1.0], [np.float32(0.1)]]


def test_float_codes_spread_to_their_largest_value():
    assert float(QuantParams.symmetric(896.0, "f8e4m3fn").scale) == 2.0
    assert float(QuantParams.from_range(-3.0, 1.0, "f4e2m1fn").scale) == 0.5


@pytest.mark.parametrize(
    ("low", "high", "message"),
    [
        (1, -1, "ends before it begins"),
        (np.nan, 1, "not finite"),
        (0, np.inf, "not finite"),
        (0, 1e300, "greater than 0"),
    ],
)
def test_ranges_that_are_none_are_refused(low, high, message):
    with pytest.raises(QuantizationError, match=message):
        QuantParams.from_range(low, high)
    with pytest.raises(QuantizationError, match="absmax -1 is negative"):
        QuantParams.symmetric(-1.0)


ALL = [
    QuantParams(0.1, 3),
    QuantParams([0.1, 0.2], [1, -2], "s4", axis=-1),
    QuantParams(np.ones((2, 3), ml_dtypes.float8_e8m0fnu), 0, "f4e2m1fn", axis=1, block=32),
    QuantParams(np.ones((2, 3), np.float16), 0, "s8", block=(4, -1)),
    QuantParams(np.ones((0, 3), np.float32), 0, "s8", axis=0, block=16),
]


@pytest.mark.parametrize("params", ALL, ids=repr)
def test_parameters_are_saved_copied_and_compared(params):
    assert QuantParams.from_dict(params.to_dict()) == params
    assert pickle.loads(pickle.dumps(params)) == params
    assert copy.deepcopy(params) == params
    assert hash(QuantParams.from_dict(params.to_dict())) == hash(params)
    assert params != 3
    assert sum(params == other for other in ALL) == 1


@pytest.mark.parametrize("params", ALL[:4], ids=repr)
def test_parameters_survive_json(params):
    plain = {
        k: v.astype(np.float32 if k == "scale" else int).tolist() if isinstance(v, np.ndarray) else v
        for k, v in params.to_dict().items()
    }
    assert QuantParams.from_dict(json.loads(json.dumps(plain))) == params
    with pytest.raises(QuantizationError, match="lack 'scale'"):
        QuantParams.from_dict({})


def test_parameters_never_change():
    given_scale = np.array([1.0, 2.0], np.float32)
    params = QuantParams(given_scale, axis=0)
    given_scale[0] = 0
    assert params.scale.tolist() == [1, 2]
    with pytest.raises(ValueError, match="read-only"):
        params.scale[0] = 0
    with pytest.raises(AttributeError, match="never change"):
        params.axis = 1
    assert QuantParams([1.0, 1.0], 3, axis=0) == QuantParams([1.0, 1.0], [3, 3], axis=0)
    assert QuantParams(1.0) != QuantParams(np.float16(1.0))


def test_a_block_is_shown_where_there_is_one():
    assert "block" not in repr(QuantParams(np.ones(3, np.float32), 0, "s8", axis=1))
    assert "axis=1, block=4" in repr(QuantParams(np.ones((3, 2), np.float32), 0, "s8", axis=1, block=4))


@pytest.mark.parametrize(("dtype", "text"), [("f8e4m3fn", "which has none but 0"), ("s8", "which holds -128 to 127")])
def test_a_zero_point_outside_its_type_says_what_fits(dtype, text):
    with pytest.raises(QuantizationError, match=text):
        QuantParams(1.0, 1 if dtype[0] == "f" else 128, dtype)


def test_small_scales_are_shown():
    assert repr(QuantParams(np.float16(0.5))).endswith("; f16 scales)")
    assert "scales" not in repr(QuantParams(0.5))


def test_zero_points_cannot_be_written():
    given = np.array([1, 2], np.int8)
    params = QuantParams([1.0, 1.0], given, "s8", axis=0)
    given[0] = 9
    assert params.zero_point.tolist() == [1, 2]
    with pytest.raises(ValueError, match="read-only"):
        params.zero_point[0] = 0


@pytest.mark.parametrize("block", [1, 2, 2**31 - 1, -1])
def test_blocks_of_every_length_are_taken(block):
    groups = 4 if block == 1 else 2 if block == 2 else 1
    params = QuantParams(np.ones((2, groups)), dtype="s8", axis=1, block=block)
    params.validate_for((2, 4))
    assert params.block == block
