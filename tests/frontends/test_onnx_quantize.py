"""Quantizing ONNX models after training: what is written is what was measured, here and in ONNX Runtime."""

import json

import numpy as np
import pytest

import tilework as tw
from tilework.primitives.errors import ArgumentError, Unsupported


def fit(x):
    largest = np.float32(0)
    for v in x:
        largest = max(largest, abs(v))
    return largest / np.float32(7) if largest > 0 else np.float32(1)


def encode(x, scale):
    return np.rint(x / scale)


def decode(code, scale):
    return code * scale


def mine():
    return tw.Scheme(
        "mine", bits=4, block=32, params={"scale": "f32"}, fit=fit, encode=encode, decode=decode, signed=True
    )


def network(onnx, convolution, opset=13):
    """A float network of three layers, and data for it."""
    rng, helper = np.random.default_rng(0), onnx.helper

    def drawn(*shape):
        return (rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)

    constants = {"w1": drawn(6, 3, 3, 3), "b1": drawn(6), "w2": drawn(96, 40), "w3": drawn(10, 40), "b3": drawn(10)}
    nodes = [
        helper.make_node("MatMul", ["flat", "w2"], ["hidden"]),
        helper.make_node("Relu", ["hidden"], ["kept"]),
        helper.make_node("Gemm", ["kept", "w3", "b3"], ["y"], transB=1),
    ]
    shape = ["N", 96]
    if convolution:
        nodes[:0] = [
            helper.make_node("Conv", ["x", "w1", "b1"], ["image"], strides=[2, 2], pads=[1, 1, 1, 1], name="first"),
            helper.make_node("Relu", ["image"], ["bright"]),
            helper.make_node("Flatten", ["bright"], ["flat"]),
        ]
        shape = ["N", 3, 8, 8]
    else:
        nodes[0].input[0] = "x"
        del constants["w1"], constants["b1"]
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["N", 10])
    held = [onnx.numpy_helper.from_array(a, n) for n, a in constants.items()]
    graph = helper.make_graph(nodes, "net", [x], [y], held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return model, {"x": rng.standard_normal((16, *shape[1:])).astype(np.float32)}


def elsewhere(peer, source, data):
    """What ONNX Runtime makes of a model."""
    runtime = peer("onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    return runtime.InferenceSession(source, options, providers=["CPUExecutionProvider"]).run(None, data)[0]


def decibels(found, wanted):
    return 10 * np.log10(np.square(wanted, dtype=np.float64).sum() / np.square(found.astype(np.float64) - wanted).sum())


def test_eight_bits_become_integer_products_and_a_model_that_onnx_runtime_runs(peer, tmp_path):
    onnx = peer("onnx")
    model, data = network(onnx, True)
    found = tw.onnx.quantize(model, "int8_channel", data, activations="u8")
    found.save(tmp_path / "q.onnx")
    onnx.checker.check_model(onnx.load(tmp_path / "q.onnx"))
    ours = tw.TilingExecutor().run(found.pipeline, data)["y"]
    assert "gemm_u8s8s32" in {k.name for k in found.pipeline.kernels}
    float_ = tw.TilingExecutor().run(tw.onnx.load(model), data)["y"]
    assert decibels(ours, float_) == pytest.approx(found.outputs["y"], abs=0.01)
    assert found.outputs["y"] > 30
    assert [row["name"] for row in found.layers] == ["first", "hidden", "y"]
    np.testing.assert_array_equal(tw.TilingExecutor().run(tw.onnx.load(tmp_path / "q.onnx"), data)["y"], ours)
    theirs = elsewhere(peer, str(tmp_path / "q.onnx"), data)
    assert decibels(theirs, float_) == pytest.approx(found.outputs["y"], abs=0.5)


def test_four_bits_in_blocks_are_said_in_onnx_and_mean_the_same_there(peer, tmp_path):
    onnx = peer("onnx")
    model, data = network(onnx, False)  # of operator set 13, which has no int4
    found = tw.onnx.quantize(model, "int4_g32", data)
    assert found.bits == pytest.approx(5.0, abs=0.2)
    ours = tw.TilingExecutor().run(found.pipeline, data)["y"]
    found.save(tmp_path / "q.onnx")
    theirs = elsewhere(peer, str(tmp_path / "q.onnx"), data)
    np.testing.assert_allclose(theirs, ours, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(
        tw.TilingExecutor().run(tw.onnx.load(tmp_path / "q.onnx"), data)["y"], ours, rtol=1e-4, atol=1e-5
    )


def test_a_users_scheme_is_saved_as_a_pipeline(peer, tmp_path):
    model, data = network(peer("onnx"), True)
    found = tw.onnx.quantize(model, mine(), data, activations="s8")
    ours = tw.TilingExecutor().run(found.pipeline, data)["y"]
    assert 10 < found.outputs["y"] < 25
    found.save(tmp_path / "q.tw")
    again = tw.Pipeline.load(tmp_path / "q.tw", functions="run")
    np.testing.assert_array_equal(tw.TilingExecutor().run(again, data)["y"], ours)
    with pytest.raises(
        Unsupported, match=r"first: mine has blocks along what a convolution sums over.*a pipeline works"
    ):
        found.save(tmp_path / "q.onnx")


def test_activations_by_a_scheme_are_saved_by_its_name(peer, tmp_path):
    model, data = network(peer("onnx"), False)
    found = tw.onnx.quantize(model, "mxfp4", data, activations="mxfp8_e4m3")
    found.save(tmp_path / "q.tw")
    again = tw.Pipeline.load(tmp_path / "q.tw")
    ours = tw.TilingExecutor().run(found.pipeline, data)["y"]
    np.testing.assert_array_equal(tw.TilingExecutor().run(again, data)["y"], ours)


def test_activations_by_a_users_scheme_are_saved_with_its_functions(peer, tmp_path):
    model, data = network(peer("onnx"), False)
    found = tw.onnx.quantize(model, "int8_channel", data, activations=mine())
    found.save(tmp_path / "q.tw")
    again = tw.Pipeline.load(tmp_path / "q.tw", functions="run")
    ours = tw.TilingExecutor().run(found.pipeline, data)["y"]
    np.testing.assert_array_equal(tw.TilingExecutor().run(again, data)["y"], ours)


def test_a_budget_gives_bits_to_the_layers_that_need_them(peer):
    model, data = network(peer("onnx"), True)
    mixed = tw.onnx.quantize(model, ["int8_channel", "int4_g32"], data, budget=6.0)
    assert mixed.bits <= 6.0
    assert {row["scheme"] for row in mixed.layers} == {"int8_channel", "int4_g32"}
    small = tw.onnx.quantize(model, "int4_g32", data)
    assert mixed.outputs["y"] > small.outputs["y"]


def test_what_cannot_be_quantized_is_said(peer):
    onnx = peer("onnx")
    model, data = network(onnx, False)
    with pytest.raises(ArgumentError, match=r"the data has no 'x'; it has nothing"):
        tw.onnx.quantize(model, "int8_channel", {})
    with pytest.raises(ArgumentError, match="'z', which is no input; there is x"):
        tw.onnx.quantize(model, "int8_channel", {**data, "z": data["x"]})
    with pytest.raises(ArgumentError, match="2 schemes; one works, and several with a budget"):
        tw.onnx.quantize(model, ["int8_channel", "nf4"], data)
    with pytest.raises(ArgumentError, match=r"a budget of .* bits; the smallest schemes need"):
        tw.onnx.quantize(model, ["int8_channel", "int4_g32"], data, budget=2.0)
    del model.graph.node[0], model.graph.node[1]
    model.graph.node[0].input[0] = "x"
    model.graph.node[0].output[0] = "y"
    with pytest.raises(ArgumentError, match="no Conv, Gemm or MatMul with constant float32 weights"):
        tw.onnx.quantize(model, "int8_channel", data)


def test_the_command_writes_the_model_and_says_what_each_layer_lost(peer, tmp_path):
    from typer.testing import CliRunner

    from tilework.bench.cli import app

    onnx = peer("onnx")
    model, data = network(onnx, False)
    onnx.save(model, tmp_path / "net.onnx")
    np.savez(tmp_path / "data.npz", **data)
    words = ["quantize", str(tmp_path / "net.onnx"), "--scheme", "int8_channel", "--activations", "u8", "--json"]
    result = CliRunner().invoke(
        app, [*words, "--calibrate", str(tmp_path / "data.npz"), "-o", str(tmp_path / "q.onnx")]
    )
    assert result.exit_code == 0, result.output
    facts = json.loads(result.output)
    assert facts["layers"][0]["output_db"] <= facts["layers"][1]["output_db"]
    assert facts["bytes"] == (tmp_path / "q.onnx").stat().st_size < facts["float_bytes"]
