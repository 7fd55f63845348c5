import array
import logging
import pickle

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from tilework.primitives import dtypes
from tilework.primitives.buffer import Buffer
from tilework.primitives.errors import (
    AliasError,
    ArgumentError,
    BufferAccessError,
    DTypeMismatch,
    LayoutError,
    QuantizationError,
    ShapeMismatch,
)
from tilework.primitives.layout import LayoutSpec
from tilework.primitives.memory import address_of, aligned_bytes, array_at
from tilework.primitives.quantization import QuantParams

NUMPY_EXPORTS_READ_ONLY = np.lib.NumpyVersion(np.__version__) >= "2.1.0"  # DLPack 1.0 came to NumPy then
# An array of 4-bit integers is taken as packed codes; the types that hold one in a byte have another name.
ELEMENTWISE = [name for name, dtype in dtypes.DTYPES.items() if dtypes.get(dtype.numpy) == name]


def placed(a, align, off=0):
    """The array in memory whose address is `off` past a multiple of align."""
    block = aligned_bytes(a.nbytes + off, align)[off : off + a.nbytes]
    out = np.ndarray(a.shape, a.dtype, buffer=block)
    out[...] = a
    return out


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_an_array_of_every_type_is_taken_without_copying(name):
    a = np.zeros((3, 4), dtypes.get(name).numpy)
    buf = Buffer.from_array(a, axes="MK")
    assert buf.dtype == name
    assert not buf.copied
    assert buf.shape == (3, 4)
    assert buf.layout == LayoutSpec((3, 4), axes="MK")
    assert buf.nbytes == a.nbytes
    assert buf.address == address_of(a)
    assert buf.device == "cpu"
    assert np.shares_memory(buf.view(), a)
    assert buf.view().dtype == a.dtype
    assert np.asarray(buf).dtype == a.dtype
    assert np.shares_memory(np.asarray(buf), a)


@pytest.mark.parametrize("align", [16, 32, 64, 4096])
@pytest.mark.parametrize("shape", [(1,), (17,), (3, 5, 7), (0,), (0, 3), ()])
def test_empty_gives_aligned_writable_memory(align, shape):
    buf = Buffer.empty(shape, "f32", align=align)
    assert buf.align == align
    assert buf.address % align == 0
    assert buf.align_offset(align) == 0
    assert not buf.readonly
    assert not buf.copied
    view = buf.view_mut()
    assert view.shape == shape
    view[...] = 7
    assert_array_equal(buf.numpy(), np.full(shape, 7, np.float32), strict=True)


@pytest.mark.parametrize("align", [16, 32, 64, 4096])
def test_alignment_is_kept_or_made_by_a_copy(align, caplog):
    a = placed(np.arange(12, dtype=np.float32).reshape(3, 4), 4096)
    with caplog.at_level(logging.DEBUG, "tilework"):
        assert not Buffer.from_array(a, align=align).copied
        assert not caplog.records
        off = placed(a, 4096, off=8)
        buf = Buffer.from_array(off, align=align)
    assert buf.copied
    assert buf.address % align == 0
    assert buf.align == align
    assert_array_equal(buf.numpy(), a, strict=True)
    assert f"aligned to 8 bytes, {align} were asked" in caplog.text
    buf.view_mut()[0, 0] = -1
    assert off[0, 0] == 0


def test_without_a_wish_the_alignment_is_the_one_found():
    assert Buffer.from_array(placed(np.zeros(4), 4096)).align == 4096
    assert Buffer.from_array(placed(np.zeros(4), 4096, off=8)).align == 8
    assert Buffer.from_array(placed(np.zeros(4, np.uint8), 4096, off=33)).align == 1


def test_a_copy_keeps_the_order_of_the_axes_in_memory():
    nchw = placed(np.arange(120, dtype=np.int16).reshape(2, 4, 5, 3), 64, off=2).transpose(0, 3, 1, 2)
    buf = Buffer.from_array(nchw, align=64, axes="NCHW")
    assert buf.copied
    assert buf.layout.is_contiguous("NHWC")
    assert_array_equal(buf.numpy(), nchw, strict=True)


