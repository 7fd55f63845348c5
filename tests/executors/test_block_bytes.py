"""Schemes whose blocks are bytes of a layout of their own: GGUF's types, and one that a user could write."""

import numpy as np
import pytest

import tilework as tw
from tilework.executors.schemes import concatenate, from_parts
from tilework.kernels.reference import scheme_bytes
from tilework.kernels.schemes.grouped import Grouped
from tilework.primitives.errors import ArgumentError, ShapeMismatch, Unsupported


def pair_encode(x, codes):
    m = np.float32(0)
    for v in x:
        m = max(m, abs(v))
    codes[0] = min(int(m * 16.0), 255)
    scale = codes[0] / 16.0
    for i in range(3):
        low = int(np.rint(x[2 * i] / scale * 7.0)) if codes[0] > 0 else 0
        high = int(np.rint(x[2 * i + 1] / scale * 7.0)) if codes[0] > 0 else 0
        codes[1 + i] = (min(max(low, -7), 7) & 15) | ((min(max(high, -7), 7) & 15) << 4)


def pair_split(codes, q, scale):
    scale[0] = codes[0] / 112.0
    for i in range(3):
        q[2 * i] = ((codes[1 + i] & 15) ^ 8) - 8
        q[2 * i + 1] = ((codes[1 + i] >> 4) ^ 8) - 8


MINE = tw.Scheme(
    "six_in_four", 8, 6, {}, block_bytes=4, encode_block=pair_encode, grouped=Grouped(pair_split, 4, 6, signed=True)
)
GGUF = [n for n in tw.schemes.names() if tw.schemes.get(n).block_bytes is not None]


def normal(*shape, seed=0, size=1.0):
    return (np.random.default_rng(seed).standard_normal(shape) * size).astype(np.float32)


@pytest.mark.parametrize("columns", [5, 6, 100])
def test_a_users_layout_agrees_with_plain_python_at_every_width(columns):
    x = normal(9, columns)
    q = MINE.quantize(x)
    assert q.codes.shape == (9, -(-columns // 6) * 4)
    np.testing.assert_array_equal(q.codes, scheme_bytes.encode_bytes(MINE, x))
    np.testing.assert_array_equal(q.dequantize(), scheme_bytes.decode_bytes(MINE, q.codes, columns))
    assert np.abs(q.dequantize() - x).max() < 0.3
    a = normal(3, columns, seed=1)
    np.testing.assert_array_equal(q.matmul(a), tw.eager.gemm(a, np.ascontiguousarray(q.dequantize().T)))


def test_a_users_layout_is_proven_saved_cut_and_joined(tmp_path):
    assert MINE.check(levels=())
    q = MINE.quantize(normal(8, 36))
    np.testing.assert_array_equal(q[2:5, 6:18].dequantize(), q.dequantize()[2:5, 6:18])
    np.testing.assert_array_equal(concatenate([q[:, :12], q[:, 12:]], axis=1).codes, q.codes)
    with pytest.raises(ShapeMismatch, match=r"cut through blocks of 6 columns"):
        q[:, 3:9]
    q.save(tmp_path / "w.npz")
    np.testing.assert_array_equal(tw.QuantizedTensor.load(tmp_path / "w.npz", MINE).codes, q.codes)
    assert q.bits_per_weight == pytest.approx(32 / 6)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"block": "row"}, r"a block of n weights along a row"),
        ({"block_bytes": 0}, r"blocks of 0 bytes"),
        ({"decode_block": pair_split}, r"decode_block or grouped, one of them"),
        ({"block": 8}, r"groups of 6 do not divide blocks of 8"),
        ({"block_bytes": None}, r"block_bytes is needed"),
    ],
)
def test_a_layout_that_does_not_hang_together_is_refused(change, match):
    with pytest.raises(ArgumentError, match=match):
        MINE.replace(**change)


def peer(name):
    gguf = pytest.importorskip("gguf", reason="the package gguf is not installed")
    return gguf.quants, gguf.GGMLQuantizationType[name.removesuffix("_gguf").upper()]


