"""gemm: exact integers with zero points, and float32 in its written order."""

from fractions import Fraction

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from tilework.kernels.gemm import Gemm
from tilework.kernels.reference.gemm import gemm_f32, gemm_int
from tilework.primitives import dtypes
from tilework.primitives.errors import DTypeMismatch, LayoutError

PAIRS = [("u8", "s8"), ("s8", "s8"), ("u8", "u8"), ("s8", "u8")]
ROW, COLUMN = ((0, 1),), ((1, 1),)
NUMPY = {"u8": np.uint8, "s8": np.int8}


def codes(rng, dtype, shape):
    info = np.iinfo(NUMPY[dtype])
    return rng.integers(info.min, info.max + 1, shape, dtype=NUMPY[dtype])


def exact(a, b, za=0, zb=0):
    return (a.astype(np.int64) - za) @ (b.astype(np.int64) - zb)


def test_two_by_three_worked_by_hand(run):
    a = np.array([[1, 2, 3], [250, 0, 4]], np.uint8)
    b = np.array([[1, -1], [10, 0], [-100, 127]], np.int8)
    assert run(Gemm("u8", "s8"), a, b).tolist() == [[-279, 380], [-150, 258]]


def test_both_zero_points_worked_by_hand(run):
    a = np.array([[238, 115, 94], [245, 111, 102], [158, 225, 48]], np.uint8)
    b = np.array([[25, 36, 125], [42, -123, 76], [-81, -86, 35]], np.int8)
    kernel = Gemm("u8", "s8", a_zero_point=(), b_zero_point=())
    right = [[12100, 1951, 40214], [11745, 2293, 41351], [18030, -10919, 36548]]  # b - zp needs 9 bits
    assert run(kernel, a, b, np.uint8(42), np.int8(-26)).tolist() == right


@pytest.mark.parametrize(("a_dtype", "b_dtype"), PAIRS)
def test_pairs_of_products_do_not_saturate_at_16_bits(run, a_dtype, b_dtype):
    low, high = np.iinfo(NUMPY[b_dtype]).min, np.iinfo(NUMPY[b_dtype]).max
    largest = np.iinfo(NUMPY[a_dtype]).max
    for edge in (low, high):
        a, b = np.full((3, 64), largest, NUMPY[a_dtype]), np.full((64, 5), edge, NUMPY[b_dtype])
        assert_array_equal(
            run(Gemm(a_dtype, b_dtype), a, b), np.full((3, 5), 64 * largest * edge, np.int32), strict=True
        )
    a, b = np.array([[211, 171]], np.uint8), np.array([[71], [107]], np.int8)
    assert run(Gemm("u8", "s8"), a, b).tolist() == [[33278]]


def test_sums_beyond_float32_are_exact(run):
    a, b = np.full((1, 2049), 127, np.int8), np.full((2049, 1), 127, np.int8)
    assert run(Gemm("s8", "s8"), a, b)[0, 0] == 33048321


def test_sums_wrap_modulo_2_32(run):
    a, b = np.full((1, 40000), 255, np.uint8), np.full((40000, 1), 255, np.uint8)
    assert run(Gemm("u8", "u8"), a, b)[0, 0] == 40000 * 255 * 255 - 2**32


@pytest.mark.parametrize(("a_dtype", "b_dtype"), PAIRS)
@pytest.mark.parametrize("m_k_n", [(1, 1, 1), (2, 3, 4), (3, 7, 3), (4, 64, 7), (7, 5, 4), (1, 130, 9), (8, 130, 1)])
def test_every_type_is_exact_around_tile_edges(same, a_dtype, b_dtype, m_k_n):
    m, k, n = m_k_n
    rng = np.random.default_rng(0)
    a, b = codes(rng, a_dtype, (m, k)), codes(rng, b_dtype, (k, n))
    assert_array_equal(same(Gemm(a_dtype, b_dtype), a, b), exact(a, b).astype(np.int32), strict=True)


ZERO_POINTS = [
    ((), None),
    (None, ()),
    ((), ()),
    (ROW, COLUMN),
    (((0, 1), None), (None, (1, 1))),
    (ROW, ()),
    ((), COLUMN),
]


