"""ONNX models: what loads gives the right numbers, and what cannot be loaded is a named error."""

import time

import numpy as np
import pytest

import tilework as tw
from tilework.primitives.errors import ArgumentError, FileFormatError, TileworkError, Unsupported

RNG = np.random.default_rng(3)
OPSET = 21


@pytest.fixture(scope="module")
def onnx():
    """The onnx package, or a skip."""
    return pytest.importorskip("onnx", reason="reading ONNX needs the package onnx (extra onnx)")


def model(onnx, nodes, inputs, outputs, initializers=(), **more):
    """A ModelProto; inputs and outputs are {name: (dtype, shape)}."""
    helper, numpy_helper = onnx.helper, onnx.numpy_helper

    def typed(items):
        kinds = helper.np_dtype_to_tensor_dtype
        return [helper.make_tensor_value_info(n, kinds(np.dtype(t)), shape) for n, (t, shape) in items.items()]

    tensors = [numpy_helper.from_array(np.asarray(a), n) for n, a in dict(initializers).items()]
    graph = helper.make_graph(
        [helper.make_node(*n[:3], **n[3]) for n in nodes], "g", typed(inputs), typed(outputs), tensors
    )
    imports = [helper.make_opsetid("", OPSET), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10, **more)


def run(proto, **inputs):
    """The outputs, the same bytes from the meaning of every step and from compiled code."""
    found = tw.SingleThreadExecutor().run(tw.onnx.load(proto), inputs)
    wanted = tw.SingleThreadExecutor("reference").run(tw.onnx.load(proto), inputs)
    for name, y in wanted.items():
        np.testing.assert_array_equal(found[name], y)
    return found


def qdq_matmul(onnx, k=24, n=5):
    weights = RNG.integers(-127, 128, (k, n), np.int8)
    nodes = [
        ("QuantizeLinear", ["x", "sx", "zx"], ["q"], {}),
        ("DequantizeLinear", ["q", "sx", "zx"], ["dx"], {}),
        ("DequantizeLinear", ["w", "sw", "zw"], ["dw"], {"axis": 1}),
        ("DequantizeLinear", ["b", "sb", "zb"], ["db"], {"axis": 0}),
        ("Gemm", ["dx", "dw", "db"], ["y"], {}),
        ("Relu", ["y"], ["r"], {}),
        ("QuantizeLinear", ["r", "sy", "zy"], ["qy"], {}),
        ("DequantizeLinear", ["qy", "sy", "zy"], ["out"], {}),
    ]
    sw = RNG.uniform(0.001, 0.01, n).astype(np.float32)
    sx = np.float32(0.02)
    facts = {
        "w": weights, "sw": sw, "zw": np.zeros(n, np.int8), "sx": sx, "zx": np.uint8(120), "sy": np.float32(0.03),
        "zy": np.uint8(3), "b": RNG.integers(-500, 500, n, np.int32), "sb": sx * sw, "zb": np.zeros(n, np.int32),
    }  # fmt: skip
    proto = model(onnx, nodes, {"x": (np.float32, ["M", k])}, {"out": (np.float32, ["M", n])}, facts)
    return proto, facts


def test_quantized_pairs_become_one_integer_product(onnx):
    proto, facts = qdq_matmul(onnx)
    pipe = tw.onnx.load(proto)
    names = [step.kernel.name for step in pipe.steps]
    assert sum(name.startswith("gemm_u8s8") for name in names) == 1
    assert not any(name.startswith("gemm_f32") for name in names)
    x = RNG.standard_normal((7, 24)).astype(np.float32)
    found = run(proto, x=x)["out"]
    codes = np.clip(np.rint(x / facts["sx"]) + 120, 0, 255) - 120
    acc = codes @ facts["w"].astype(np.float64) + facts["b"]
    real = np.maximum(acc * (facts["sx"] * facts["sw"]), 0).astype(np.float32)
    wanted = (np.clip(np.rint(real / facts["sy"]) + 3, 0, 255) - 3).astype(np.float32) * facts["sy"]
    np.testing.assert_array_equal(found, wanted)