def raw_blocks(scheme, rows, blocks):
    raw = np.random.default_rng(1).integers(0, 256, (rows, blocks * scheme.block_bytes), dtype=np.uint8)
    raw[0] = 0
    raw[-1] = 255
    return raw


def same_bits(found, wanted):
    nan = np.isnan(wanted)
    np.testing.assert_array_equal(np.isnan(found), nan)
    np.testing.assert_array_equal(found[~nan].view(np.uint32), wanted[~nan].view(np.uint32))


def weights_to_encode():
    x = normal(12, 768, size=0.02)
    x[1] = np.round(x[1] * 400) / 8  # ties
    x[2], x[3], x[4], x[5] = 0, 1, -1, 1e-42
    x[6, ::7] = x[6, 0]
    x[7] *= np.exp(normal(768, seed=3) * 4)
    x[8, 5], x[9, 300] = 3e38, -1e-38
    return x


@pytest.mark.parametrize("name", GGUF)
def test_every_gguf_type_in_plain_python_means_what_the_package_does(name):
    quants, kind = peer(name)
    scheme = tw.schemes.get(name)
    raw = raw_blocks(scheme, 4, 2)
    with np.errstate(all="ignore"):
        wanted = quants.dequantize(raw, kind)
    same_bits(scheme_bytes.decode_bytes(scheme, raw, wanted.shape[1]), wanted)
    if scheme.encodes:
        x = weights_to_encode()[:, : scheme.block]
        with np.errstate(all="ignore"):
            wanted = quants.quantize(x, kind)
        np.testing.assert_array_equal(scheme_bytes.encode_bytes(scheme, x), wanted)


# One of each sort: legacy with an offset, a K-quant, a table, a lattice. All types: `tilework bench formats --check`.
@pytest.mark.parametrize("name", ["q5_1", "q4_k", "mxfp4_gguf", "iq3_s"])
def test_compiled_gguf_types_have_the_bits_of_the_package(name):
    quants, kind = peer(name)
    scheme = tw.schemes.get(name)
    qtype = kind.name
    raw = raw_blocks(scheme, 5, 3)
    with np.errstate(all="ignore"):
        wanted = quants.dequantize(raw, kind)
    same_bits(tw.gguf.dequantize(raw, qtype), wanted)
    q = tw.gguf.quantized(raw, qtype)
    assert np.shares_memory(q.codes, raw), "the bytes of the file are kept, not copied"
    part = from_parts(scheme, raw, {}, (5, 2 * scheme.block + scheme.block // 2))
    same_bits(part.dequantize(), np.ascontiguousarray(wanted[:, : part.shape[1]]))
    if scheme.encodes:
        x = weights_to_encode()
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(tw.gguf.quantize(x, qtype), quants.quantize(x, kind))


@pytest.mark.parametrize("name", ["q4_k", "mxfp4_gguf"])
def test_gguf_products_are_fused_and_have_the_bits_of_the_decoded_weights(name):
    scheme = tw.schemes.get(name)
    raw = np.random.default_rng(2).integers(0, 60, (21, 512 // scheme.block * scheme.block_bytes), dtype=np.uint8)
    q = from_parts(scheme, raw, {}, (21, 512))
    assert q.linear_weights("f32")[0].kind == scheme.grouped.kind
    a = normal(5, 512)
    np.testing.assert_array_equal(q.matmul(a), tw.eager.gemm(a, np.ascontiguousarray(q.dequantize().T)))


def test_what_only_decodes_says_so():
    with pytest.raises(Unsupported, match=r"Q6_K is only decoded"):
        tw.gguf.quantize(np.zeros((1, 256), np.float32), "Q6_K")
    with pytest.raises(Unsupported, match=r"only decodes"):
        tw.schemes.get("iq3_s").quantize(np.zeros((1, 256), np.float32))
    assert tw.schemes.get("iq3_s").check(levels=())
    assert "decodes only" in repr(tw.schemes.get("iq3_s"))
    assert "encode" not in tw.schemes.get("iq3_s").explain()
