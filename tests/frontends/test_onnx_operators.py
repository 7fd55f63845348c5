"""Operators of com.microsoft: random attributes, shapes and operands against ONNX Runtime."""

import numpy as np
import pytest

import tilework as tw
from tilework.bench.checks import onnx_operators
from tilework.bench.checks.onnx_draws import OPERATORS
from tilework.primitives.errors import Unsupported


@pytest.mark.parametrize("op", sorted(OPERATORS))
def test_operators_give_what_onnx_runtime_gives(peer, op):
    peer("onnx")
    peer("onnxruntime")
    found = [onnx_operators.check(op, seed) for seed in range(6)]
    assert {status for status, _ in found} <= {"pass", "refused"}, found
    assert "pass" in {status for status, _ in found}


def test_attention_refuses_what_is_for_gpus_alone(peer):
    peer("onnx")
    draw = OPERATORS["Attention"](np.random.default_rng(0))
    draw.attributes["do_rotary"] = 1
    with pytest.raises(Unsupported, match=r"Attention .*do_rotary.*0 works"):
        tw.onnx.load(onnx_operators.model("Attention", draw)[0])
