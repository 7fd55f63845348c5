"""gemm on CUDA in the interpreter: exact around every tile, at any zero points, strides, types and schedule."""

from dataclasses import asdict

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from tilework.kernels.cuda import gemm_mma
from tilework.kernels.cuda.gemm import finish_of
from tilework.kernels.cuda.interpreter import launching
from tilework.kernels.cuda.launch import Device
from tilework.kernels.gemm import Gemm
from tilework.kernels.reference.gemm import gemm_f32, gemm_int
from tilework.primitives.errors import ShapeMismatch

PAIRS = [("u8", "s8"), ("s8", "s8"), ("s8", "u8"), ("u8", "u8")]
EDGES = [(1, 1, 1), (63, 64, 65), (64, 63, 64), (65, 129, 63), (17, 200, 130)]  # around tile 64, step 64
ROW, COLUMN = ((0, 1), None), ((1, 1),)


def product(device, kernel, a, b, *zero_points, seed=None):
    dtype = np.float32 if kernel.real else np.int32
    out = np.full((a.shape[-2], b.shape[-1]), -7, dtype)  # poisoned, so an unwritten element shows
    assert launching.execute(device, a, b, *zero_points, out, seed=seed) == 0
    return out


@pytest.mark.parametrize("variant", ["mma", "simt"])
@pytest.mark.parametrize(("m", "k", "n"), EDGES)
def test_it_is_exact_around_tile_edges(device_of, variant, m, k, n, codes):
    a, b = codes("u8", (m, k)), codes("s8", (k, n))
    kernel = Gemm("u8", "s8")
    assert_array_equal(product(device_of(kernel, variant), kernel, a, b), gemm_int(a, b), strict=True)


@pytest.mark.parametrize("tile", [gemm_mma.LARGE, gemm_mma.SMALL, gemm_mma.Tile(64, 64, 2, 2, 2)], ids=str)
@pytest.mark.parametrize(("m", "k", "n"), [(128, 256, 128), (130, 320, 127)])
def test_every_tile_and_depth_of_pipeline_is_exact(tile, m, k, n, aligned, codes):
    a, b = aligned(codes("s8", (m, k))), codes("s8", (k, n))
    kernel = Gemm("s8", "s8")
    device = Device(lambda *operands: gemm_mma.plan(kernel, operands, finish_of(kernel), asdict(tile)))
    assert_array_equal(product(device, kernel, a, b), gemm_int(a, b), strict=True)


@pytest.mark.parametrize("types", PAIRS, ids="".join)
@pytest.mark.parametrize("variant", ["mma", "simt"])
def test_zero_points_at_extremes_are_exact(device_of, variant, types, codes):
    m, k, n = 33, 70, 40
    a, b = (
        np.full(shape, np.iinfo(codes(t, (1,)).dtype).max) for t, shape in zip(types, ((m, k), (k, n)), strict=True)
    )
    a, b = a.astype(codes(types[0], (1,)).dtype), b.astype(codes(types[1], (1,)).dtype)
    a[::2], b[:, ::2] = np.iinfo(a.dtype).min, np.iinfo(b.dtype).min
    za, zb = codes(types[0], (m, 1)), codes(types[1], (n,))
    za[0], zb[0] = np.iinfo(za.dtype).min, np.iinfo(zb.dtype).max
    kernel = Gemm(*types, a_zero_point=ROW, b_zero_point=COLUMN)
    found = product(device_of(kernel, variant), kernel, a, b, za, zb)
    assert_array_equal(found, gemm_int(a, b, za, zb), strict=True)


@pytest.mark.parametrize("seed", [1, 2])
def test_no_schedule_changes_a_bit(device_of, seed, aligned, codes):
    a, b, za = aligned(codes("u8", (65, 192))), codes("s8", (192, 66)), np.uint8(200)
    kernel = Gemm("u8", "s8", a_zero_point=())
    found = product(device_of(kernel), kernel, a, b, za, seed=seed)
    assert_array_equal(found, gemm_int(a, b, za), strict=True)


