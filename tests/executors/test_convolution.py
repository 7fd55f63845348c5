"""Convolutions against values worked out by hand and against the reference, to the bit, on every executor and level."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import tilework as tw
from tilework.kernels import forge
from tilework.kernels.cpu import isa
from tilework.primitives import errors

RNG = np.random.default_rng(33)
LEVELS = [level.name for level in isa.available()]


def generator():
    """random_convolutions.py, which the soak uses too."""
    path = Path(__file__).with_name("random_convolutions.py")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def convolve(executor, x, w, dtype="s8", **window):
    pipe = tw.Pipeline("conv")
    pipe.output("y", tw.ops.conv(pipe.input("x", dtype, x.shape), w, **window))
    return executor.run(pipe, {"x": x})["y"]


def test_padding_is_the_zero_point(executor):
    w = np.ones((1, 1, 3, 3), np.int8)
    edge = [[8, 12, 8], [12, 18, 12], [8, 12, 8]]
    unsigned = np.full((1, 1, 3, 3), 130, np.uint8)
    assert convolve(executor, unsigned, w, "u8", pads=1, a_zero_point=128)[0, 0].tolist() == edge
    assert convolve(executor, np.full((1, 1, 3, 3), -126, np.int8), w, pads=1, a_zero_point=-128)[0, 0].tolist() == edge


def test_groups_dilation_and_zero_points_of_each_output(executor):
    x = (np.arange(100).reshape(1, 4, 5, 5) * 37 % 256 - 128).astype(np.int8)
    w = (np.arange(108).reshape(6, 2, 3, 3) * 29 % 256 - 128).astype(np.int8)
    grouped = convolve(executor, x, w, pads=(1, 1, 1, 1), groups=2)
    assert grouped[0, :, 2, 2].tolist() == [-8951, -9621, 8397, -14903, -12813, 2589]
    apart = convolve(executor, x, w[:4, :1], pads=2, dilations=2, groups=4, a_zero_point=3)
    assert apart[0, :, 0, 0].tolist() == [5256, -12000, 17608, -11136]
    assert int(apart.sum()) == 6880
    x, w = np.full((1, 1, 3, 3), 130, np.uint8), np.full((2, 1, 2, 2), 100, np.uint8)
    each = convolve(executor, x, w, "u8", a_zero_point=128, b_zero_point=np.array([5, 90], np.uint8))
    assert each[0, :, 0, 0].tolist() == [760, 80]


def test_pads_come_before_each_axis_and_then_behind_each(executor):
    x, w = np.arange(6, dtype=np.int8).reshape(1, 1, 2, 3), np.ones((1, 1, 1, 1), np.int8)
    y = convolve(executor, x, w, pads=(1, 0, 0, 2))
    assert y[0, 0].tolist() == [[0, 0, 0, 0, 0], [0, 1, 2, 0, 0], [3, 4, 5, 0, 0]]


def test_a_transposed_convolution_adds_multiples_of_a_window(executor):
    pipe = tw.Pipeline("up")
    x = np.array([[[1, 2]]], np.int8)
    y = tw.ops.conv_transpose(pipe.input("x", "s8", x.shape), np.array([[[1, 10, 100]]], np.int8), strides=2)
    pipe.output("y", y)
    assert executor.run(pipe, {"x": x})["y"].tolist() == [[[1, 10, 102, 20, 200]]]


@pytest.mark.skipif(forge.jit_disabled(), reason="plain Python is not expanded")
@pytest.mark.parametrize(
    ("kernel", "strides", "pads", "more", "groups", "outputs"),
    [
        (2, 2, 0, 0, 1, 3),
        (4, 2, 1, 0, 1, 17),
        (4, 2, (1, 0, 2, 1), 0, 2, 6),
        ((6, 3), (3, 1), (1, 0, 1, 1), (2, 0), 1, 1),
    ],
)
@pytest.mark.parametrize("dtype", ["u8", "f32"])
def test_a_transposed_convolution_of_whole_strides_is_made_of_phases(
    dtype, kernel, strides, pads, more, groups, outputs
):
    rng = np.random.default_rng(0)
    taps = (kernel, kernel) if isinstance(kernel, int) else kernel
    pipe = tw.Pipeline("up")
    x = pipe.input("x", dtype, ("N", 6, "H", 7))
    if dtype == "u8":
        w = rng.integers(-128, 128, (6, outputs // groups, *taps)).astype(np.int8)
        bias, given = (
            rng.integers(-99, 99, outputs).astype(np.int32),
            rng.integers(0, 256, (2, 6, 5, 7)).astype(np.uint8),
        )
    else:
        w = rng.normal(size=(6, outputs // groups, *taps)).astype(np.float32)
        bias, given = rng.normal(size=outputs).astype(np.float32), rng.normal(size=(2, 6, 5, 7)).astype(np.float32)
    zero = {"a_zero_point": 7} if dtype == "u8" else {}
    y = tw.ops.conv_transpose(x, w, bias, strides=strides, pads=pads, out_pads=more, groups=groups, **zero)
    pipe.output("y", tw.ops.requantize(y, multiplier=0.01, zero_point=9) if dtype == "u8" else tw.ops.relu(y))
    want = tw.SingleThreadExecutor("reference").run(pipe, {"x": given})["y"]
    plan = tw.TilingExecutor(threads=2).compile(pipe)
    assert "phases" in plan.explain()
    np.testing.assert_array_equal(plan.run({"x": given})["y"], want, strict=True)


SHAPES = [  # N, C, H, O, k, stride, padding, groups, dilation: on, below and above tiles of 16 and 64 channels
    (1, 64, 9, 64, 3, 1, 1, 1, 1),
    (2, 16, 7, 33, 3, 2, 1, 1, 1),
    (1, 3, 17, 64, 7, 2, 3, 1, 1),
    (1, 5, 11, 31, 3, 1, 1, 1, 2),
    (1, 64, 8, 63, 1, 1, 0, 1, 1),
    (1, 32, 9, 65, 1, 2, 0, 1, 1),
    (1, 40, 12, 40, 5, 1, 2, 8, 1),
    (2, 70, 9, 70, 3, 1, 1, 70, 1),
    (1, 144, 9, 144, 3, 1, 1, 144, 1),
    (1, 96, 12, 96, 3, 2, 1, 96, 1),
    (2, 17, 5, 17, 5, 1, 2, 17, 2),
    (0, 8, 5, 8, 3, 1, 1, 1, 1),
    (1, 1, 1, 1, 1, 3, 0, 1, 1),
]


def _cases():
    """Every shape in both layouts on the best level, channels last on the plainest, some on those between."""
    best, plainest = LEVELS[-1], LEVELS[0]
    for n, shape in enumerate(SHAPES):
        yield from ((shape, layout, best) for layout in ("NHWC", "NCHW"))
        between = LEVELS[1:-1] if n % 4 == 0 else []
        yield from ((shape, "NHWC", level) for level in (plainest, *between) if level != best)
        if n % 4 == 1 and plainest != best:
            yield shape, "NCHW", plainest


@pytest.mark.parametrize(("shape", "layout", "level"), list(_cases()), ids=str)
def test_every_level_gives_the_reference(shape, layout, level):
    n, c, h, o, k, stride, padding, groups, dilation = shape
    image = (n, h, h, c) if layout == "NHWC" else (n, c, h, h)
    x = RNG.integers(0, 256, image, np.uint8)
    w = RNG.choice(np.array([-128, -1, 3, 127], np.int8), (o, c // groups, k, k))
    pipe = tw.Pipeline("layer")
    acc = tw.ops.conv(
        pipe.input("x", "u8", ("N", "H", "W", c) if layout == "NHWC" else ("N", c, "H", "W")),
        w,
        RNG.integers(-3000, 3000, o).astype(np.int32),
        strides=stride,
        pads=padding,
        groups=groups,
        dilations=dilation,
        layout=layout,
        a_zero_point=121,
    )
    scale = (RNG.random(o) * 2e-3).astype(np.float32)
    pipe.output("y", tw.ops.relu(tw.ops.requantize(acc, scale, 9, "u8", axis=layout.index("C")), 9))
    expected = tw.SingleThreadExecutor("reference").run(pipe, {"x": x})["y"]
    for threads in (1, 2):
        out = np.full(expected.shape, 77, np.uint8)
        tw.TilingExecutor(threads, isa=level).compile(pipe).run({"x": x}, out={"y": out})
        assert_array_equal(out, expected, strict=True)


@pytest.mark.parametrize("seed", range(12))
def test_random_convolutions_give_the_reference(seed):
    random = generator()
    ways = [{"threads": 2, "isa": LEVELS[0]}, {"threads": 1 + seed % 2}, {"threads": 3, "fuse": False}]
    assert random.compare(random.make(seed), ways) == []


def test_a_given_tile_and_band_change_nothing():
    x, w = RNG.integers(0, 256, (1, 13, 11, 20), np.uint8), RNG.integers(-128, 128, (40, 20, 3, 3), np.int8)
    pipe = tw.Pipeline("tiles")
    pipe.output("y", tw.ops.conv(pipe.input("x", "u8", x.shape), w, pads=1, layout="NHWC"))
    name = pipe.steps[0].name
    expected = tw.SingleThreadExecutor("reference").run(pipe, {"x": x})["y"]
    for tile in ({"band": 1}, {"band": 3, "h": 4}, {"mr": 3, "nr": 2 * isa.select().lanes}):
        assert_array_equal(tw.TilingExecutor(2, tile={name: tile}).run(pipe, {"x": x})["y"], expected, strict=True)


@pytest.mark.parametrize("bias", [np.float32(0.0), np.float32(-0.0), None])
@pytest.mark.parametrize("sign", [1, -1])
def test_taps_on_padding_turn_no_zero_of_real_sums(bias, sign):
    x = np.full((1, 5, 5, 8), 1e-30, np.float32)
    x[0, 2, 2] = np.inf
    w = np.full((16, 8, 3, 3), sign * -1e-30, np.float32)  # each product is -0, or +0
    pipe = tw.Pipeline("zeros")
    given = None if bias is None else np.full(16, bias)
    pipe.output("y", tw.ops.conv(pipe.input("x", "f32", x.shape), w, given, pads=1, layout="NHWC"))
    expected = tw.SingleThreadExecutor("reference").run(pipe, {"x": x})["y"]
    out = tw.TilingExecutor(1).run(pipe, {"x": x})["y"]
    assert_array_equal(out, expected, strict=True)
    assert_array_equal(np.signbit(out), np.signbit(expected))


def test_a_quantized_image_and_weights_carry_their_scale():
    pipe = tw.Pipeline("quantized")
    x = pipe.input("x", "u8", (1, 4, 5, 5), quant=tw.QuantParams(0.5, 7, "u8"))
    w = pipe.constant("w", np.ones((2, 4, 3, 3), np.int8))
    w.quant = tw.QuantParams(np.float32([0.25, 2.0]), np.zeros(2, np.int8), "s8", axis=0)
    acc = tw.ops.conv(x, w)
    assert acc.quant.scale.tolist() == [0.125, 1.0]
    assert acc.quant.axis == 1
    assert pipe.steps[0].kernel.a_zero_point


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"x": (1, 3, 8, 8), "w": (4, 2, 3, 3)}, errors.ShapeMismatch, "has 3 channels.*takes 2"),
        ({"x": (1, 4, 8, 8), "w": (3, 2, 3, 3), "groups": 2}, errors.ShapeMismatch, "3 outputs cannot be in 2 groups"),
        ({"x": (1, 3, 2, 8), "w": (4, 3, 3, 3)}, errors.ShapeMismatch, "covers 3 .* has 2; pad at least 1 more"),
        ({"x": (1, 3, 8, 8), "w": (4, 3, 3, 3), "strides": 0}, errors.ArgumentError, "at least 1"),
        ({"x": (1, 3, 8, 8), "w": (4, 3, 3, 3), "pads": (1, 2, 3)}, errors.ArgumentError, "before each axis"),
        ({"x": (1, 3, 8, 8), "w": (4, 3, 3, 3), "layout": "CHWN"}, errors.LayoutError, "NCHW or NHWC"),
        ({"x": (1, 3, 8, 8), "w": (4, 3, 3, 3), "w_layout": "HWOI_"}, errors.ArgumentError, "OIHW, HWIO"),
        ({"x": (1, 3, 8), "w": (4, 3, 3, 3)}, errors.ShapeMismatch, "three, four or five"),
        ({"x": (1, 3, 8, 8), "w": (4, 3, 3, 3), "a_zero_point": 256}, errors.QuantizationError, "256"),
        ({"x": (1, 3, 8, 8), "w": (4, 3, 3, 3), "b_zero_point": [1, 2]}, errors.ShapeMismatch, "one for each output|each output|4"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_an_error_that_says_what_does(given, error, text):
    pipe = tw.Pipeline("wrong")
    x = pipe.input("x", "u8", given.pop("x"))
    with pytest.raises(error, match=text):
        tw.ops.conv(x, np.ones(given.pop("w"), np.int8), **given)


def test_sums_that_may_pass_int32_are_refused():
    pipe = tw.Pipeline("deep")
    x = pipe.input("x", "u8", (1, 40000, 3, 3))
    pipe.output("y", tw.ops.conv(x, np.full((1, 40000, 3, 3), 127, np.int8)))
    with pytest.raises(errors.AccumulatorOverflow, match="conv"):
        tw.TilingExecutor(1).compile(pipe, {"x": (1, 40000, 3, 3)})


def test_a_convolution_is_saved_and_loaded(tmp_path):
    pipe = tw.Pipeline("kept")
    x = pipe.input("x", "u8", ("N", "H", "W", 3))
    pipe.output("y", tw.ops.conv(x, RNG.integers(-9, 9, (3, 3, 3, 8)).astype(np.int8), layout="NHWC", w_layout="HWIO"))
    pipe.save(tmp_path / "kept.npz")
    image = RNG.integers(0, 256, (1, 5, 5, 3), np.uint8)
    before, after = (
        tw.TilingExecutor(1).run(p, {"x": image})["y"] for p in (pipe, tw.Pipeline.load(tmp_path / "kept.npz"))
    )
    assert_array_equal(before, after, strict=True)


def block(layout):
    """Two convolutions with a residual that is added by itself, and a pool: an image in, an image out."""
    pipe = tw.Pipeline("block")
    x = pipe.input("x", "u8", (2, 16, 9, 9) if layout == "NCHW" else (2, 9, 9, 16))
    channel, scale = layout.index("C"), np.full(16, 2e-3, np.float32)

    def layer(value, seed):
        w = np.random.default_rng(seed).integers(-128, 128, (16, 16, 3, 3)).astype(np.int8)
        acc = tw.ops.conv(value, w, pads=1, layout=layout, a_zero_point=3)
        return tw.ops.requantize(acc, scale, 3, "u8", axis=channel)

    first = layer(x, 1)
    second = tw.ops.relu(layer(first, 2), 3)
    codes = {"a_scale": 0.1, "a_zero_point": 3, "b_scale": 0.2, "b_zero_point": 3, "scale": 0.2, "zero_point": 3}
    total = tw.ops.add(first, second, dtype="u8", **codes)
    also = tw.ops.add(total, first, dtype="u8", **codes)
    pipe.output("y", tw.ops.max_pool(also, 3, strides=2, layout=layout))
    pipe.output("z", layer(also, 3))
    return pipe


def test_images_are_turned_at_the_doors_alone():
    pipe, last = block("NCHW"), block("NHWC")
    x = RNG.integers(0, 256, (2, 16, 9, 9), np.uint8)
    expected = tw.SingleThreadExecutor("reference").run(pipe, {"x": x})
    plan = tw.TilingExecutor(2).compile(pipe)
    found = plan.run({"x": x})
    other = tw.TilingExecutor(2).run(last, {"x": np.ascontiguousarray(x.transpose(0, 2, 3, 1))})
    for name, array in expected.items():
        assert_array_equal(found[name], array, strict=True)
        assert_array_equal(other[name].transpose(0, 3, 1, 2), array, strict=True)
    names = [step.kernel.name for step in plan.lowered.pipe.steps]
    assert names.count("relayout_u8") == 3, "one for x, one for each output"
    assert "channels last inside" in plan.explain()
    tapped = plan.run({"x": x}, tap=[pipe.steps[0].outputs["acc"].name])
    assert_array_equal(tapped["y"], expected["y"], strict=True)


@pytest.mark.parametrize("channels", [70, 144])
def test_a_function_after_a_depthwise_convolution_has_room_for_its_rows(channels):
    """Rows of more channels than a panel has columns, not in whole vectors."""
    x = RNG.integers(-128, 128, (1, 9, 6, channels), np.int8)
    w = RNG.integers(-128, 128, (channels, 1, 3, 3), np.int8)
    scale = (RNG.random((1, 1, 1, channels)) * 1e-3).astype(np.float32)
    pipe = tw.Pipeline("room")
    acc = tw.ops.conv(pipe.input("x", "s8", x.shape), w, groups=channels, layout="NHWC", a_zero_point=5)
    pipe.output("y", tw.ops.map(generator().leaky, acc, scale=scale, dtype="f32"))
    expected = tw.SingleThreadExecutor("reference").run(pipe, {"x": x})["y"]
    assert_array_equal(tw.TilingExecutor(1).run(pipe, {"x": x})["y"], expected, strict=True)


@pytest.mark.parametrize("dtype", ["u8", "s8"])
def test_taps_on_padding_that_is_zero_may_be_left_out(dtype):
    """Of windows that lie in the padding alone, too, and for every zero point."""
    kind = np.uint8 if dtype == "u8" else np.int8
    x = RNG.integers(0, 256, (2, 4, 5, 16), np.uint8).view(kind)
    w = RNG.integers(-128, 128, (16, 16, 3, 3), np.int8)
    for zero in (np.iinfo(kind).min, 0, 7):
        pipe = tw.Pipeline("fewer")
        pads, apart = (4, 1, 3, 1), (2, 1)
        y = tw.ops.conv(
            pipe.input("x", dtype, x.shape), w, pads=pads, dilations=apart, layout="NHWC", a_zero_point=zero
        )
        pipe.output("y", y)
        expected = tw.SingleThreadExecutor("reference").run(pipe, {"x": x})["y"]
        for level in LEVELS[:: len(LEVELS) - 1]:
            found = tw.TilingExecutor(1, isa=level).run(pipe, {"x": x})["y"]
            assert_array_equal(found, expected, strict=True)


@pytest.mark.parametrize(
    ("op", "x", "w", "more", "shape"),
    [
        ("conv", (1, 3, 5, 5), (0, 3, 3, 3), {}, (1, 0, 3, 3)),
        ("conv", (1, 4, 5, 5), (0, 2, 3, 3), {"groups": 2, "a_zero_point": 3}, (1, 0, 3, 3)),
        ("conv", (1, 0, 5, 5), (4, 0, 3, 3), {}, (1, 4, 3, 3)),
        ("conv", (2, 3, 0, 5), (4, 3, 3, 3), {"pads": 2}, (2, 4, 2, 7)),
        ("conv_transpose", (1, 3, 0, 5), (3, 4, 3, 3), {"strides": 2}, (1, 4, 1, 11)),
    ],
)
def test_nothing_gives_zeros_or_nothing(executor, op, x, w, more, shape):
    pipe = tw.Pipeline("nothing")
    pipe.output("y", getattr(tw.ops, op)(pipe.input("x", "u8", x), np.ones(w, np.int8), **more))
    found = executor.run(pipe, {"x": np.full(x, 3, np.uint8)})["y"]
    assert_array_equal(found, np.zeros(shape, np.int32), strict=True)
