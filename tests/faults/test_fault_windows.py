"""Kinds of faults that convolutions and poolings of other libraries had: padding, pads' order, groups, zero points."""

import numpy as np
import pytest

import tilework as tw


def exact_conv(x, w, x_zero=0, w_zero=0, pads=(0, 0, 0, 0), strides=(1, 1), dilations=(1, 1), groups=1):
    """Sums over windows in int64. pads: before y, before x, behind y, behind x."""
    x = np.pad(x.astype(np.int64) - x_zero, ((0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])))
    w = w.astype(np.int64) - np.asarray(w_zero, np.int64).reshape(-1, 1, 1, 1)
    (n, _, height, width), (outputs, channels, kh, kw) = x.shape, w.shape
    reach = dilations[0] * (kh - 1) + 1, dilations[1] * (kw - 1) + 1
    rows, columns = (height - reach[0]) // strides[0] + 1, (width - reach[1]) // strides[1] + 1
    y = np.zeros((n, outputs, rows, columns), np.int64)
    for o in range(outputs):
        first = o // (outputs // groups) * channels
        for i in range(rows):
            for j in range(columns):
                top, left = i * strides[0], j * strides[1]
                seen = x[
                    :,
                    first : first + channels,
                    top : top + reach[0] : dilations[0],
                    left : left + reach[1] : dilations[1],
                ]
                y[:, o, i, j] = (seen * w[o]).sum((1, 2, 3))
    return y


def convolved(everywhere, x, w, x_zero=None, w_zero=None, pads=(0, 0, 0, 0), **window):
    y = everywhere(lambda v: tw.ops.conv(v, w, pads=pads, a_zero_point=x_zero, b_zero_point=w_zero, **window), x)
    last = everywhere(  # the same image with its channels last
        lambda v: tw.ops.conv(v, w, pads=pads, a_zero_point=x_zero, b_zero_point=w_zero, layout="NHWC", **window),
        np.ascontiguousarray(x.transpose(0, 2, 3, 1)),
    )
    assert last.transpose(0, 3, 1, 2).tolist() == y.tolist()
    return y


def test_padding_is_real_zero(everywhere):
    edge = [[8, 12, 8], [12, 18, 12], [8, 12, 8]]
    w = np.ones((1, 1, 3, 3), np.int8)
    for x, zero in ((np.full((1, 1, 3, 3), 130, np.uint8), 128), (np.full((1, 1, 3, 3), -126, np.int8), -128)):
        assert convolved(everywhere, x, w, zero, pads=(1, 1, 1, 1))[0, 0].tolist() == edge


@pytest.mark.parametrize("pads", [(0, 0, 1, 1), (1, 0, 0, 0), (2, 1, 0, 3), (0, 3, 2, 0)])
def test_pads_are_before_and_then_behind(everywhere, pads):
    rng = np.random.default_rng(sum(pads))
    x, w = rng.integers(0, 256, (2, 3, 6, 7), np.uint8), rng.integers(-128, 128, (4, 3, 3, 2), np.int8)
    for zero in (0, 255, 77):
        right = exact_conv(x, w, zero, 0, pads)
        assert convolved(everywhere, x, w, zero, pads=pads).tolist() == right.tolist()


def test_groups_that_are_neither_one_nor_all(everywhere):
    x = (np.arange(100).reshape(1, 4, 5, 5) * 37 % 256 - 128).astype(np.int8)
    w = (np.arange(108).reshape(6, 2, 3, 3) * 29 % 256 - 128).astype(np.int8)
    y = convolved(everywhere, x, w, pads=(1, 1, 1, 1), groups=2)
    assert y[0, :, 2, 2].tolist() == [-8951, -9621, 8397, -14903, -12813, 2589]
    full = np.zeros((6, 4, 3, 3), np.int8)
    full[:3, :2], full[3:, 2:] = w[:3], w[3:]
    assert convolved(everywhere, x, full, pads=(1, 1, 1, 1)).tolist() == y.tolist()
    deep = convolved(everywhere, x, w[:4, :1], 3, pads=(2, 2, 2, 2), dilations=(2, 2), groups=4)
    assert deep[0, :, 0, 0].tolist() == [5256, -12000, 17608, -11136]
    assert int(deep.sum()) == 6880


