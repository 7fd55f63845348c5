"""Float convolutions whose columns read the channels of their own group, against the reference, to the bit."""

import ml_dtypes
import numpy as np
import pytest

import tilework as tw
from tilework.kernels import forge
from tilework.kernels.cpu import isa

RNG = np.random.default_rng(41)
LEVELS = [level.name for level in isa.available()]
NUMPY = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
PAST = "windows past the edges copied"
CASES = [  # N, D, H, W, channels of a group, outputs of a group, groups, kernel, strides, pads, dilations, how it is read
    (2, 0, 30, 41, 1, 1, 17, (3, 3), 1, 1, 1, PAST),
    (1, 0, 33, 40, 1, 1, 48, (3, 3), 2, (1, 0, 2, 1), 1, PAST),
    (1, 0, 40, 64, 1, 2, 7, (3, 5), (1, 2), (1, 2, 1, 3), (2, 1), PAST),
    (1, 0, 60, 31, 4, 4, 5, (3, 3), 1, 1, 1, PAST),
    (1, 0, 37, 38, 2, 4, 3, (2, 3), (2, 1), 1, (1, 3), PAST),
    (1, 14, 30, 31, 1, 1, 16, (2, 2, 3), 1, (0, 0, 1, 0, 1, 1), 1, PAST),
    (1, 0, 5, 6, 1, 1, 144, (3, 3), 1, 1, 1, "copied between padding"),
    (2, 0, 9, 8, 1, 1, 32, (3, 3), 1, 0, 1, "read in place"),
    (1, 0, 1, 90, 1, 1, 20, (1, 9), 1, (0, 4), 1, PAST),
    (0, 0, 9, 9, 1, 1, 4, (3, 3), 1, 1, 1, ""),
    (1, 0, 3, 3, 1, 4, 2, (5, 5), 3, 2, 1, "copied between padding"),
    (1, 0, 11, 11, 1, 1, 20, (5, 5), 1, (2, 2, 0, 4), 1, "copied between padding"),
]


def compare(pipe, inputs, levels=("best",)):
    expected = tw.SingleThreadExecutor("reference").run(pipe, inputs)["y"]
    for level in levels:
        for threads in (1, 3):
            out = np.full(expected.shape, 77, expected.dtype)
            tw.TilingExecutor(threads, isa=LEVELS[-1] if level == "best" else level).run(pipe, inputs, out={"y": out})
            assert out.tobytes() == expected.tobytes(), (level, threads)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_columns_of_their_own_give_the_reference(case):
    n, d, h, w, inside, each, groups, kernel, strides, pads, dilations, how = case
    shape = (n, *((d,) if d else ()), h, w, groups * inside)
    x = RNG.normal(size=shape).astype(np.float32)
    weights = RNG.normal(size=(groups * each, inside, *kernel)).astype(np.float32)
    layout = "NDHWC" if d else "NHWC"
    pipe = tw.Pipeline("own")
    y = tw.ops.conv(
        pipe.input("x", "f32", shape), weights, RNG.normal(size=groups * each).astype(np.float32), strides=strides,
        pads=pads, dilations=dilations, groups=groups, layout=layout,
    )  # fmt: skip
    pipe.output("y", tw.ops.relu(y))
    if how and not forge.jit_disabled() and LEVELS[-1].startswith("avx512"):
        assert how in tw.TilingExecutor(1).compile(pipe, {"x": shape}).explain()
    compare(pipe, {"x": x}, ("best", LEVELS[0]) if groups < 20 else ("best",))


@pytest.mark.parametrize(("x_dtype", "w_dtype"), [("bf16", "bf16"), ("f16", "f32")])
def test_half_floats_are_widened_and_weights_may_come_late(x_dtype, w_dtype):
    shape, w_shape = (1, 20, 9, 10), (20, 1, 3, 3)
    inputs = {
        "x": RNG.normal(size=shape).astype(NUMPY[x_dtype]),
        "w": RNG.normal(size=w_shape).astype(NUMPY[w_dtype]),
    }
    pipe = tw.Pipeline("late")
    x, w = pipe.input("x", x_dtype, shape), pipe.input("w", w_dtype, w_shape)
    pipe.output("y", tw.ops.quantize(tw.ops.conv(x, w, pads=1, groups=20), 0.05, 7, "u8"))
    compare(pipe, inputs, ("best",) if x_dtype == "bf16" else (LEVELS[0],))


def test_numbers_that_are_not_finite_reach_as_far_as_their_window():
    x = RNG.normal(size=(1, 40, 40, 20)).astype(np.float32)
    x[0, 20, 20, 3], x[0, 0, 0, 19] = np.nan, np.inf
    w = RNG.normal(size=(20, 1, 3, 3)).astype(np.float32)
    w[5, 0, 1, 1] = np.inf
    pipe = tw.Pipeline("numbers")
    pipe.output("y", tw.ops.conv(pipe.input("x", "f32", x.shape), w, pads=1, groups=20, layout="NHWC"))
    expected = tw.SingleThreadExecutor("reference").run(pipe, {"x": x})["y"]
    np.testing.assert_array_equal(tw.TilingExecutor(2).run(pipe, {"x": x})["y"], expected, strict=True)
