"""What a plan keeps in memory: an arena no larger than what is alive at once, and runs that allocate nothing."""

import gc
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import tilework as tw
from tilework.primitives.arena import lower_bound

GRAPHS = 100
ALLOWED = 1.05
PAGE = 4096


def random_graph(seed):
    """Layers of f32 and u8, branches that are added up later, and values that wait for long."""
    rng = np.random.default_rng(seed)
    pipe = tw.Pipeline(f"graph_{seed}")
    pool = [pipe.input("x", "f32", ("M", int(rng.integers(20, 200))))]
    for _ in range(int(rng.integers(10, 40))):
        x = pool[-1] if rng.random() < 0.5 else pool[int(rng.integers(len(pool)))]
        same = [v for v in pool if v.dtype == "f32" and v.shape == x.shape and v is not x]
        kind = rng.random()
        if x.dtype == "u8":
            y = tw.ops.dequantize(x, np.float32(0.1)) if kind < 0.7 else tw.ops.relu(x)
        elif same and kind < 0.4:
            y = tw.ops.add(x, same[int(rng.integers(len(same)))])
        elif kind < 0.6:
            y = tw.ops.gemm(x, rng.normal(0, 0.1, (x.shape[-1], int(rng.integers(20, 200)))).astype(np.float32))
        elif kind < 0.8:
            y = tw.ops.quantize(x, np.float32(0.1), dtype="u8")
        else:
            y = tw.ops.relu(x)
        pool.append(y)
    read = {id(v) for step in pipe.steps for v in step.inputs.values()}
    for n, value in enumerate(v for v in pool if id(v) not in read):
        pipe.output(f"y{n}", value)
    return pipe


def test_the_arena_is_within_five_percent_of_what_is_alive_at_once(report):
    worst = {"tiling": 0.0, "tiling, chained": 0.0, "single thread": 0.0}
    for seed in range(GRAPHS):
        pipe = random_graph(seed)
        shapes = {"x": (int(np.random.default_rng(seed).integers(100, 1000)), pipe.values["x"].shape[1])}
        for name, chain in (("tiling", False), ("tiling, chained", True)):
            if chain and seed % 4:  # planning takes a while
                continue
            binding = tw.TilingExecutor(2, chain=chain).compile(pipe).prepare(shapes)
            if binding.arena_bound:
                worst[name] = max(worst[name], binding.arena_bytes / binding.arena_bound)
        if seed % 4:
            continue
        single = tw.SingleThreadExecutor().compile(pipe).prepare(shapes)
        bound = lower_bound(single.requests.values())
        if bound:
            worst["single thread"] = max(worst["single thread"], single.peak / bound)
    report(
        "arena against the largest live set, worst of 100 graphs", ", ".join(f"{k} {v:.3f}" for k, v in worst.items())
    )
    assert max(worst.values()) <= ALLOWED, worst


def network(python_step=False):
    rng = np.random.default_rng(0)
    pipe = tw.Pipeline("network")
    h = pipe.input("x", "u8", ("M", 64))
    for _ in range(4):
        acc = tw.ops.gemm(h, rng.integers(-127, 128, (64, 64), dtype=np.int8), a_zero_point=128)
        h = tw.ops.requantize(acc, multiplier=1e-3, zero_point=128, dtype="u8")
    pipe.output("acc", tw.ops.add(acc, np.arange(64, dtype=np.int32)))
    pipe.output("y", h)
    return pipe


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="resident size is read from /proc")
@pytest.mark.parametrize("way", ["bind", "run"])
@pytest.mark.parametrize(("threads", "rows"), [(1, 1), (1, 64), (2, 256)])
def test_ten_thousand_runs_allocate_nothing(way, threads, rows):
    plan = tw.TilingExecutor(threads).compile(network())
    inputs = {"x": np.zeros((rows, 64), np.uint8)}
    out = plan.run(inputs)
    bound = plan.bind(inputs, out)
    call = bound if way == "bind" else lambda: plan.run(inputs, out=out)
    for _ in range(200):
        call()
    gc.collect()
    before = resident()
    for _ in range(10_000):
        call()
    grown = resident() - before
    tracemalloc.start()
    try:
        for _ in range(10):
            call()
        kept, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        for _ in range(1000):
            call()
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - kept < 1000, f"{after - kept} bytes stay after 1,000 runs"
    assert peak - kept < 4000, f"a run takes {peak - kept} bytes for a while"  # the dict of results and the like
    assert grown < 64 * PAGE, f"{grown} bytes more are resident after 10,000 runs"