@pytest.mark.parametrize(("groups", "channels", "outputs"), [(3, 6, 9), (4, 4, 8), (5, 15, 5), (2, 34, 6)])
@pytest.mark.parametrize(("dilations", "strides"), [((1, 1), (1, 1)), ((2, 1), (1, 2)), ((3, 2), (2, 2))])
def test_groups_dilations_and_strides_together(everywhere, groups, channels, outputs, dilations, strides):
    rng = np.random.default_rng(groups + 7 * dilations[0])
    x = rng.integers(0, 256, (1, channels, 9, 8), np.uint8)
    w = rng.integers(-128, 128, (outputs, channels // groups, 3, 2), np.int8)
    right = exact_conv(x, w, 131, 0, (1, 0, 2, 1), strides, dilations, groups)
    found = everywhere(
        lambda v: tw.ops.conv(
            v, w, pads=(1, 0, 2, 1), strides=strides, dilations=dilations, groups=groups, a_zero_point=131
        ),
        x,
    )
    assert found.tolist() == right.tolist()


def test_weight_zero_points_of_channels(everywhere):
    x, w = np.full((1, 1, 3, 3), 130, np.uint8), np.full((2, 1, 2, 2), 100, np.uint8)
    zeros = np.array([5, 90], np.uint8)
    assert convolved(everywhere, x, w, 128, zeros)[0, :, 0, 0].tolist() == [760, 80]
    codes = everywhere(
        lambda v: tw.ops.requantize(
            tw.ops.conv(v, w, a_zero_point=128, b_zero_point=zeros),
            multiplier=0.05 * 0.02 / 0.1,
            zero_point=128,
            dtype="u8",
        ),
        x,
    )
    assert codes[0, :, 0, 0].tolist() == [136, 129]


@pytest.mark.parametrize("include", [True, False])
def test_average_pool_divides_by_what_it_says(everywhere, include):
    q = np.full((1, 1, 2, 2), 14, np.uint8)
    y = everywhere(
        lambda v: tw.ops.average_pool(
            v, 2, strides=1, pads=(0, 0, 1, 1), count_include_pad=include, x_zero_point=10, zero_point=10
        ),
        q,
    )
    assert y[0, 0].tolist() == ([[14, 12], [12, 11]] if include else [[14, 14], [14, 14]])


def test_average_pool_counts_padding_as_real_zero(everywhere):
    q = np.full((1, 1, 3, 3), 200, np.uint8)
    y = everywhere(
        lambda v: tw.ops.average_pool(
            v, 3, strides=1, pads=1, count_include_pad=True, x_zero_point=128, zero_point=128
        ),
        q,
    )
    assert y[0, 0].tolist() == [[160, 176, 160], [176, 200, 176], [160, 176, 160]]


@pytest.mark.parametrize("dtype", ["s8", "u8"])
def test_padding_never_wins_a_maximum(everywhere, dtype):
    low = -128 if dtype == "s8" else 0
    x = np.full((1, 2, 3, 3), low, np.int8 if dtype == "s8" else np.uint8)
    assert (everywhere(lambda v: tw.ops.max_pool(v, 3, strides=1, pads=1), x) == low).all()
    real = np.full((1, 2, 3, 3), -5.0, np.float32)
    assert (everywhere(lambda v: tw.ops.max_pool(v, 3, strides=1, pads=1), real) == -5.0).all()


def test_outputs_of_a_transposed_convolution_are_axis_one(everywhere):
    x = np.arange(8, dtype=np.int8).reshape(1, 2, 2, 2)
    w = np.array([[3, -4, 5], [6, 7, -8]], np.int8).reshape(2, 3, 1, 1)
    scales = np.array([1.0, 10.0, 100.0], np.float32)
    y = everywhere(
        lambda v: tw.ops.dequantize(tw.ops.conv_transpose(v, w), scale=scales, axis=1),
        x,
    )
    right = np.einsum("nchw,co->nohw", x.astype(float), w[:, :, 0, 0].astype(float)) * scales.reshape(1, 3, 1, 1)
    assert y.tolist() == right.tolist()
    pipe = tw.Pipeline("two scales for three outputs")
    acc = tw.ops.conv_transpose(pipe.input("x", "s8", (1, 2, 2, 2)), w)
    with pytest.raises(tw.errors.TileworkError):
        tw.ops.requantize(acc, multiplier=scales[:2], axis=1)
