import copy
import pickle

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from tilework.primitives import dtypes
from tilework.primitives.dtypes import ALIASES, DTYPES
from tilework.primitives.errors import DTypeMismatch, QuantizationError, ShapeMismatch

NAMES = (
    "bool u8 s8 u16 s16 u32 s32 u64 s64 f16 bf16 f32 f64 u4 s4 u2 s2 f8e4m3fn f8e5m2 f4e2m1fn e8m0fnu "
    "u4b s4b u2b s2b f8e4m3 f8e3m4 f8e4m3fnuz f8e4m3b11fnuz f8e5m2fnuz f6e2m3fn f6e3m2fn"
).split()
SUB_BYTE = ["u4", "s4", "u2", "s2"]


def test_the_table_has_every_type_once():
    assert sorted(DTYPES) == sorted(NAMES)
    assert all(dtype.name == name for name, dtype in DTYPES.items())


@pytest.mark.parametrize("name", NAMES)
def test_a_type_equals_its_name_and_hashes_like_it(name):
    dtype = dtypes.get(name)
    assert dtype == name
    assert name == dtype
    assert dtype != "nothing"
    assert {dtype: 1}[name] == 1
    assert {name: 1}[dtype] == 1
    assert str(dtype) == name
    assert dtypes.get(dtype) is dtype
    assert pickle.loads(pickle.dumps(dtype)) is dtype
    assert copy.deepcopy(dtype) is dtype


@pytest.mark.parametrize("name", [n for n in NAMES if n not in SUB_BYTE and n.removesuffix("b") not in SUB_BYTE])
def test_numpy_types_come_back_as_themselves(name):
    assert dtypes.get(dtypes.get(name).numpy) == name
    assert dtypes.get(name).code == dtypes.get(name).numpy


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("bool", 0, 1),
        ("u8", 0, 255),
        ("s8", -128, 127),
        ("s32", -(2**31), 2**31 - 1),
        ("u64", 0, 2**64 - 1),
        ("u4", 0, 15),
        ("s4", -8, 7),
        ("u2", 0, 3),
        ("s2", -2, 1),
        ("f16", -65504, 65504),
        ("bf16", -(2.0**127) * (2 - 2.0**-7), 2.0**127 * (2 - 2.0**-7)),
        ("f8e4m3fn", -448, 448),
        ("f8e4m3", -240, 240),
        ("f8e3m4", -15.5, 15.5),
        ("f8e5m2", -57344, 57344),
        ("f8e4m3fnuz", -240, 240),
        ("f8e4m3b11fnuz", -30, 30),
        ("f6e2m3fn", -7.5, 7.5),
        ("f6e3m2fn", -28, 28),
        ("f4e2m1fn", -6, 6),
        ("e8m0fnu", 2.0**-127, 2.0**127),
    ],
)
def test_ranges_are_those_of_the_formats(name, low, high):
    assert (dtypes.get(name).min, dtypes.get(name).max) == (low, high)


@pytest.mark.parametrize(("name", "bits"), [("bool", 8), ("u2", 2), ("s4", 4), ("f4e2m1fn", 4), ("f6e2m3fn", 6)])
def test_bits_are_those_of_the_format(name, bits):
    assert dtypes.get(name).bits == bits


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("i8", "s8"),
        ("int8", "s8"),
        ("uint8", "u8"),
        ("i4", "s4"),
        ("int4", "s4"),
        ("i64", "s64"),
        ("f2", "f16"),
        ("f4", "f32"),
        ("float32", "f32"),
        ("half", "f16"),
        ("bfloat16", "bf16"),
        ("e8m0", "e8m0fnu"),
        ("e4m3", "f8e4m3fn"),
        ("fp8_e4m3", "f8e4m3fn"),
        ("e5m2", "f8e5m2"),
        ("float8_e4m3fn", "f8e4m3fn"),
        ("float8_e8m0fnu", "e8m0fnu"),
        ("float4_e2m1fn", "f4e2m1fn"),
        ("float8_e4m3b11fnuz", "f8e4m3b11fnuz"),
        ("<f4", "f32"),
        (np.float32, "f32"),
        (np.int8, "s8"),
        (bool, "bool"),
        (np.dtype("uint16"), "u16"),
        (ml_dtypes.bfloat16, "bf16"),
        (ml_dtypes.int4, "s4"),
        (np.dtype(ml_dtypes.uint2), "u2"),
        (np.longlong, "s64"),
    ],
)
def test_aliases_name_the_same_type(alias, name):
    assert dtypes.get(alias) == name