def test_a_chain_on_codes_becomes_one_table(onnx):
    nodes = [
        ("DequantizeLinear", ["q", "s", "z"], ["x"], {}),
        ("HardSigmoid", ["x"], ["h"], {"alpha": 0.3}),
        ("Mul", ["x", "h"], ["m"], {}),
        ("QuantizeLinear", ["m", "s", "z"], ["q2"], {}),
        ("DequantizeLinear", ["q2", "s", "z"], ["x2"], {}),
        ("Sigmoid", ["x2"], ["y"], {}),
        ("QuantizeLinear", ["y", "t", "z"], ["out"], {}),
    ]
    facts = {"s": np.float32(0.05), "t": np.float32(0.004), "z": np.int8(-7)}
    proto = model(onnx, nodes, {"q": (np.int8, [2, 128])}, {"out": (np.int8, [2, 128])}, facts)
    pipe = tw.onnx.load(proto)
    used = {id(v.producer[0]) for v in pipe.outputs.values()}
    assert [s.kernel.name for s in pipe.steps if id(s) in used] == ["lookup_s8s8"]
    run(proto, q=np.arange(-128, 128).astype(np.int8).reshape(2, 128))


def test_shape_arithmetic_of_run_time_sizes(onnx):
    nodes = [
        ("Shape", ["x"], ["shape"], {}),
        ("Gather", ["shape", "zero"], ["batch"], {"axis": 0}),
        ("Concat", ["batch", "rest"], ["target"], {"axis": 0}),
        ("Reshape", ["x", "target"], ["y"], {}),
    ]
    facts = {"zero": np.array([0]), "rest": np.array([-1, 4])}
    proto = model(onnx, nodes, {"x": (np.float32, ["N", "T", 8])}, {"y": (np.float32, None)}, facts)
    plan = tw.TilingExecutor(threads=1).compile(tw.onnx.load(proto))
    for n, t in ((2, 3), (5, 1)):
        x = RNG.standard_normal((n, t, 8)).astype(np.float32)
        np.testing.assert_array_equal(plan.run({"x": x})["y"], x.reshape(n, -1, 4))


def test_values_that_decide_the_structure_come_with_the_run(onnx):
    nodes = [("ReduceSum", ["x", "axes"], ["y"], {"keepdims": 0})]
    proto = model(onnx, nodes, {"x": (np.float32, [2, 3, 4]), "axes": (np.int64, [1])}, {"y": (np.float32, None)})
    pipe = tw.onnx.load(proto)
    x = RNG.standard_normal((2, 3, 4)).astype(np.float32)
    for axis in (0, 2, -2):
        found = tw.SingleThreadExecutor().run(pipe, {"x": x, "axes": np.array([axis])})["y"]
        np.testing.assert_allclose(found, x.sum(axis), rtol=1e-5)
    with pytest.raises(Unsupported, match="values of axes decide"):
        tw.SingleThreadExecutor().compile(pipe)
    fixed = tw.onnx.load(proto, values={"axes": np.array([1])})
    assert tw.SingleThreadExecutor().compile(fixed).run({"x": x, "axes": np.array([1])})["y"].shape == (2, 4)


def test_branches_and_loops(onnx):
    helper = onnx.helper
    kind = onnx.TensorProto.FLOAT

    def graph(name, op, out):
        node = helper.make_node(op, ["x"], [out])
        return helper.make_graph([node], name, [], [helper.make_tensor_value_info(out, kind, [3])])

    def info(name, code, shape):
        return helper.make_tensor_value_info(name, code, shape)

    steps = [("Identity", ["go"], ["go2"]), ("Add", ["a", "x"], ["b"]), ("Identity", ["b"], ["each"])]
    flag = onnx.TensorProto.BOOL
    body = helper.make_graph(
        [helper.make_node(*step) for step in steps],
        "body",
        [info("i", onnx.TensorProto.INT64, []), info("go", flag, []), info("a", kind, [3])],
        [info("go2", flag, []), info("b", kind, [3]), info("each", kind, [3])],
    )
    nodes = [
        ("If", ["c"], ["y"], {"then_branch": graph("t", "Neg", "n"), "else_branch": graph("e", "Abs", "m")}),
        ("Loop", ["trips", "", "y"], ["last", "all"], {"body": body}),
    ]
    inputs = {"x": (np.float32, [3]), "c": (np.bool_, [])}
    proto = model(onnx, nodes, inputs, {"last": (np.float32, [3]), "all": (np.float32, [4, 3])}, {"trips": np.array(4)})
    x = np.array([1, -2, 3], np.float32)
    for c, first in ((True, -x), (False, np.abs(x))):
        found = run(proto, x=x, c=np.array(c))
        np.testing.assert_array_equal(found["all"], np.stack([first + n * x for n in range(1, 5)]))
        np.testing.assert_array_equal(found["last"], first + 4 * x)


def test_functions_of_the_model_are_expanded(onnx):
    helper = onnx.helper
    function = helper.make_function(
        "own", "Twice", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])], [helper.make_opsetid("", OPSET)]
    )
    proto = model(
        onnx,
        [("Twice", ["x"], ["y"], {"domain": "own"})],
        {"x": (np.float32, [2])},
        {"y": (np.float32, [2])},
        functions=[function],
    )
    proto.opset_import.append(helper.make_opsetid("own", 1))
    np.testing.assert_array_equal(run(proto, x=np.array([1, 2], np.float32))["y"], [2, 4])


