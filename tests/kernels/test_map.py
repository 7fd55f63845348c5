"""map: a user's scalar function over arrays."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from tilework.executors import SingleThreadExecutor
from tilework.kernels import ops
from tilework.kernels.map import Map
from tilework.primitives import Pipeline
from tilework.primitives.errors import ArgumentError, DTypeMismatch, ShapeMismatch

F32 = np.float32
EACH = (((0, 1),),)


def identity(v):
    return v


def leaky(v, scale):
    r = np.rint(np.float32(v) * scale)
    return r if r > 0 else r * 0.125


@pytest.fixture(params=["reference", "cpu"])
def executor(request):
    return SingleThreadExecutor(request.param)


def test_a_function_with_a_scalar_worked_by_hand(executor):
    pipe = Pipeline("test")
    pipe.output("y", ops.map(leaky, pipe.input("acc", "s32", ("M", 2)), scale=0.5))
    found = executor.run(pipe, {"acc": np.int32([[3, -3], [40, -16]])})["y"]
    assert_array_equal(found, F32([[2, -0.25], [20, -1]]), strict=True)


def test_scalars_may_be_arrays_arguments_and_values(executor):
    pipe = Pipeline("test")
    acc = pipe.input("acc", "s32", (2, 3))
    pipe.output("array", ops.map(leaky, acc, scale=F32([1, 2, 4])))
    pipe.output("argument", ops.map(leaky, acc, scale=pipe.argument("s", "f32")))
    pipe.output("value", ops.map(leaky, acc, scale=pipe.input("rows", "f32", (2, 1))))
    a = np.int32([[1, 2, 3], [-8, -16, 5]])
    found = executor.run(pipe, {"acc": a, "s": 2.0, "rows": F32([[1], [0.5]])})
    assert_array_equal(found["array"], F32([[1, 4, 12], [-1, -4, 20]]))
    assert_array_equal(found["argument"], F32([[2, 4, 6], [-2, -4, 10]]))
    assert_array_equal(found["value"], F32([[1, 2, 3], [-0.5, -1, 2]]))


def test_constant_arguments_keep_their_kind(executor):
    pipe = Pipeline("test")
    x = pipe.input("x", "s32", (2,))
    pipe.output("shifted", ops.map(lambda v, by: v >> by, x, by=2, dtype="s32"))
    pipe.output("scaled", ops.map(lambda v, by: v * by, x, by=np.array([0.1, 0.5])))
    found = executor.run(pipe, {"x": np.int32([40, -40])})
    assert found["shifted"].tolist() == [10, -10]
    assert_array_equal(found["scaled"], F32([40, -40]) * F32([0.1, 0.5]), strict=True)


def test_several_values_are_broadcast(executor):
    pipe = Pipeline("test")
    a, b = pipe.input("a", "s32", (2, 1)), pipe.input("b", "s32", (3,))
    pipe.output("y", ops.map(lambda x, y: x * 10 + y, a, b, dtype="s32"))
    found = executor.run(pipe, {"a": np.int32([[1], [2]]), "b": np.int32([3, 4, 5])})["y"]
    assert found.tolist() == [[13, 14, 15], [23, 24, 25]]


@pytest.mark.parametrize(
    ("dtype", "right"),
    [
        ("s8", [0, 127, -128, 1, -1, 127, -128]),
        ("u8", [0, 255, 0, 1, 0, 255, 0]),
        ("s32", [0, 2**31 - 1, -(2**31), 1, -1, 2**31 - 1, -(2**31)]),
        ("bool", [True, True, True, True, True, True, True]),
    ],
)
def test_a_float_result_drops_its_fraction_and_saturates(run, dtype, right):
    x = F32([np.nan, np.inf, -np.inf, 1.9, -1.9, 1e30, -1e30])
    assert run(Map(identity, ("f32",), dtype, 1, EACH), x).tolist() == right


def test_an_integer_result_saturates(run):
    x = np.int32([300, -300, 5, 2**31 - 1])
    assert run(Map(identity, ("s32",), "s8", 1, EACH), x).tolist() == [127, -128, 5, 127]
    assert_array_equal(run(Map(identity, ("s32",), "f32", 1, EACH), x), x.astype(F32), strict=True)


def test_differences_of_unsigned_codes_are_signed(run):
    kernel = Map(lambda a, b: abs(a - b), ("u8", "u8"), "s32", 1, EACH * 2)
    assert run(kernel, np.uint8([3, 250]), np.uint8([250, 3])).tolist() == [247, 247]


def test_guards_for_nan_and_infinity_hold(run):
    def guarded(v):
        if v != v:
            return 0
        return 127 if v > 127 else -128 if v < -128 else v

    x = F32([np.nan, np.inf, -np.inf, 1])
    assert run(Map(guarded, ("f32",), "s8", 1, EACH), x).tolist() == [0, 127, -128, 1]


def test_any_shape_and_stride(run):
    kernel = Map(identity, ("s32",), "s32", 2, (((0, 1), (1, 1)),))
    x = np.arange(20, dtype=np.int32).reshape(4, 5)
    for view in (x[::-1, ::2], x.T, np.broadcast_to(x[0], (3, 5)), x[:0]):
        assert_array_equal(run(kernel, view), view)
    assert run(Map(identity, ("s32",), "s32", 0, ((),)), np.int32(7)) == 7


def test_it_may_write_where_it_reads(run):
    x = np.int32([1, -2])
    assert run(Map(lambda v: -v, ("s32",), "s32", 1, EACH), x, out=x).tolist() == [-1, 2]


@pytest.mark.parametrize(
    ("error", "match", "build"),
    [
        (ArgumentError, "is not a function", lambda x: ops.map(3, x)),
        (ArgumentError, "scale is missing", lambda x: ops.map(leaky, x)),
        (ArgumentError, "no parameter 'by'", lambda x: ops.map(leaky, x, scale=1.0, by=2.0)),
        (ArgumentError, r"takes \*args", lambda x: ops.map(lambda *v: v[0], x)),
        (ArgumentError, "3 values were given", lambda x: ops.map(leaky, x, x, x)),
        (DTypeMismatch, "it has f32, s32", lambda x: ops.map(identity, x, dtype="u4")),
        (DTypeMismatch, "operand of type f64", lambda x: ops.map(lambda a, b: a, x, np.ones(3))),
        (ArgumentError, "outside s32", lambda x: ops.map(leaky, x, scale=2**31)),
        (ShapeMismatch, "axis -1 differs", lambda x: ops.map(leaky, x, scale=F32([1, 2]))),
    ],
)
def test_what_cannot_be_mapped_is_refused(error, match, build):
    x = Pipeline("test").input("x", "s32", (2, 3))
    with pytest.raises(error, match=match):
        build(x)
