"""Sums that are dequantized and quantized again without a division: every code is the one that the division gives."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import tilework as tw
from tilework.kernels.cpu import isa as levels
from tilework.kernels.cpu.epilogues import quotient
from tilework.kernels.floatops import fma

RNG = np.random.default_rng(31)


def test_the_quotient_rounds_as_the_division_does_around_every_tie():
    for scale in np.exp(RNG.uniform(-12, 6, 60)).astype(np.float32):
        assert quotient.serves(float(scale))
        ties = (np.arange(-257, 257) + 0.5) * np.float64(scale)
        x = np.concatenate([(ties.astype(np.float32).view(np.int32) + d).view(np.float32) for d in range(-5, 6)])
        inverse, by = np.full_like(x, np.float32(1) / scale), np.full_like(x, scale)
        guess = x * inverse
        found = fma(fma(-guess, by, x), inverse, guess)
        assert_array_equal(np.rint(found), np.rint(x / scale))


def test_scales_that_no_inverse_serves_are_told():
    assert not any(quotient.serves(scale) for scale in (0.0, -1.0, 2.0**-120, 2.0**120, float("inf"), float("nan")))
    tie = np.float32(0.5)  # a scale by which a number lies next to the middle between 0.5 and its neighbour
    middle = (np.float64(tie) + np.float64(np.nextafter(tie, np.float32(1)))) / 2
    near = [s for s in (np.float32(1) + np.arange(1 << 16) * 2.0**-23).astype(np.float32) if _gap(s, middle) < 2.0**-22]
    assert not any(quotient.serves(float(s)) for s in near)


def _gap(scale, middle):
    exact = middle * np.float64(scale)
    return abs(np.float64(np.float32(exact)) - exact) / scale / np.spacing(np.float32(0.5))


def chain(op, x, dtype, scale, zero_point, last=lambda y: y):
    """x: a pipeline value; dequantized to halves of the scale, so that every second sum is a tie."""
    channels = op.shape[1] if op.ndim == 4 else op.shape[-1]
    scales = np.full(channels, scale / 2, np.float32)
    scales[::3] *= np.float32(0.013)
    real = tw.ops.dequantize(op, scales, 0, axis=1 if op.ndim == 4 else -1)
    return last(tw.ops.quantize(real, np.float32(scale), zero_point, dtype=dtype))


@pytest.mark.parametrize("isa", ["generic", "avx2", "avx512", "avx512_vnni"])
@pytest.mark.parametrize(("dtype", "zero_point"), [("u8", 3), ("s8", -128)])
def test_products_and_convolutions_equal_the_reference(isa, dtype, zero_point):
    if isa not in [level.name for level in levels.available()]:
        pytest.skip(f"this processor has no {isa}")
    pipe = tw.Pipeline("p")
    kind = {"u8": np.uint8, "s8": np.int8}[dtype]
    a = pipe.input("a", "u8", ("M", 20))
    w = pipe.constant("w", RNG.integers(-128, 128, (20, 70)).astype(np.int8))
    pipe.output("product", chain(tw.ops.gemm(a, w, 100), a, dtype, 0.37, kind(zero_point)))
    image = pipe.input("image", "u8", ("N", 24, 6, 7))
    full = pipe.constant("full", RNG.integers(-20, 20, (40, 24, 3, 3)).astype(np.int8))
    own = pipe.constant("own", RNG.integers(-20, 20, (24, 1, 3, 3)).astype(np.int8))
    y = tw.ops.conv(image, full, pads=1, a_zero_point=7)
    pipe.output("conv", chain(y, image, dtype, 11.3, kind(zero_point)))
    y = tw.ops.conv(image, own, pads=1, groups=24, a_zero_point=7)
    table = RNG.integers(0, 256, 256).astype(np.uint8)
    pipe.output("depthwise", chain(y, image, dtype, 0.37, kind(zero_point), lambda y: tw.ops.lookup(y, table)))
    data = {
        "a": RNG.integers(0, 256, (37, 20)).astype(np.uint8),
        "image": RNG.integers(0, 256, (2, 24, 6, 7)).astype(np.uint8),
    }
    expected = tw.SingleThreadExecutor("reference").run(pipe, data)
    for threads in (1, 2):
        found = tw.TilingExecutor(threads, isa=isa).run(pipe, data)
        for name, array in expected.items():
            assert_array_equal(found[name], array, strict=True)
