"""Convolutions whose weights are a scheme's codes: the same as dequantizing first, or exact on the codes."""

import numpy as np
import pytest

import tilework as tw
from tilework.kernels import forge
from tilework.primitives import errors

RNG = np.random.default_rng(51)


def both(pipe, inputs):
    """The reference's result, which the plan gives to the bit; and the plan."""
    expected = tw.SingleThreadExecutor("reference").run(pipe, inputs)["y"]
    plan = tw.TilingExecutor(2).compile(pipe)
    np.testing.assert_array_equal(plan.run(inputs)["y"], expected, strict=True)
    return expected, plan


@pytest.mark.parametrize("name", ["int4_g32", "nf4"])
def test_real_images_take_weights_of_any_scheme(name):
    w = RNG.normal(size=(20, 3, 3, 64)).astype(np.float32)
    q = tw.schemes.get(name).quantize(w.reshape(20, -1))
    x, bias = RNG.normal(size=(1, 7, 6, 64)).astype(np.float32), RNG.normal(size=20).astype(np.float32)
    pipe, plain = tw.Pipeline("coded"), tw.Pipeline("plain")
    for made, weights, more in ((pipe, q, {"kernel": 3}), (plain, q.dequantize().reshape(w.shape), {})):
        xv = made.input("x", "f32", x.shape)
        y = tw.ops.conv(xv, weights, bias, pads=1, layout="NHWC", w_layout="OHWI", **more)
        made.output("y", tw.ops.relu(y))
    found, plan = both(pipe, {"x": x})
    np.testing.assert_array_equal(found, tw.TilingExecutor(1).run(plain, {"x": x})["y"], strict=True)
    assert forge.jit_disabled() or "scheme_decode: computed when the plan was made" in plan.explain()


def test_a_window_of_one_position_keeps_its_weights_packed():
    q = tw.schemes.get("int4_g32").quantize(RNG.normal(size=(24, 64)).astype(np.float32))
    x = RNG.normal(size=(2, 3, 5, 64)).astype(np.float32)
    pipe = tw.Pipeline("point")
    y = tw.ops.conv(pipe.input("x", "f32", x.shape), q, np.ones(24, np.float32), layout="NHWC", kernel=1)
    pipe.output("y", y)
    found, plan = both(pipe, {"x": x})
    assert y.axes == "NHWC"
    np.testing.assert_array_equal(found, tw.eager.gemm(x.reshape(30, 64), q.dequantize().T).reshape(2, 3, 5, 24) + 1)
    assert forge.jit_disabled() or "linear_decoded" in plan.explain()
    pipe = tw.Pipeline("int8")
    pipe.output("y", tw.ops.conv(pipe.input("x", "f32", x.shape), q, layout="NHWC", kernel=1, compute="int8"))
    assert np.abs(both(pipe, {"x": x})[0] - (found - 1)).max() < 0.5


@pytest.mark.parametrize("axes", ["OIHW", "HWIO"])
def test_codes_are_multiplied_where_each_output_has_one_scale(axes):
    w = RNG.normal(size=(12, 3 * 3 * 5)).astype(np.float32)
    q = tw.schemes.get("int8_channel").quantize(w)
    x = RNG.integers(0, 256, (1, 5, 8, 9)).astype(np.uint8)
    pipe = tw.Pipeline("codes")
    xv = pipe.input("x", "u8", x.shape, quant=tw.QuantParams(0.1, 7, "u8"))
    if axes != "OIHW":
        with pytest.raises(errors.ShapeMismatch, match="a row for each output"):
            tw.ops.conv(xv, q, kernel=3, w_layout=axes)
        return
    acc = tw.ops.conv(xv, q, pads=1, kernel=3)
    assert acc.dtype == "s32"
    pipe.output("y", tw.ops.dequantize(acc))
    found, _ = both(pipe, {"x": x})
    real = (x.astype(np.float32) - 7) * np.float32(0.1)
    want = tw.eager.conv(real, q.dequantize().reshape(12, 5, 3, 3), pads=1)
    np.testing.assert_allclose(found, want, atol=1e-3)


@pytest.mark.parametrize(
    ("name", "dtype", "more", "error", "text"),
    [
        ("int4_g32", "u8", {"kernel": 3}, errors.Unsupported, "one scale for all"),
        ("nf4", "u8", {"kernel": 3}, errors.Unsupported, "whose codes are table"),
        ("int4_g32", "f32", {}, errors.ArgumentError, "give kernel="),
        ("int4_g32", "f32", {"kernel": 5}, errors.ShapeMismatch, "divides 576"),
        ("int4_g32", "f32", {"kernel": 3, "compute": "int8"}, errors.Unsupported, "one position"),
        ("int4_g32", "f32", {"kernel": 3, "compute": "f64"}, errors.DTypeMismatch, "compute"),
        ("int8_channel", "s16", {"kernel": 3}, errors.DTypeMismatch, "u8, s8, f32"),
        ("int8_channel", "u8", {"kernel": 3, "b_zero_point": 3}, errors.ArgumentError, "of their own"),
    ],
)
def test_what_does_not_fit_says_what_does(name, dtype, more, error, text):
    q = tw.schemes.get(name).quantize(RNG.normal(size=(8, 576)).astype(np.float32))
    x = tw.Pipeline("bad").input("x", dtype, (1, 64, 8, 8))
    with pytest.raises(error, match=text):
        tw.ops.conv(x, q, **more)


def test_transposed_convolutions_take_them_too():
    w = RNG.normal(size=(6, 4, 2, 2)).astype(np.float32)
    q = tw.schemes.get("int8_channel").quantize(w)
    x = RNG.normal(size=(1, 6, 3, 4)).astype(np.float32)
    pipe = tw.Pipeline("up")
    pipe.output("y", tw.ops.conv_transpose(pipe.input("x", "f32", x.shape), q, strides=2))
    found, _ = both(pipe, {"x": x})
    np.testing.assert_array_equal(found, tw.eager.conv_transpose(x, q.dequantize(), strides=2), strict=True)