def test_elements_across_their_own_size_are_copied():
    raw = np.zeros(33, np.uint8)
    odd = raw[1:].view(np.float32) if address_of(raw) % 4 == 0 else raw[:32].view(np.float32)
    buf = Buffer.from_array(odd)
    assert buf.copied == bool(address_of(odd) % 4)
    record = np.zeros(5, [("a", "u1"), ("b", "<f4")])["b"]
    buf = Buffer.from_array(record)
    assert buf.copied
    assert_array_equal(buf.numpy(), record, strict=True)


@pytest.mark.parametrize(
    "cut",
    [
        np.s_[::2, :],
        np.s_[:12, ::-1],
        np.s_[::-1, ::3],
        np.s_[5],
        np.s_[:, 3],
        np.s_[3:3],
    ],
)
def test_views_are_taken_with_their_strides(cut):
    base = np.arange(240, dtype=np.int16).reshape(24, 10)
    for a in (base[cut], base[cut].T):
        buf = Buffer.from_array(a)
        assert not buf.copied
        assert_array_equal(buf.view(), a, strict=True)
        assert buf.layout.strides == tuple(s // 2 for s in a.strides) or a.size == 0
        assert buf.align_offset(2) == 0
        assert_array_equal(Buffer.from_array(a, align=4096).numpy(), a, strict=True)


def test_read_only_follows_the_array_or_the_wish():
    a = np.arange(4.0)
    assert not Buffer.from_array(a).readonly
    buf = Buffer.from_array(a, readonly=True)
    assert buf.readonly
    assert not buf.view().flags.writeable
    assert not buf.numpy().flags.writeable
    assert a.flags.writeable
    with pytest.raises(BufferAccessError, match=r"a mutable view was asked of a read-only buffer.*readonly=False"):
        buf.view_mut()
    with pytest.raises(ValueError, match="read-only"):
        buf.view()[0] = 1
    with pytest.raises(ValueError, match="read-only"):
        np.asarray(buf)[0] = 1
    a.flags.writeable = False
    assert Buffer.from_array(a).readonly
    assert Buffer.from_array(a, align=4096).readonly
    with pytest.raises(BufferAccessError, match="readonly=False was asked of read-only memory"):
        Buffer.from_array(a, readonly=False)
    with pytest.raises(BufferAccessError, match="readonly=False"):
        Buffer.from_array(buf, readonly=False)


def test_views_of_a_writable_buffer_differ_in_what_they_allow():
    buf = Buffer.from_array(np.zeros(3, np.uint8))
    buf.view_mut()[:] = 5
    assert buf.view().tolist() == [5, 5, 5]
    with pytest.raises(ValueError, match="read-only"):
        buf.view()[0] = 1


def test_memory_that_overlaps_itself_is_not_written():
    a = np.lib.stride_tricks.as_strided(np.zeros(8), (4, 4), (8, 8))
    buf = Buffer.from_array(a)
    assert_array_equal(buf.view(), a)
    with pytest.raises(AliasError, match="share memory"):
        buf.view_mut()
    assert Buffer.from_array(np.broadcast_to(np.zeros(3), (2, 3))).readonly


@pytest.mark.parametrize(
    ("a", "error", "message"),
    [
        (np.zeros(3, ">f4"), DTypeMismatch, r"other byte order.*a\.astype\('<f4'\)"),
        (np.array([None, 1]), DTypeMismatch, "NumPy's object: convert it"),
        (np.zeros(3, complex), DTypeMismatch, "split it into a.real and a.imag"),
        (np.zeros(3, [("x", "f4")]), DTypeMismatch, "a record of 'x'"),
        (np.zeros(3, "M8[s]"), DTypeMismatch, r"a\.view\('int64'\)"),
        (np.array(["a"]), DTypeMismatch, "text has to become numbers"),
        (np.ma.masked_array([1, 2], [0, 1]), ArgumentError, r"a\.filled\(value\)"),
        ([1, 2, 3], DTypeMismatch, r"list holds no array memory; np\.asarray"),
        (3, DTypeMismatch, "int holds no array memory"),
        (None, DTypeMismatch, "NoneType holds no array memory"),
        ("abc", DTypeMismatch, "str holds no array memory"),
    ],
)
def test_what_cannot_be_taken_says_what_could(a, error, message):
    with pytest.raises(error, match=message):
        Buffer.from_array(a)


@pytest.mark.parametrize("align", [0, -16, 3, 48, 8192, 16.0, True, "64"])
def test_alignments_are_powers_of_two(align):
    with pytest.raises(ArgumentError, match="a power of two up to 4096, such as 16, 32, 64 or 4096; found"):
        Buffer.from_array(np.zeros(4), align=align)
    with pytest.raises(ArgumentError, match="a power of two"):
        Buffer.empty((4,), "u8", align=align)


def test_axes_name_every_dimension_once():
    with pytest.raises(LayoutError, match="axes 'NHWC' name 4 dimensions; the shape has 2"):
        Buffer.from_array(np.zeros((2, 3)), axes="NHWC")


def test_types_are_not_converted_but_codes_are_understood():
    bits = np.array([0x3F80, 0xC000], np.uint16)
    buf = Buffer.from_array(bits, dtype="bf16")
    assert buf.dtype == "bf16"
    assert not buf.copied
    assert buf.numpy().astype(np.float32).tolist() == [1.0, -2.0]
    scales = Buffer.from_array(np.array([127, 128], np.uint8), dtype="e8m0")
    assert scales.numpy().astype(np.float32).tolist() == [1.0, 2.0]
    for a, name in ((np.zeros(2, np.int8), "u8"), (np.zeros(2), "f32"), (np.zeros(2, np.uint32), "f32")):
        with pytest.raises(DTypeMismatch, match=f"asked for {name}, found {dtypes.get(a.dtype)}: nothing is converted"):
            Buffer.from_array(a, dtype=name)


def test_codes_of_packed_types_are_packed_and_keep_their_shape(caplog):
    codes = np.array([[1, -2, 3], [-8, 7, 0]])
    with caplog.at_level(logging.DEBUG, "tilework"):
        buf = Buffer.from_array(codes, dtype="s4", axes="KN")
    assert "packed, 2 to a byte" in caplog.text
    assert buf.copied
    assert buf.shape == (2, 3)
    assert buf.nbytes == 4
    assert buf.view().tolist() == [[0xE1, 0x03], [0x78, 0x00]]
    assert_array_equal(buf.numpy(), codes.astype(np.int8), strict=True)
    assert_array_equal(np.asarray(buf), codes.astype(np.int8), strict=True)
    assert_array_equal(Buffer.from_array(codes.astype(ml_dtypes.int4)).view(), buf.view(), strict=True)
    aligned = Buffer.from_array(codes, dtype="s4", align=4096)
    assert aligned.address % 4096 == 0
    assert_array_equal(aligned.numpy(), buf.numpy(), strict=True)
    with pytest.raises(QuantizationError, match="code 8 at"):
        Buffer.from_array(np.array([8]), dtype="s4")
    with pytest.raises(ValueError, match="without a copy"):
        np.asarray(buf, copy=False)


def test_packed_bytes_are_taken_with_their_shape_in_elements():
    packed = np.array([[0x21, 0x03], [0x54, 0x06]], np.uint8)
    buf = Buffer.from_array(packed, dtype="u4", shape=(2, 3))
    assert not buf.copied
    assert buf.shape == (2, 3)
    assert buf.numpy().tolist() == [[1, 2, 3], [4, 5, 6]]
    assert np.shares_memory(buf.view_mut(), packed)
    rows = np.zeros((2, 6), np.uint8)
    rows[:, :2] = packed
    strided = Buffer.from_array(rows[:, :2], dtype="u4", shape=(2, 3))
    assert not strided.copied
    assert_array_equal(strided.numpy(), buf.numpy(), strict=True)
    gaps = Buffer.from_array(np.repeat(packed, 2, 1)[:, ::2], dtype="u4", shape=(2, 3))
    assert gaps.copied
    assert_array_equal(gaps.numpy(), buf.numpy(), strict=True)
    with pytest.raises(ShapeMismatch, match=r"u4 of shape \(2, 5\) takes bytes of shape \(2, 3\); found \(2, 2\)"):
        Buffer.from_array(packed, dtype="u4", shape=(2, 5))
    with pytest.raises(DTypeMismatch, match="comes as bytes, uint8; found s8"):
        Buffer.from_array(packed.view(np.int8), dtype="u4", shape=(2, 3))
    with pytest.raises(ArgumentError, match="shape= is for packed types"):
        Buffer.from_array(packed, shape=(2, 3))


@pytest.mark.parametrize("shape", [(3, 5), (5,), (0, 5), (3, 0)])
def test_empty_packed_memory_has_rows_of_whole_bytes(shape):
    buf = Buffer.empty(shape, "u4")
    assert buf.view_mut().shape == (*shape[:-1], -(-shape[-1] // 2))
    buf.view_mut()[...] = 0x11
    assert_array_equal(buf.numpy(), np.ones(shape, np.uint8), strict=True)


def test_blocked_memory_shows_blocks_and_gives_elements():
    layout = LayoutSpec((5, 6), axes="NK", blocks=(("N", 4), ("K", 4)))
    buf = Buffer.empty(layout, "s8")
    assert buf.shape == (5, 6)
    assert buf.nbytes == 2 * 2 * 16
    stored = buf.view_mut()
    assert stored.shape == (2, 2, 4, 4)
    stored[...] = 0
    stored[1, 1, 0, 1] = 9
    assert buf.numpy()[4, 5] == 9
    assert buf.numpy().shape == (5, 6)
    again = Buffer.from_array(stored, layout=layout)
    assert not again.copied
    assert_array_equal(again.numpy(), buf.numpy(), strict=True)
    assert Buffer.from_array(stored.transpose(1, 0, 2, 3), layout=layout).copied
    with pytest.raises(ShapeMismatch, match=r"is stored as \(2, 2, 4, 4\); found shape \(5, 6\)"):
        Buffer.from_array(np.zeros((5, 6), np.int8), layout=layout)


def test_a_capacity_is_allocated_and_the_valid_part_shown():
    buf = Buffer.empty(LayoutSpec((3, 4), capacity={0: 10, 1: 8}), "f32")
    assert buf.nbytes == 320
    assert buf.view_mut().shape == (3, 4)
    assert buf.view().strides == (32, 4)


def test_strides_of_an_empty_buffer_are_kept_and_its_first_element_aligned():
    buf = Buffer.empty(LayoutSpec((4, 3), (-16, 1)), "u8", align=64)
    assert buf.address % 64 == 0
    buf.view_mut()[...] = np.arange(12).reshape(4, 3)
    assert buf.view().strides == (-16, 1)
    assert_array_equal(buf.numpy(), np.arange(12, dtype=np.uint8).reshape(4, 3), strict=True)


def test_align_offset_is_the_way_to_the_next_multiple():
    buf = Buffer.from_array(placed(np.zeros(8, np.uint8), 4096, off=100))
    assert [buf.align_offset(n) for n in (1, 4, 16, 64, 4096, 3)] == [0, 0, 12, 28, 3996, -buf.address % 3]
    for n in (0, -1, 1.5, True):
        with pytest.raises(ArgumentError, match="align_offset takes a number of bytes from 1"):
            buf.align_offset(n)


def test_overlap_is_exact_for_views():
    a = np.zeros((8, 8), np.uint8)
    whole, even, odd = (Buffer.from_array(x) for x in (a, a[:, ::2], a[:, 1::2]))
    assert whole.overlaps(whole)
    assert whole.overlaps(even)
    assert not even.overlaps(odd)
    assert odd.overlaps(a)
    assert not even.overlaps(a[:, 1::2])
    assert not whole.overlaps(a.copy())
    line = np.arange(6)
    assert Buffer.from_array(line[:-1]).overlaps(Buffer.from_array(line[1:]))
    assert not Buffer.from_array(line[:3]).overlaps(Buffer.from_array(line[3:]))
    assert Buffer.from_array(line.view(np.int8)).overlaps(line)
    assert not Buffer.from_array(a[:0]).overlaps(whole)


@given(st.tuples(*[st.integers(0, 5)] * 3), st.tuples(*[st.integers(0, 5)] * 3), st.integers(1, 3), st.integers(1, 3))
def test_overlap_agrees_with_the_bytes(a, b, p, q):
    memory = np.zeros((6, 6, 6), np.uint8)
    x, y = memory[a[0] :: p, a[1] : a[1] + 2, a[2] :: q], memory[b[0] :: q, b[1] :: p, b[2] : b[2] + 2]
    x[...] = 1
    assert Buffer.from_array(x).overlaps(Buffer.from_array(y)) == bool(y.any())


def test_scalars_and_numpy_scalars_are_zero_dimensional():
    buf = Buffer.from_array(np.float32(3))
    assert buf.shape == ()
    assert buf.numpy()[()] == 3
    assert Buffer.from_array(np.array(2, np.int8)).layout == LayoutSpec(())


@pytest.mark.parametrize("make", [bytes, bytearray, memoryview, lambda b: array.array("B", b)])
def test_the_buffer_protocol_is_taken_without_copying(make):
    given_bytes = make(b"\x01\x02\x03")
    buf = Buffer.from_array(given_bytes)
    assert buf.dtype == "u8"
    assert buf.numpy().tolist() == [1, 2, 3]
    assert not buf.copied
    assert buf.readonly == isinstance(given_bytes, (bytes, memoryview))
    assert Buffer.from_array(b"").shape == (0,)


class Interface:
    def __init__(self, **interface):
        self.__array_interface__ = interface


class Convertible:
    def __init__(self, keep):
        self.array = np.arange(3.0)
        self.keep = keep

    def __array__(self, dtype=None, copy=None):
        return self.array if self.keep else self.array.copy()


def test_array_interfaces_are_taken_without_copying():
    a = np.arange(6, dtype=np.int16).reshape(2, 3)
    buf = Buffer.from_array(Interface(**a.T.__array_interface__), axes="KN")
    assert not buf.copied
    assert buf.layout == LayoutSpec((3, 2), (1, 3), "KN")
    assert np.shares_memory(buf.view(), a)
    assert not Buffer.from_array(Convertible(keep=True)).copied
    assert Buffer.from_array(Convertible(keep=False)).copied


class Cuda:
    def __init__(self, **interface):
        self.__cuda_array_interface__ = {"version": 3, "strides": None, "data": (4096, False)} | interface


def test_device_memory_is_known_but_not_seen_by_the_host():
    owner = Cuda(shape=(2, 3), typestr="<f4")
    buf = Buffer.from_array(owner, align=64, axes="MK")
    assert buf.device == "cuda:0"
    assert buf.dtype == "f32"
    assert buf.nbytes == 24
    assert buf.address == 4096
    assert not buf.copied
    for look in (buf.view, buf.numpy, buf.view_mut, lambda: np.asarray(buf)):
        with pytest.raises(BufferAccessError, match=r"no view on the host; copy it there first, .*\.cpu\(\)"):
            look()
    assert buf.__cuda_array_interface__["data"] == (4096, False)
    assert buf.__cuda_array_interface__["shape"] == (2, 3)
    assert buf.__dlpack_device__() == (2, 0)
    assert buf.permute("KM").layout.strides == (1, 3)
    assert buf.slice(1).address == 4096 + 12
    assert Buffer.from_array(buf).device == "cuda:0"
    assert buf.overlaps(buf.slice(1))
    assert not buf.slice(0).overlaps(buf.slice(1))
    assert not buf.overlaps(np.zeros(3))
    with pytest.raises(BufferAccessError, match=r"aligned to 32 bytes, 64 were asked.*the host cannot copy"):
        Buffer.from_array(Cuda(shape=(2,), typestr="<f4", data=(4096 + 32, False)), align=64)
    assert Buffer.from_array(Cuda(shape=(2,), typestr="<f4", data=(4096, True))).readonly
    bits = Buffer.from_array(Cuda(shape=(2,), typestr="<V2"), dtype="bf16")
    assert bits.dtype == "bf16"
    assert not hasattr(Buffer.empty((2,), "u8"), "__cuda_array_interface__")


class Exporter:
    """NumPy's DLPack, in an old version without max_version or in the current one."""

    def __init__(self, a, old=False):
        self.array, self.old = a, old

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, **options):
        if self.old and options:
            raise TypeError("no such option")
        return self.array.__dlpack__(**options)


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("kind", ["i1", "u2", "i4", "u8", "f2", "f4", "f8", "?"])
def test_dlpack_is_taken_without_copying(kind, old):
    a = np.arange(24).reshape(4, 6).astype(kind)
    for view in (a, a.T, a[::2, 1:], a[:, ::-1], a[:0], a[1, 2]):
        buf = Buffer.from_dlpack(Exporter(np.asarray(view), old))
        assert_array_equal(buf.numpy(), view, strict=True)
        assert not buf.copied
        assert not buf.readonly
        assert view.size == 0 or view.ndim == 0 or np.shares_memory(buf.view_mut(), a)
    assert Buffer.from_array(Exporter(a, old), align=4096).address % 4096 == 0


def test_dlpack_memory_outlives_its_exporter():
    buf = Buffer.from_dlpack(Exporter(np.arange(100_000)))
    view = buf.view()
    del buf
    trash = [np.zeros(100_000, np.int64) for _ in range(5)]
    assert_array_equal(view, np.arange(100_000))
    assert len(trash) == 5


def test_dlpack_says_what_is_read_only_and_what_is_refused():
    a = np.arange(3.0)
    a.flags.writeable = False
    if NUMPY_EXPORTS_READ_ONLY:
        assert Buffer.from_dlpack(Exporter(a)).readonly
    with pytest.raises(BufferAccessError, match="does not give its memory by DLPack"):
        Buffer.from_dlpack(Exporter(a, old=True))
    with pytest.raises(DTypeMismatch, match="DLPack type code 5 of 64 bits"):
        Buffer.from_dlpack(Exporter(np.zeros(2, np.complex64)))
    with pytest.raises(ArgumentError, match="list has no __dlpack__"):
        Buffer.from_dlpack([1])


def test_buffers_are_given_on_without_copying():
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    buf = Buffer.from_array(a)
    assert np.shares_memory(np.from_dlpack(buf), a)
    assert np.shares_memory(np.asarray(buf), a)
    assert np.asarray(buf).flags.writeable
    assert not np.shares_memory(np.array(buf), a)
    assert np.asarray(buf, dtype=np.float64).dtype == np.float64
    assert buf.__array_interface__["data"] == (buf.address, False)
    assert Buffer.from_array(a, readonly=True).__array_interface__["data"] == (buf.address, True)
    if NUMPY_EXPORTS_READ_ONLY:
        assert not np.from_dlpack(Buffer.from_array(a, readonly=True)).flags.writeable
    bf16 = Buffer.from_array(np.ones(3, ml_dtypes.bfloat16))
    assert np.asarray(bf16).dtype == ml_dtypes.bfloat16
    with pytest.raises(BufferAccessError, match="no DLPack form here"):
        np.from_dlpack(bf16)


def test_torch_tensors_are_taken_without_copying():
    torch = pytest.importorskip("torch")
    t = torch.arange(6, dtype=torch.bfloat16).reshape(2, 3).t()
    buf = Buffer.from_array(t, axes="KN")
    assert buf.dtype == "bf16"
    assert buf.layout.strides == (1, 3)
    t += 1
    assert buf.numpy().astype(np.float32).tolist() == [[1, 4], [2, 5], [3, 6]]
    assert Buffer.from_array(torch.zeros(3).to(torch.float8_e4m3fn)).dtype == "f8e4m3fn"
    with pytest.raises(BufferAccessError, match="detach"):
        Buffer.from_array(torch.zeros(3, requires_grad=True))
    assert torch.from_dlpack(Buffer.from_array(np.arange(3.0))).tolist() == [0, 1, 2]


def test_other_views_share_the_memory():
    a = np.arange(120, dtype=np.int16).reshape(2, 4, 5, 3)
    nhwc = Buffer.from_array(a, axes="NHWC")
    nchw = nhwc.permute("NCHW")
    assert nchw.axes == "NCHW"
    assert_array_equal(nchw.view(), a.transpose(0, 3, 1, 2), strict=True)
    cut = nchw.slice(1, slice(None, None, -1), slice(1, 3))
    assert cut.axes == "CHW"
    assert_array_equal(cut.view(), a.transpose(0, 3, 1, 2)[1, ::-1, 1:3], strict=True)
    cut.view_mut()[...] = 0
    assert not a[1, 1:3].any()
    wide = Buffer.from_array(a[0, 0, :1]).broadcast_to((4, 3))
    assert_array_equal(wide.view(), np.broadcast_to(a[0, 0, :1], (4, 3)), strict=True)
    assert wide.readonly
    assert_array_equal(nhwc.transpose().view(), a.T, strict=True)
    assert nchw.slice(slice(1, 1)).view().shape == (0, 3, 4, 5)
    a.flags.writeable = False
    assert Buffer.from_array(a).transpose().readonly


def test_packed_and_blocked_buffers_are_cut_where_their_bytes_allow():
    codes = np.arange(48).reshape(6, 8) % 16
    buf = Buffer.from_array(codes, dtype="u4")
    assert_array_equal(buf.slice(slice(1, 4), slice(2, 6)).numpy(), codes[1:4, 2:6].astype(np.uint8), strict=True)
    with pytest.raises(LayoutError, match="packs 2 elements to a byte"):
        buf.slice(None, slice(1, 3))
    blocked = Buffer.empty(LayoutSpec((8, 8), blocks=((0, 4),)), "u8")
    blocked.view_mut()[...] = np.arange(64).reshape(2, 8, 4)
    assert_array_equal(blocked.slice(slice(4, 8)).numpy(), blocked.numpy()[4:], strict=True)


def test_quantization_must_fit_and_moves_along():
    a = np.zeros((3, 4), np.uint8)
    quant = QuantParams([1.0, 2.0, 3.0], axis=0)
    buf = Buffer.from_array(a, quant=quant)
    assert buf.quant is quant
    assert Buffer.from_array(buf).quant is quant
    assert buf.transpose().quant == QuantParams([1.0, 2.0, 3.0], axis=1)
    assert buf.slice(slice(1, 3)).quant == QuantParams([2.0, 3.0], axis=0)
    assert buf.slice(None, slice(0, 4, 1)).quant == quant
    assert buf.slice(slice(0, 0)).quant.scale.shape == (0,)
    with pytest.raises(QuantizationError, match="slices of step 1"):
        buf.slice(slice(None, None, 2))
    with pytest.raises(QuantizationError, match=r"axis 1 of shape \(3, 4\) has 4 channels"):
        Buffer.from_array(a, quant=QuantParams([1.0, 2.0, 3.0], axis=1))
    with pytest.raises(DTypeMismatch, match="codes of s8; the buffer holds u8"):
        Buffer.from_array(a, quant=QuantParams(1.0, dtype="s8"))
    row = Buffer.from_array(a[:1], quant=QuantParams([1.0, 2.0, 3.0, 4.0], axis=1)).broadcast_to((2, 5, 4))
    assert row.quant == QuantParams([1.0, 2.0, 3.0, 4.0], axis=-1)


def test_buffers_never_change_and_can_be_sent_elsewhere():
    buf = Buffer.from_array(
        np.arange(6, dtype=np.int8).reshape(2, 3).T, align=64, axes="KN", quant=QuantParams(0.5, dtype="s8")
    )
    with pytest.raises(AttributeError, match="never changes"):
        buf.readonly = True
    there = pickle.loads(pickle.dumps(buf))
    assert_array_equal(there.numpy(), buf.numpy(), strict=True)
    assert (there.dtype, there.axes, there.quant, there.address % 64) == (buf.dtype, "KN", buf.quant, 0)
    packed = Buffer.from_array(np.arange(5)[None] % 4, dtype="u2", readonly=True)
    there = pickle.loads(pickle.dumps(packed))
    assert there.readonly
    assert_array_equal(there.numpy(), packed.numpy(), strict=True)


def test_the_repr_tells_the_contract():
    buf = Buffer.empty((1, 3), "u8", axes="MK")
    assert repr(buf) == "Buffer(u8 (1, 3) MK, align 64, cpu)"
    assert repr(Buffer.from_array(buf, readonly=True)).endswith("cpu, read-only)")


def test_an_empty_buffer_of_a_layout_may_name_its_axes():
    laid = LayoutSpec((2, 3), axes="AB")
    assert Buffer.empty(laid, "u8").layout.axes == "AB"
    assert Buffer.empty(laid, "u8", axes="NC").layout.axes == "NC"
    assert Buffer.empty((2, 3), "u8", axes="NC").layout.axes == "NC"


def test_an_array_that_steps_otherwise_than_a_layout_with_gaps_is_refused():
    gaps = LayoutSpec((4, 3), [8, 1])
    with pytest.raises(LayoutError, match=r"steps \(8, 1\) bytes; the array steps \(3, 1\)"):
        Buffer.from_array(np.zeros((4, 3), np.uint8), layout=gaps)


def test_a_copy_of_memory_that_repeats_itself_has_its_axes_in_order():
    window = np.lib.stride_tricks.sliding_window_view(placed(np.arange(9, dtype=np.int16), 64, off=2), 4)
    buf = Buffer.from_array(window, align=64)
    assert buf.copied
    assert buf.layout.strides == (4, 1)
    assert_array_equal(buf.numpy(), window, strict=True)


def test_a_buffer_is_wrapped_as_it_is_or_with_other_axes():
    buf = Buffer.from_array(np.zeros((2, 3), np.uint8), axes="MK")
    assert Buffer.from_array(buf).layout.axes == "MK"
    assert Buffer.from_array(buf, axes="NC").layout.axes == "NC"


def test_memory_at_an_address():
    a = np.arange(12, dtype=np.int16).reshape(3, 4)
    view = array_at(address_of(a) + 2 * 11, (3, 2), (-8, -4), a.dtype, False, a)
    assert_array_equal(view, a[::-1, ::-2], strict=True)
    assert np.shares_memory(view, a)
    assert array_at(0, (2, 3), (6, 2), a.dtype, True, None).shape == (2, 3)  # no memory: arbitrary content
    assert not array_at(address_of(a), (0, 3), (6, 2), a.dtype, True, a).flags.writeable
