"""Runs a kernel by itself: on the reference, whole, and on the CPU, in odd rectangles over poisoned outputs."""

import ctypes
import itertools

import numpy as np
import pytest

from tilework.kernels import factory, forge
from tilework.kernels.cuda.interpreter import launching
from tilework.kernels.entry import OperandType, bits_view
from tilework.primitives import dtypes
from tilework.primitives.kernel import index_space, signature
from tilework.primitives.sizes import evaluate, evaluate_shape, solve, substitute

CALL = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


def sizes_of(kernel, operands):
    """The kernel's own size names, learnt from its operands; and the shape and type of what it writes."""
    env, written = {}, None
    for spec, array in [*zip(signature(kernel), operands, strict=False)] * 2:
        assert array.dtype == dtypes.get(spec.dtype).numpy, spec.slot
        solve(spec.shape, array.shape, env, spec.slot)
    written = signature(kernel)[-1]
    return env, evaluate_shape(written.shape, env), dtypes.get(written.dtype).numpy


def poisoned(shape, dtype):
    return (
        np.frombuffer(np.full(int(np.prod(shape)) * dtype.itemsize, 0x5A, np.uint8).tobytes(), dtype)
        .reshape(shape)
        .copy()
    )


def _run_on(backend, kernel, *operands, cut=None, out=None, variant=None, seed=None):
    """Run and return the output. `cut`: the edge of the rectangles along each axis; None: one rectangle.
    `seed`: of the order in which the CUDA interpreter runs warps; None: in step.

    Raises AssertionError where the tiles return a status.
    """
    operands = tuple(np.asarray(x) for x in operands)
    env, shape, dtype = sizes_of(kernel, operands)
    if out is None:
        out = poisoned(shape, dtype)
    facts = {
        "kernel": kernel,
        "dtypes": tuple(dtypes.get(x.dtype).name for x in (*operands, out)),
        "ranks": tuple(x.ndim for x in (*operands, out)),
    }
    built = factory.get(kernel.name, backend, variant, **facts)
    if isinstance(built, factory.Whole):
        built.fn(*operands, out)
        return out
    if backend == "cuda":
        status = launching.execute(built, *operands, out, seed=seed)
        assert status == 0, f"status {status}"
        return out
    params = ()
    if isinstance(built, factory.WithParams):
        built, params = built.tile, tuple(built.params(*operands, out))
    extents = [evaluate(substitute(axis.size(), env), env) for axis in index_space(kernel).axes]
    arrays = tuple(bits_view(x) for x in (*operands, out))
    types = tuple(OperandType(name, rank) for name, rank in zip(facts["dtypes"], facts["ranks"], strict=True))
    if forge.jit_disabled():
        plain = forge.python_tile(built)

        def call(bounds):
            with np.errstate(all="ignore"):
                return int(plain(*bounds, *arrays, *params) or 0)

    else:
        entry = CALL(forge.entry(built, len(extents), types, len(params)).address)
        bases = np.zeros(1, np.int64)
        words = [w for a in arrays for w in (0, a.__array_interface__["data"][0], *a.shape, *a.strides)]
        block = np.array([*words, *params, 0], np.int64)

        def call(bounds):
            ranges = np.array([*bounds, 0], np.int64)
            return entry(bases.ctypes.data, block.ctypes.data, ranges.ctypes.data)

    steps = [cut or max(n, 1) for n in extents]
    pieces = [[(lo, min(lo + step, n)) for lo in range(0, n, step)] for n, step in zip(extents, steps, strict=True)]
    for rectangle in itertools.product(*pieces):
        status = call([bound for piece in rectangle for bound in piece])
        assert status == 0, f"status {status}"
    return out


@pytest.fixture
def run_on():
    """run_on(backend, kernel, *operands): on one backend; a status becomes an AssertionError."""
    return _run_on


@pytest.fixture(params=["reference", "cpu", "cpu-tiles", "cuda"])
def run(request):
    """run(kernel, *operands): on the reference, on the CPU whole and in rectangles of 3, and on the CUDA interpreter."""
    backend, _, tiles = request.param.partition("-")
    return lambda kernel, *operands, **more: _run_on(backend, kernel, *operands, cut=3 if tiles else None, **more)


@pytest.fixture
def same():
    """same(kernel, *operands): the CPU's tiles, CUDA's kernels and the reference give the same bits; returns them."""

    def check(kernel, *operands, variant=None):
        right = _run_on("reference", kernel, *operands)
        for cut in (None, 3):
            found = _run_on("cpu", kernel, *operands, cut=cut, variant=variant)
            np.testing.assert_array_equal(found, right, strict=True)
            assert found.tobytes() == right.tobytes() or np.isnan(right.astype(np.float64)).any()
        if variant is None and factory.variants(kernel.name, "cuda"):
            found = _run_on("cuda", kernel, *operands)
            np.testing.assert_array_equal(found, right, strict=True)
            assert found.tobytes() == right.tobytes() or np.isnan(right.astype(np.float64)).any()
        return right

    return check
