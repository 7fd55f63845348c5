"""Attention on reals and on codes, the cache that it reads, and rotary positions."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from tilework.executors import SingleThreadExecutor, TilingExecutor, eager
from tilework.kernels import ops
from tilework.primitives.errors import ArgumentError, DTypeMismatch, ShapeMismatch
from tilework.primitives.pipeline import Pipeline

F32 = np.float32


def heads(rng, batch, heads, shared, m, n, depth, width):
    shapes = ((batch, heads, m, depth), (batch, shared, n, depth), (batch, shared, n, width))
    return [rng.standard_normal(s).astype(F32) for s in shapes]


def in_float64(q, k, v, seen=None, added=0.0):
    group = q.shape[1] // k.shape[1]
    k, v = (np.repeat(x.astype(np.float64), group, 1) for x in (k, v))
    s = q.astype(np.float64) @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]) + added
    s = s if seen is None else np.where(seen, s, -np.inf)
    p = np.exp(s - s.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True) @ v


@pytest.mark.parametrize(("m", "n", "depth", "width"), [(1, 1, 4, 16), (65, 63, 20, 16), (64, 130, 16, 20)])
def test_attention_has_the_same_bits_everywhere_around_its_blocks(everywhere, rng, m, n, depth, width):
    q, k, v = heads(rng, 1, 2, 2, m, n, depth, width)
    assert_allclose(everywhere(ops.attention, q, k, v, tiles=False), in_float64(q, k, v), rtol=1e-4, atol=1e-5)


def test_masks_lengths_and_causality_together_with_grouped_heads(everywhere, rng):
    q, k, v = heads(rng, 2, 4, 2, 70, 75, 8, 16)
    mask = rng.standard_normal((4, 1, 75)).astype(F32)
    lengths = np.array([75, 40])

    def op(q, k, v, mask, lengths):
        return ops.attention(q, k, v, mask, lengths=lengths, causal=True, offset=5)

    found = everywhere(op, q, k, v, mask, lengths, tiles=False)
    seen = (np.arange(75) <= np.arange(70)[:, None] + 5) & (np.arange(75) < lengths[:, None, None, None])
    assert_allclose(found, in_float64(q, k, v, seen, mask), rtol=1e-4, atol=1e-5)


def test_heads_of_one_query_that_share_keys_have_masks_of_their_own(everywhere, rng):
    q, k, v = heads(rng, 2, 10, 2, 1, 66, 8, 16)
    mask = rng.standard_normal((10, 1, 66)).astype(F32)

    def op(q, k, v, mask):
        return ops.attention(q, k, v, mask, causal=True, offset=64)

    found = everywhere(op, q, k, v, mask, tiles=False)
    assert_allclose(found, in_float64(q, k, v, np.arange(66) < 65, mask), rtol=1e-4, atol=1e-5)


def test_a_bool_mask_hides_keys_and_a_query_without_keys_gives_zeros(rng):
    q, k, v = heads(rng, 1, 1, 1, 3, 9, 4, 16)
    seen = np.ones((3, 9), bool)
    seen[1, 4:] = False
    seen[2] = False
    found = eager.attention(q, k, v, seen)
    assert_allclose(found[0, 0, :2], in_float64(q[:, :, :2], k, v, seen[:2])[0, 0], rtol=1e-4)
    assert (found[0, 0, 2] == 0).all()


def test_what_lies_behind_the_length_is_never_read(rng):
    q, k, v = heads(rng, 1, 1, 1, 5, 70, 4, 16)
    whole = eager.attention(q, k[:, :, :9].copy(), v[:, :, :9].copy())
    k[:, :, 9:], v[:, :, 9:] = np.nan, np.nan
    assert_array_equal(eager.attention(q, k, v, lengths=[9]), whole)


def test_the_other_layout_gives_the_same_bits(rng):
    q, k, v = heads(rng, 2, 2, 2, 17, 19, 8, 16)
    moved = [np.ascontiguousarray(x.transpose(0, 2, 1, 3)) for x in (q, k, v)]
    assert_array_equal(eager.attention(*moved, layout="BTHD").transpose(0, 2, 1, 3), eager.attention(q, k, v))


def test_attention_on_codes_has_the_same_bits_everywhere_and_is_close(everywhere, rng):
    q, k, v = heads(rng, 1, 2, 1, 66, 70, 18, 20)
    found = everywhere(ops.attention, q, k, v, compute="int8", causal=True, offset=4, tiles=False)
    seen = np.arange(70) <= np.arange(66)[:, None] + 4
    right = in_float64(q, k, v, seen)
    assert np.abs(found - right).max() < 0.03 * np.abs(right).max()


def test_a_quantized_cache_lives_from_run_to_run(rng):
    depth, capacity = 16, 12
    pipe = Pipeline("decode")
    shapes = {"q": (1, 2, "T", depth), "k": (1, 1, "T", depth), "v": (1, 1, "T", depth)}
    q, k, v = (pipe.input(name, "f32", shape) for name, shape in shapes.items())
    position = pipe.argument("position", "s64")
    codes, scales = [], []
    for name, x in (("k", k), ("v", v)):
        made, scale, _ = ops.dynamic_quantize(x, "s8", symmetric=True, granularity="row")
        codes.append(ops.cache_append(pipe.state(f"{name}_codes", "s8", (1, 1, capacity, depth)), made, position))
        scales.append(ops.cache_append(pipe.state(f"{name}_scale", "f32", (1, 1, capacity, 1)), scale, position))
    q_codes, q_scale, _ = ops.dynamic_quantize(q, "s8", symmetric=True, granularity="row")
    pipe.output("y", ops.attention(q_codes, *codes, causal=True, offset=position, scales=(q_scale, *scales)))
    data = {name: rng.standard_normal((1, n, 9, depth)).astype(F32) for name, n in (("q", 2), ("k", 1), ("v", 1))}
    for executor in (SingleThreadExecutor("reference"), TilingExecutor(2)):
        plan, parts = executor.compile(pipe), []
        for lo, hi in ((0, 4), (4, 5), (5, 9)):
            parts.append(plan.run({**{n: x[:, :, lo:hi] for n, x in data.items()}, "position": lo})["y"])
        whole = eager.attention(*data.values(), compute="int8", causal=True)
        assert_array_equal(np.concatenate(parts, 2), whole)
    with pytest.raises(ArgumentError, match="cache"):
        plan.run({**{n: x[:, :, :4] for n, x in data.items()}, "position": capacity - 3})


@pytest.mark.parametrize("interleaved", [False, True])
def test_rotary_turns_pairs_and_leaves_the_rest(everywhere, rng, interleaved):
    x = rng.standard_normal((2, 3, 10)).astype(F32)
    angle = rng.standard_normal((3, 4)).astype(F32)
    found = everywhere(ops.rotary, x, np.cos(angle), np.sin(angle), interleaved=interleaved, tiles=False)
    pairs = x[..., :8].reshape(2, 3, 4, 2) if interleaved else x[..., :8].reshape(2, 3, 2, 4).swapaxes(-1, -2)
    turned = (pairs[..., 0] + 1j * pairs[..., 1]) * np.exp(1j * angle)
    right = np.stack([turned.real, turned.imag], -1)
    right = right.reshape(2, 3, 8) if interleaved else right.swapaxes(-1, -2).reshape(2, 3, 8)
    assert_allclose(found, np.concatenate([right, x[..., 8:]], -1), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("error", "text", "change"),
    [
        (ShapeMismatch, "four dimensions", {"q": ("f32", (3, 4, 5))}),
        (DTypeMismatch, "s8 with scales", {"q": ("s8", (1, 2, 3, 4))}),
        (ShapeMismatch, "a multiple", {"q": ("f32", (1, 3, 3, 4))}),
    ],
)
def test_what_does_not_fit_is_named(error, text, change):
    pipe = Pipeline()
    given = {"q": ("f32", (1, 2, 3, 4)), "k": ("f32", (1, 2, 3, 4)), "v": ("f32", (1, 2, 3, 4)), **change}
    with pytest.raises(error, match=text):
        ops.attention(*(pipe.input(name, *spec) for name, spec in given.items()))
