"""Kinds of faults that readers of ONNX files had: a type decided by what is missing, an axis that was not moved."""

import numpy as np
import pytest

import tilework as tw


@pytest.fixture(scope="module")
def helper():
    return pytest.importorskip("onnx", reason="reading ONNX needs the package onnx (extra onnx)").helper


def ran(helper, nodes, inputs, output, constants, opset=21):
    """Output of a graph on two executors, which agree."""
    from onnx import numpy_helper

    def info(name, dtype, shape):
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)

    graph = helper.make_graph(
        [helper.make_node(op, taken, made, **attributes) for op, taken, made, attributes in nodes],
        "fault",
        [info(name, x.dtype, x.shape) for name, x in inputs.items()],
        [info("y", *output)],
        [numpy_helper.from_array(x, name) for name, x in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    pipe = tw.onnx.load(model)
    y = tw.TilingExecutor().run(pipe, inputs)["y"]
    assert y.tobytes() == tw.SingleThreadExecutor(backend="reference").run(pipe, inputs)["y"].tobytes()
    return y


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16])
def test_codes_without_a_zero_point_keep_their_type(helper, dtype):
    w = np.array([12, -45, 7, -3] if np.dtype(dtype).kind == "i" else [12, 245, 7, 3], dtype)
    nodes = [
        ("DequantizeLinear", ["w", "s"], ["r"], {}),
        ("Reshape", ["r", "shape"], ["m"], {}),
        ("Add", ["m", "x"], ["y"], {}),
    ]
    constants = {"w": w, "s": np.float32(0.02).reshape(()), "shape": np.array([2, 2])}
    y = ran(helper, nodes, {"x": np.zeros((2, 2), np.float32)}, (np.float32, (2, 2)), constants)
    assert y.tolist() == (w.astype(np.float32) * np.float32(0.02)).reshape(2, 2).tolist()


@pytest.mark.parametrize(
    ("kind", "dtype", "right"), [(3, np.int8, [-2, 2]), (None, np.uint8, [0, 2]), (5, np.int16, [-2, 2])]
)
def test_output_dtype_decides_where_there_is_no_zero_point(helper, kind, dtype, right):
    nodes = [("QuantizeLinear", ["x", "s"], ["y"], {} if kind is None else {"output_dtype": kind})]
    y = ran(helper, nodes, {"x": np.array([-1.0, 1.0], np.float32)}, (dtype, (2,)), {"s": np.float32(0.5).reshape(())})
    assert y.dtype == dtype
    assert y.tolist() == right


@pytest.mark.parametrize("axis", [1, -1])
def test_channels_move_with_their_axis(helper, axis):
    """Square weights hide an axis that was not moved."""
    w, scales = np.arange(1, 10, dtype=np.int8).reshape(3, 3), np.array([1, 10, 100], np.float32)
    nodes = [
        ("DequantizeLinear", ["w", "s"], ["r"], {"axis": axis}),
        ("Transpose", ["r"], ["t"], {"perm": [1, 0]}),
        ("MatMul", ["x", "t"], ["y"], {}),
    ]
    y = ran(helper, nodes, {"x": np.eye(3, dtype=np.float32)}, (np.float32, (3, 3)), {"w": w, "s": scales})
    assert y.tolist() == [[1, 4, 7], [20, 50, 80], [300, 600, 900]]


def test_a_bias_that_does_not_fit_is_not_clipped(helper):
    """A bias of 5 in units of 0.5 * 7.8e-10 needs 34 bits."""
    w = np.array([[1], [2]], np.int8)
    nodes = [
        ("QuantizeLinear", ["x", "sx", "zx"], ["q"], {}),
        ("DequantizeLinear", ["q", "sx", "zx"], ["dx"], {}),
        ("DequantizeLinear", ["w", "sw"], ["dw"], {}),
        ("Gemm", ["dx", "dw", "b"], ["r"], {}),
        ("QuantizeLinear", ["r", "sy", "zy"], ["y"], {}),
    ]
    constants = {
        "w": w,
        "sx": np.float32(0.5).reshape(()),
        "zx": np.uint8(0).reshape(()),
        "sw": np.float32(7.843e-10).reshape(()),
        "b": np.array([5.0], np.float32),
        "sy": np.float32(0.1).reshape(()),
        "zy": np.uint8(3).reshape(()),
    }
    y = ran(helper, nodes, {"x": np.array([[1.0, 2.0]], np.float32)}, (np.uint8, (1, 1)), constants)
    assert y.tolist() == [[53]]
