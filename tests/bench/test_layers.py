"""`run` and `compare` on ONNX models."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from tilework.bench.cli import app


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Paths of a small float network and of the same with rounded weights."""
    onnx = pytest.importorskip("onnx", reason="reading ONNX needs the package onnx (extra onnx)")
    helper, numpy_helper = onnx.helper, onnx.numpy_helper
    folder = tmp_path_factory.mktemp("models")
    weights = np.random.default_rng(0).standard_normal((6, 5)).astype(np.float32)
    paths = []
    for name, w in (("float", weights), ("rounded", np.round(weights, 1))):
        graph = helper.make_graph(
            [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Tanh", ["h"], ["y"])],
            name,
            [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["N", 6])],
            [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["N", 5])],
            [numpy_helper.from_array(w, "w")],
        )
        proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
        onnx.save(proto, folder / f"{name}.onnx")
        paths.append(str(folder / f"{name}.onnx"))
    return paths


def invoke(*words):
    found = CliRunner().invoke(app, list(words))
    assert found.exit_code == 0, found.output
    return found.output


def test_compare_lists_the_worst_tensor_first(models, tmp_path):
    result = json.loads(invoke("compare", *models, "--size", "N=8", "--json"))
    names = [row["name"] for row in result["tensors"]]
    ratios = [row["sqnr_db"] for row in result["tensors"]]
    assert sorted(names) == ["h", "y"]
    assert ratios == sorted(ratios)
    assert all(20 < ratio < 60 for ratio in ratios)
    assert (
        json.loads(invoke("compare", models[0], models[0], "--size", "N=8", "--json"))["tensors"][0]["max_error"] == 0
    )


def test_run_takes_a_model_and_an_archive(models, tmp_path):
    np.savez(tmp_path / "in.npz", x=np.ones((3, 6), np.float32))
    found = json.loads(
        invoke("run", models[0], "--input", str(tmp_path / "in.npz"), "--repeat", "3", "--threads", "1", "--json")
    )
    assert found["outputs"]["y"]["shape"] == [3, 5]
    assert found["runs"]["count"] == 3
    assert "gemm_f32" in invoke("explain", models[0])


def test_compare_says_nan_in_plain_json_and_refuses_what_is_no_archive(models, tmp_path):
    np.savez(tmp_path / "in.npz", x=np.float32([[np.nan] * 6, [1] * 6]))
    rows = json.loads(invoke("compare", *models, "--data", str(tmp_path / "in.npz"), "--json"))["tensors"]
    assert all(20 < row["sqnr_db"] < 60 for row in rows)  # NaN in both is no difference
    (tmp_path / "bad.npz").write_bytes(b"no archive" * 9)
    found = CliRunner().invoke(app, ["compare", *models, "--data", str(tmp_path / "bad.npz")])
    assert "is no .npz file of plain numbers, as np.savez writes them" in str(found.exception)


def test_compare_judges_a_model_alone_and_says_what_empty_data_are(models, tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((0, 6), np.float32))
    found = CliRunner().invoke(app, ["compare", *models, "--data", str(tmp_path / "x.npy")])
    assert "no elements: all 2 tensors that both models have are empty" in str(found.exception)
    rows = json.loads(invoke("compare", models[0], "--size", "N=2", "--json"))["tensors"]
    assert {row["sqnr_db"] for row in rows} == {999.0}
    found = CliRunner().invoke(app, ["run", models[0], "--size", "N=2", "--input", "x.npy", "--input", "x=3"])
    assert "every input is given" in str(found.exception)


def test_compare_takes_structures_that_values_decide(models, tmp_path):
    import onnx
    from onnx import helper, numpy_helper

    paths = []
    for name, w in (("a", np.float32([[1, 2], [3, 4]])), ("b", np.float32([[1, 2], [3, 4.1]]))):
        graph = helper.make_graph(
            [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Reshape", ["h", "shape"], ["y"])],
            name,
            [
                helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["N", 2]),
                helper.make_tensor_value_info("shape", onnx.TensorProto.INT64, [1]),
            ],
            [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
            [numpy_helper.from_array(w, "w")],
        )
        onnx.save(
            helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10),
            tmp_path / f"{name}.onnx",
        )
        paths.append(str(tmp_path / f"{name}.onnx"))
    np.savez(tmp_path / "in.npz", x=np.ones((3, 2), np.float32), shape=np.array([6]))
    rows = json.loads(invoke("compare", *paths, "--data", str(tmp_path / "in.npz"), "--json"))["tensors"]
    assert {row["name"]: row["shape"] for row in rows} == {"h": [3, 2], "y": [6]}
