"""The random models of ONNX's operators: a few of each kind agree, and what is wrong is found and told."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from tilework.bench.checks.onnx_random import __main__ as checks  # noqa: E402
from tilework.bench.checks.onnx_random.drawing import OPERATORS  # noqa: E402

SAMPLE = ("Shrink", "ReduceLogSumExp", "Slice", "Conv", "Gemm", "QuantizeLinear", "LSTM", "Resize")


def test_draws_agree_with_one_of_the_references(capsys):
    assert checks.main([*(f"--op={op}" for op in SAMPLE), "--count=2", "--seed=40"]) == 0
    assert "equal" in capsys.readouterr().out.splitlines()[-1]


FOUND = (  # draws that were wrong once
    ("Squeeze", 1025),
    ("ThresholdedRelu", 1005),
    ("ReduceSumSquare", 1017),
    ("ReduceLogSumExp", 1007),
    ("Shrink", 1008),
    ("CumSum", 1005),
    ("Pad", 1028),
    ("Pad", 1033),
    ("TopK", 1029),
    ("ScatterElements", 1029),
    ("ScatterElements", 1050),
    ("ScatterND", 1037),
    ("Hardmax", 1004),
    ("LayerNormalization", 1009),
    ("RMSNormalization", 1006),
    ("Gelu", 1015),
)


@pytest.mark.parametrize(("op", "seed"), FOUND)
def test_what_draws_found_stays_mended(op, seed):
    assert checks.check(op, seed) == ("pass", "")


def test_every_operator_can_be_drawn_at_both_ends_of_its_opsets():
    for op, make in OPERATORS.items():
        for opset in (checks.first_opset(op), checks.LAST):
            rng = np.random.default_rng(7)
            made, feeds = checks.model(op, opset, make(rng, opset), rng)
            assert onnx.defs.has(op)
            assert set(feeds) == {v.name for v in made.graph.input}


def test_a_wrong_result_is_told(monkeypatch, capsys):
    monkeypatch.setattr(checks, "wanted", lambda made, feeds: {"ONNX": [np.float32(3e9)]})
    assert checks.main(["--op", "Erf", "--count", "1"]) == 1
    out = capsys.readouterr().out
    assert "Erf, seed 0: wrong: opset" in out
    assert "0 of 1 equal" in out


@pytest.mark.parametrize(
    ("found", "want", "wrong"),
    [
        (np.float32([1, np.nan]), np.float32([1, np.nan]), ""),
        (np.float32([1, np.inf]), np.float32([1, -np.inf]), "1 of 2 are off"),
        (np.float16([1.0]), np.float16([1.01]), ""),
        (np.int8([1, 2]), np.int8([1, 3]), "1 of 2 differ"),
        (np.int8([1]), np.int16([1]), "int8(1,) where int16(1,) is wanted"),
    ],
)
def test_comparing(found, want, wrong):
    assert checks.differs(found, want).startswith(wrong)
    assert bool(checks.differs(found, want)) == bool(wrong)
