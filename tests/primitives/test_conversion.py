import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from tilework.primitives.conversion import conversion, convert, from_logical, to_logical
from tilework.primitives.errors import LayoutError, ShapeMismatch
from tilework.primitives.layout import LayoutSpec

NCHW = LayoutSpec((2, 5, 3, 4), axes="NCHW")
NHWC = LayoutSpec((2, 3, 4, 5), axes="NHWC")
NCHW4C = LayoutSpec((2, 5, 3, 4), axes="NCHW", blocks=(("C", 4),))


@pytest.mark.parametrize(
    ("src", "dst", "kind", "read", "written"),
    [
        (NCHW, NCHW, "none", 0, 0),
        (NHWC, NHWC.permute("NCHW"), "view", 0, 0),
        (NHWC, NCHW, "permute", 480, 480),
        (NCHW, NCHW4C, "pack", 480, 768),
        (NHWC, NCHW4C, "pack", 480, 768),
        (NCHW4C, NHWC, "unpack", 480, 480),
        (NCHW4C, LayoutSpec(NCHW.shape, axes="NCHW", blocks=(("C", 8),)), "repack", 480, 768),
        (LayoutSpec((4, 8), (16, 1)), LayoutSpec((4, 8)), "copy", 128, 128),
        (LayoutSpec((4, 8)), LayoutSpec((4, 8), (16, 1)), "copy", 128, 224),
        (LayoutSpec((4, 8)), LayoutSpec((4, 8), capacity={0: 9}), "copy", 128, 288),
        (LayoutSpec((4, 8), capacity={0: 9}), LayoutSpec((4, 8)), "view", 0, 0),
        (LayoutSpec((4, 8), (-8, 1)), LayoutSpec((4, 8)), "copy", 128, 128),
        (LayoutSpec((1, 8)).broadcast_to((4, 8)), LayoutSpec((4, 8)), "copy", 32, 128),
        (LayoutSpec((4, 1)), LayoutSpec((4, 1), (1, 7)), "none", 0, 0),
        (LayoutSpec((4, 8)), LayoutSpec((4, 8), blocks=((1, 8),)), "view", 0, 0),
        (LayoutSpec((0, 8)), LayoutSpec((0, 8)).transpose().transpose(), "none", 0, 0),
    ],
)
def test_a_conversion_knows_its_kind_and_its_bytes(src, dst, kind, read, written):
    plan = conversion(src, dst, "f32")
    assert (plan.kind, plan.bytes_read, plan.bytes_written) == (kind, read, written)
    assert plan.cost == read + written


def test_packed_types_cost_their_packed_bytes():
    plan = conversion(LayoutSpec((3, 8)), LayoutSpec((3, 8), blocks=((0, 4), (1, 2))), "s4")
    assert (plan.bytes_read, plan.bytes_written) == (12, 16)


def test_axes_are_matched_by_letter():
    plan = conversion(NHWC, NCHW, "u8")
    assert plan.permutation == (0, 3, 1, 2)
    assert str(plan) == "permute: 120 bytes read, 120 written"
    with pytest.raises(ShapeMismatch, match="do not have the same elements"):
        conversion(NHWC, LayoutSpec((2, 5, 4, 3), axes="NCHW"), "u8")
    with pytest.raises(LayoutError, match="axes 'NHWC' and 'NCDW' are not the same ones"):
        conversion(NHWC, LayoutSpec((2, 5, 3, 4), axes="NCDW"), "u8")


def test_panels_of_a_packed_b_hold_four_rows_of_each_column():
    b = np.arange(6 * 5, dtype=np.int8).reshape(6, 5)  # (K, N)
    packed = convert(b, LayoutSpec((6, 5), axes="KN"), LayoutSpec((5, 6), axes="NK", blocks=(("N", 4), ("K", 4))), -1)
    assert packed.shape == (2, 2, 4, 4)  # panel, depth / 4, column, depth % 4
    assert packed[0, 0].tolist() == [[0, 5, 10, 15], [1, 6, 11, 16], [2, 7, 12, 17], [3, 8, 13, 18]]
    assert packed[1, 1].tolist() == [[24, 29, -1, -1], [-1] * 4, [-1] * 4, [-1] * 4]


def stored_by_offsets(a, layout, fill):
    out = np.full(layout.nbytes("u8"), fill, a.dtype)
    for index in itertools.product(*map(range, a.shape)):
        out[layout.offset(index)] = a[index]
    return out