@pytest.mark.parametrize(("a_dtype", "b_dtype"), [("u8", "s8"), ("s8", "u8")])
@pytest.mark.parametrize(("a_at", "b_at"), ZERO_POINTS)
def test_zero_points_of_every_granularity(same, a_dtype, b_dtype, a_at, b_at):
    rng = np.random.default_rng(1)
    m, k, n = 4, 9, 5
    a, b = codes(rng, a_dtype, (m, k)), codes(rng, b_dtype, (k, n))
    shapes = {None: None, (): (), ROW: (m,), ((0, 1), None): (m, 1), COLUMN: (n,), (None, (1, 1)): (1, n)}
    za, zb = (at if at is None else codes(rng, d, shapes[at]) for at, d in ((a_at, a_dtype), (b_at, b_dtype)))
    operands = [np.asarray(z) for z in (za, zb) if z is not None]
    found = same(Gemm(a_dtype, b_dtype, a_zero_point=a_at, b_zero_point=b_at), a, b, *operands)
    za64 = 0 if za is None else np.asarray(za, np.int64).reshape((-1, 1) if np.ndim(za) else ())
    zb64 = 0 if zb is None else np.asarray(zb, np.int64)
    assert_array_equal(found, exact(a, b, za64, zb64).astype(np.int32), strict=True)


@pytest.mark.parametrize("dtypes", [("s8", "s8"), ("f32", "f32")], ids=["s8", "f32"])
def test_zero_sized_dimensions(run, dtypes):
    a_type, b_type = ({"s8": np.int8, "f32": np.float32}[d] for d in dtypes)
    assert not run(Gemm(*dtypes), np.zeros((3, 0), a_type), np.zeros((0, 4), b_type)).any()
    assert run(Gemm(*dtypes), np.zeros((0, 5), a_type), np.zeros((5, 4), b_type)).shape == (0, 4)
    assert run(Gemm(*dtypes), np.zeros((2, 5), a_type), np.zeros((5, 0), b_type)).shape == (2, 0)


def views(base):
    yield base[::2, :]
    yield base[:12, ::-1]
    yield base.T[:, :12].T
    yield np.asfortranarray(base[:12])
    yield np.broadcast_to(base[:1, :], (12, 10))
    yield np.broadcast_to(base[0, 0], (12, 10))


@pytest.mark.parametrize("m", [1, 6])
def test_a_view_gives_what_its_copy_gives(same, m):
    base = (np.arange(24 * 10).reshape(24, 10) % 256 - 128).astype(np.int8)
    a = (np.arange(m * 12).reshape(m, 12) % 11 - 5).astype(np.int8)
    for view in views(base):
        assert_array_equal(same(Gemm("s8", "s8"), a, view), exact(a, view).astype(np.int32), strict=True)
        assert_array_equal(same(Gemm("s8", "s8"), view.T, a.T), exact(view.T, a.T).astype(np.int32), strict=True)


def test_a_strided_output_gets_its_elements_and_no_others(run):
    rng = np.random.default_rng(2)
    a, b = codes(rng, "u8", (4, 6)), codes(rng, "s8", (6, 5))
    memory = np.full((8, 15), -7, np.int32)
    out = memory[::-2, 1:11:2]
    run(Gemm("u8", "s8"), a, b, out=out)
    assert_array_equal(out, exact(a, b))
    out[...] = -7
    assert (memory == -7).all()


@pytest.mark.parametrize("real", [False, True], ids=["s8", "f32"])
def test_leading_dimensions_are_broadcast(same, real):
    rng = np.random.default_rng(3)
    kind = "f32" if real else "s8"
    a, b = codes(rng, "s8", (2, 1, 4, 6)), codes(rng, "s8", (3, 6, 5))
    if real:
        a, b = a.astype(np.float32), b.astype(np.float32)
    kernel = Gemm(kind, kind, 2, (0, None), (1,))
    found = same(kernel, a, b)
    assert found.shape == (2, 3, 4, 5)
    assert_array_equal(found, exact(a, b))


def test_zero_points_may_follow_the_leading_dimensions(same):
    rng = np.random.default_rng(4)
    a, b = codes(rng, "u8", (2, 4, 6)), codes(rng, "u8", (2, 6, 5))
    za, zb = codes(rng, "u8", (2, 4, 1)), codes(rng, "u8", (1, 5))
    kernel = Gemm("u8", "u8", 1, (0,), (0,), ((0, 1), (1, 1), None), (None, (2, 1)))
    assert_array_equal(same(kernel, a, b, za, zb), exact(a, b, za.astype(int), zb.astype(int)))


