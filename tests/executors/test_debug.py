"""tw.debug: two executors side by side, and the first step at which they differ."""

import numpy as np
import pytest

import tilework as tw
from tilework.executors import SingleThreadExecutor, TilingExecutor, debug
from tilework.kernels import factory, ops
from tilework.primitives.pipeline import Pipeline


@pytest.fixture
def wrong():
    """The backend "wrong": the reference, but that `requantize` is off by one at the fourth element."""
    families = factory.names("reference")

    def build(kernel, name, dtypes, ranks):
        whole = factory.get(name, "reference", kernel=kernel, dtypes=dtypes, ranks=ranks)

        def run(*operands):
            whole.fn(*operands)
            if name.startswith("requantize"):
                operands[-1][1, 0] += 1

        return factory.Whole(run)

    for family in families:
        factory.register(family, backend="wrong")(build)
    yield "wrong"
    for family in families:
        factory.unregister(family, "wrong")


@pytest.fixture
def pipe():
    pipe = Pipeline("p")
    x = pipe.input("x", "u8", ("M", 3))
    acc = ops.gemm(x, np.ones((3, 4), np.int8))
    y = ops.requantize(acc, multiplier=0.5, dtype="s8")
    pipe.output("y", ops.dequantize(y, scale=0.5))
    return pipe


FEED = {"x": np.arange(6, dtype=np.uint8).reshape(2, 3)}


def test_the_backends_agree(pipe):
    found = tw.debug.compare(pipe, FEED)
    assert found
    assert found.equal
    assert found.compared == 3
    assert "agree to the bit on all 3 values" in str(found)
    assert debug.compare(pipe, FEED, TilingExecutor(threads=2), SingleThreadExecutor("reference"))


def test_the_first_step_that_differs_is_named_with_index_and_both_values(pipe, wrong):
    for left in (SingleThreadExecutor(wrong), wrong):  # a backend's name will do
        found = debug.compare(pipe, FEED, left, "reference")
        assert not found
        difference = found.difference
        assert difference.step == "requantize_s32s8"
        assert difference.slot == "y"
        assert difference.index == (1, 0)
        assert (int(difference.left), int(difference.right)) == (7, 6)
        assert (difference.count, difference.size) == (1, 8)
        assert "step 'requantize_s32s8' differs first" in str(found)
        assert "at (1, 0) is" in str(found)


def test_states_and_buffers_are_carried_into_the_comparison(wrong):
    pipe = Pipeline("p")
    x, b = pipe.input("x", "s32", ("M", 4)), pipe.buffer("b", "s32", ("M", 4))
    s = pipe.state("s", "s32", (4,), 3)
    from tilework.kernels.elementwise import Add

    pipe.add(Add("s32", 2, b=((1, 1),)), a=x, b=s, y=b)
    pipe.update(s, s)
    pipe.output("y", b)
    feed = {"x": np.ones((2, 4), np.int32)}
    assert debug.compare(pipe, feed).compared == 1
    assert debug.compare(pipe, feed, wrong)


def test_bits_are_compared_but_for_the_payload_of_nan():
    f = debug.first_difference
    nan = np.array([np.nan, 0x7FC00001], np.float32)
    other = np.array([0x7FC00F00], np.uint32).view(np.float32)
    assert f(nan[:1], other) is None
    assert f(np.array([0.0], np.float32), np.array([-0.0], np.float32)) == ((0,), 1)
    assert f(np.zeros((0, 3)), np.zeros((0, 3))) is None
    a = np.arange(6).reshape(2, 3)
    b = a.copy()
    b[1, :2] = 9
    assert f(a, b) == ((1, 0), 2)
    assert f(np.float64(1).reshape(()), np.float64(2).reshape(())) == ((), 1)
    import ml_dtypes

    bf = np.array([1, 2], ml_dtypes.bfloat16)
    assert f(bf, bf.copy()) is None
    assert f(bf, np.array([1, 3], ml_dtypes.bfloat16)) == ((1,), 1)
    with pytest.raises(ValueError, match="only arrays of one type and shape compare"):
        f(a, a.T)
