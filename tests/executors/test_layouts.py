"""Checkpoints of other libraries: their packed tensors in and out, against packing written out here."""

import numpy as np
import pytest

import tilework as tw
from tilework.primitives.errors import ShapeMismatch, Unsupported

layouts = tw.schemes.layouts
RNG = np.random.default_rng(0)


def pack_words(codes, bits):
    """int32 words of codes (rows, n), one word after another, lowest bits first: written out number by number."""
    per = 32 // bits
    words = np.zeros((codes.shape[0], codes.shape[1] // per), np.uint32)
    for i in range(per):
        words |= (codes[:, i::per].astype(np.uint32) & ((1 << bits) - 1)) << np.uint32(i * bits)
    return words.view(np.int32)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("form", ["gptq", "gptq_v2"])
def test_gptq(bits, form):
    n, k, group = 64, 96, 32
    codes = RNG.integers(0, 1 << bits, (n, k))
    zero = RNG.integers(1, 1 << bits, (n, 3))
    scale = RNG.random((n, 3)).astype(np.float16)
    given = {
        "qweight": pack_words(codes, bits).T,
        "qzeros": pack_words((zero - (form == "gptq")).T, bits),
        "scales": scale.T,
        "g_idx": np.arange(k) // group,
    }
    q = layouts.from_gptq(**given, bits=bits, checkpoint_format=form)
    wanted = (codes - np.repeat(zero, group, 1)).astype(np.float32) * np.repeat(scale, group, 1).astype(np.float32)
    np.testing.assert_array_equal(q.dequantize(), wanted)
    back = layouts.to_gptq(q, form)
    for name, array in given.items():
        np.testing.assert_array_equal(back[name], array)
    with pytest.raises(Unsupported, match=r"desc_act"):
        layouts.from_gptq(**{**given, "g_idx": np.arange(k) % 3}, bits=bits, checkpoint_format=form)


def test_awq_has_an_order_of_its_own():
    n, k, group = 16, 64, 32
    codes, zero = RNG.integers(0, 16, (n, k)), RNG.integers(0, 16, (n, 2))
    scale = RNG.random((n, 2)).astype(np.float16)

    def words(columns):
        found = np.zeros((columns.shape[0], columns.shape[1] // 8), np.uint32)
        for i, column in enumerate([0, 2, 4, 6, 1, 3, 5, 7]):
            found |= columns[:, column::8].astype(np.uint32) << np.uint32(4 * i)
        return found.view(np.int32)

    given = {"qweight": words(codes.T), "qzeros": words(zero.T), "scales": scale.T}
    q = layouts.from_awq(**given)
    wanted = (codes - np.repeat(zero, group, 1)).astype(np.float32) * np.repeat(scale, group, 1).astype(np.float32)
    np.testing.assert_array_equal(q.dequantize(), wanted)
    for name, array in layouts.to_awq(q).items():
        np.testing.assert_array_equal(array, given[name])
    x = RNG.standard_normal((3, k)).astype(np.float32)
    np.testing.assert_array_equal(q.matmul(x), tw.eager.gemm(x, np.ascontiguousarray(wanted.T)))


def test_compressed_tensors():
    n, k = 16, 64
    codes, zero = RNG.integers(-8, 8, (n, k)), RNG.integers(-8, 8, (n, 2))
    scale = RNG.random((n, 2)).astype(np.float32)
    packed, shape = pack_words(codes + 8, 4), np.array([n, k])
    q = layouts.from_compressed_tensors(packed, scale, shape)
    np.testing.assert_array_equal(q.dequantize(), codes.astype(np.float32) * np.repeat(scale, 32, 1))
    back = layouts.to_compressed_tensors(q)
    assert set(back) == {"weight_packed", "weight_scale", "weight_shape"}
    np.testing.assert_array_equal(back["weight_packed"], packed)
    zeros = pack_words((zero + 8).T, 4).T
    q = layouts.from_compressed_tensors(packed, scale, shape, zeros)
    wanted = (codes - np.repeat(zero, 32, 1)).astype(np.float32) * np.repeat(scale, 32, 1)
    np.testing.assert_array_equal(q.dequantize(), wanted)
    np.testing.assert_array_equal(layouts.to_compressed_tensors(q)["weight_zero_point"], zeros)


def test_bitsandbytes_keeps_the_first_weight_in_the_high_half():
    codes = RNG.integers(0, 16, (4, 128))
    absmax = RNG.random(8).astype(np.float32)
    packed = (codes.reshape(-1)[::2] << 4 | codes.reshape(-1)[1::2]).astype(np.uint8).reshape(-1, 1)
    q = layouts.from_bitsandbytes(packed, absmax, (4, 128))
    np.testing.assert_array_equal(q.integer_codes(), codes)
    back = layouts.to_bitsandbytes(q)
    np.testing.assert_array_equal(back["packed"], packed)
    np.testing.assert_array_equal(back["absmax"], absmax)
    table = np.linspace(-1, 1, 256).astype(np.float32)
    nested = layouts.from_bitsandbytes(
        packed,
        np.arange(8, dtype=np.uint8),
        (4, 128),
        nested_absmax=np.array([2.0], np.float32),
        nested_quant_map=table,
        nested_offset=0.5,
    )
    np.testing.assert_array_equal(nested.params["absmax"].reshape(-1), table[:8] * np.float32(2) + np.float32(0.5))
    with pytest.raises(Unsupported, match=r"run from one row of 100 into the next"):
        layouts.from_bitsandbytes(packed, absmax, (4, 100))
    with pytest.raises(ShapeMismatch, match=r"256 bytes and 8 scales"):
        layouts.from_bitsandbytes(packed, absmax, (8, 128))
