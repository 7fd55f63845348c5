"""Properties of what is written and read: pipelines, tensors, models, columns and texts come back as they were."""

import functools
import io

import hypothesis.extra.numpy as nps
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import tilework as tw
from tilework.bench.checks.sources import module_at

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
FOLDER = settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])


@functools.cache
def pipelines():
    return module_at("tests", "executors", "random_pipelines.py")


@settings(max_examples=12)
@given(st.integers(0, 10**6))
def test_a_pipeline_comes_back_from_its_file_and_gives_the_same(seed):
    """Random pipelines of up to six steps, without functions: the same text, the same bytes, the same results."""
    case = pipelines().make(seed, depth=6, pool=0)
    file = io.BytesIO()
    case.pipe.save(file, functions="source")
    again = tw.Pipeline.load(io.BytesIO(file.getvalue()), functions="run")
    assert repr(again) == repr(case.pipe)
    second = io.BytesIO()
    tw.Pipeline.load(io.BytesIO(file.getvalue()), functions="run").save(second, functions="source")
    assert second.getvalue() == file.getvalue()
    reference = tw.SingleThreadExecutor("reference")
    for inputs in case.runs[:1]:
        a, b = (reference.compile(p).run(inputs, state={}) for p in (case.pipe, again))
        assert {n: y.tobytes() for n, y in a.items()} == {n: y.tobytes() for n, y in b.items()}
    assert tw.debug.compare(again, case.runs[0], reference, tw.SingleThreadExecutor("reference")).equal


ARRAYS = st.dictionaries(
    NAMES,
    st.one_of(
        *(
            nps.arrays(dtype, nps.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=5))
            for dtype in (np.float32, np.float16, np.int8, np.int64, np.float64)
        )
    ),
    max_size=4,
)


@FOLDER
@given(
    ARRAYS,
    st.dictionaries(
        NAMES.filter(lambda n: not n.startswith("general.")),
        st.one_of(st.booleans(), st.integers(-(2**31), 2**31), st.text(st.characters(exclude_categories=["Cs"]))),
        max_size=4,
    ),
)
def test_gguf_files_come_back(tmp_path, arrays, metadata):
    tw.gguf.save(tmp_path / "m.gguf", arrays, metadata)
    found = tw.gguf.load(tmp_path / "m.gguf")
    assert list(found) == list(arrays)
    for name, array in arrays.items():
        assert (found[name].numpy().dtype, found[name].shape) == (array.dtype, array.shape)
        assert found[name].numpy().tobytes() == array.tobytes()
    assert {name: found.metadata[name] for name in metadata} == metadata


@FOLDER
@given(ARRAYS, st.dictionaries(NAMES, st.text(st.characters(exclude_categories=["Cs"])), max_size=3))
def test_safetensors_files_come_back(tmp_path, arrays, metadata):
    arrays.pop("__metadata__", None)
    tw.safetensors.save(tmp_path / "m.safetensors", arrays, metadata)
    found = tw.safetensors.load(tmp_path / "m.safetensors")
    assert set(found) == set(arrays)
    for name, array in arrays.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        assert found[name].tobytes() == array.tobytes()
    assert found.metadata == metadata


@settings(max_examples=25)
@given(st.data())
def test_onnx_codes_are_those_of_the_formula(data):
    """QuantizeLinear and DequantizeLinear along any axis, with any zero points."""
    onnx = pytest.importorskip("onnx", reason="reading ONNX needs the package onnx (extra onnx)")
    shape = data.draw(nps.array_shapes(min_dims=1, max_dims=3, max_side=4))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    dtype = data.draw(st.sampled_from([np.uint8, np.int8]))
    x = data.draw(nps.arrays(np.float32, shape, elements=st.floats(-200, 200, width=32)))
    scale = data.draw(nps.arrays(np.float32, (shape[axis],), elements=st.floats(0.125, 4, width=32)))
    zero = data.draw(nps.arrays(dtype, (shape[axis],)))
    nodes = [
        onnx.helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], axis=axis),
        onnx.helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], axis=axis),
    ]
    graph = onnx.helper.make_graph(
        nodes,
        "g",
        [onnx.helper.make_tensor_value_info("x", 1, shape)],
        [
            onnx.helper.make_tensor_value_info("q", onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), None),
            onnx.helper.make_tensor_value_info("y", 1, None),
        ],
        [onnx.numpy_helper.from_array(scale, "s"), onnx.numpy_helper.from_array(zero, "z")],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)
    found = tw.SingleThreadExecutor("reference").run(tw.onnx.load(model), {"x": x})
    along = [1] * len(shape)
    along[axis] = -1
    s, z = scale.reshape(along), zero.reshape(along).astype(np.int64)
    info = np.iinfo(dtype)
    codes = np.clip(np.rint(x / s).astype(np.int64) + z, info.min, info.max)
    assert found["q"].tolist() == codes.tolist()
    assert found["y"].tolist() == ((codes - z).astype(np.float32) * s).tolist()


@settings(max_examples=25)
@given(st.lists(st.one_of(st.none(), st.integers(-1000, 1000)), max_size=40), st.integers(0, 10), st.integers(1, 9))
def test_arrow_columns_come_back(values, first, rows):
    """Nulls, offsets into shared memory, and tables read in pieces."""
    pa = pytest.importorskip("pyarrow", reason="columns of Arrow need pyarrow (extra arrow)")
    array = pa.array(values, pa.int32())[first:]
    buffer, valid = tw.arrow.column(array)
    there = np.ones(len(array), bool) if valid is None else valid
    assert there.tolist() == [v is not None for v in values[first:]]
    assert buffer.numpy()[there].tolist() == [v for v in values[first:] if v is not None]
    table = pa.table({"x": pa.array([v or 0 for v in values], pa.int32())})
    found = [batch["x"].copy() for batch in tw.arrow.read(table, ["x"], rows=rows)]
    assert all(len(part) <= rows for part in found)
    joined = np.concatenate(found) if found else np.zeros(0, np.int32)
    assert joined.tolist() == [v or 0 for v in values]


@functools.cache
def tokenizer():
    from tilework.frontends.llm import Tokenizer

    letters = [chr(n) for n in range(97, 123)]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{n:02X}>" for n in range(256)), "\u2581", *letters, "ab", "abc", "\u2581a"]
    kinds = [2, 3, 3, *[6] * 256, *[1] * (len(tokens) - 259)]
    return Tokenizer(
        {
            "tokenizer.ggml.model": "llama",
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.scores": [-float(n) for n in range(len(tokens))],
            "tokenizer.ggml.token_type": kinds,
            "tokenizer.ggml.bos_token_id": 1,
            "tokenizer.ggml.eos_token_id": 2,
        }
    )


@settings(max_examples=60)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
def test_a_tokenizer_takes_any_text(text):
    """Every text has tokens, all of which are in the vocabulary, and comes back from them."""
    tokens = tokenizer().encode(text, bos=False)
    assert all(0 <= t < len(tokenizer()) for t in tokens)
    back = tokenizer().decode(tokens)
    assert back.removeprefix(" ") == text.replace("\u2581", " ").removeprefix(" ")
