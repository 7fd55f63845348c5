import itertools
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from tilework.primitives.errors import LayoutError, ShapeMismatch, SizeError
from tilework.primitives.layout import LayoutSpec

BLOCKED = LayoutSpec((5, 7), axes="NK", blocks=(("N", 2), ("K", 4)))


def offsets(layout):
    """Offset of every valid element, in the shape of the axes."""
    out = np.empty(layout.shape, np.int64)
    for index in itertools.product(*map(range, layout.shape)):
        out[index] = layout.offset(index)
    return out


def test_a_plain_layout_is_dense_with_the_last_axis_innermost():
    layout = LayoutSpec((2, 3, 4, 5), axes="NCHW")
    assert layout.strides == (60, 20, 5, 1)
    assert layout.innermost_axis == "W"
    assert layout.is_dense
    assert layout.is_contiguous()
    assert layout.is_contiguous("NCHW")
    assert not layout.is_contiguous("F")
    assert not layout.is_contiguous("NHWC")
    assert layout.nbytes("f32") == 480
    assert layout.offset((1, 2, 3, 4)) == 119
    assert layout.byte_offset((1, 2, 3, 4), "f32") == 476


def test_dense_strides_are_the_same_as_none():
    assert LayoutSpec((2, 3), (3, 1)) == LayoutSpec((2, 3))
    assert hash(LayoutSpec((2, 3), (3, 1))) == hash(LayoutSpec((2, 3)))
    assert LayoutSpec((2, 3), (1, 2)) != LayoutSpec((2, 3))
    assert pickle.loads(pickle.dumps(BLOCKED)) == BLOCKED


def test_permuting_moves_no_memory():
    nhwc = LayoutSpec((2, 4, 5, 3), axes="NHWC")
    nchw = nhwc.permute("NCHW")
    assert nchw.shape == (2, 3, 4, 5)
    assert nchw.strides == (60, 1, 15, 3)
    assert nchw.innermost_axis == "C"
    assert nchw.is_contiguous("NHWC")
    assert not nchw.is_contiguous()
    assert nchw.permute("NHWC") == nhwc
    assert LayoutSpec((2, 3)).transpose() == LayoutSpec((3, 2), (1, 3))
    assert LayoutSpec((2, 3)).transpose().is_contiguous("F")
    assert LayoutSpec((2, 3, 4)).transpose(0, 2, 1).strides == (12, 1, 4)
    assert LayoutSpec((2, 3)).transpose().innermost_axis == 0


@pytest.mark.parametrize(
    "index",
    [
        (slice(1, 3),),
        (slice(None, None, 2), slice(None, None, -1)),
        (slice(None), 2),
        (1,),
        (None, slice(1, 1)),
        (slice(4, 0, -2), slice(2, 5)),
    ],
)
def test_slices_see_what_numpy_sees(index):
    memory = np.arange(42)
    layout = LayoutSpec((6, 7), axes="MK")
    right = memory.reshape(6, 7)[tuple(slice(None) if i is None else i for i in index)]
    cut = layout.slice(*index)
    assert cut.shape == right.shape
    assert cut.ndim == 2 - sum(isinstance(i, int) for i in index)
    assert_array_equal(memory[offsets(cut)] if cut.size else right, right)


def test_slicing_a_slice_keeps_its_place():
    cut = LayoutSpec((6, 7)).slice(slice(2, 6)).slice(slice(1, 3), slice(3, None))
    assert cut.start == 24
    assert cut.rebased() == LayoutSpec((2, 4), (7, 1))
    assert cut.offset((1, 1)) == 24 + 7 + 1


def test_broadcasting_repeats_with_stride_zero():
    layout = LayoutSpec((1, 7), axes="MK").broadcast_to((5, 7))
    assert layout.strides == (0, 1)
    assert layout.nbytes("u8") == 7
    assert layout.has_internal_overlap()
    assert not layout.is_contiguous()
    assert layout.innermost_axis == "K"
    assert LayoutSpec((7,), axes="K").broadcast_to((2, 7), axes="MK").strides == (0, 1)
    assert LayoutSpec(()).broadcast_to((2, 3)).strides == (0, 0)
    with pytest.raises(ShapeMismatch, match=r"\(2, 7\) does not broadcast to \(5, 7\)"):
        LayoutSpec((2, 7)).broadcast_to((5, 7))
    with pytest.raises(ShapeMismatch, match="does not broadcast"):
        LayoutSpec((2, 7)).broadcast_to((7,))
    with pytest.raises(LayoutError, match="needs the letters"):
        LayoutSpec((7,), axes="K").broadcast_to((2, 7))