def test_a_row_does_not_depend_on_its_neighbours(run):
    a = (np.arange(8 * 130).reshape(8, 130) % 255 - 127).astype(np.int8)
    b = (np.arange(130 * 9).reshape(130, 9) % 253 - 126).astype(np.int8)
    whole = run(Gemm("s8", "s8"), a, b)
    for i in range(8):
        assert_array_equal(run(Gemm("s8", "s8"), a[i : i + 1], b)[0], whole[i])
        assert_array_equal(run(Gemm("s8", "s8"), a[: i + 1], b), whole[: i + 1])


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 31, 33])
def test_no_column_is_left_unwritten(run, n):
    a = np.ones((1, 24), np.int8)
    b = np.tile((np.arange(n) % 7 - 3).astype(np.int8), (24, 1))
    assert run(Gemm("s8", "s8"), a, b).tolist() == [(24 * (np.arange(n) % 7 - 3)).tolist()]


def test_float_sums_are_one_chain_of_fused_multiply_adds(same):
    a = np.array([[1 + 2.0**-12, 2.0**-24, -1]], np.float32)
    b = np.array([[1 + 2.0**-12], [1], [1]], np.float32)
    chain = Fraction(0)
    for x, y in zip(a[0], b[:, 0], strict=True):
        chain = Fraction(float(np.float32(float(Fraction(float(x)) * Fraction(float(y)) + chain))))
    assert same(Gemm("f32", "f32"), a, b)[0, 0] == np.float32(float(chain))


@pytest.mark.parametrize("m_k_n", [(1, 1, 1), (4, 33, 5), (3, 64, 4)])
def test_float_tiles_have_the_bits_of_the_reference(same, m_k_n):
    m, k, n = m_k_n
    rng = np.random.default_rng(5)
    a, b = rng.standard_normal((m, k)).astype(np.float32), rng.standard_normal((k, n)).astype(np.float32)
    found = same(Gemm("f32", "f32"), a, b)
    bound = k * np.finfo(np.float32).eps * (abs(a).astype(float) @ abs(b).astype(float))  # any order of a sum
    assert (abs(found - a.astype(float) @ b.astype(float)) <= bound).all()


@pytest.mark.parametrize("types", [("bf16", "bf16"), ("f16", "f32"), ("f32", "bf16")])
def test_narrow_floats_are_widened_exactly(same, types):
    rng = np.random.default_rng(6)
    a, b = (rng.standard_normal(shape) for shape in ((4, 33), (33, 5)))
    a, b = (x.astype(dtypes.get(kind).numpy) for x, kind in zip((a, b), types, strict=True))
    found = same(Gemm(*types), a, b)
    assert_array_equal(found, gemm_f32(a.astype(np.float32), b.astype(np.float32)), strict=True)


def test_products_of_int16_wrap_modulo_2_32(same):
    low = np.full((2, 2), -32768, np.int16)
    assert (same(Gemm("s16", "s16"), low, low) == -(2**31)).all()


def test_float_specials_pass_through(same):
    a = np.array([[np.inf, 1], [np.nan, 1], [-0.0, 0.0], [3e38, 3e38]], np.float32)
    b = np.array([[1, 0], [1, 0]], np.float32)
    right = np.array([[np.inf, np.nan], [np.nan, np.nan], [0, 0], [np.inf, 0]], np.float32)
    found = same(Gemm("f32", "f32"), a, b)
    assert_array_equal(found, right, strict=True)
    assert not np.signbit(found[2]).any()


def test_the_reference_refuses_inner_sizes_that_differ():
    for fn, dtype in ((gemm_int, np.int8), (gemm_f32, np.float32)):
        with pytest.raises(ValueError, match="a's columns must equal b's rows"):
            fn(np.zeros((3, 0), dtype), np.zeros((1, 4), dtype))


def test_types_and_zero_points_that_gemm_lacks_are_refused():
    with pytest.raises(DTypeMismatch, match="it has u8, s8, s16, f32, f16, bf16"):
        Gemm("u16", "s8")
    with pytest.raises(DTypeMismatch, match="it has f32, f16, bf16"):
        Gemm("f32", "s8")
    with pytest.raises(LayoutError, match="no zero points"):
        Gemm("f32", "f32", a_zero_point=())