SIZES = st.integers(1, 6)
BLOCKS = st.lists(st.tuples(st.sampled_from("NKH"), st.integers(1, 4)), max_size=3).map(tuple)


@given(SIZES, SIZES, SIZES, st.permutations("NKH"), BLOCKS, BLOCKS)
def test_converting_puts_every_element_at_its_offset_and_returns(n, k, h, order, blocks, others):
    sizes = dict(zip("NKH", (n, k, h), strict=True))
    src = LayoutSpec((n, k, h), axes="NKH", blocks=others)
    dst = LayoutSpec([sizes[letter] for letter in order], axes="".join(order), blocks=blocks)
    a = np.arange(n * k * h, dtype=np.int32).reshape(n, k, h)
    stored = from_logical(a, src, -7)
    assert_array_equal(stored.ravel(), stored_by_offsets(a, src, -7))
    moved = convert(stored, src, dst, -7)
    assert_array_equal(moved.ravel(), stored_by_offsets(a.transpose(["NKH".index(x) for x in order]), dst, -7))
    assert_array_equal(to_logical(convert(moved, dst, src), src), a, strict=True)


def test_views_convert_like_their_copies():
    base = np.arange(240, dtype=np.int16).reshape(24, 10)
    packed = LayoutSpec((12, 10), blocks=((0, 4), (1, 4)))
    for view in (base[::2], base[:12, ::-1], np.asfortranarray(base[:12]), np.broadcast_to(base[:1], (12, 10))):
        layout = LayoutSpec(view.shape, [s // 2 for s in view.strides])
        right = convert(np.ascontiguousarray(view), LayoutSpec((12, 10)), packed)
        assert_array_equal(convert(view, layout, packed), right, strict=True)


def test_strides_capacity_and_fill_of_the_destination_are_kept():
    a = np.arange(6, dtype=np.uint8).reshape(2, 3)
    reversed_rows = convert(a, LayoutSpec((2, 3)), LayoutSpec((2, 3), (-8, 2)))
    assert reversed_rows.strides == (-8, 2)
    assert_array_equal(reversed_rows, a, strict=True)
    room = convert(a, LayoutSpec((2, 3)), LayoutSpec((2, 3), capacity={0: 4, 1: 5}), fill=9)
    assert room.tolist() == [[0, 1, 2, 9, 9], [3, 4, 5, 9, 9], [9] * 5, [9] * 5]
    assert_array_equal(to_logical(room, LayoutSpec((2, 3), capacity={0: 4, 1: 5})), a, strict=True)
    assert convert(np.float32(3).reshape(()), LayoutSpec(()), LayoutSpec(())).shape == ()


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0, 0)])
def test_empty_arrays_convert(shape):
    dst = LayoutSpec(shape, blocks=((0, 4), (1, 2)))
    packed = convert(np.empty(shape, np.int8), LayoutSpec(shape), dst)
    assert packed.shape == dst.stored_shape
    assert to_logical(packed, dst).shape == shape


def test_wrong_arrays_and_destinations_that_overlap_are_refused():
    with pytest.raises(ShapeMismatch, match=r"is stored as \(2, 3\); found an array of shape \(3, 2\)"):
        convert(np.zeros((3, 2)), LayoutSpec((2, 3)), LayoutSpec((2, 3)))
    with pytest.raises(ShapeMismatch, match=r"holds shape \(2, 3\)"):
        from_logical(np.zeros((3, 2)), LayoutSpec((2, 3)))
    shared = LayoutSpec((1, 3)).broadcast_to((2, 3))
    with pytest.raises(LayoutError, match="nothing can be written"):
        convert(np.zeros((2, 3)), LayoutSpec((2, 3)), shared)
    with pytest.raises(LayoutError, match="nothing can be written"):
        conversion(LayoutSpec((2, 3)), shared, "u8")


def test_a_destination_that_runs_backwards_has_its_elements_there():
    a = np.arange(12, dtype=np.int16).reshape(3, 4)
    for strides in ((-5, 1), (5, -1), (-9, -2)):
        layout = LayoutSpec((3, 4), strides, axes="AB")
        out = convert(a, LayoutSpec((3, 4), axes="AB"), layout)
        assert out.strides == tuple(2 * s for s in strides)
        assert_array_equal(out, a, strict=True)
        assert np.shares_memory(out[0, 0:1], out.base if out.base is not None else out)