def test_blocks_are_stored_after_the_axes_in_their_order():
    assert BLOCKED.stored_shape == (3, 2, 2, 4)
    assert BLOCKED.strides == (16, 8, 4, 1)
    assert BLOCKED.nbytes("u8") == 48
    assert BLOCKED.innermost_axis == "K"
    assert BLOCKED.offset((0, 0)) == 0
    assert BLOCKED.offset((1, 3)) == 4 + 3
    assert BLOCKED.offset((4, 6)) == 2 * 16 + 8 + 0 + 2
    assert np.unique(offsets(BLOCKED)).size == 35
    assert not BLOCKED.has_internal_overlap()


def test_an_axis_may_be_blocked_twice():
    layout = LayoutSpec((16, 16), axes="OI", blocks=(("I", 4), ("O", 16), ("I", 2)))
    assert layout.stored_shape == (1, 2, 4, 16, 2)
    assert layout.block_sizes == (16, 8)
    assert layout.offset((3, 13)) == 1 * 128 + 2 * 32 + 3 * 2 + 1
    assert sorted(offsets(layout).ravel()) == list(range(256))


def test_strides_may_put_the_outer_dimensions_in_any_order():
    panels = LayoutSpec((8, 6), strides=(8, 16, 4, 1), axes="KN", blocks=(("N", 2), ("K", 4)))
    assert panels.stored_shape == (2, 3, 2, 4)
    assert panels == LayoutSpec((6, 8), axes="NK", blocks=(("N", 2), ("K", 4))).permute("KN")
    assert panels.offset((5, 3)) == 8 + 16 + 4 + 1


def test_blocked_axes_are_cut_at_their_blocks_only():
    layout = LayoutSpec((8, 8), axes="NK", blocks=(("N", 2), ("K", 4)))
    cut = layout.slice(slice(2, 6), slice(4, None))
    assert cut.shape == (4, 4)
    assert_array_equal(offsets(cut), offsets(layout)[2:6, 4:])
    assert BLOCKED.slice(slice(4, 5)).shape == (1, 7)
    for index in ((slice(1, 4),), (slice(0, 3),), (slice(None, None, 2),)):
        with pytest.raises(LayoutError, match=r"axis 'N' is blocked by 2 and is cut at its multiples only"):
            layout.slice(*index)
    with pytest.raises(LayoutError, match="slice it, or unpack it first"):
        layout.slice(1)


def test_capacity_gives_room_and_the_shape_stays_valid():
    layout = LayoutSpec((7, 4), axes="NK", capacity={"N": 100})
    assert layout.shape == (7, 4)
    assert layout.capacity == (100, 4)
    assert layout.nbytes("f32") == 1600
    assert layout.size == 28
    assert layout.is_contiguous()
    inner = LayoutSpec((4, 7), axes="KN").with_capacity("N", 100)
    assert inner.strides == (100, 1)
    assert not inner.is_contiguous()
    longer = inner.with_length("N", 99)
    assert longer.shape == (4, 99)
    assert longer.strides == (100, 1)
    with pytest.raises(LayoutError, match="axis 1 has 101 valid elements but room for 100 only"):
        inner.with_length("N", 101)


def test_a_length_decided_by_data_may_have_a_name():
    layout = LayoutSpec(("L", 4), axes="NK", capacity={"N": 100})
    assert layout.is_static
    assert layout.nbytes("u8") == 400
    with pytest.raises(SizeError, match="axis 'N' has size L, known only at run time"):
        layout.size  # noqa: B018
    assert layout.with_length("N", 3).size == 12


def test_sizes_known_only_at_run_time_are_kept_and_filled_in_later():
    layout = LayoutSpec(("M", 64), axes="MK", blocks=(("K", 4),))
    assert not layout.is_static
    with pytest.raises(SizeError, match="axis 'M' has size M"):
        layout.nbytes("u8")
    assert layout.with_shape((3, 64)) == LayoutSpec((3, 64), axes="MK", blocks=(("K", 4),))
    assert LayoutSpec(("M", 3)).permute((0, 1)) == LayoutSpec(("M", 3))
    with pytest.raises(SizeError, match="cannot be permuted before its sizes are known"):
        LayoutSpec(("M", 3)).permute((1, 0))


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 3), (2, 0, 3)])
def test_empty_layouts_have_no_bytes_and_are_contiguous(shape):
    layout = LayoutSpec(shape)
    assert layout.nbytes("f64") == 0
    assert layout.is_contiguous()
    assert layout.is_contiguous("F")
    assert not layout.has_internal_overlap()
    assert layout.view_on(np.empty(0, np.uint8), "f64").shape == shape


def test_a_scalar_is_one_element():
    layout = LayoutSpec(())
    assert layout.nbytes("f32") == 4
    assert layout.offset(()) == 0
    assert layout.innermost_axis is None
    assert layout.is_contiguous()


