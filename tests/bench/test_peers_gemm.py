"""`tilework bench peers gemm`: what is timed is checked, what is absent is said, and bars are judged as they are stated."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from tilework.bench import cases, peers, timing
from tilework.bench.cases import GROUPS, Case, Shape
from tilework.bench.machine import load
from tilework.bench.peers import gemm, gemm_bars
from tilework.executors.tiling import TilingExecutor
from tilework.primitives.errors import ArgumentError, Unsupported

LIGHT = [s for group in GROUPS.values() for s in group.shapes if s.operations < 2 * 256**3]


@pytest.mark.parametrize("output", cases.OUTPUTS)
@pytest.mark.parametrize("shape", LIGHT, ids=str)
def test_the_shapes_that_are_timed_give_the_right_bytes(shape, output):
    ours = gemm.Ours.make(Case.make(shape), output, TilingExecutor(threads=1))
    assert ours.check() == ""


def test_the_reference_spreads_over_all_codes():
    case = Case.make(Shape(64, 300, 48))
    codes = case.reference("u8")
    assert codes.min() == case.y_zero_point
    assert codes.max() == 255
    assert len(np.unique(codes)) > 150
    exact = (case.a.astype(np.int64) - case.a_zero_point) @ case.b.astype(np.int64)
    np.testing.assert_array_equal(case.reference("s32"), exact)


def test_shapes_are_read_and_put_into_groups():
    assert Shape.parse("256x768x3072") == Shape(256, 768, 3072)
    assert cases.group_of(Shape(1, 2048, 2048)).name == "memory"
    assert cases.group_of(Shape(16, 16, 16)).name == "overhead"
    assert cases.group_of(Shape(300, 300, 300)).name == "compute"
    for text in ("12x3", "axbxc", "0x1x1", "8*8*8"):
        with pytest.raises(ArgumentError, match="MxKxN"):
            Shape.parse(text)


def test_options_say_what_there_is():
    with pytest.raises(ArgumentError, match="no table 'gpu'; there is compute"):
        gemm.Options(tables=("gpu",))
    with pytest.raises(ArgumentError, match="no peer 'mkl'; there is onednn"):
        gemm.Options(only=("mkl",))


def test_absent_peers_are_named_and_can_be_required(monkeypatch):
    monkeypatch.setattr(peers, "_present", lambda module: module != "torch")
    monkeypatch.delenv(peers.REQUIRE, raising=False)
    assert peers.missing() == {"onednn": "torch", "int_mm": "torch"}
    monkeypatch.setenv(peers.REQUIRE, "1")
    with pytest.raises(Unsupported, match="torch cannot be imported"):
        peers.missing()


def row(ratio, shape="512x512x512", **facts):
    return gemm.Row("compute", shape, "s32", "bind", "hot", 1, ratio=ratio, wanted=1.02, met=ratio >= 1.02, **facts)


def test_bars_count_shapes_and_take_geometric_means():
    under, mean = gemm_bars.from_rows([row(1.0), row(1.44)])
    assert (under["value"], under["met"], under["note"]) == (1, False, "512x512x512 1.00")
    assert mean["value"] == pytest.approx(1.2)
    assert mean["met"]


def test_bars_hold_the_peak_and_the_call():
    bars = gemm_bars.from_rows([row(1.2, "1024x1024x1024", peak_share=0.95), row(3.0, "8x8x8", us=0.9)])
    assert {b["bar"]: b["met"] for b in bars if "peak" in b["bar"] or "call" in b["bar"]} == {
        "1024x1024x1024 s32: share of the peak": True,
        "8x8x8 s32: a bound call": False,
    }


def test_a_wrong_result_is_not_timed(monkeypatch):
    monkeypatch.setattr(gemm.Ours, "check", lambda self: "3 of 64 elements differ")
    monkeypatch.setattr(timing, "paired", None)
    rows = gemm.time_gemm(GROUPS["overhead"], cases.TINY, "s32", "hot", 1, gemm.Options())
    assert [r.wrong for r in rows] == ["3 of 64 elements differ"] * 2
    assert [r.us for r in rows] == [None, None]


def test_a_peer_that_is_wrong_is_left_out(monkeypatch):
    def make(case, output, threads, only=()):
        right = case.reference(output)
        return [
            peers.Peer("good", lambda: None, lambda: right, right, exact=True),
            peers.Peer("saturating", lambda: None, lambda: right - 7, right, exact=True),
        ]

    monkeypatch.setattr(peers, "make", make)
    (bound, _) = gemm.time_gemm(GROUPS["overhead"], cases.TINY, "s32", "hot", 1, gemm.Options(rounds=1))
    assert set(bound.peers) == {"good"}
    assert bound.left_out == ["saturating is off by up to 7"]
    assert bound.wrong == ""


def test_what_others_use_is_seen():
    before = load.Moment(used=10.0, own=1.0, passed=100.0)
    now = load.Moment(used=13.0, own=2.0, passed=104.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(load.Moment, "now", classmethod(lambda cls: now))
        assert before.others_since() == pytest.approx(0.5)


@pytest.mark.slow
@pytest.mark.skipif(bool(peers.missing()), reason="the peers (torch, onnxruntime, onnx) are not installed")
def test_the_command_times_a_tiny_shape(tmp_path):
    file = tmp_path / "result.json"
    command = ["bench", "peers", "gemm", "--shapes", "8x8x8", "--blocks", "2", "--json", str(file)]
    environment = {**os.environ, peers.REQUIRE: "1"}
    done = subprocess.run([sys.executable, "-m", "tilework", *command], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert "8x8x8" in done.stdout
    result = json.loads(file.read_text())
    assert {(r["output"], r["call"]) for r in result["rows"]} == {
        (o, c) for o in cases.OUTPUTS for c in ("bind", "run")
    }
    for found in result["rows"]:
        assert set(found["peers"]) == {"onnxruntime", "int_mm" if found["output"] == "s32" else "onednn"}
        assert found["us"] > 0
        assert found["ratio"] > 0
