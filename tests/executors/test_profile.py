"""What a profile says: two levels, dispatch and entry apart, rates against peaks, and a trace of every call."""

import json
import logging
from itertools import pairwise

import numpy as np
import pytest

import tilework as tw
from tilework.executors import chaining, cutting
from tilework.executors.profile import Profile, StepProfile


def tower(kernels, width=16):
    pipe = tw.Pipeline("tower")
    h = pipe.input("x", "u8", ("M", width))
    for n in range(kernels):
        h = tw.ops.relu(h, zero_point=np.uint8(n))
    pipe.output("y", h)
    return pipe


def products(layers=2, width=64):
    pipe = tw.Pipeline("products")
    h = pipe.input("x", "u8", ("M", width))
    for n in range(layers):
        w = np.random.default_rng(n).integers(-128, 128, (width, width), dtype=np.int8)
        h = tw.ops.requantize(tw.ops.gemm(h, w), multiplier=np.float32(0.01), dtype="u8")
    pipe.output("y", h)
    return pipe


def test_kernels_too_small_are_named_and_large_ones_are_not(caplog):
    with caplog.at_level(logging.WARNING, "tilework"):
        small = tw.TilingExecutor(1).compile(tower(8)).profile({"x": np.zeros((1, 16), np.uint8)})
    assert small.dispatch_share > 0.01
    assert "relu_u8" in small.too_small
    assert "too small to be kernels of their own at these sizes: relu_u8" in caplog.text
    assert small.warning in str(small)
    large = tw.TilingExecutor(1).compile(tower(2, 4096)).profile({"x": np.zeros((256, 4096), np.uint8)})
    assert large.dispatch_share < 0.01
    assert not large.warning


def test_products_have_operations_and_rates_against_measured_peaks():
    plan = tw.TilingExecutor(1).compile(products())
    found = plan.profile({"x": np.zeros((32, 64), np.uint8)})
    assert [step.operations for step in found.steps] == [2 * 32 * 64 * 64] * 2
    assert all(step.kind == "int8" for step in found.steps)
    assert found.peaks["bytes up to 262144"] > 0
    assert "GOPS" in str(found)
    assert "Python entry" in str(found)
    assert 0 < found.native_s <= found.time_s
    facts = found.to_dict()
    json.dumps(facts)
    assert {"dispatch_share", "entry_s", "too_small", "peaks"} <= facts.keys()


@pytest.mark.parametrize("threads", [1, 2])
def test_a_trace_has_every_call_of_a_chain_on_its_thread(threads, monkeypatch, tmp_path):
    for module, name, value in ((chaining, "WORTH", 0), (chaining, "L2", 4000), (cutting, "SMALL", 0)):
        monkeypatch.setattr(module, name, value)
    plan = tw.TilingExecutor(threads).compile(products(3))
    x = {"x": np.random.default_rng(0).integers(0, 256, (400, 64), dtype=np.uint8)}
    (chain,) = plan.prepare({"x": (400, 64)}).chains
    tiles = len(chain.cuts[0])
    found = plan.profile(x, repeat=2)
    assert [step.calls for step in found.steps] == [tiles] * 3
    found.save_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"][1:]
    if found.events:  # none where the processor's counter cannot be read
        assert len(events) == 3 * tiles
        assert sorted({e["args"]["tile"] for e in events}) == list(range(tiles))
        lanes = {e["tid"] for e in events}
        assert lanes <= {f"worker {n}" for n in range(threads)}
        for lane in lanes:  # one call after another
            mine = [e for e in events if e["tid"] == lane]
            assert all(a["ts"] + a["dur"] <= b["ts"] + 1 for a, b in pairwise(mine))


def test_shares_are_those_of_the_figures():
    steps = (StepProfile("a", "k", 90e-6, 100, 1e3, "int8", 1), StepProfile("b", "k", 9e-6, 10, calls=10))
    found = Profile(
        "p", 120e-6, steps, 1, native_s=110e-6, dispatch_s=1.1e-6, peaks={"int8": 1e9, "bytes up to 50": 1e9}
    )
    assert found.entry_s == pytest.approx(10e-6)
    assert found.dispatch_share == pytest.approx(1.1 / 100.1)
    assert found.too_small == ("b",)
    assert "1.1% of the native time is dispatch" in found.warning
    text = str(found)
    assert "of peak" in text
    assert "10.00 us" in text
