"""Schemes: the compiled steps give the bits of the reference, over blocks, storages, codes and hard data."""

import ml_dtypes
import numpy as np
import pytest

from tilework.kernels.minifloat import e8m0_bits
from tilework.kernels.reference import schemes as reference
from tilework.kernels.schemes.definition import Definition as Scheme
from tilework.kernels.schemes.packing import pack, unpack
from tilework.kernels.schemes.probe import probe
from tilework.kernels.schemes.shipped import definition, names
from tilework.kernels.schemes.steps import SchemeDecode, SchemeEncode, SchemeFit, SchemeQuantize
from tilework.kernels.schemes.storage import Table
from tilework.primitives import dtypes
from tilework.primitives.errors import ArgumentError, CaptureError, ShapeMismatch

BLOCKS = [1, 7, 16, 48, 100, 128, "row", "tensor", (13, 37), (8, 64)]


def minmax(x):
    lo = hi = x[0]
    for v in x:
        lo = min(lo, v)
        if hi < v:
            hi = v
    return ((hi - lo) / 7.0 if hi > lo else np.float32(1), lo)


def to_code(x, scale, lo):
    return min(max(np.rint((x - lo) / scale), 0.0), 7.0)


def to_weight(q, scale, lo):
    return q * scale + lo


INT3 = Scheme("three bits", 3, 32, {"scale": "f32", "lo": "f16"}, minmax, to_code, to_weight)


def hard(rows=27, columns=301, seed=0, size=1.0):
    """Weights with ties, zeros of both signs, subnormals, infinities and NaN."""
    rng = np.random.default_rng(seed)
    w = rng.standard_normal((rows, columns)).astype(np.float32) * np.float32(size)
    special = np.array([0.0, -0.0, 1e-42, -1e-45, np.inf, -np.inf, np.nan, 3.4e38], np.float32)
    w[1] = rng.integers(-40, 41, columns) / np.float32(8)
    w[2] = rng.choice(special[:2], columns)
    w[3] = rng.choice(special[2:4], columns)
    w[4, rng.integers(0, columns, 9)] = rng.choice(special, 9)
    w[5] = rng.choice(special, columns)
    w[6] = -np.abs(w[6])
    w[6, -10:] = rng.choice(special[:2], 10)
    w[7] = np.abs(w[7])
    w[7, -10:] = rng.choice(special[:2], 10)
    w[8] = -np.inf
    w[9, 0] = np.nan
    return w


def same_bits(found, wanted):
    """The same bits, whatever the NaN."""
    assert found.dtype == wanted.dtype
    assert found.shape == wanted.shape
    if found.dtype.kind in "iu":
        np.testing.assert_array_equal(found, wanted)
        return
    word = f"u{found.dtype.itemsize}"
    nan = np.isnan(found.astype(np.float32)) & np.isnan(wanted.astype(np.float32))
    np.testing.assert_array_equal(np.where(nan, 0, found.view(word)), np.where(nan, 0, wanted.view(word)))


def poisoned(shape, dtype):
    return np.frombuffer(np.full(int(np.prod(shape)) * dtype.itemsize, 0x5A, np.uint8), dtype).reshape(shape).copy()


@pytest.fixture
def run_step():
    """Run a step's compiled tile over its rows in pieces, over poisoned outputs; the kernel's last operands are written."""
    from tilework.executors.tiles import _ENTRY, _NO_BASES
    from tilework.kernels import factory, forge
    from tilework.kernels.entry import OperandType, bits_view

    def run(kernel, *operands, extent, cut=5):
        names = tuple(dtypes.get(o.dtype).name for o in operands)
        built = factory.get(kernel.name, "cpu", kernel=kernel, dtypes=names, ranks=tuple(o.ndim for o in operands))
        if isinstance(built, factory.Whole):
            built.fn(*operands)
            return
        params = built.params(*operands)
        types = tuple(OperandType(n, o.ndim) for n, o in zip(names, operands, strict=True))
        entry = _ENTRY(forge.entry(built.tile, 1, types, len(params)).address)
        views = [bits_view(o) for o in operands]
        words = [w for v in views for w in (0, v.__array_interface__["data"][0], *v.shape, *v.strides)]
        block = np.array([*words, *params], np.int64)
        for lo in range(0, extent, cut):
            bounds = np.array([lo, min(lo + cut, extent)], np.int64)
            assert entry(_NO_BASES.ctypes.data, block.ctypes.data, bounds.ctypes.data) == 0

    return run