def test_codes_of_four_bits_come_and_go_as_their_own_type(onnx):
    import ml_dtypes

    nodes = [
        ("DequantizeLinear", ["q", "s"], ["x"], {}),
        ("QuantizeLinear", ["x", "t"], ["y"], {"output_dtype": onnx.TensorProto.INT4}),
    ]
    facts = {"s": np.float32(0.5), "t": np.float32(1.0)}
    proto = model(onnx, nodes, {"q": (ml_dtypes.int4, [16])}, {"y": (ml_dtypes.int4, [16])}, facts)
    q = np.arange(-8, 8).astype(ml_dtypes.int4)
    found = run(proto, q=q)["y"]
    assert found.dtype == ml_dtypes.int4
    np.testing.assert_array_equal(found.astype(int), np.rint(q.astype(int) * 0.5).astype(int))


def test_recurrent_networks(onnx):
    t, n, width, inputs = 3, 2, 4, 5
    for op, gates in (("GRU", 3), ("LSTM", 4), ("RNN", 1)):
        nodes = [(op, ["x", "w", "r", "b"], ["y"], {"hidden_size": width, "direction": "bidirectional"})]
        facts = {
            "w": RNG.standard_normal((2, gates * width, inputs)).astype(np.float32),
            "r": RNG.standard_normal((2, gates * width, width)).astype(np.float32),
            "b": RNG.standard_normal((2, 2 * gates * width)).astype(np.float32),
        }
        proto = model(onnx, nodes, {"x": (np.float32, [t, n, inputs])}, {"y": (np.float32, [t, 2, n, width])}, facts)
        x = RNG.standard_normal((t, n, inputs)).astype(np.float32)
        from onnx.reference import ReferenceEvaluator

        wanted = ReferenceEvaluator(proto).run(None, {"x": x})[0] if op == "RNN" else None
        found = run(proto, x=x)["y"]
        assert found.shape == (t, 2, n, width)
        assert np.abs(found).max() <= 1
        if wanted is not None:
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


# Files that mean harm, or are damaged ---------------------------------------------------------------------------------


def test_damaged_bytes_are_named_errors(onnx, tmp_path):
    whole = qdq_matmul(onnx)[0].SerializeToString()
    rng = np.random.default_rng(5)
    refused = 0
    begin = time.perf_counter()
    for n in range(200):
        data = bytearray(whole)
        if n % 2:
            data = data[: rng.integers(0, len(data))]
        else:
            for _ in range(rng.integers(1, 6)):
                data[rng.integers(0, len(data))] = rng.integers(0, 256)
        try:
            tw.onnx.load(bytes(data))
        except TileworkError:
            refused += 1
    assert refused > 90
    assert time.perf_counter() - begin < 600  # none of them hangs


def _absurd(onnx, tensor):
    tensor.dims[0] = 2**40


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            lambda onnx, m: m.graph.node[0].input.__setitem__(0, "nobody"),
            FileFormatError,
            "'nobody', which nothing writes",
        ),
        (lambda onnx, m: m.graph.node[0].input.__setitem__(0, "out"), FileFormatError, "wait for each other"),
        (lambda onnx, m: m.graph.node[1].output.__setitem__(0, "q"), FileFormatError, "already written"),
        (lambda onnx, m: setattr(m.graph.node[5], "op_type", "Frobnicate"), Unsupported, "Frobnicate"),
        (lambda onnx, m: _absurd(onnx, m.graph.initializer[0]), FileFormatError, "elements"),
        (lambda onnx, m: setattr(m.graph.initializer[0], "data_type", 8), Unsupported, "STRING"),
        (lambda onnx, m: setattr(m.graph.initializer[0], "data_type", 77), FileFormatError, "77"),
        (lambda onnx, m: setattr(m.graph.initializer[0], "raw_data", b"abc"), FileFormatError, "3 are there"),
        (lambda onnx, m: setattr(m.opset_import[0], "version", 99), Unsupported, "99"),
        (lambda onnx, m: m.ClearField("graph"), FileFormatError, "no graph"),
    ],
)
def test_what_contradicts_itself_is_named(onnx, change, error, message):
    proto = qdq_matmul(onnx)[0]
    change(onnx, proto)
    with pytest.raises(error, match=message):
        tw.onnx.load(proto)


