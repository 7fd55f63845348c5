"""Equal steps of a model become one, and element-wise operations between codes take the codes; no bit changes."""

import numpy as np
import pytest

import tilework as tw
from tilework.frontends.onnx.load import load_with_values

CONSTANTS = {
    "sa": np.float32(0.03),
    "za": np.uint8(120),
    "sb": np.float32(0.05),
    "zb": np.uint8(10),
    "sy": np.float32(0.04),
    "zy": np.uint8(0),
}


def model(onnx, nodes, outputs):
    helper = onnx.helper
    inputs = [helper.make_tensor_value_info(n, onnx.TensorProto.UINT8, ["N", 8]) for n in "ab"]
    held = [onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in CONSTANTS.items()]
    results = [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()]
    graph = helper.make_graph([helper.make_node(*node) for node in nodes], "g", inputs, results, held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def between_codes(op, relu, copy=""):
    names = [f"{n}{copy}" for n in ("ar", "br", "s", "r", "y")]
    nodes = [
        ("DequantizeLinear", ["a", "sa", "za"], names[:1]),
        ("DequantizeLinear", ["b", "sb", "zb"], names[1:2]),
        (op, names[:2], names[2:3]),
        ("QuantizeLinear", [names[3] if relu else names[2], "sy", "zy"], names[4:]),
    ]
    return [*nodes[:3], ("Relu", names[2:3], names[3:4]), nodes[3]] if relu else nodes


@pytest.mark.parametrize(("op", "relu"), [("Add", False), ("Add", True), ("Mul", True), ("Sub", False)])
def test_operations_between_codes_take_the_codes(peer, op, relu):
    onnx = peer("onnx")
    made = model(onnx, between_codes(op, relu), {"y": onnx.TensorProto.UINT8})
    pipe, plain = tw.onnx.load(made), load_with_values(made).pipeline
    assert len(pipe.steps) == 1 < len(plain.steps)
    rng = np.random.default_rng(0)
    data = {n: rng.integers(0, 256, (300, 8)).astype(np.uint8) for n in "ab"}
    reference = tw.SingleThreadExecutor("reference")
    np.testing.assert_array_equal(reference.run(pipe, data)["y"], reference.run(plain, data)["y"])


def test_equal_steps_become_one_and_unread_ones_are_left_out(peer):
    onnx = peer("onnx")
    nodes = [*between_codes("Add", True), *between_codes("Add", True, "2"), ("Exp", ["s2"], ["unread"])]
    made = model(onnx, nodes, {"y": onnx.TensorProto.UINT8, "y2": onnx.TensorProto.UINT8, "s": onnx.TensorProto.FLOAT})
    pipe = tw.onnx.load(made)
    assert sorted(k.name for k in pipe.kernels) == [
        "add_f32",
        "add_quantized_u8u8u8",
        "dequantize_u8f32",
        "dequantize_u8f32",
    ]
    data = {n: np.arange(16, dtype=np.uint8).reshape(2, 8) for n in "ab"}
    found = tw.SingleThreadExecutor("reference").run(pipe, data)
    np.testing.assert_array_equal(found["y"], found["y2"])
    assert found["s"].shape == (2, 8)