def agree(scheme, w, run_step):
    rows, columns = w.shape
    params = reference.fit(scheme, w)
    codes = reference.encode(scheme, w, params)
    weights = reference.decode(scheme, codes, params, columns)
    fitted = [poisoned(p.shape, p.dtype) for p in params]
    if params:
        extent = rows if scheme.edges[0] == 1 else params[0].shape[0]
        run_step(SchemeFit(scheme), w, *fitted, extent=extent)
        for found, wanted in zip(fitted, params, strict=True):
            same_bits(found, wanted)
    found = poisoned(codes.shape, codes.dtype)
    run_step(SchemeEncode(scheme), w, *params, found, extent=rows)
    np.testing.assert_array_equal(found, codes)
    if params and scheme.edges[0] == 1:
        fitted, found = [poisoned(p.shape, p.dtype) for p in params], poisoned(codes.shape, codes.dtype)
        run_step(SchemeQuantize(scheme), w, *fitted, found, extent=rows)
        np.testing.assert_array_equal(found, codes)
        for one, wanted in zip(fitted, params, strict=True):
            same_bits(one, wanted)
    out = poisoned(w.shape, w.dtype)
    run_step(SchemeDecode(scheme, columns), codes, *params, out, extent=rows)
    same_bits(out, weights)


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_compiled_steps_equal_the_reference_for_every_block(block, run_step):
    agree(INT3.replace(block=block), hard(), run_step)


@pytest.mark.parametrize("columns", [1, 2, 9, 31, 33, 63, 65])
def test_compiled_steps_equal_the_reference_for_ragged_rows(columns, run_step):
    agree(INT3.replace(block=48), hard(columns=max(columns, 160))[:, :columns].copy(), run_step)


def absmax(x):
    m = np.float32(0)
    for v in x:
        m = max(m, abs(v))
    return (m,)


def fraction(x, m):
    return np.rint(x / m * 100.0)


def of_fraction(q, m):
    return q * m / 100.0


@pytest.mark.parametrize("dtype", ["f16", "bf16", "e8m0", "e4m3", "e5m2", "u8", "s16", "s32"])
def test_parameters_are_rounded_as_they_are_stored(dtype, run_step):
    scheme = Scheme("stored", 8, 16, {"m": dtype}, absmax, fraction, of_fraction, signed=True)
    agree(scheme, hard(size=100.0), run_step)


def low_bits(x):
    return np.rint(x * 3.0)


def high_bits(q):
    return q / 3.0


@pytest.mark.parametrize(
    ("bits", "signed"),
    [(1, False), (2, True), (3, False), (4, True), (5, False), (6, True), (7, False), (8, True), (16, True)],
)
def test_codes_of_every_width_saturate_and_pack(bits, signed, run_step):
    scheme = Scheme("wide", bits, "row", {}, None, low_bits, high_bits, signed=signed)
    agree(scheme, hard(rows=12, columns=75, size=2**bits / 10), run_step)


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_packing_is_that_of_the_data_types(bits):
    codes = np.random.default_rng(0).integers(0, 1 << bits, (5, 13))
    packed = pack(codes, bits)
    wanted = (
        codes if bits == 8 else dtypes.pack(codes, f"u{bits}") if bits > 1 else np.packbits(codes, 1, bitorder="little")
    )
    np.testing.assert_array_equal(packed, wanted)


@pytest.mark.parametrize("bits", [1, 3, 4, 5, 7, 8, 16])
def test_unpack_undoes_pack(bits):
    codes = np.random.default_rng(bits).integers(-(1 << (bits - 1)), 1 << (bits - 1), (3, 21))
    np.testing.assert_array_equal(unpack(pack(codes, bits), bits, 21, signed=True), codes)
    with pytest.raises(ShapeMismatch, match="21 codes"):
        unpack(pack(codes, bits)[:, 1:], bits, 21)