def test_offsets_beyond_32_bits_are_exact():
    layout = LayoutSpec((2**31 + 64,))
    assert layout.offset((2**31 + 63,)) == 2**31 + 63
    assert layout.nbytes("f64") == 8 * (2**31 + 64)
    wide = LayoutSpec((70_000, 70_000))
    assert wide.byte_offset((69_999, 69_999), "f32") == 4 * (70_000**2 - 1)
    assert not wide.has_internal_overlap()


@pytest.mark.parametrize("name", ["u4", "s4", "u2"])
def test_packed_rows_are_padded_to_whole_bytes(name):
    per_byte = {"u4": 2, "s4": 2, "u2": 4}[name]
    layout = LayoutSpec((3, 5), axes="MK")
    row = -(-5 // per_byte)
    assert layout.nbytes(name) == 3 * row
    assert layout.byte_strides(name) == (row, 1)
    assert layout.byte_offset((2, 4), name) == 2 * row + 4 // per_byte
    memory = np.arange(3 * row, dtype=np.uint8)
    assert_array_equal(layout.view_on(memory, name), memory.reshape(3, row), strict=True)


def test_packed_types_need_whole_bytes_between_rows():
    with pytest.raises(LayoutError, match=r"u4 packs 2 elements to a byte.*found strides \(1, 5\)"):
        LayoutSpec((3, 5)).transpose().nbytes("u4")
    with pytest.raises(LayoutError, match="start 5"):
        LayoutSpec((3, 5)).slice(slice(1, None)).byte_strides("u4")
    cut = LayoutSpec((3, 6)).slice(slice(1, None), slice(2, 4))
    assert cut.byte_strides("u4") == (3, 1)
    assert cut.byte_offset((0, 0), "u4") == 4
    assert_array_equal(cut.view_on(np.arange(9, dtype=np.uint8), "u4"), np.array([[4], [7]], np.uint8))
    assert BLOCKED.nbytes("s4") == 24


def test_a_view_on_memory_is_what_the_offsets_say():
    memory = np.arange(200, dtype=np.uint8)
    for layout in (
        LayoutSpec((3, 4)),
        LayoutSpec((3, 4)).transpose(),
        LayoutSpec((6, 4)).slice(slice(5, None, -2)),
        LayoutSpec((3, 4), (10, 2)),
        LayoutSpec((1, 4)).broadcast_to((3, 4)),
    ):
        view = layout.view_on(memory, "u16", offset=8)
        assert np.shares_memory(view, memory)
        assert_array_equal(view, memory.view(np.uint16)[4 + offsets(layout)], strict=True)
    with pytest.raises(LayoutError, match=r"reaches bytes 4 to 28; the memory has 27"):
        LayoutSpec((3, 4)).view_on(memory[:27], "u16", offset=4)
    with pytest.raises(LayoutError, match="reaches bytes -6 to 2"):
        LayoutSpec((4,), (-1,)).view_on(memory, "u16")


@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(-7, 7)), min_size=1, max_size=4),
)
def test_internal_overlap_is_found_exactly(dims):
    layout = LayoutSpec([n for n, _ in dims], [s for _, s in dims])
    reached = offsets(layout)
    assert layout.has_internal_overlap() == (np.unique(reached).size < reached.size)


