"""The layout of packed B, what is folded into its columns, and that compiled packing equals NumPy's."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from tilework.kernels.cpu import isa
from tilework.kernels.cpu.gemm import packing
from tilework.kernels.cpu.gemm import plan as gemm_plan


def test_a_panel_is_step_column_byte_by_hand():
    layout = packing.PanelLayout(K=5, N=3, lanes=2, vectors=1, group=4)
    b = np.arange(15, dtype=np.int8).reshape(5, 3)
    packed = packing.pack(b, layout)[: 4 * layout.steps * layout.columns].view(np.int8)
    first = [0, 3, 6, 9, 1, 4, 7, 10, 12, 0, 0, 0, 13, 0, 0, 0]
    last = [2, 5, 8, 11, 0, 0, 0, 0, 14, 0, 0, 0, 0, 0, 0, 0]
    assert packed.tolist() == first + last


def test_pairs_of_weights_fit_int16_or_do_not():
    assert packing.pairs_fit(np.full((4, 3), 64, np.int8))
    assert packing.pairs_fit(np.full((4, 3), -64, np.int8))
    assert packing.pairs_fit(np.array([[127], [1]], np.int8))
    assert not packing.pairs_fit(np.array([[71], [107]], np.int8))
    assert not packing.pairs_fit(np.array([[-65], [-64]], np.int8))


def strided(b):
    return [b, np.asfortranarray(b), np.repeat(b, 3, axis=1)[:, ::3], np.ascontiguousarray(b[::-1, ::-1])[::-1, ::-1]]


@pytest.mark.parametrize("dtype", ["s8", "u8"])
def test_compiled_packing_equals_numpy(extreme, dtype):
    rng = np.random.default_rng(0)
    lanes = isa.LEVELS[extreme].lanes
    for K in (0, 1, 3, 4, 5, 9, 64):
        for N in (1, lanes, lanes + 1, 4 * lanes, 9 * lanes + 3):
            b = rng.integers(-128, 128, (K, N)).astype(np.int8).view(np.uint8 if dtype == "u8" else np.int8)
            for view in strided(b):
                plan = gemm_plan.plan(K, N, "u8", dtype, level=isa.select(extreme))
                layout = plan.layout
                packed, sums = packing.aligned(layout.nbytes), np.full(N, 55, np.int32)
                packed[:] = 99
                words = [0, view.ctypes.data, K, N, *view.strides, 0, packed.ctypes.data, packed.size, 1]
                words += [0, sums.ctypes.data, N, 4, layout.nr, layout.rest_vectors * layout.lanes, layout.steps]
                entry = gemm_plan.packer(extreme, plan.family.dot, dtype)
                ranges = np.array([0, N], np.int64)
                gemm_plan.call_native(entry.address, np.zeros(1, np.int64), np.array(words, np.int64), ranges)
                used = 4 * layout.steps * layout.columns
                assert_array_equal(packed[:used], packing.pack(view, layout)[:used])
                assert_array_equal(sums, packing.column_sums(view, layout.group))


@pytest.mark.parametrize("per_row", [False, True])
def test_compiled_folding_equals_numpy(per_row):
    rng = np.random.default_rng(1)
    layout = packing.PanelLayout(K=30, N=37, lanes=16, vectors=4, group=4)
    sums = rng.integers(-9999, 9999, 37).astype(np.int32)
    bias, multiplier = rng.integers(-99999, 99999, 37).astype(np.int32), rng.random(37).astype(np.float32)
    za, zb = np.array([200], np.uint8), rng.integers(0, 256, 37).astype(np.uint8)
    want = packing.fold(
        layout, sums, a_zero_point=None if per_row else 200, b_zero_point=zb, a_shift=0, b_shift=-128, bias=bias,
        multiplier=multiplier, constants={"zero_point": 7, "lo": 1},
    )  # fmt: skip
    record = packing.fold(layout, sums, constants={"zero_point": 7, "lo": 1}).data[: packing.CONSTANTS_SIZE].copy()
    got = packing.aligned(packing.columns_bytes(layout))
    words = []
    for array in (sums, bias, multiplier, None, None if per_row else za, zb, record, got):
        words += [0, 0, 0, 0] if array is None else [0, array.ctypes.data, array.size, array.strides[0]]
    words += [packing.plane_bytes(layout), 0, -128, want.terms, 0, 0]
    ranges, block = np.array([0, 37], np.int64), np.array(words, np.int64)
    assert gemm_plan.call_native(gemm_plan.folder().address, np.zeros(1, np.int64), block, ranges) == 0
    assert_array_equal(got, want.data)
