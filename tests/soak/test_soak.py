"""Long random runs, each for --minutes: python -m pytest tests/soak -m soak --minutes 60"""

import time

import pytest

from tilework.bench.checks import fuzz, soak_convolutions, soak_pipelines, soak_threads
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


def test_sixteen_threads_share_plans(seconds, seed):
    runs, faults = soak_threads.soak(seconds, threads=16, first=seed * 1000)
    assert not faults, "\n".join(faults)
    assert runs["pipeline"] > 0