def test_internal_overlap_of_huge_layouts_is_judged_by_their_strides():
    assert not LayoutSpec((2**20, 2**20)).has_internal_overlap()
    assert not LayoutSpec((2**20, 2**20)).transpose().has_internal_overlap()
    assert LayoutSpec((2**20, 2**20), (2**20 - 1, 1)).has_internal_overlap()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LayoutSpec((2, -1)), "size -1 is negative"),
        (lambda: LayoutSpec((2, 1.5)), "size 1.5 is neither a whole number"),
        (lambda: LayoutSpec((True,)), "size True is neither"),
        (lambda: LayoutSpec((None, 2)), "size None is neither"),
        (lambda: LayoutSpec((2, 3), (1,)), r"1 strides for 2 stored dimensions.*in elements"),
        (lambda: LayoutSpec((2, 3), (1.0, 2)), "stride 1.0 is not a whole number"),
        (lambda: LayoutSpec((2, 3), axes="NCH"), "axes 'NCH' name 3 dimensions; the shape has 2"),
        (lambda: LayoutSpec((2, 3), axes="NN"), "name one letter twice"),
        (lambda: LayoutSpec((2, 3), axes="N4"), "axes are letters"),
        (lambda: LayoutSpec((2, 3), axes="MK", blocks=(("N", 4),)), "no axis 'N': the axes are 'MK'"),
        (lambda: LayoutSpec((2, 3), blocks=(("N", 4),)), "no axis 'N': the layout has no letters"),
        (lambda: LayoutSpec((2, 3), blocks=((2, 4),)), "axis 2 is out of range for 2 dimensions"),
        (lambda: LayoutSpec((2, 3), blocks=((1, 0),)), "its size is a whole number from 1"),
        (lambda: LayoutSpec((2, 3), blocks=((1, -4),)), "its size is a whole number from 1"),
        (lambda: LayoutSpec((2, 3), blocks=(4,)), r"a block is \(axis, size\)"),
        (lambda: LayoutSpec((2, 3), axes="MK").permute("MN"), "no axis 'N'"),
        (lambda: LayoutSpec((2, 3), axes="MK").permute("MM"), "does not name every axis once"),
        (lambda: LayoutSpec((2, 3)).offset((0, 3)), "index 3 is out of range for axis 1 of 3"),
        (lambda: LayoutSpec((2, 3)).offset((0, -1)), "index -1 is out of range"),
        (lambda: LayoutSpec((2, 3)).offset((0,)), "has 1 numbers for 2 axes"),
        (lambda: LayoutSpec((2, 3)).slice(2), "index 2 is out of range for axis 0 of 2"),
        (lambda: LayoutSpec((2,)).slice(slice(1), slice(1)), "2 slices for 1 axes"),
    ],
)
def test_what_describes_no_memory_is_refused(make, message):
    with pytest.raises(LayoutError, match=message):
        make()


def test_letters_can_be_changed_with_the_blocks_following():
    assert BLOCKED.with_axes("OI") == LayoutSpec((5, 7), axes="OI", blocks=(("O", 2), ("I", 4)))
    assert BLOCKED.with_axes(None).blocks == ((0, 2), (1, 4))


def test_the_repr_can_be_read_back():
    for layout in (BLOCKED, LayoutSpec((2, 3), (1, 2)), LayoutSpec((7, 4), axes="NK", capacity={"N": 9})):
        assert eval(repr(layout)) == layout


def test_bytes_of_packed_elements_in_three_dimensions():
    layout = LayoutSpec((2, 3, 5))
    assert layout.byte_offset((1, 2, 3), "u4") == 1 * 9 + 2 * 3 + 1
    assert layout.byte_offset((1, 2, 3), "u2") == 1 * 6 + 2 * 2 + 0
    assert LayoutSpec(()).byte_offset((), "u8") == 0
    assert layout.view_on(np.zeros(18, np.uint8), "u4").shape == (2, 3, 3)
    assert layout.view_on(np.zeros(30, np.uint8), "u8").shape == (2, 3, 5)


def test_a_single_index_or_none_never_overlaps():
    assert not LayoutSpec((0, 5), [0, 0]).has_internal_overlap()
    assert not LayoutSpec((1, 1), [0, 0]).has_internal_overlap()
    assert LayoutSpec((2, 1), [0, 1]).has_internal_overlap()
    assert LayoutSpec((3, 4), [1, 1]).has_internal_overlap()


def test_indices_count_from_the_end_too():
    layout = LayoutSpec((4, 5))
    assert layout.slice(-1).offset((2,)) == 3 * 5 + 2
    assert layout.slice(slice(None), -5).offset((3,)) == 3 * 5
    assert layout.slice(3, 4).offset(()) == 19
    for index in (4, -5):
        with pytest.raises(LayoutError, match=r"out of range for axis 0 of 4 elements"):
            layout.slice(index)


def test_internal_overlap_is_exact_up_to_a_million_elements():
    assert not LayoutSpec((2, 2**19), [3, 2]).has_internal_overlap()
    assert LayoutSpec((2, 2**19 + 1), [3, 2]).has_internal_overlap()  # one pair more: as if it did


def test_blocks_come_after_the_axes_so_the_first_is_never_innermost():
    assert LayoutSpec((4, 6), [1, 4]).is_contiguous("F")
    assert not LayoutSpec((4, 6)).is_contiguous("F")
    assert not LayoutSpec((4, 6), axes="AB", blocks=(("A", 4),)).is_contiguous("F")
    assert not LayoutSpec((4,), axes="A", blocks=(("A", 4),)).is_contiguous("F")


@pytest.mark.parametrize("block", [2, 3])
def test_blocked_axes_do_not_repeat(block):
    layout = LayoutSpec((1, 1), axes="AB", blocks=(("B", block),))
    assert layout.broadcast_to((4, 1)).shape == (4, 1)
    with pytest.raises(ShapeMismatch, match="only unblocked axes of size 1 repeat"):
        layout.broadcast_to((1, 4))
