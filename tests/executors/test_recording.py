"""Operands without data: views of them are where NumPy's views of an array would be, and what needs data says so."""

import numpy as np
import pytest

from tilework.executors.recording import NeedsData, Operand, RecordingContext
from tilework.primitives.errors import BufferAccessError, LayoutError, PipelineError
from tilework.primitives.kernel import ArgSpec

ARRAY = np.zeros((4, 6, 5), np.int16)
VIEWS = {
    "slice": lambda a: a[1:3, ::-2],
    "number": lambda a: a[2],
    "element": lambda a: a[1, 2, 3, ...],
    "numpy number": lambda a: a[np.int64(1)],
    "new axis": lambda a: a[None, ..., 1],
    "transpose": lambda a: a.T,
    "transposed": lambda a: a.transpose(2, 0, 1),
    "moveaxis": lambda a: np.moveaxis(a, 0, 2),
    "swapaxes": lambda a: np.swapaxes(a, 0, 1),
    "expand": lambda a: np.expand_dims(a, 1),
    "squeeze": lambda a: np.squeeze(a[:1], 0),
    "flip": lambda a: np.flip(a, 1),
    "broadcast": lambda a: np.broadcast_to(a[:1], (4, 6, 5)),
    "reshape": lambda a: np.reshape(a, (24, 5)),
    "reshaped": lambda a: a.reshape(4, -1),
    "bytes": lambda a: a.view(np.uint8),
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_is_where_numpys_would_be(name):
    operand = Operand.make(3, 100, np.int16, ARRAY.shape)
    found, right = VIEWS[name](operand), VIEWS[name](ARRAY)
    moved = right.__array_interface__["data"][0] - ARRAY.__array_interface__["data"][0]
    assert (found.shape, found.strides, found.dtype) == (right.shape, right.strides, right.dtype)
    assert (found.base, found.offset) == (3, 100 + moved)
    assert (found.ndim, found.size, found.itemsize, found.nbytes) == (
        right.ndim, right.size, right.itemsize, right.nbytes,
    )  # fmt: skip
    assert found.constant is None


def test_one_element_is_a_view_too():
    found = Operand.make(3, 100, np.int16, ARRAY.shape)[1, 2, 3]
    assert (found.shape, found.offset) == ((), 100 + 2 * (30 + 10 + 3))


def test_numpy_asks_an_operand_for_its_shape():
    operand = Operand.make(1, 0, np.float32, (4, 6), (4, 16))
    assert np.shape(operand) == (4, 6)
    assert np.ndim(operand) == 2
    assert np.size(operand) == 24
    assert len(operand) == 4
    assert operand.strides == (4, 16)
    assert operand.restrided((2, 2), (8, 4)).strides == (8, 4)


def test_what_needs_data_says_so():
    operand = Operand.make(1, 0, np.int16, (4, 6))
    for ask in (
        lambda: np.sum(operand),
        lambda: operand[np.array([0, 1])],
        lambda: operand[0, [1, 2]],
        lambda: np.asarray(operand),
        lambda: bool(operand),
        lambda: float(operand),
        lambda: np.negative(operand),
    ):
        with pytest.raises(NeedsData):
            ask()
    with pytest.raises(LayoutError, match=r"shape \(6, 4\) with strides \(2, 12\) is not \(24,\) without a copy"):
        operand.T.reshape(24)


def test_a_constant_has_its_data():
    operand = Operand.of(ARRAY + np.int16(7))
    assert np.asarray(operand).sum() == 7 * ARRAY.size
    assert np.asarray(operand[1:, 2]).shape == (3, 5)
    assert operand.base == 0


def test_arguments_are_what_is_asked_for_where_they_are_constants():
    specs = tuple(ArgSpec(name, "s64", shape=(2,)) for name in ("sizes", "later"))
    specs += (ArgSpec("one", "f32"), ArgSpec("none", "s64", optional=True), ArgSpec("y", "s64", "write", shape=(2,)))
    held = {
        "sizes": Operand.of(np.array([3, 5])),
        "one": Operand.of(np.float32(1.5)),
        "later": Operand.make(1, 0, np.int64, (2,)),
    }
    held["y"] = Operand.make(2, 0, np.int64, (2,))
    ctx = RecordingContext("step", specs, held, lambda nbytes: None)
    sizes = ctx.arg("sizes", tuple)
    assert (type(sizes), sizes, type(sizes[0])) == (tuple, (3, 5), int)
    assert ctx.arg("sizes", np.ndarray).tolist() == [3, 5]
    assert [ctx.arg("one"), ctx.arg("one", int), ctx.arg("none")] == [1.5, 1, None]
    with pytest.raises(NeedsData, match="the value of 'later'"):
        ctx.arg("later", tuple)
    with pytest.raises(PipelineError, match="has no slot 'absent'"):
        ctx.arg("absent")
    with pytest.raises(BufferAccessError, match="reads slot 'y', which it declares as 'write'"):
        ctx.read("y")
    with pytest.raises(BufferAccessError, match="writes slot 'sizes', which it declares as 'read'"):
        ctx.write("sizes")