def test_no_alias_hides_a_name():
    assert not set(ALIASES) & set(DTYPES)
    assert set(ALIASES.values()) <= set(DTYPES)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("unt8", r"no data type 'unt8'; did you mean 'uint8'.*There are bool, u2"),
        ("F32", "did you mean 'f32'"),
        ("zzzzzz", "no data type 'zzzzzz'.*There are bool"),
        ("f8", r"ambiguous: write 'f64' \(8 bytes\) or 'f8e4m3fn'"),
        (None, "a name, a NumPy dtype or a DType; found NoneType"),
        (8, "found int 8"),
        (">f4", r"other byte order.*a\.astype\('<f4'\)"),
        (np.dtype(">i2"), r"other byte order.*a\.astype\('<i2'\)"),
        (np.dtype(">c8"), "other byte order.*complex64 has no data type"),
        (complex, r"complex128: split it into a\.real and a\.imag"),
        (object, "object: convert it"),
        (np.dtype([("x", "f4"), ("y", ">f4")]), r"a record of 'x', 'y': pass one field at a time"),
        (np.dtype("datetime64[s]"), r"a\.view\('int64'\)"),
        (np.dtype("U3"), "text has to become numbers first"),
        (np.dtype("S3"), "text has to become numbers first"),
        (np.longdouble, r"a\.astype\('float64'\)"),
        (dict, "object"),
    ],
)
def test_what_has_no_type_says_what_is_near(asked, message):
    with pytest.raises(DTypeMismatch, match=message):
        dtypes.get(asked)


def test_nibbles_go_low_first_and_extend_their_sign():
    assert_array_equal(dtypes.pack([1, 2, 3, 4], "u4"), np.array([0x21, 0x43], np.uint8), strict=True)
    packed = np.array([0x21, 0x43], np.uint8)
    assert_array_equal(dtypes.unpack(packed, "u4", 4), np.array([1, 2, 3, 4], np.uint8), strict=True)
    packed = np.array([0x8F], np.uint8)
    assert_array_equal(dtypes.unpack(packed, "s4", 2), np.array([-1, -8], np.int8), strict=True)
    assert_array_equal(dtypes.pack([-1, -8], "s4"), packed, strict=True)


def test_crumbs_go_low_first():
    assert_array_equal(dtypes.pack([1, 2, 3, 0, 1], "u2"), np.array([0b00111001, 1], np.uint8), strict=True)
    packed = np.array([0b00111001, 1], np.uint8)
    assert_array_equal(dtypes.unpack(packed, "s2", 5), np.array([1, -2, -1, 0, 1], np.int8), strict=True)


@pytest.mark.parametrize("name", SUB_BYTE)
@pytest.mark.parametrize("shape", [(0,), (1,), (2,), (3,), (4,), (5,), (3, 7), (0, 5), (2, 0), (2, 3, 9)])
def test_packing_and_unpacking_return_every_code(name, shape):
    dtype = dtypes.get(name)
    rng = np.random.default_rng(0)
    codes = rng.integers(dtype.min, dtype.max + 1, shape).astype(dtype.code)
    packed = dtypes.pack(codes, dtype)
    assert packed.shape == (*shape[:-1], dtype.row_nbytes(shape[-1]))
    assert_array_equal(dtypes.unpack(packed, dtype, shape[-1]), codes, strict=True)


@given(st.lists(st.integers(-8, 7), max_size=9), st.sampled_from(["i1", "i2", "i4", "i8"]))
def test_packing_does_not_depend_on_the_integer_it_came_in(codes, width):
    expected = [(a & 15) | (b & 15) << 4 for a, b in zip(codes[::2], [*codes[1::2], 0], strict=False)]
    assert dtypes.pack(np.array(codes, width), "s4").tolist() == expected


