"""Normalization of groups of channels, and of channels by their neighbours."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from tilework.executors import eager
from tilework.kernels import ops
from tilework.primitives.errors import ArgumentError, DTypeMismatch, ShapeMismatch
from tilework.primitives.pipeline import Pipeline

F32 = np.float32


def grouped(x, groups, scale, bias):
    rows = x.astype(np.float64).reshape(x.shape[0], groups, -1)
    rows = (rows - rows.mean(2, keepdims=True)) / np.sqrt(rows.var(2, keepdims=True) + 1e-5)
    along = (-1, *(1,) * (x.ndim - 2))
    return rows.reshape(x.shape) * scale.reshape(along) + bias.reshape(along)


@pytest.mark.parametrize("inside", [(3, 5), (4, 4), (1, 17), (0, 3)])  # around a vector of a channel
def test_groups_of_channels_are_normalized_with_the_same_bits_everywhere(everywhere, rng, inside):
    x = rng.standard_normal((2, 6, *inside)).astype(F32)
    scale, bias = rng.standard_normal((2, 6)).astype(F32)
    found = everywhere(lambda v, s, b: ops.group_norm(v, 3, s, b), x, scale, bias)
    if x.size:
        assert_allclose(found, grouped(x, 3, scale, bias), rtol=1e-4, atol=1e-5)


def test_channels_that_lie_last_are_normalized_too(everywhere, rng):
    x = rng.standard_normal((2, 3, 7, 4)).astype(F32)
    scale, bias = rng.standard_normal((2, 4)).astype(F32)
    found = everywhere(lambda v: ops.instance_norm(ops.transpose(v, [0, 3, 1, 2]), scale, bias), x)
    assert_allclose(found, grouped(np.moveaxis(x, 3, 1), 4, scale, bias), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("size", [1, 4, 5, 9])
def test_channels_are_normalized_by_their_neighbours(everywhere, rng, size):
    x = rng.standard_normal((2, 6, 3, 5)).astype(F32)
    found = everywhere(lambda v: ops.local_response_norm(v, size, 0.3, 0.75, 1.5), x)
    wide = np.pad(x.astype(np.float64) ** 2, [(0, 0), ((size - 1) // 2, size // 2), (0, 0), (0, 0)])
    total = sum(wide[:, n : n + 6] for n in range(size))
    assert_allclose(found, x / (1.5 + 0.3 / size * total) ** 0.75, rtol=1e-5)


def test_a_response_worked_out_by_hand():
    x = F32([[[1], [2], [3]]])
    found = eager.local_response_norm(x, 2, 2.0, 1.0, 1.0)  # each with the next one: 1 + 4, 4 + 9, 9
    assert_array_equal(found, F32([[[1 / F32(6)], [2 / F32(14)], [3 / F32(10)]]]))


def test_what_cannot_be_normalized_is_refused():
    pipe = Pipeline("p")
    x = pipe.input("x", "f32", (1, 6, 4))
    with pytest.raises(ArgumentError, match="4 groups of 6 channels"):
        ops.group_norm(x, 4)
    with pytest.raises(ShapeMismatch, match=r"one for each channel"):
        ops.group_norm(x, 2, np.ones((6, 1), F32))
    with pytest.raises(ShapeMismatch, match="rank 3"):
        ops.instance_norm(pipe.input("y", "f32", (1, 6)))
    with pytest.raises(DTypeMismatch, match="s32"):
        ops.local_response_norm(pipe.input("z", "s32", (1, 6, 4)), 3)