def levels(x):
    table = np.zeros(4, np.float32)
    lo = hi = x[0]
    for v in x:
        lo, hi = min(lo, v), max(hi, v)
    for i in range(4):
        table[i] = lo + (hi - lo) * i / 3.0
    return (table,)


def nearest(x, table):
    best = 0
    for i in range(len(table)):
        if abs(x - table[i]) < abs(x - table[best]):
            best = i
    return best


def entry(q, table):
    return table[q]


@pytest.mark.parametrize("block", [50, "tensor", (4, 30)], ids=str)
def test_a_learned_table_is_a_parameter(block, run_step):
    agree(Scheme("learned", 2, block, {"table": Table(4, "bf16")}, levels, nearest, entry), hard(12, 130), run_step)


def ladder(x):
    table = np.zeros(4, np.float32)
    for i in range(4):
        table[i] = x[0] * i
    return table


def test_a_lone_table_needs_no_tuple_around_it():
    from tilework import Scheme as Public

    scheme = Public("ladder", 2, "row", {"table": Table(4)}, ladder, nearest, entry)
    w = np.array([[1, 2.2, -1, 4], [-2, -4, -5, 9]], np.float32)
    np.testing.assert_array_equal(scheme.fit_params(w)["table"][:, 0], [[0, 1, 2, 3], [0, -2, -4, -6]])
    np.testing.assert_array_equal(scheme.fake_quantize(w), [[1, 2, 0, 3], [-2, -4, -4, 0]])


def test_a_table_of_another_size_is_an_error(run_step):
    from tilework import Scheme as Public
    from tilework.primitives.errors import CaptureError as Wrong

    scheme = Public("learned", 2, "row", {"table": Table(5)}, levels, nearest, entry)
    with pytest.raises(Wrong, match="another size"):
        scheme.quantize(hard(10, 40))


PAIRS = np.array([[0, 0], [1, 0], [0, 1], [1, 1], [-1, 0], [0, -1], [-1, -1], [1, -1]], np.float32)


def pair_codes(x, codes, m):
    for i in range(len(codes)):
        best, least = 0, np.float32(3.4e38)
        for k in range(8):
            a = x[2 * i] / m - PAIRS[k, 0]
            b = (x[2 * i + 1] if 2 * i + 1 < len(x) else np.float32(0)) / m - PAIRS[k, 1]
            if a * a + b * b < least:
                best, least = k, a * a + b * b
        codes[i] = best


