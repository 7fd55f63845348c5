"""Kinds of faults that integer dot products of other libraries had: pairs that saturate, float sums, 8-bit differences."""

import numpy as np
import pytest

import tilework as tw


def product(everywhere, a, b, a_zero=None, b_zero=None):
    return everywhere(lambda x: tw.ops.gemm(x, b, a_zero_point=a_zero, b_zero_point=b_zero), a)


@pytest.mark.parametrize("k", [1, 2, 3, 4, 5, 63, 64, 65])
def test_pairs_of_byte_products_do_not_saturate(everywhere, exact, k):
    """255 * 127 + 255 * 127 does not fit 16 bits; the AVX2 instruction that adds pairs stops at 32767."""
    a, b = np.full((3, k), 255, np.uint8), np.full((k, 5), 127, np.int8)
    b[:, 1], b[:, 2] = -128, np.where(np.arange(k) % 2, 127, -128)
    assert product(everywhere, a, b).tolist() == exact.gemm(a, b).tolist()


def test_a_pair_just_past_sixteen_bits(everywhere):
    a, b = np.array([[211, 171]], np.uint8), np.array([[71], [107]], np.int8)
    assert product(everywhere, a, b).tolist() == [[33278]]


def test_sums_past_the_float32_integers_are_exact(everywhere):
    a, b = np.full((1, 2049), 127, np.int8), np.full((2049, 1), 127, np.int8)
    assert product(everywhere, a, b)[0, 0] == 33048321
    assert product(everywhere, a, -b)[0, 0] == -33048321


@pytest.mark.parametrize("b_zero", [-128, -26, 127, np.array([-26, 127, -128], np.int8)])
def test_operand_less_zero_point_needs_nine_bits(everywhere, exact, b_zero):
    a = np.array([[238, 115, 94], [245, 111, 102], [158, 225, 48]], np.uint8)
    b = np.array([[25, 36, 125], [42, -123, 76], [-81, -86, 35]], np.int8)
    for a_zero in (0, 42, 255):
        assert product(everywhere, a, b, a_zero, b_zero).tolist() == exact.gemm(a, b, a_zero, b_zero).tolist()
    assert product(everywhere, a, b, 42, -26).tolist() == [
        [12100, 1951, 40214],
        [11745, 2293, 41351],
        [18030, -10919, 36548],
    ]


def test_threads_never_share_an_output(exact):
    rng = np.random.default_rng(0)
    a, b = rng.integers(-128, 128, (1, 4096), np.int8), rng.integers(-128, 128, (4096, 64), np.int8)
    pipe = tw.Pipeline("row")
    pipe.output("y", tw.ops.gemm(pipe.input("x", "s8", ("M", 4096)), b))
    plan, right = tw.TilingExecutor(threads=4).compile(pipe), exact.gemm(a, b).astype(np.int32).tobytes()
    assert all(plan.run({"x": a})["y"].tobytes() == right for _ in range(200))


@pytest.mark.parametrize("n", [1, 31, 32, 63, 65, 96])
def test_last_columns_are_written(everywhere, n):
    a, row = np.ones((1, 1024), np.int8), (np.arange(n) % 7 - 3).astype(np.int8)
    assert product(everywhere, a, np.tile(row, (1024, 1))).tolist() == [(1024 * row.astype(np.int64)).tolist()]


@pytest.mark.parametrize(("m", "k", "n"), [(3, 0, 4), (0, 5, 4), (3, 5, 0), (0, 0, 0)])
def test_sizes_of_zero(everywhere, m, k, n):
    a, b = np.ones((m, k), np.uint8), np.ones((k, n), np.int8)
    acc = everywhere(lambda x: tw.ops.gemm(x, b, a_zero_point=7), a)
    assert acc.shape == (m, n)
    assert not acc.any()
    codes = everywhere(
        lambda x: tw.ops.requantize(tw.ops.gemm(x, b, a_zero_point=7), multiplier=0.5, zero_point=9, dtype="u8"), a
    )
    assert codes.shape == (m, n)
    assert (codes == 9).all()


def test_inner_sizes_must_agree_though_one_is_zero():
    pipe = tw.Pipeline("unequal")
    with pytest.raises(tw.errors.ShapeMismatch):
        tw.ops.gemm(pipe.input("x", "s8", (3, 0)), np.ones((1, 4), np.int8))


BASE = (np.arange(24 * 10).reshape(24, 10) % 256 - 128).astype(np.int8)
VIEWS = {
    "every other row": BASE[::2],
    "columns reversed": BASE[:12, ::-1],
    "rows reversed": BASE[11::-1],
    "transposed twice": BASE.T[:, :12].T,
    "Fortran order": np.asfortranarray(BASE[:12]),
    "one row for all": np.broadcast_to(BASE[:1], (12, 10)),
}


@pytest.mark.parametrize("rows", [1, 6])
@pytest.mark.parametrize("view", VIEWS)
def test_a_view_gives_what_its_copy_gives(everywhere, exact, view, rows):
    a = (np.arange(rows * 12).reshape(rows, 12) % 11 - 5).astype(np.int8)
    b = VIEWS[view]
    right = exact.gemm(a, b)
    assert product(everywhere, a, b).tolist() == right.tolist()
    turned = everywhere(lambda x: tw.ops.gemm(x, np.ascontiguousarray(a.T)), b.T)  # the view as the left side
    assert turned.tolist() == right.T.tolist()


def test_scales_of_channels_in_a_channels_last_view(everywhere, exact):
    x = np.ascontiguousarray(np.arange(120, dtype=np.float32).reshape(2, 4, 5, 3)).transpose(0, 3, 1, 2)
    scales = np.array([0.5, 1.0, 2.0], np.float32)
    y = everywhere(lambda v: tw.ops.quantize(v, scales, dtype="s8", axis=1), x)
    assert y.tolist() == np.stack([exact.quantize(x[:, c], s, 0, -128, 127) for c, s in enumerate(scales)], 1).tolist()


def test_a_row_does_not_depend_on_its_neighbours(everywhere):
    a = (np.arange(8 * 130).reshape(8, 130) % 255 - 127).astype(np.int8)
    b = (np.arange(130 * 9).reshape(130, 9) % 253 - 126).astype(np.int8)

    def codes(x):
        return tw.ops.requantize(tw.ops.gemm(x, b), multiplier=np.float32(1 / 977), zero_point=3, dtype="s8")

    whole = everywhere(codes, a)
    for rows in (1, 2, 3, 5, 7):
        assert everywhere(codes, a[:rows]).tobytes() == whole[:rows].tobytes()


def test_real_rows_do_not_depend_on_their_neighbours(everywhere):
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((8, 130), np.float32), rng.standard_normal((130, 9), np.float32)
    whole = everywhere(lambda x: tw.ops.gemm(x, b), a)
    for rows in (1, 3, 7):
        assert everywhere(lambda x: tw.ops.gemm(x, b), a[:rows]).tobytes() == whole[:rows].tobytes()


def test_differences_of_unsigned_codes_are_signed(everywhere):
    """3 - 250 is -247: not 9, and not 2**64 - 247."""
    codes = np.array([3, 250, 0, 255], np.uint8)
    y = everywhere(lambda q: tw.ops.dequantize(q, np.float32(1), np.uint8(250)), codes)
    assert y.tolist() == [-247.0, 0.0, -250.0, 5.0]
