"""add, relu, clip and argmax."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from tilework.executors import SingleThreadExecutor
from tilework.kernels.argmax import Argmax
from tilework.kernels.elementwise import TABLE, Add, AddQuantized, Clip, Relu
from tilework.kernels.ops.tabled import tabled
from tilework.primitives import Pipeline
from tilework.primitives.errors import ArgumentError, DTypeMismatch

F32 = np.float32
TYPES = {"f32": np.float32, "s32": np.int32, "s64": np.int64, "u8": np.uint8, "s8": np.int8, "u16": np.uint16}


def test_integer_sums_wrap(run):
    a = np.array([2**31 - 1, -(2**31), 5], np.int32)
    assert run(Add("s32", 1, ((0, 1),), ((0, 1),)), a, np.array([1, -1, -7], np.int32)).tolist() == [
        -(2**31),
        2**31 - 1,
        -2,
    ]
    b = np.array([2**63 - 1, -5], np.int64)
    assert run(Add("s64", 1, ((0, 1),), ()), b, np.int64(1)).tolist() == [-(2**63), -4]


@pytest.mark.parametrize("dtype", ["f32", "s32"])
def test_sums_are_broadcast(same, dtype):
    rng = np.random.default_rng(0)
    a = (rng.standard_normal((4, 1, 5)) * 100).astype(TYPES[dtype])
    b = (rng.standard_normal((7, 5)) * 100).astype(TYPES[dtype])
    found = same(Add(dtype, 3, ((0, 1), None, (2, 1)), ((1, 1), (2, 1))), a, b)
    assert_array_equal(found, a + b, strict=True)


def test_a_float_sum_rounds_once_and_keeps_specials(same):
    a = F32([1, np.inf, np.nan, 3e38, -0.0])
    b = F32([2.0**-25, -np.inf, 1, 3e38, -0.0])
    found = same(Add("f32", 1, ((0, 1),), ((0, 1),)), a, b)
    assert_array_equal(found, F32([1, np.nan, np.nan, np.inf, -0.0]))
    assert np.signbit(found[4])


def test_a_sum_of_codes_worked_by_hand(run):
    kernel = AddQuantized("u8", "u8", "u8", 1, ((0, 1),), ((0, 1),))
    params = (F32(0.5), np.uint8(128), F32(0.25), np.uint8(10), F32(1), np.uint8(7))
    a, b = np.uint8([130, 128, 0, 255]), np.uint8([14, 12, 0, 255])
    # 1 + 1 = 2; 0 + .5 = .5 -> 0; -64 - 2.5 = -66.5 -> below; 63.5 + 61.25 = 124.75 -> 125
    assert run(kernel, a, b, *params).tolist() == [9, 7, 0, 132]


@pytest.mark.parametrize("types", [("u8", "u8", "u8"), ("s8", "u8", "s8"), ("s8", "s8", "u16")])
def test_sums_of_codes_have_the_bits_of_the_reference(same, types):
    rng = np.random.default_rng(1)
    a, b = (
        rng.integers(np.iinfo(TYPES[t]).min, np.iinfo(TYPES[t]).max + 1, (9, 17)).astype(TYPES[t]) for t in types[:2]
    )
    params = [p for t, s in zip(types, (0.011, 0.37, 0.29), strict=True) for p in (F32(s), TYPES[t](17))]
    found = same(AddQuantized(*types, 2), a, b, *params)
    real = (a.astype(int) - 17).astype(F32) * F32(0.011) + (b.astype(int) - 17).astype(F32) * F32(0.37)
    info = np.iinfo(TYPES[types[2]])
    assert_array_equal(found, np.clip(np.rint(real / F32(0.29)) + 17, info.min, info.max))


def test_sums_of_codes_saturate(run):
    kernel = AddQuantized("s8", "s8", "s8", 1, ((0, 1),), ())
    params = (F32(1), np.int8(0), F32(1), np.int8(0), F32(1), np.int8(0))
    assert run(kernel, np.int8([100, -100]), np.int8(100), *params).tolist() == [127, 0]
    assert run(kernel, np.int8([100, -100]), np.int8(-100), *params).tolist() == [0, -128]


def test_relu_keeps_nan_and_clears_the_sign_of_zero(same):
    found = same(Relu("f32", 1), F32([-1, -0.0, 0, 2, np.nan, np.inf, -np.inf]), F32(0))
    assert_array_equal(found, F32([0, 0, 0, 2, np.nan, np.inf, 0]), strict=True)
    assert not np.signbit(found[:3]).any()


def test_relu_of_codes_stops_at_the_zero_point(same):
    assert same(Relu("u8", 1), np.uint8([0, 127, 128, 129, 255]), np.uint8(128)).tolist() == [128, 128, 128, 129, 255]
    assert same(Relu("s32", 1), np.int32([-5, 5]), np.int32(0)).tolist() == [0, 5]
    q = np.int8([[-5, 5], [-5, 5]])
    assert same(Relu("s8", 2, ((0, 1),)), q, np.int8([0, -7])).tolist() == [[0, 5], [-5, 5]]


def test_clip_bounds_and_keeps_nan(same):
    x = F32([-np.inf, -2, 0, 2, np.inf, np.nan])
    assert_array_equal(same(Clip("f32", 1), x, F32(-1), F32(1)), F32([-1, -1, 0, 1, 1, np.nan]))
    assert_array_equal(same(Clip("f32", 1), x, F32(-np.inf), F32(np.inf)), x)
    assert same(Clip("s8", 2, ((1, 1),), ()), np.int8([[-9, -9], [9, 9]]), np.int8([-5, 0]), np.int8(7)).tolist() == [
        [-5, 0],
        [7, 7],
    ]
    assert same(Clip("s64", 0), np.int64(2**40), np.int64(0), np.int64(5)) == 5


def test_element_wise_steps_may_write_where_they_read(run):
    x = F32([-1, 2, -3, 4])
    assert run(Relu("f32", 1), x, F32(0), out=x) is x
    assert x.tolist() == [0, 2, 0, 4]
    a = np.int32([1, 2, 3])
    run(Add("s32", 1, ((0, 1),), ((0, 1),)), a, a, out=a)
    assert a.tolist() == [2, 4, 6]


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("keepdims", [False, True])
def test_argmax_is_numpys(same, axis, keepdims):
    rng = np.random.default_rng(2)
    for dtype in ("f32", "u8"):
        x = rng.integers(0, 4, (4, 5, 7)).astype(TYPES[dtype])  # many ties
        found = same(Argmax(dtype, "s64", 3, axis, keepdims), x)
        assert_array_equal(found, np.argmax(x, axis, keepdims=keepdims), strict=True)


def test_argmax_takes_the_first_of_equals_and_the_first_nan(run):
    x = F32([[1, 3, 3, 2], [-0.0, 0.0, -1, 0], [1, np.nan, np.inf, np.nan], [-np.inf, -np.inf, -np.inf, -np.inf]])
    assert run(Argmax("f32", "s32", 2, 1), x).tolist() == [1, 0, 1, 0]
    assert run(Argmax("f32", "s32", 2, 1), x[:, ::-1]).tolist() == [1, 0, 0, 0]
    assert run(Argmax("s8", "s64", 1, 0), np.int8([-128, -128, -127])) == 2
    assert run(Argmax("f32", "s64", 2, 1), np.zeros((0, 3), F32)).shape == (0,)
    assert run(Argmax("f32", "s64", 2, 1), F32([[np.nan]])).tolist() == [0]


def test_what_does_not_exist_is_refused():
    with pytest.raises(DTypeMismatch, match="it has f32, s32, s64"):
        Add("u8")
    with pytest.raises(DTypeMismatch, match="it has u8, s8"):
        AddQuantized("s32")
    with pytest.raises(DTypeMismatch, match="it has s32, s64"):
        Argmax("f32", "u8")
    with pytest.raises(ArgumentError, match="0 to 1"):
        Argmax("f32", "s64", 2, 2)


@pytest.mark.parametrize("op", ["add", "div", "minimum", "maximum", "less", "where", "abs", "round"])
def test_float64_has_what_ieee_defines_to_the_last_bit(op):
    special = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1.5, 2.5, 1e300, 1e-310, 0.1])
    a, b = np.repeat(special, 10), np.tile(special, 10)
    given = {"condition": a > b, "a": a, "b": b, "x": a}
    given = {name: given[name] for name in TABLE[op].values}
    pipe = Pipeline("doubles")
    pipe.output(
        "y", tabled(op, *(pipe.input(n, "bool" if x.dtype == bool else "f64", x.shape) for n, x in given.items()))
    )
    found, wanted = (SingleThreadExecutor(backend).run(pipe, given)["y"] for backend in ("cpu", "reference"))
    assert_array_equal(found, wanted, strict=True)
    known = {"minimum": np.minimum(a, b), "maximum": np.maximum(a, b), "where": np.where(a > b, a, b)}
    assert_array_equal(found, known.get(op, found), strict=True)