def pair_weights(codes, x, m):
    for i in range(len(x)):
        x[i] = PAIRS[codes[i // 2], i % 2] * m


@pytest.mark.parametrize("block", [32, "row", (3, 34)], ids=str)
def test_a_code_may_stand_for_several_weights(block, run_step):
    scheme = Scheme(
        "pairs", 3, block, {"m": "f32"}, absmax, vector=2, encode_block=pair_codes, decode_block=pair_weights
    )
    agree(scheme, hard(12, 101), run_step)


def dithered(x, index):
    return np.floor(x * 4.0 + ((index * 7919) & 1023) / 1024.0)


def undithered(q, index):
    return (q - ((index * 7919) & 1023) / 1024.0) / 4.0


def test_functions_may_use_the_position_of_a_weight(run_step):
    scheme = Scheme("dither", 8, 40, {}, None, dithered, undithered, signed=True)
    agree(scheme, hard(12, 101), run_step)
    assert probe(scheme).kind == "other"


@pytest.mark.parametrize("name", ["int4_g32_asym", "mxfp4", "nf4", "ternary", "int8_tensor"])
def test_shipped_schemes_equal_the_reference(name, run_step):
    agree(definition(name), hard(), run_step)


def test_mxfp4_rounds_as_ml_dtypes_does():
    scheme = definition("mxfp4")
    levels = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
    x = np.concatenate([levels, (levels[1:] + levels[:-1]) / 2, np.linspace(0, 6.5, 101, dtype=np.float32)])
    x = np.concatenate([x, -x, [np.float32(7)]]).astype(np.float32)
    codes = reference.encode_codes(scheme, x[None], [np.ones((1, 1 + x.size // 32), ml_dtypes.float8_e8m0fnu)])
    wanted = x.astype(ml_dtypes.float4_e2m1fn).view(np.uint8)
    magnitude = np.array([c & 7 for c in codes[0]])
    np.testing.assert_array_equal(magnitude, wanted & 7)


def test_e8m0_equals_ml_dtypes_but_for_zero():
    bits = np.random.default_rng(0).integers(0, 1 << 32, 200_000, dtype=np.uint64).astype(np.uint32)
    exponents = np.arange(512, dtype=np.uint32) << 23
    x = np.concatenate([bits, *(exponents + d for d in (0, 1, 0x3FFFFF, 0x400000, 0x400001))]).astype(np.uint32)
    x = x.view(np.float32)
    x = x[x != 0]
    with np.errstate(all="ignore"):
        wanted = x.astype(ml_dtypes.float8_e8m0fnu).view(np.uint8)
    np.testing.assert_array_equal(e8m0_bits(x), wanted)
    assert e8m0_bits(np.float32(0)) == 0


@pytest.mark.parametrize(
    ("name", "kind", "constant"),
    [
        ("int4_g32", "affine", 0),
        ("int4_g32_asym", "affine", 0),
        ("nf4", "table", 0),
        ("mxfp4", "table", 0),
        ("scales", "offset", 0),
    ],
)
def test_probing_finds_what_decode_does(name, kind, constant):
    scheme = INT3 if name == "scales" else definition(name)
    assert probe(scheme).kind == kind
    assert probe(scheme).constant == constant


def shifted(q, m):
    return (q - 8) * m


def squared(q, m):
    return q * m * m


def test_probing_finds_a_constant_zero_point_and_what_is_no_scale():
    found = probe(Scheme("shifted", 4, 32, {"m": "f32"}, absmax, fraction, shifted))
    assert (found.kind, found.constant) == ("affine", 8)
    assert probe(Scheme("squared", 4, 32, {"m": "f32"}, absmax, fraction, squared)).kind == "other"


def two(x):
    return x[0], x[0]


def test_errors_say_what_is_asked_for():
    def scheme(**changes):
        return Scheme(**{**given, **changes})

    given = dict(name="s", bits=4, block=32, params={"m": "f32"}, fit=absmax, encode=fraction, decode=of_fraction)
    with pytest.raises(ArgumentError, match=r"codes of 9 bits; 1 to 8 and 16"):
        scheme(bits=9)
    with pytest.raises(ArgumentError, match=r'block 0; "tensor", "row"'):
        scheme(block=0)
    with pytest.raises(ArgumentError, match=r"'m' is stored as 'f64'; .*f32, f16|stored as f64"):
        scheme(params={"m": "f64"})
    with pytest.raises(ArgumentError, match=r"need fit"):
        scheme(fit=None)
    with pytest.raises(ArgumentError, match=r"encode or encode_block, one of them"):
        scheme(encode=None)
    with pytest.raises(ArgumentError, match=r"need encode_block and decode_block"):
        scheme(vector=2)
    with pytest.raises(ArgumentError, match=r"has no blocks; it has name"):
        scheme().replace(blocks=3)
    with pytest.raises(CaptureError, match=r"scheme 's', fit: two .*returns 2 values.*so 1 are needed"):
        _ = scheme(fit=two).captured_fit
    with pytest.raises(CaptureError, match=r"encode: to_code .*takes x, scale, lo; encode\(x, m\) is needed"):
        _ = scheme(encode=to_code).captured_encode
    with pytest.raises(CaptureError, match=r"dict"):
        _ = scheme(encode=bad).captured_encode


LOOKUP = {"a": 1.0}


def bad(x, m):
    return x * LOOKUP["a"]


def test_shipped_names_are_those_that_are_documented():
    wanted = {
        "int8_tensor",
        "int8_channel",
        "int4_g32",
        "int4_g64",
        "int4_g128",
        "int4_g128_asym",
        "nf4",
        "nf4_double",
        "mxfp4",
    }
    assert wanted <= set(names())
    assert not definition("int4_g128").stored[1:], "symmetric: a scale alone"
