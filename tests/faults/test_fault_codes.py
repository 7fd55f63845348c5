"""Kinds of faults that packed codes, groups and small floats of other libraries had."""

import ml_dtypes
import numpy as np
import pytest

import tilework as tw
from tilework.kernels.schemes import packing


def test_low_nibble_first_and_signs_extended():
    assert tw.dtypes.unpack(np.array([0x21, 0x43], np.uint8), "u4", 4).astype(int).tolist() == [1, 2, 3, 4]
    assert tw.dtypes.unpack(np.array([0x8F], np.uint8), "s4", 2).astype(int).tolist() == [-1, -8]


@pytest.mark.parametrize("bits", range(1, 9))
@pytest.mark.parametrize("n", [0, 1, 7, 8, 9, 63, 64, 65])
def test_packed_rows_end_at_a_byte_and_come_back(bits, n):
    rng = np.random.default_rng(bits * 100 + n)
    codes = rng.integers(0, 1 << bits, (3, n), np.uint8)
    packed = packing.pack(codes, bits)
    assert packed.shape == (3, -(-n * bits // 8))
    assert packing.unpack(packed, bits, n).tolist() == codes.tolist()
    wide = codes.astype(np.int64)
    signed = wide - (1 << bits) * (wide >= 1 << (bits - 1))
    assert packing.unpack(packed, bits, n, signed=True).astype(int).tolist() == signed.tolist()


def test_threads_never_share_a_packed_byte():
    """A million and one codes of four bits, packed by several threads, are those that one thread packs."""
    w = np.resize(np.arange(16) - 7.5, (1, 999_999)).astype(np.float32)
    w = np.ascontiguousarray(np.broadcast_to(w, (3, w.shape[1])))  # rows of an odd number of codes
    scheme = tw.schemes.get("int4_g32_asym")
    right = scheme.quantize(w, executor=tw.TilingExecutor(threads=1)).codes
    for _ in range(5):
        assert scheme.quantize(w, executor=tw.TilingExecutor(threads=4)).codes.tobytes() == right.tobytes()


@pytest.mark.parametrize(("block", "rows", "k"), [(32, 3, 48), (7, 5, 20), (100, 2, 130), (32, 4, 4304), (64, 3, 63)])
def test_a_last_group_that_is_short(block, rows, k):
    """Row 0 alone is right where the step from row to row forgets that the last group is short."""
    rng = np.random.default_rng(k)
    w = rng.integers(-7, 8, (rows, k)).astype(np.float32) * 2.0 ** (rng.integers(-3, 3, (rows, 1)))
    w[:, 0] = 7 * 2.0 ** rng.integers(-3, 3, rows)
    scheme = tw.schemes.get("int4_g32").replace(name=f"g{block}", block=block)
    tensor = scheme.quantize(w)
    real = tensor.dequantize()
    groups = -(-k // block)
    assert tensor.params["scale"].shape[-1] == groups
    x = np.ones((2, k), np.float32)
    y = tensor.matmul(x, compute="f32")
    assert np.abs(y[0] - real.astype(np.float64).sum(1)).max() < 1e-3 * np.abs(real).sum(1).max()
    assert y[0].tobytes() == y[1].tobytes()
    for r in range(rows):  # no row depends on those before it
        alone = scheme.quantize(w[r : r + 1])
        assert alone.dequantize().tobytes() == real[r : r + 1].tobytes()


@pytest.mark.parametrize("block", [1, 16, 32, 64, 128, 256, "row"])
def test_every_group_size_is_right(block):
    k, n = 256, 5
    q = (np.arange(k)[None, :] * 3 + np.arange(n)[:, None]) % 15 - 7
    size = k if block == "row" else block
    scales = 2.0 ** -(np.arange(k // size)[None, :] % 4 + np.arange(n)[:, None] % 2)
    q[:, ::size] = 7  # so that the fit finds these scales
    w = (q * np.repeat(scales, size, 1)).astype(np.float32)
    tensor = tw.schemes.get("int4_g32").replace(name="sized", block=block).quantize(w)
    assert tensor.dequantize().tolist() == w.tolist()
    x = (np.arange(3 * k).reshape(3, k) % 5 - 2).astype(np.float32)
    assert tensor.matmul(x, compute="f32").tolist() == (x.astype(np.float64) @ w.astype(np.float64).T).tolist()


@pytest.mark.parametrize("block", [0, -2, 2**64, 1.5, (0, 4), (3,), "column"])
def test_absurd_group_sizes_are_refused(block):
    with pytest.raises((tw.errors.TileworkError, ValueError)):
        tw.schemes.get("int4_g32").replace(name="absurd", block=block).quantize(np.ones((4, 8), np.float32))


@pytest.mark.parametrize("stored", [0, 1, 8, 15])
def test_a_zero_point_is_what_it_says(everywhere, stored):
    q = np.array([0, 5, 8, 15], np.uint8)
    y = everywhere(lambda v: tw.ops.dequantize(v, np.float32(0.5), np.uint8(stored)), q)
    assert y.tolist() == [(int(c) - stored) * 0.5 for c in q]


CASES = {
    "f8e4m3fn": (ml_dtypes.float8_e4m3fn, [448, 464, 465, 1000, np.inf, -np.inf]),
    "f8e5m2": (ml_dtypes.float8_e5m2, [57344, 61439, 61440, 1e6, np.inf, -np.inf]),
}


@pytest.mark.parametrize("dtype", CASES)
@pytest.mark.parametrize("n", [7, 40])
def test_overflow_of_small_floats_is_chosen(everywhere, dtype, n):
    kind, values = CASES[dtype]
    x = np.resize(np.array([*values, np.nan], np.float32), n)
    held = everywhere(lambda v: tw.ops.cast(v, dtype), x).view(kind).astype(np.float32)
    top = float(ml_dtypes.finfo(kind).max)
    right = np.where(np.isnan(x), x, np.clip(x, -top, top))
    assert np.array_equal(held, right, equal_nan=True)
    loose = everywhere(lambda v: tw.ops.cast(v, dtype, saturate=False), x).view(kind).astype(np.float32)
    assert np.array_equal(loose, x.astype(kind).astype(np.float32), equal_nan=True)


@pytest.mark.parametrize(("dtype", "kind"), [("f8e4m3fn", ml_dtypes.float8_e4m3fn), ("f8e5m2", ml_dtypes.float8_e5m2)])
def test_small_floats_tie_to_even_and_keep_subnormals(everywhere, dtype, kind):
    codes = np.arange(256, dtype=np.uint8).view(kind).astype(np.float32)
    codes = np.sort(codes[np.isfinite(codes)])
    middle = (codes[1:] + codes[:-1]) / 2
    x = np.concatenate(
        [codes, middle, np.nextafter(middle, np.float32(np.inf)), np.nextafter(middle, -np.float32(np.inf))]
    )
    found = everywhere(lambda v: tw.ops.cast(v, dtype), x)
    assert found.tobytes() == x.astype(kind).tobytes()


def test_scale_codes_at_both_ends(everywhere):
    codes = np.array([0, 1, 127, 254, 255], np.uint8).view(ml_dtypes.float8_e8m0fnu)
    y = everywhere(lambda v: tw.ops.cast(v, "f32"), codes)
    assert y[:4].tolist() == [2.0**-127, 2.0**-126, 1.0, 2.0**127]
    assert np.isnan(y[4])


@pytest.mark.parametrize("name", ["mxfp4", "nf4", "nf4_double", "int4_g32", "int4_g32_asym", "int8_channel", "ternary"])
def test_a_block_of_zeros_is_zero(name):
    """Alone, with the smallest subnormal in it, and beside a large block."""
    w = np.zeros((4, 64), np.float32)
    w[1, 40], w[2, :32], w[3] = 1e-45, 448.0, np.linspace(-1, 1, 64)
    tensor = tw.schemes.get(name).quantize(w)
    real = tensor.dequantize()
    assert np.isfinite(real).all()
    assert not real[0].any()
    assert np.abs(real[1]).max() <= 2e-38
    if tensor.scheme.block == 32:
        assert not real[2, 32:].any()
        assert real[2, 0] != 0


LARGEST = {
    "mxfp8_e4m3": (448, 8),
    "mxfp8_e5m2": (57344, 15),
    "mxfp4": (6, 2),
    "mxfp6_e2m3": (7.5, 2),
    "mxfp6_e3m2": (28, 4),
}


@pytest.mark.parametrize("name", LARGEST)
@pytest.mark.parametrize("mode", ["floor", "ceil", "even", "rceil"])
def test_the_scale_of_a_block_is_rounded_as_its_scheme_says(name, mode):
    """The same block gives 896 or 960: 957 fits a scale of 2 only where what is too large is cut."""
    scheme = tw.schemes.get(name if mode == "floor" else f"{name}_{mode}")
    largest, power = LARGEST[name]
    for factor in (1.0, 1.07, 1.2, 1.49, 1.5, 1.76, 1.99, 2.0, 2.14, 3.9):
        for rest in (0.0, 10 / 448):
            block = np.full((1, 32), rest * largest, np.float32)
            block[0, 5] = np.float32(factor * largest)
            found = scheme.quantize(block)
            amax = np.float64(block.max())
            exponents = {
                "floor": np.floor(np.log2(amax)) - power,
                "ceil": np.ceil(np.log2(amax)) - power,
                "rceil": np.ceil(np.log2(np.float32(amax / largest))),
            }
            scale = float(np.asarray(found.params["scale"]).astype(np.float64).reshape(-1)[0])
            if mode in exponents:
                assert scale == 2.0 ** exponents[mode], factor
            assert np.abs(found.dequantize()).max() <= largest * scale  # cut, never turned into NaN or infinity
            if mode == "rceil":
                assert amax <= largest * scale


def test_957_is_896_or_960():
    block = np.r_[957.0, np.full(31, 10.0)].astype(np.float32)[None]
    assert tw.schemes.get("mxfp8_e4m3").quantize(block).dequantize()[0, 0] == 896
    assert tw.schemes.get("mxfp8_e4m3_rceil").quantize(block).dequantize()[0, 0] == 960
    small = np.r_[7.9, np.zeros(31)].astype(np.float32)[None]
    assert tw.schemes.get("mxfp4").quantize(small).dequantize()[0, 0] == 6


def test_four_bit_floats_tie_to_even():
    block = np.r_[4.0, 5.0, 2.5, 3.5, 0.25, 0.75, np.zeros(26)].astype(np.float32)[None]
    assert tw.schemes.get("mxfp4").quantize(block).dequantize()[0, :6].tolist() == [4, 4, 2, 4, 0, 1]