@pytest.mark.parametrize("location", ["../secret.bin", "/etc/passwd", "sub/../../secret.bin", "link.bin", "C:\\x", ""])
def test_external_data_stays_in_its_folder(onnx, tmp_path, location):
    folder = tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    (tmp_path / "secret.bin").write_bytes(bytes(4096))
    (folder / "link.bin").symlink_to(tmp_path / "secret.bin")
    proto = model(
        onnx,
        [("Add", ["x", "w"], ["y"], {})],
        {"x": (np.float32, [4])},
        {"y": (np.float32, [4])},
        {"w": np.ones(4, np.float32)},
    )
    tensor = proto.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    (folder / "m.onnx").write_bytes(proto.SerializeToString())
    with pytest.raises(FileFormatError, match=r"external data|leaves the folder"):
        tw.onnx.load(folder / "m.onnx")
    tensor.external_data[0].value = "w.bin"
    np.full(4, 2, np.float32).tofile(folder / "w.bin")
    (folder / "m.onnx").write_bytes(proto.SerializeToString())
    found = tw.SingleThreadExecutor().run(tw.onnx.load(folder / "m.onnx"), {"x": np.ones(4, np.float32)})
    np.testing.assert_array_equal(found["y"], [3, 3, 3, 3])


def test_bernoulli_draws_one_with_the_probability_given(onnx):
    helper, types = onnx.helper, onnx.TensorProto
    for kind, more in ((types.FLOAT, {}), (types.FLOAT16, {"seed": 3.0}), (types.DOUBLE, {"dtype": types.INT64})):
        node = helper.make_node("Bernoulli", ["x"], ["y"], **more)
        ends = [helper.make_tensor_value_info("x", kind, [3000])]
        graph = helper.make_graph([node], "random", ends, [helper.make_empty_tensor_value_info("y")])
        pipe = tw.onnx.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)]))
        x = np.repeat([0, 0.2, 1], 1000).astype(helper.tensor_dtype_to_np_dtype(kind))
        found = tw.SingleThreadExecutor("reference").run(pipe, {"x": x})["y"]
        assert found.dtype == (np.int64 if "dtype" in more else x.dtype)
        zero, some, one = found.astype(int).reshape(3, 1000).sum(axis=1)
        assert (zero, one) == (0, 1000)
        assert 150 < some < 250


def test_functions_take_attributes_whose_type_they_do_not_say(onnx):
    helper = onnx.helper
    inner = helper.make_node("LeakyRelu", ["a"], ["b"])
    held = onnx.AttributeProto(name="alpha", ref_attr_name="slope")  # without its type
    inner.attribute.append(held)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    function = helper.make_function("own", "Leaky", ["a"], ["b"], [inner], opsets[:1], ["slope"])
    node = helper.make_node("Leaky", ["x"], ["y"], domain="own", slope=0.5)
    ends = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2]) for name in "xy"]
    graph = helper.make_graph([node], "call", ends[:1], ends[1:])
    pipe = tw.onnx.load(helper.make_model(graph, opset_imports=opsets, functions=[function], ir_version=10))
    found = tw.SingleThreadExecutor("reference").run(pipe, {"x": np.float32([-2, 2])})["y"]
    np.testing.assert_array_equal(found, np.float32([-1, 2]))


def test_mistakes_of_the_caller_are_named(onnx, tmp_path):
    with pytest.raises(ArgumentError, match="there is no file"):
        tw.onnx.load(tmp_path / "none.onnx")
    with pytest.raises(ArgumentError, match="shapes= names 'z'"):
        tw.onnx.load(qdq_matmul(onnx)[0], shapes={"z": (1, 2)})
    for wrong in ({"x": 5}, {"x": "N6"}, [("x", (4, 16))]):
        with pytest.raises(ArgumentError, match=r"shapes= .* works"):
            tw.onnx.load(qdq_matmul(onnx)[0], shapes=wrong)
    (tmp_path / "text.onnx").write_text("this is no model")
    with pytest.raises(FileFormatError):
        tw.onnx.load(tmp_path / "text.onnx")


@pytest.mark.parametrize("constant", [np.int8(30), np.int8([30])])
def test_a_chain_that_begins_with_a_constant_is_a_table_too(onnx, constant):
    facts = {"s": np.float32(0.1), "z": np.uint8(7), "c": constant, "cs": np.float32(0.05), "cz": np.int8(0)}
    nodes = [
        ("DequantizeLinear", ["x", "s", "z"], ["dx"], {}),
        ("DequantizeLinear", ["c", "cs", "cz"], ["dc"], {}),
        ("Mul", ["dc", "dx"], ["m"], {}),
        ("QuantizeLinear", ["m", "s", "z"], ["y"], {}),
    ]
    shape = (np.uint8, [1, 5, 3, 50])
    proto = model(onnx, nodes, {"x": shape}, {"y": shape}, facts)
    assert [step.kernel.name for step in tw.onnx.load(proto).steps] == ["lookup_u8u8"]
    run(proto, x=RNG.integers(0, 256, (1, 5, 3, 50)).astype(np.uint8))


