"""Elements that are not zero, rows that differ, and elements at the places of a grid."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from tilework.executors import eager
from tilework.kernels import ops
from tilework.primitives.errors import DTypeMismatch, ShapeMismatch
from tilework.primitives.pipeline import Pipeline

F32 = np.float32


@pytest.mark.parametrize("shape", [(0, 3), (1, 1), (7, 33)])
def test_places_of_elements_that_are_not_zero_come_in_order(everywhere, rng, shape):
    x = rng.integers(0, 2, shape).astype(F32)
    x[x == 0] = -0.0
    count, found = everywhere(ops.non_zero, x)
    assert_array_equal(found[:, :count], np.stack(np.nonzero(x)))
    assert not found[:, count:].any()


@pytest.mark.parametrize("sorted", [True, False])
def test_elements_that_differ_come_once_with_where_and_how_often(everywhere, rng, sorted):
    x = rng.integers(-3, 4, 50).astype(F32)
    x[[3, 9]], x[20], x[21] = np.nan, -0.0, 0.0
    count, values, first, inverse, counts = everywhere(lambda v: ops.unique(v, sorted=sorted), x)
    right = np.unique(x, return_index=True, return_inverse=True, return_counts=True)
    assert count == len(right[0])
    assert_array_equal(values[inverse], x)
    order = np.argsort(first[:count])
    assert_array_equal(order, np.argsort(right[1]) if sorted else np.arange(count))
    assert_array_equal(np.sort(first[:count]), np.sort(right[1]))
    assert counts[:count].sum() == len(x)
    assert not counts[count:].any()


@pytest.mark.parametrize("axis", [0, -1])
def test_slices_that_differ_come_once(everywhere, rng, axis):
    x = rng.integers(0, 2, (6, 2, 7)).astype(np.int8)
    count, values, first, inverse, counts = everywhere(lambda v: ops.unique(v, axis), x)
    right = np.unique(x, axis=axis, return_index=True, return_inverse=True, return_counts=True)
    assert_array_equal(np.take(values, np.arange(count), axis), right[0])
    assert_array_equal(first[:count], right[1])
    assert_array_equal(inverse, right[2].reshape(-1))
    assert_array_equal(counts[:count], right[3])


def test_half_precision_is_found_too():
    x = np.float16([[2, 0], [2, 1]])
    assert [np.asarray(a).tolist() for a in eager.non_zero(x)] == [3, [[0, 1, 1, 0], [0, 0, 1, 0]]]
    count, values, *_ = eager.unique(x)
    assert values.dtype == np.float16
    assert values[: int(count)].tolist() == [0, 1, 2]


@pytest.mark.parametrize(("mode", "padding"), [("linear", "zeros"), ("linear", "reflection"), ("cubic", "border")])
@pytest.mark.parametrize("align", [False, True])
def test_a_grid_reads_what_torch_reads(peer, everywhere, rng, mode, padding, align):
    torch = peer("torch")
    x = rng.standard_normal((2, 3, 5, 7)).astype(F32)
    grid = (rng.standard_normal((2, 2, 66, 2)) * 1.5).astype(
        F32
    )  # a row one behind the piece that is worked out at once
    found = everywhere(lambda v, g: ops.grid_sample(v, g, mode, padding, align), x, grid)
    names = {"linear": "bilinear", "cubic": "bicubic"}
    right = torch.nn.functional.grid_sample(torch.tensor(x), torch.tensor(grid), names[mode], padding, align)
    assert_allclose(found, right.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_an_image_that_runs_backwards_in_memory_is_read_as_its_copy(rng, mode):
    x = rng.standard_normal((2, 3, 5, 7)).astype(F32)[:, ::-1, ::-1, ::-1]  # offsets within it are below 0
    grid = (rng.standard_normal((2, 2, 9, 2)) * 1.5).astype(F32)
    assert_array_equal(eager.grid_sample(x, grid, mode), eager.grid_sample(x.copy(), grid, mode))


def test_places_far_outside_and_ties_have_an_answer(everywhere):
    x = F32([[[10, 20, 30, 40]]])
    grid = F32([[[np.nan], [np.inf], [-3e38], [-1], [-0.5], [0], [1], [1.01]]])
    near = {
        pad: everywhere(lambda v, g, p=pad: ops.grid_sample(v, g, "nearest", p), x, grid) for pad in ("zeros", "border")
    }
    # -1 is half an element before the first, 1 half behind the last: both tie to even places, 0 and 4
    assert near["zeros"].ravel().tolist() == [10, 0, 0, 10, 10, 30, 0, 0]
    assert near["border"].ravel().tolist() == [10, 40, 10, 10, 10, 30, 40, 40]


def test_what_cannot_be_found_is_refused():
    pipe = Pipeline("p")
    x, grid = pipe.input("x", "f32", (1, 2, 4, 4)), pipe.input("g", "f32", (1, 3, 3, 3))
    with pytest.raises(ShapeMismatch, match="as many as these axes"):
        ops.grid_sample(x, grid)
    with pytest.raises(DTypeMismatch, match="mode"):
        ops.grid_sample(x, pipe.input("h", "f32", (1, 3, 3, 2)), "bilinear")
    with pytest.raises(DTypeMismatch, match="f8"):
        ops.unique(pipe.input("s", "f8e4m3fn", (3,)))
