"""Pooling against values worked out by hand and against the reference, to the bit, on every executor."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import tilework as tw
from tilework.primitives import errors

OPS = tw.ops


def pooled(executor, op, x, *given, **more):
    pipe = tw.Pipeline("pool")
    dtype = {np.uint8: "u8", np.int8: "s8", np.float32: "f32"}[x.dtype.type]
    pipe.output("y", op(pipe.input("x", dtype, x.shape), *given, **more))
    return executor.run(pipe, {"x": x})["y"]


def test_padding_that_counts_is_real_zero(executor):
    q = np.full((1, 1, 2, 2), 14, np.uint8)
    more = {"strides": 1, "pads": (0, 0, 1, 1), "x_zero_point": 10, "zero_point": 10}
    found = pooled(executor, OPS.average_pool, q, 2, count_include_pad=True, **more)
    assert found[0, 0].tolist() == [[14, 12], [12, 11]]
    assert pooled(executor, OPS.average_pool, q, 2, **more)[0, 0].tolist() == [[14, 14], [14, 14]]
    q = np.full((1, 1, 3, 3), 200, np.uint8)
    more = {"strides": 1, "pads": 1, "count_include_pad": True, "x_zero_point": 128}
    found = pooled(executor, OPS.average_pool, q, 3, **more)
    assert found[0, 0].tolist() == [[160, 176, 160], [176, 200, 176], [160, 176, 160]]


def test_padding_takes_no_part_in_the_largest(executor):
    x = np.full((1, 1, 2, 2), -128, np.int8)
    assert pooled(executor, OPS.max_pool, x, 2, pads=1, strides=1).tolist() == np.full((1, 1, 3, 3), -128).tolist()


def test_a_last_window_that_is_not_full_is_taken_where_it_begins_inside(executor):
    x = np.arange(5, dtype=np.float32).reshape(1, 1, 5)
    assert pooled(executor, OPS.max_pool, x, 2).tolist() == [[[1, 3]]]
    assert pooled(executor, OPS.max_pool, x, 2, ceil_mode=True).tolist() == [[[1, 3, 4]]]
    average = pooled(executor, OPS.average_pool, x, 2, pads=1, ceil_mode=True, count_include_pad=True)
    assert average.tolist() == [[[0.0, 1.5, 3.5]]]


def test_adaptive_windows_cover_an_axis(executor):
    x = np.arange(10, dtype=np.float32).reshape(1, 1, 10)
    assert pooled(executor, OPS.adaptive_average_pool, x, 3).tolist() == [[[1.5, 4.5, 7.5]]]
    assert pooled(executor, OPS.adaptive_max_pool, x, 4).tolist() == [[[2, 4, 7, 9]]]


def test_a_mean_has_the_scale_that_is_asked_for(executor):
    x = np.array([[[[10, 20], [30, 41]]]], np.uint8)
    y = pooled(executor, OPS.global_average_pool, x, x_zero_point=1, multiplier=2.0, zero_point=-3, dtype="s8")
    assert y.tolist() == [[[[45]]]]  # (9 + 19 + 29 + 40) * 2 / 4 = 48.5, to even 48, less 3


def test_a_nan_is_the_largest(executor):
    x = np.array([[[1, np.nan, 2, 3]]], np.float32)
    assert_array_equal(pooled(executor, OPS.max_pool, x, 2), np.float32([[[np.nan, 3]]]))


def test_of_zeros_of_different_sign_the_first_is_the_largest(executor):
    x = np.float32([[[[0.0, -0.0, -0.0], [-0.0, 0.0, 0.0], [0.0, -0.0, -1.0]]]])
    y = pooled(executor, OPS.max_pool, x, (2, 2), strides=(1, 1))
    assert_array_equal(np.signbit(y), [[[[False, True], [True, False]]]])


@pytest.mark.parametrize("seed", range(24))
def test_random_pools_give_the_reference(seed):
    rng = np.random.default_rng(seed)
    spatial, dtype = int(rng.choice([1, 2, 2, 3])), str(rng.choice(["u8", "s8", "f32"]))
    shape = [int(rng.choice([0, 1, 2, 3])) if seed == 5 else int(rng.integers(1, 3))]
    size = [int(rng.integers(1, 12)) for _ in range(spatial)]
    channels = int(rng.choice([1, 3, 16, 70]))
    last = bool(rng.integers(2))
    shape += [*size, channels] if last else [channels, *size]
    kind = {"u8": np.uint8, "s8": np.int8, "f32": np.float32}[dtype]
    x = (
        rng.normal(size=shape).astype(kind)
        if dtype == "f32"
        else rng.integers(0, 256, shape).astype(np.uint8).view(kind)
    )
    layout = ("N" + "DHW"[3 - spatial :] + "C") if last else "NC" + "DHW"[3 - spatial :]
    average = bool(rng.integers(2))
    codes = {}
    if average and dtype != "f32":
        codes = {"x_zero_point": int(rng.integers(0, 100)), "multiplier": float(rng.uniform(0.3, 2)), "zero_point": 7}
        codes["dtype"] = str(rng.choice(["u8", "s8"]))
    pipe = tw.Pipeline("pool")
    declared = tuple(
        f"n{d}" if a != "C" and seed % 2 else n for d, (a, n) in enumerate(zip(layout, shape, strict=True))
    )
    value = pipe.input("x", dtype, declared)
    if rng.random() < 0.3:
        op = OPS.adaptive_average_pool if average else OPS.adaptive_max_pool
        y = op(value, [int(rng.integers(1, 6)) for _ in range(spatial)], layout=layout, **codes)
    else:
        kernel = [int(rng.integers(1, 5)) for _ in range(spatial)]
        apart = [int(rng.integers(1, 3)) for _ in range(spatial)]
        reach = [(k - 1) * d + 1 for k, d in zip(kernel, apart, strict=True)]
        pads = [int(rng.integers(0, r)) for r in (*reach, *reach)]
        for d in range(spatial):
            short = reach[d] - size[d] - pads[d] - pads[spatial + d]
            if short > 0:
                kernel[d], pads[d], pads[spatial + d] = 1, 0, 0
        more = {"strides": [int(rng.integers(1, 4)) for _ in range(spatial)], "pads": pads, "dilations": apart}
        more |= {"ceil_mode": bool(rng.integers(2)), "layout": layout}
        if average:
            y = OPS.average_pool(value, kernel, count_include_pad=bool(rng.integers(2)), **more, **codes)
        else:
            y = OPS.max_pool(value, kernel, **more)
    pipe.output("y", y)
    expected = tw.SingleThreadExecutor("reference").run(pipe, {"x": x})["y"]
    for executor in (tw.SingleThreadExecutor(), tw.TilingExecutor(1), tw.TilingExecutor(3)):
        out = np.full(expected.shape, 99, expected.dtype)
        executor.compile(pipe).run({"x": x}, out={"y": out})
        assert_array_equal(out, expected, strict=True)


@pytest.mark.parametrize(
    ("op", "given", "error", "text"),
    [
        ("max_pool", {"kernel": 2, "pads": 2}, errors.ArgumentError, "not less than the 2 positions"),
        ("max_pool", {"kernel": 0}, errors.ArgumentError, "at least 1"),
        ("max_pool", {"kernel": 9}, errors.ShapeMismatch, "covers 9 .* has 8; pad at least 1 more"),
        ("average_pool", {"kernel": 2, "multiplier": -1.0}, errors.QuantizationError, "finite and not negative"),
        ("average_pool", {"kernel": 2, "zero_point": 300}, errors.QuantizationError, "300"),
        ("average_pool", {"kernel": 2, "dtype": "s32"}, errors.DTypeMismatch, "u8 and s8 work"),
        ("global_average_pool", {"to": tw.QuantParams(0.5, 0, "u8")}, errors.ArgumentError, "needs the scale of x"),
    ],
)
def test_what_cannot_be_pooled_is_an_error(op, given, error, text):
    pipe = tw.Pipeline("wrong")
    x = pipe.input("x", "u8", (1, 3, 8, 8))
    with pytest.raises(error, match=text):
        getattr(OPS, op)(x, **given)


def test_a_pool_keeps_the_quantization_of_what_it_reads():
    pipe = tw.Pipeline("quantized")
    quant = tw.QuantParams(0.5, 7, "u8")
    x = pipe.input("x", "u8", (1, 3, 8, 8), quant=quant)
    assert OPS.max_pool(x, 2).quant == quant
    assert OPS.average_pool(x, 2).quant == quant
    to = tw.QuantParams(0.25, 3, "u8")
    y = OPS.global_average_pool(x, to=to)
    assert y.quant == to
    assert y.shape == (1, 3, 1, 1)
