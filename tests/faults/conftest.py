"""What the tests of known kinds of faults share: one step on every executor, with outputs poisoned beforehand."""

import numpy as np
import pytest

import tilework as tw


def _inputs(pipe, arrays):
    """Pipeline inputs of the arrays; integers of a wide type stay as they are."""
    return [pipe.input(f"x{n}", tw.Buffer.from_array(a).dtype, a.shape) for n, a in enumerate(arrays)]


def _executors():
    yield "reference", tw.SingleThreadExecutor(backend="reference")
    yield "single", tw.SingleThreadExecutor()
    yield "tiled x1", tw.TilingExecutor(threads=1)
    yield "unfused x2", tw.TilingExecutor(threads=2, fuse=False, chain=False)
    yield "generic", tw.TilingExecutor(threads=1, isa="generic")


def _everywhere(build, *arrays):
    """What build(*values) gives for the arrays on every executor, an array or a tuple; one differing byte fails."""
    pipe = tw.Pipeline("fault")
    values = build(*_inputs(pipe, arrays))
    for n, value in enumerate(values if isinstance(values, tuple) else (values,)):
        pipe.output(f"y{n}", value)
    given = {f"x{n}": a for n, a in enumerate(arrays)}
    right = None
    for executor_name, executor in _executors():
        plan = executor.compile(pipe)
        found = plan.run(given)
        poisoned = {name: np.empty_like(y) for name, y in found.items()}
        for out in poisoned.values():
            out.reshape(-1).view(np.uint8)[:] = 0x5A
        plan.run(given, out=poisoned)
        right = found if right is None else right
        for name, y in found.items():
            assert y.tobytes() == poisoned[name].tobytes(), (
                f"{executor_name}: a poisoned {name} differs from a fresh one"
            )
            assert (y.dtype, y.shape) == (right[name].dtype, right[name].shape), f"{executor_name}: {name}"
            assert y.tobytes() == right[name].tobytes(), (
                f"{executor_name}: {name} differs from the reference at {np.argwhere(y != right[name])[:4]}"
            )
    return tuple(right.values()) if isinstance(values, tuple) else right["y0"]


@pytest.fixture(scope="session")
def everywhere():
    return _everywhere


def exact_gemm(a, b, a_zero=0, b_zero=0):
    """The product in int64 of codes less their zero points."""
    return (a.astype(np.int64) - np.asarray(a_zero, np.int64)) @ (b.astype(np.int64) - np.asarray(b_zero, np.int64))


def exact_quantize(x, scale, zero, low, high):
    """clip(rint(x / scale) + zero) with one float32 division; NaN gives the zero point."""
    with np.errstate(all="ignore"):
        r = np.rint(np.asarray(x, np.float32) / np.asarray(scale, np.float32)).astype(np.float64)
    return np.where(np.isnan(r), zero, np.clip(r + zero, low, high)).astype(np.int64)


@pytest.fixture(scope="session")
def exact():
    """The plain formulas: exact.gemm, exact.quantize."""

    class Exact:
        gemm = staticmethod(exact_gemm)
        quantize = staticmethod(exact_quantize)

    return Exact
