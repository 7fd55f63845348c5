"""tw.eager: every op on arrays, at once."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import tilework as tw
from tilework.executors import eager
from tilework.kernels import ops
from tilework.primitives.buffer import Buffer
from tilework.primitives.errors import DTypeMismatch, ShapeMismatch, TileworkError
from tilework.primitives.quantization import QuantParams

X = np.array([[1.0, -2.0, 3.5], [0.25, 9.0, -9.0]], np.float32)


def test_every_op_is_there_with_its_text():
    assert set(dir(eager)) == set(ops.__all__)
    for name in ops.__all__:
        op = getattr(tw.eager, name)
        assert callable(op)
        assert op.__name__ == name
        assert "on arrays, at once" in op.__doc__
    with pytest.raises(AttributeError, match=r"there is no op 'gem'; there is abs, acosh, .*gemm"):
        _ = eager.gem


def test_ops_give_arrays():
    a, w = np.arange(6, dtype=np.uint8).reshape(2, 3), np.arange(-6, 6, dtype=np.int8).reshape(3, 4)
    right = (a.astype(np.int32) - 2) @ w.astype(np.int32)
    assert_array_equal(eager.gemm(a, w, a_zero_point=2), right, strict=True)
    assert_array_equal(eager.relu(X), np.maximum(X, 0), strict=True)
    assert_array_equal(eager.argmax(X), [2, 1])
    assert_array_equal(eager.add(X, X), X + X, strict=True)
    assert_array_equal(eager.add(X, 1.5), X + np.float32(1.5), strict=True)
    assert_array_equal(eager.clip(X, lo=-1, hi=np.float32(2)), np.clip(X, -1, 2), strict=True)
    q = eager.quantize(X, scale=0.5, zero_point=3, dtype="u8")
    assert_array_equal(q, [[5, 0, 10], [3, 21, 0]])
    assert q.dtype == np.uint8
    assert_array_equal(eager.dequantize(q, scale=0.5, zero_point=3)[0], [1.0, -1.5, 3.5])
    assert_array_equal(eager.requantize(right, multiplier=0.5, dtype="s8"), np.clip(np.rint(right * 0.5), -128, 127))


def doubled(v, by):
    return np.float32(v) * by


def test_a_user_s_function_is_mapped():
    assert_array_equal(eager.map(doubled, X, by=2.0), X * 2, strict=True)
    assert_array_equal(
        eager.map(doubled, X, by=np.array([1, 2, 3], np.float32)), X * np.float32([1, 2, 3]), strict=True
    )


def test_a_buffer_brings_its_quantization():
    q = Buffer.from_array(np.array([[3, 5]], np.uint8), quant=QuantParams(0.5, 3))
    assert_array_equal(eager.dequantize(q), [[0.0, 1.0]])


@pytest.mark.parametrize("given", [X.tolist(), np.asfortranarray(X), X[:, ::-1], np.zeros((0, 3), np.float32)])
def test_views_and_lists_will_do(given):
    right = np.maximum(np.asarray(given, np.float32), 0)
    if isinstance(given, list):
        with pytest.raises(TileworkError):  # a list of floats is f64, which no relu takes
            eager.relu(given)
        assert_array_equal(eager.argmax(np.array(given, np.float32)), [2, 1])
    else:
        assert_array_equal(eager.relu(given), right, strict=True)


def test_tensors_of_other_libraries_are_taken():
    class Tensor:
        def __init__(self, array):
            self.__array_interface__ = array.__array_interface__
            self.keep = array

    assert_array_equal(eager.relu(Tensor(X)), np.maximum(X, 0), strict=True)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: eager.gemm(X, X), ShapeMismatch),
        (lambda: eager.gemm(X.astype(">f4"), X.T.copy()), DTypeMismatch),
        (lambda: eager.gemm(X.astype(object), X.T.copy()), DTypeMismatch),
        (lambda: eager.relu(X.astype(complex)), DTypeMismatch),
        (lambda: eager.relu(3.0), TileworkError),
        (lambda: eager.relu(None), TileworkError),
        (lambda: eager.relu("x"), TileworkError),
        (lambda: eager.quantize(X, scale=0), TileworkError),
    ],
)
def test_bad_arrays_are_errors_of_the_library(call, error):
    with pytest.raises(error):
        call()


def test_operands_may_be_given_by_name():
    a, w = np.arange(6, dtype=np.uint8).reshape(2, 3), np.arange(-6, 6, dtype=np.int8).reshape(3, 4)
    right = (a.astype(np.int32) - 2) @ w.astype(np.int32)
    assert_array_equal(eager.gemm(a=a, b=w, a_zero_point=2), right, strict=True)
    assert_array_equal(eager.gemm(b=w, a_zero_point=2, a=a), right, strict=True)
    assert_array_equal(eager.quantize(x=X, scale=0.5, dtype="s8")[0], [2, -4, 7])
