"""The onnx package's own backend tests: a sample of them; `python -m tilework.bench.checks.onnx_suite` runs all."""

import numpy as np
import pytest

pytest.importorskip("onnx", reason="onnx's backend tests need the package onnx (extra onnx)")

SAMPLE = (
    "^test_(dequantizelinear_axis|quantizelinear_axis|add|clip_inbounds|qlinearconv|matmulinteger|"
    "transpose_all_permutations_0)_cpu$"
)


def test_a_sample_of_the_packages_own_tests_passes():
    from tilework.bench.checks import onnx_suite

    found = {name: onnx_suite.outcome(test) for _, name, test in onnx_suite.cases(SAMPLE)}
    assert len(found) == 7
    assert {name: what for name, what in found.items() if what[0] != "passed"} == {}


def test_a_node_runs_by_itself_and_another_device_is_refused():
    import onnx

    from tilework.frontends.onnx import backend
    from tilework.primitives.errors import ArgumentError

    node = onnx.helper.make_node("Sub", ["a", "b"], ["y"])
    found = backend.run_node(node, [np.float32([3, 2]), np.float32([1, 5])])
    assert found["y"].tolist() == found[0].tolist() == [2, -3]
    assert backend.supports_device("CPU:0")
    with pytest.raises(ArgumentError, match="CUDA"):
        backend.prepare(onnx.helper.make_model(onnx.helper.make_graph([], "g", [], [])), "CUDA")
