"""Long random runs, each for --minutes: python -m pytest tests/soak -m soak --minutes 60"""

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import tilework as tw
from tilework.bench.checks import fuzz, soak_convolutions, soak_pipelines
from tilework.bench.prove import Proof

pytestmark = pytest.mark.soak


@pytest.fixture
def seconds(request):
    return 60 * request.config.getoption("--minutes")


@pytest.fixture
def seed():
    """Another one each day, said by pytest where a test fails."""
    return int(time.time()) // 86400


def test_every_step_at_random(seconds, seed):
    proof = Proof().run(10**9, seed, seconds)
    assert not proof.failures, "\n\n".join(f"{f.text}\n{f.script()}" for f in proof.failures)


def test_random_pipelines(seconds, seed):
    assert soak_pipelines.main(["--count", "1000000", "--first", str(seed * 1000), "--seconds", str(seconds)]) == 0


def test_random_convolutions(seconds, seed):
    assert soak_convolutions.main(["--count", "1000000", "--first", str(seed * 1000), "--seconds", str(seconds)]) == 0


@pytest.mark.filterwarnings("ignore")
def test_mutated_files(seconds, seed):
    _, faults = fuzz.run(10**9, seed, seconds=seconds)
    assert not faults, "\n\n".join(faults)


def test_sixteen_threads_share_plans(seconds):
    """Every thread takes one of the plans at random, whose sizes change from run to run."""
    rng = np.random.default_rng(0)
    w = rng.integers(-128, 128, (70, 33), np.int8)
    plans = []
    for threads in (1, 2, 3):
        pipe = tw.Pipeline("shared")
        acc = tw.ops.gemm(pipe.input("x", "u8", ("M", 70)), w, a_zero_point=np.uint8(9))
        pipe.output("y", tw.ops.requantize(acc, multiplier=0.001, zero_point=100, dtype="u8"))
        plans.append(tw.TilingExecutor(threads).compile(pipe))
    inputs = [rng.integers(0, 256, (rows, 70), np.uint8) for rows in (1, 5, 64, 300)]
    right = [tw.SingleThreadExecutor("reference").run(pipe, {"x": x})["y"].tobytes() for x in inputs]
    end = time.monotonic() + seconds

    def work(number):
        draw, runs = np.random.default_rng(number), 0
        while time.monotonic() < end:
            k = int(draw.integers(len(inputs)))
            found = plans[int(draw.integers(len(plans)))].run({"x": inputs[k]})["y"].tobytes()
            assert found == right[k]
            runs += 1
        return runs

    with ThreadPoolExecutor(16) as pool:
        assert all(runs > 0 for runs in pool.map(work, range(16)))
