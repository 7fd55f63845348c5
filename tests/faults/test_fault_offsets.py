"""Kinds of faults that indices of 32 bits had: the last elements of what is larger, in files of which little is there."""

import mmap
import sys

import numpy as np
import pytest

import tilework as tw

FAR = 2**31 + 64
EXECUTORS = [
    tw.SingleThreadExecutor(backend="reference"),
    tw.SingleThreadExecutor(),
    tw.TilingExecutor(threads=2),
    tw.TilingExecutor(threads=1, isa="generic"),
]

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux") or sys.maxsize < 2**40, reason="files with holes, mapped, as Linux has them"
)


@pytest.fixture
def memory(tmp_path):
    """Bytes that are 0 and take no room until they are written: 5 GiB."""
    with (tmp_path / "holes").open("wb+") as file:
        file.truncate(5 << 30)
        mapped = mmap.mmap(file.fileno(), 5 << 30)
    return np.frombuffer(mapped, np.uint8)


def ran(executor, build, x, out=None):
    pipe = tw.Pipeline("far")
    pipe.output("y", build(pipe.input("x", tw.Buffer.from_array(x).dtype, x.shape)))
    return executor.run(pipe, {"x": x}, **({} if out is None else {"out": {"y": out}}))["y"]


@pytest.mark.parametrize("executor", EXECUTORS, ids=repr)
@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.float32])
def test_elements_past_two_to_the_31_bytes_are_gathered_and_cut(memory, executor, dtype):
    count = FAR if dtype == np.int8 else FAR // np.dtype(dtype).itemsize + 64
    x = memory[: count * np.dtype(dtype).itemsize].view(dtype)
    places = np.array([0, 1, count - 65, count - 64, count - 2, count - 1])
    x[places] = np.arange(6) + 7
    assert ran(executor, lambda v: tw.ops.gather(v, places), x).tolist() == [7, 8, 9, 10, 11, 12]
    cut = ran(executor, lambda v: tw.ops.slice(v, [count - 2], [count]), x)
    assert cut.tolist() == [11, 12]


@pytest.mark.parametrize("executor", EXECUTORS, ids=repr)
@pytest.mark.parametrize("step", [FAR, 2**32 + 4096], ids=["31 bits", "32 bits"])
def test_rows_that_lie_far_apart(memory, executor, step):
    """Strides of more than 31 and 32 bits, forwards and backwards, on both sides of a step."""
    rng = np.random.default_rng(0)
    x = np.lib.stride_tricks.as_strided(memory, (2, 70), (step, 1))
    x[...] = rng.integers(0, 256, x.shape)
    w = rng.integers(-128, 128, (70, 33), np.int8)
    for view in (x, x[::-1], x[:, ::-1], x[::-1, ::3]):
        weights = w[: view.shape[1]]
        right = (view.astype(np.int64) - 9) @ weights.astype(np.int64)
        assert ran(executor, lambda v, b=weights: tw.ops.gemm(v, b, a_zero_point=9), view).tolist() == right.tolist()
        real = ran(executor, lambda v: tw.ops.dequantize(v, np.float32(0.5), np.uint8(3)), view)
        assert real.tolist() == ((view.astype(np.float32) - 3) * np.float32(0.5)).tolist()
        total = ran(executor, lambda v: tw.ops.reduce("sum", tw.ops.cast(v, "s32"), axes=[0]), view)
        assert total.tolist() == view.astype(np.int64).sum(0).tolist()
    out = np.lib.stride_tricks.as_strided(memory[1 << 20 :], (2, 70), (step, 1))
    ran(executor, lambda v: tw.ops.relu(v, zero_point=np.uint8(100)), x, out)
    assert out.tolist() == np.maximum(x, 100).tolist()
