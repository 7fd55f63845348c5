"""A plan on the workers of a local cluster of processes, one of which is killed while it works."""

import os
import signal
import time

import numpy as np
import pytest

import tilework as tw
from tilework.primitives.errors import ArgumentError, Unsupported

pytestmark = pytest.mark.filterwarnings("ignore")  # Dask's own, of ports and of workers that die


@pytest.fixture(scope="module")
def client(absent, tmp_path_factory):
    """A client of a cluster of two processes with one thread each."""
    try:
        import dask
        import distributed
    except ImportError as error:
        return absent(f"dask cannot be imported ({error})", "TILEWORK_REQUIRE_PEERS")
    settings = {"distributed.comm.timeouts.connect": "30s", "logging.distributed": "critical"}
    with dask.config.set(settings):
        cluster = distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None,
            local_directory=str(tmp_path_factory.mktemp("dask")),
            env={"TILEWORK_CACHE_DIR": str(tmp_path_factory.mktemp("their own"))},
        )  # fmt: skip
        with cluster, distributed.Client(cluster) as client:
            yield client


def act(v):
    return v * np.float32(0.5) if v > 0 else v


def layer():
    rng = np.random.default_rng(0)
    pipe = tw.Pipeline("layer")
    acc = tw.ops.gemm(pipe.input("x", "u8", ("M", 32)), rng.integers(-127, 128, (32, 8), dtype=np.int8))
    pipe.output("y", tw.ops.map(act, tw.ops.dequantize(acc, scale=0.01)))
    return pipe


def blocks(count, rows=5):
    for n in range(count):
        yield {"x": np.random.default_rng(n).integers(0, 256, (rows, 32), dtype=np.uint8)}


def slow_block(marks):
    """A reader of files that notes that it was called, and takes its time."""

    def read(n):
        with open(os.path.join(marks, f"{n}-{os.getpid()}-{time.monotonic_ns()}"), "w"):
            pass
        time.sleep(0.1)
        return {"x": np.random.default_rng(n).integers(0, 256, (5, 32), dtype=np.uint8)}

    return read


def test_blocks_come_back_in_order_with_the_same_bytes(client):
    pipe = layer()
    here = tw.TilingExecutor(threads=1).compile(pipe)
    executor = tw.DaskExecutor(client)
    assert executor.threads_of_a_run() == max(1, len(os.sched_getaffinity(0)) // 2)
    plan = executor.compile(pipe, {"x": (5, 32)})
    told = []
    found = list(plan.map(blocks(12), progress=told.append))
    for block, result in zip(blocks(12), found, strict=True):
        assert result["y"].tobytes() == here.run(block)["y"].tobytes()
    assert told == list(range(1, 13))
    compiled = client.run(lambda: __import__("tilework.kernels.forge", fromlist=["Counts"]).Counts.compiled)
    assert set(compiled.values()) == {0}  # the machine code came along
    assert executor.compile(pipe, {"x": (5, 32)}).key == plan.key  # the same content has the same name


def test_arrays_and_bags(client):
    import dask.array
    import dask.bag

    pipe = layer()
    plan = tw.DaskExecutor(client, threads=1).compile(pipe)
    x = np.random.default_rng(1).integers(0, 256, (23, 32), dtype=np.uint8)
    right = tw.TilingExecutor(threads=1).run(pipe, {"x": x})["y"]
    y = plan.array(dask.array.from_array(x, chunks=(7, 32)))
    assert (y.shape, y.dtype) == (right.shape, right.dtype)
    np.testing.assert_array_equal(y.compute(), right)
    made = plan.bag(dask.bag.from_sequence(list(blocks(3)), npartitions=2)).compute()
    assert [m["y"].shape for m in made] == [(5, 8)] * 3
    with pytest.raises(ArgumentError, match="rechunk"):
        plan.array(dask.array.from_array(x, chunks=(7, 16)))


def test_a_killed_worker_loses_and_doubles_nothing(client, tmp_path):
    pipe = layer()
    here = tw.TilingExecutor(threads=1).compile(pipe)
    plan = tw.DaskExecutor(client, threads=1).compile(pipe)
    victim = next(iter(client.run(os.getpid).values()))
    results = []
    for n, result in enumerate(plan.files(range(24), slow_block(str(tmp_path)))):
        results.append(result["y"].tobytes())
        if n == 3:
            os.kill(victim, signal.SIGKILL)
    right = [here.run(block)["y"].tobytes() for block in blocks(24)]
    assert results == right
    read = {int(name.partition("-")[0]) for name in os.listdir(tmp_path)}
    assert read == set(range(24))


def test_statistics_merge_exactly(client):
    data = [np.random.default_rng(n).standard_normal(1000).astype(np.float32) * 10.0**-n for n in range(6)]

    def seen(x):
        return tw.fitting.Histogram().update(x)

    def merged(a, b):
        return a.merge(b)

    executor = tw.DaskExecutor(client, threads=1)
    found = executor.reduce(seen, data, merged)
    right = tw.fitting.Histogram()
    for x in data:
        right.update(x)
    np.testing.assert_array_equal(found.counts, right.counts)
    assert (found.exponent, found.count, found.zeros) == (right.exponent, right.count, right.zeros)
    with pytest.raises(ArgumentError, match="no items"):
        executor.reduce(seen, [], merged)


def test_what_fails_on_a_worker_is_the_error_it_is(client):
    executor = tw.DaskExecutor(client, threads=1, retries=0)
    plan = executor.compile(layer())
    with pytest.raises(ArgumentError, match="missing input: x"):
        list(plan.map([{}]))
    with pytest.raises(ValueError, match="x"):
        list(plan.map([{"x": np.zeros((2, 3), np.uint8)}]))
    pipe = tw.Pipeline()
    pipe.output("y", tw.ops.add(pipe.state("s", "f32", (3,)), pipe.input("x", "f32", (3,))))
    with pytest.raises(Unsupported, match="has states, s: blocks that run anywhere have none"):
        executor.compile(pipe)
    with pytest.raises(ArgumentError, match="retries=-1"):
        tw.DaskExecutor(client, retries=-1)