def test_any_strides_work(device_of, codes):
    a, b = codes("u8", (40, 66))[::-2, 1:], codes("s8", (50, 65)).T
    kernel = Gemm("u8", "s8")
    assert_array_equal(product(device_of(kernel), kernel, a, b), gemm_int(a, b), strict=True)


def test_no_depth_gives_zeros(device_of, codes):
    kernel = Gemm("u8", "s8")
    assert not product(device_of(kernel), kernel, codes("u8", (3, 0)), codes("s8", (0, 5))).any()


@pytest.mark.parametrize("types", [("f32", "f32"), ("f16", "bf16"), ("bf16", "f32")], ids="".join)
@pytest.mark.parametrize(("m", "k", "n"), [(1, 1, 1), (63, 15, 65), (65, 17, 64), (5, 40, 3)])
def test_real_sums_are_one_chain(device_of, types, m, k, n, codes):
    a, b = codes(types[0], (m, k)), codes(types[1], (k, n))
    kernel = Gemm(*types)
    found = product(device_of(kernel), kernel, a, b)
    assert found.tobytes() == gemm_f32(a, b).tobytes()


def test_a_chain_that_ends_in_minus_zero_keeps_it(device_of):
    tiny = np.float32(1e-30)
    a, b = np.full((1, 1), -tiny), np.full((1, 1), tiny)
    kernel = Gemm("f32", "f32")
    assert product(device_of(kernel), kernel, a, b).tobytes() == np.float32(-0.0).tobytes()


def test_16_bit_codes_wrap_as_int32(device_of, codes):
    a, b = codes("s16", (20, 70)), codes("s16", (70, 30))
    kernel = Gemm("s16", "s16")
    assert_array_equal(product(device_of(kernel), kernel, a, b), gemm_int(a, b), strict=True)


def test_leading_dimensions_are_broadcast(run_on, codes):
    a, b = codes("u8", (3, 1, 9, 20)), codes("s8", (1, 2, 20, 17))
    kernel = Gemm("u8", "s8", batch=2, a_batch=(0, None), b_batch=(None, 1))
    assert_array_equal(run_on("cuda", kernel, a, b), gemm_int(a, b), strict=True)


@pytest.mark.parametrize("m", [1, 3, 16])
@pytest.mark.parametrize("types", PAIRS, ids="".join)
def test_few_rows_are_exact(device_of, m, types, aligned, codes):
    for k, n, zero_points in ((1040, 9, False), (70, 5, True)):
        a, b = aligned(codes(types[0], (m, k))), codes(types[1], (k, n))
        kernel = Gemm(*types, a_zero_point=ROW if zero_points else None, b_zero_point=COLUMN if zero_points else None)
        more = (codes(types[0], (m, 1)), codes(types[1], (n,))) if zero_points else ()
        found = product(device_of(kernel, "skinny"), kernel, a, b, *more, seed=1)
        assert_array_equal(found, gemm_int(a, b, *more), strict=True)


def test_the_kernel_fits_the_rows(device_of, codes):
    kernel = Gemm("u8", "s8")
    for m, name in ((1, "gemm_skinny"), (16, "gemm_skinny"), (17, "gemm_mma"), (200, "gemm_mma")):
        a, b = codes("u8", (m, 64)), codes("s8", (64, 65))
        launches = device_of(kernel).plan(a, b, np.empty((m, 65), np.int32)).launches
        assert launches[-1].name == name


def test_the_kernel_for_few_rows_refuses_more(device_of, codes):
    kernel = Gemm("u8", "s8")
    with pytest.raises(ShapeMismatch, match="17 rows; up to 16 work"):
        device_of(kernel, "skinny").plan(codes("u8", (17, 64)), codes("s8", (64, 5)), np.empty((17, 5), np.int32))