def test_packing_works_on_views():
    codes = np.arange(48, dtype=np.uint8).reshape(6, 8) % 16
    for view in (codes.T, codes[::-1, ::2], codes[:, ::-1], np.broadcast_to(codes[:1], (4, 8))):
        packed = dtypes.pack(view, "u4")
        assert_array_equal(packed, dtypes.pack(np.ascontiguousarray(view), "u4"), strict=True)
        assert_array_equal(dtypes.unpack(packed[:, ::1], "u4", view.shape[1]), view, strict=True)


def test_a_million_and_one_codes_pack_without_a_race():
    codes = (np.arange(1_000_001) % 16).astype(np.uint8)
    packed = dtypes.pack(codes, "u4")
    assert packed.size == 500_001
    assert packed[-1] == codes[-1]
    assert_array_equal(packed[:-1], codes[0:-1:2] | codes[1::2] << 4, strict=True)


def test_f4_values_pack_by_their_codes():
    values = np.array([0.5, -6, 1, 0, 3], ml_dtypes.float4_e2m1fn)
    packed = dtypes.pack(values, "f4e2m1fn")
    assert packed.tolist() == [0xF1, 0x02, 0x05]
    assert_array_equal(dtypes.unpack(packed, "f4e2m1fn", 5), values, strict=True)
    assert dtypes.pack([1, 15, 2, 0, 5], "f4e2m1fn").tolist() == packed.tolist()


def test_ml_dtypes_integers_pack_by_value():
    assert dtypes.pack(np.array([-1, -8, 7], ml_dtypes.int4), "s4").tolist() == [0x8F, 0x07]
    assert dtypes.pack(np.array([15, 1], ml_dtypes.uint4), "u4").tolist() == [0x1F]


@pytest.mark.parametrize(
    ("codes", "name", "error", "message"),
    [
        ([0, 16], "u4", QuantizationError, r"code 16 at \(1,\) is outside u4, which holds 0 to 15"),
        ([[0, 1], [-1, 0]], "u4", QuantizationError, r"code -1 at \(1, 0\) is outside u4"),
        ([-9], "s4", QuantizationError, "outside s4, which holds -8 to 7"),
        ([2], "s2", QuantizationError, "outside s2, which holds -2 to 1"),
        ([256], "u4", QuantizationError, "code 256"),
        ([2**64 - 1], "s4", QuantizationError, "outside s4"),
        ([1.0], "u4", DTypeMismatch, "takes integer codes, found float64"),
        ([1], "u8", DTypeMismatch, "u8 takes a whole number of bytes.*u4, s4"),
        (3, "u4", ShapeMismatch, "found a scalar"),
    ],
)
def test_packing_refuses_what_does_not_fit(codes, name, error, message):
    with pytest.raises(error, match=message):
        dtypes.pack(codes, name)


def test_unpacking_refuses_rows_of_another_length():
    with pytest.raises(ShapeMismatch, match=r"5 elements of u4 take 3 bytes a row; found an array of shape \(2,\)"):
        dtypes.unpack(np.zeros(2, np.uint8), "u4", 5)
    with pytest.raises(DTypeMismatch, match="uint8; found int8"):
        dtypes.unpack(np.zeros(2, np.int8), "u4", 4)


def test_e8m0_code_0_is_a_subnormal_and_255_is_nan():
    scales = np.array([0, 1, 127, 254, 255], np.uint8).view(dtypes.get("e8m0").numpy).astype(np.float32)
    assert scales[:4].tolist() == [2.0**-127, 2.0**-126, 1.0, 2.0**127]
    assert np.isnan(scales[4])


@pytest.mark.parametrize(("name", "low", "high"), [("u2b", 0, 3), ("s2b", -2, 1), ("u4b", 0, 15), ("s4b", -8, 7)])
def test_small_integers_in_a_byte_each_keep_their_own_range(name, low, high):
    found = dtypes.get(name)
    assert (found.bits, found.min, found.max, found.packed) == (int(name[1]), low, high, False)
    assert found.numpy.itemsize == 1