def test_a_size_that_is_no_expression_of_another_may_be_doubled(onnx):
    """After a stride of two the rows are floordiv(..); resizing them by two needs nothing but the operand."""
    facts = {"w": RNG.normal(size=(2, 1, 3, 3)).astype(np.float32), "scales": np.float32([1, 1, 2, 2])}
    nodes = [
        ("Conv", ["x", "w"], ["half"], {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
        ("Resize", ["half", "", "scales"], ["y"], {"mode": "nearest"}),
    ]
    proto = model(onnx, nodes, {"x": (np.float32, ["N", 1, "H", "W"])}, {"y": (np.float32, None)}, facts)
    assert run(proto, x=RNG.normal(size=(1, 1, 7, 6)).astype(np.float32))["y"].shape == (1, 2, 8, 6)


def test_batch_normalization_in_training_mode(onnx):
    facts = {"scale": np.float32([2, 3]), "bias": np.float32([1, -1]), "m": np.float32([0, 1]), "v": np.float32([1, 2])}
    nodes = [("BatchNormalization", ["x", *facts], ["y", "rm", "rv"], {"training_mode": 1, "momentum": 0.75})]
    shape, each = (np.float32, [4, 2, 3]), (np.float32, [2])
    proto = model(onnx, nodes, {"x": shape}, {"y": shape, "rm": each, "rv": each}, facts)
    x = RNG.normal(size=(4, 2, 3)).astype(np.float32)
    found = run(proto, x=x)
    mean, variance = x.mean((0, 2)), x.var((0, 2))
    y = (x - mean[:, None]) / np.sqrt(variance + 1e-5)[:, None] * facts["scale"][:, None] + facts["bias"][:, None]
    np.testing.assert_allclose(found["y"], y, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found["rm"], 0.75 * facts["m"] + 0.25 * mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found["rv"], 0.75 * facts["v"] + 0.25 * variance, rtol=1e-5)


def test_what_values_decide_in_the_middle_is_computed_by_the_steps_before_it(onnx):
    nodes = [
        ("Relu", ["x"], ["positive"], {}),
        ("NonZero", ["positive"], ["places"], {}),
        ("Transpose", ["places"], ["rows"], {}),
        ("GatherND", ["x", "rows"], ["y"], {}),
    ]
    pipe = tw.onnx.load(model(onnx, nodes, {"x": ("f4", ["N", 3])}, {"y": ("f4", ["K"])}))
    executor = tw.SingleThreadExecutor("reference")
    for seed in range(3):
        x = np.random.default_rng(seed).standard_normal((4, 3)).astype(np.float32)
        assert executor.run(pipe, {"x": x})["y"].tolist() == x[x > 0].tolist()


def test_sizes_are_data_too_and_a_branch_that_they_choose_is_taken(onnx):
    helper, value = onnx.helper, onnx.helper.make_tensor_value_info

    def branch(axes):
        tensor = onnx.numpy_helper.from_array(np.array(axes, np.int64), "axes")
        node = helper.make_node("ReduceSum", ["x", "axes"], ["total"], keepdims=0)
        return helper.make_graph([node], "branch", [], [value("total", 1, None)], [tensor])

    nodes = [
        ("Shape", ["x"], ["shape"], {}),
        ("Gather", ["shape", "zero"], ["n"], {}),
        ("Cast", ["n"], ["real"], {"to": 1}),
        ("Sqrt", ["real"], ["root"], {}),
        ("Equal", ["n", "four"], ["square"], {}),
        ("If", ["square"], ["sum"], {"then_branch": branch([0]), "else_branch": branch([0, 1])}),
        ("Mul", ["sum", "root"], ["y"], {}),
    ]
    constants = {"zero": np.int64(0), "four": np.int64(4)}
    proto = model(onnx, nodes, {"x": ("f4", ["N", 2])}, {"y": ("f4", None)}, constants)
    pipe = tw.onnx.load(proto)
    executor = tw.SingleThreadExecutor("reference")
    assert executor.run(pipe, {"x": np.ones((4, 2), np.float32)})["y"].tolist() == [8.0, 8.0]
    assert executor.run(pipe, {"x": np.ones((9, 2), np.float32)})["y"].tolist() == 54.0
