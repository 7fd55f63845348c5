"""Random pipelines give the same bytes on every executor, with every tile, thread count, fusion and chain."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import tilework as tw
from tilework.executors import chaining


def soak(*options):
    """Run the soak in a process of its own, in which Numba has three threads."""
    env = os.environ | {"NUMBA_NUM_THREADS": "3"}
    command = [sys.executable, "-m", "tilework.bench.checks.soak_pipelines", *map(str, options)]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def test_random_pipelines_give_the_same_bytes_everywhere():
    done = soak("--count", 16, "--variants", 2, "--wide", 0)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


@pytest.mark.soak
def test_ten_thousand_random_pipelines_give_the_same_bytes_everywhere():
    done = soak("--count", 10_000, "--variants", 4)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


def generator():
    spec = importlib.util.spec_from_file_location("random_pipelines", Path(__file__).parent / "random_pipelines.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_the_comparison_sees_a_single_wrong_bit():
    pipelines = generator()
    case = pipelines.make(3)
    plan = tw.SingleThreadExecutor("reference").compile(case.pipe)
    runs, state = pipelines.results(plan, case)
    name = next(iter(runs[1]))
    wrong = [dict(run) for run in runs]
    flipped = wrong[1][name].copy()
    flipped.reshape(-1).view(np.uint8)[0] ^= 1
    wrong[1][name] = flipped
    assert pipelines.differences((runs, state), (runs, state)) == []
    assert len(pipelines.differences((runs, state), (wrong, state))) == 1


def test_every_variant_has_its_turn():
    pipelines = generator()
    seen = {variant for seed in range(9) for variant in pipelines.chosen(seed, 4)}
    assert len(seen) == len(pipelines.VARIANTS) == 36


@pytest.mark.parametrize("threads", [1, 2])
def test_a_chain_keeps_what_it_still_reads(monkeypatch, threads):
    # The chain's first step reads `a` for every tile, so what a later step of the chain writes must lie elsewhere.
    monkeypatch.setattr(chaining, "WORTH", 0)
    monkeypatch.setattr(chaining, "LEAST_ROWS", 1)
    monkeypatch.setattr(chaining, "L2", 1)
    rng = np.random.default_rng(0)
    pipe = tw.Pipeline("chain")
    x = pipe.input("x", "u8", ("M", 64))
    a = tw.ops.relu(x, zero_point=np.uint8(3))
    pipe.output("first", tw.ops.argmax(a, axis=0, keepdims=True))
    b = tw.ops.clip(a, lo=np.uint8(5), hi=np.uint8(250))  # the chain begins
    c = tw.ops.relu(b, zero_point=np.uint8(7))
    d = tw.ops.dequantize(c, np.float32(0.5))  # it ends: four times as wide as a, and read as a whole
    pipe.output("last", tw.ops.argmax(d, axis=0, keepdims=True))
    inputs = {"x": rng.integers(0, 256, (50, 64), dtype=np.uint8)}
    expected = tw.SingleThreadExecutor("reference").run(pipe, inputs)
    plan = tw.TilingExecutor(threads).compile(pipe)
    found = plan.run(inputs)
    assert "tile" in plan.explain()
    for name, array in expected.items():
        assert_array_equal(found[name], array, strict=True)


def test_a_failure_is_cut_down_to_the_first_value_that_differs(monkeypatch):
    pipelines = generator()
    case = next(c for c in map(pipelines.make, range(100)) if len(c.pipe.steps) > 6)
    wrong = case.pipe.order()[3]
    name = next(iter(wrong.outputs.values())).name

    def compare(small, variants):
        """As if the fourth step were wrong."""
        return [("variant", "differs")] if any(step.name == wrong.name for step in small.pipe.steps) else []

    monkeypatch.setattr(pipelines, "compare", compare)
    assert pipelines.shrunk(case, ("default", 1, True, True)) == name
    small = pipelines.part(case, name)
    assert len(small.pipe.steps) <= 4
    tapped = tw.TilingExecutor(1).compile(case.pipe).run(case.runs[0], tap=[name])[name]
    found = tw.SingleThreadExecutor("reference").run(small.pipe, small.runs[0])["y"]
    assert_array_equal(found, tapped, strict=True)
