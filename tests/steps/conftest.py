"""Runs one op everywhere: the reference, tiles of odd sizes, one thread and two; the bits must be the same."""

import numpy as np
import pytest

from tilework.executors import SingleThreadExecutor, TilingExecutor
from tilework.primitives import dtypes
from tilework.primitives.kernel import index_space
from tilework.primitives.pipeline import Pipeline, Value

REFERENCE = SingleThreadExecutor("reference")
TILE = 3


def _pipeline(op, arrays, options):
    pipe = Pipeline("one op")
    values = [pipe.input(f"x{n}", dtypes.get(a.dtype), a.shape) for n, a in enumerate(arrays)]
    found = op(*values, **options)
    for n, value in enumerate(found if isinstance(found, tuple) else (found,)):
        pipe.output(f"y{n}", value)
    return pipe


def _small_tiles(pipe):
    """A tile of 3 along every axis that can be cut."""
    tile = {}
    for step in pipe.steps:
        space = index_space(step.kernel)
        written = [s for s in step.specs if s.writes]
        axes = [a for a in space.axes if a.split and all(a.name in (s.follows or ()) for s in written)] if space else []
        if axes:
            tile[step.name] = {a.name: TILE for a in axes}
    return tile


def _check(op, *arrays, tiles=True, **options):
    arrays = [np.asarray(a) for a in arrays]
    pipe = _pipeline(op, arrays, options)
    inputs = {f"x{n}": a for n, a in enumerate(arrays) if f"x{n}" in pipe.values}
    right = REFERENCE.run(pipe, inputs)
    executors = [SingleThreadExecutor(debug=True), TilingExecutor(threads=2)]
    if tiles:
        executors.append(TilingExecutor(threads=1, fuse=False, chain=False, tile=_small_tiles(pipe)))
    for executor in executors:
        plan = executor.compile(pipe)
        out = {
            name: _poisoned(value, array)
            for (name, value), array in zip(pipe.outputs.items(), right.values(), strict=True)
        }
        found = plan.run(inputs, out=out)
        if isinstance(executor, TilingExecutor):
            assert "Python" not in plan.explain()
        for name, array in right.items():
            _same_bits(found[name], array)
    results = tuple(right.values())
    return results if len(results) > 1 else results[0]


def _poisoned(value: Value, array):
    return (
        np.frombuffer(b"\x5a" * max(array.nbytes, 1), np.uint8)[: array.nbytes]
        .copy()
        .view(array.dtype)
        .reshape(array.shape)
    )


def _same_bits(found, right):
    assert found.dtype == right.dtype
    assert found.shape == right.shape
    if found.tobytes() != np.ascontiguousarray(right).tobytes():
        a, b = found.astype(np.float64), right.astype(np.float64)
        np.testing.assert_array_equal(a, b)  # NaN with other bits are equal; zeros of other signs are not
        np.testing.assert_array_equal(np.signbit(a) & (a == 0), np.signbit(b) & (b == 0))


@pytest.fixture(scope="session")
def everywhere():
    """everywhere(op, *arrays, **options): the op's results, after comparing every way to run it with the reference."""
    return _check


@pytest.fixture
def rng():
    return np.random.default_rng(7)
