"""A model that was read before: nothing is read again until somebody looks, and what was kept is of these very files."""

import copy
import importlib
import os
import pickle

import numpy as np
import pytest

import tilework as tw
from tilework.executors.kept import files
from tilework.executors.kept.plan import KeptPlan
from tilework.frontends.onnx.kept import Later
from tilework.kernels import factory, forge
from tilework.primitives.errors import FileFormatError

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

load = importlib.import_module("tilework.frontends.onnx.load")  # the package has a function of that name
X = np.random.default_rng(1).normal(size=(3, 8)).astype(np.float32)


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """A folder of its own for kept plans."""
    monkeypatch.setattr(files, "folder", lambda: tmp_path / "plans")
    # Other tests of this process may have added kernels of theirs, or compiled into a cache that is gone.
    monkeypatch.setattr(factory, "_changed", set())
    for source, made in list(forge._entries.items()):
        if not made.scope and forge.kept(made) is None:
            del forge._entries[source]
    return tmp_path / "plans"


def model(factor=2.0, rows=3):
    w = np.random.default_rng(0).normal(size=(8, 5)).astype(np.float32) * np.float32(factor)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])],
        "two steps",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, 5])],
        [numpy_helper.from_array(w, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def run(path, threads=1):
    return tw.TilingExecutor(threads).run(tw.onnx.load(path), {"x": X})["y"]


@pytest.fixture
def path(tmp_path):
    """A model that was loaded and run."""
    file = tmp_path / "model.onnx"
    file.write_bytes(model().SerializeToString())
    run(file)
    return file


def is_read(pipe):
    return "steps" in vars(pipe)


def test_the_second_load_reads_nothing_and_gives_the_same_bytes(path):
    want = tw.TilingExecutor(1).run(tw.onnx.load(path.read_bytes()), {"x": X})["y"]
    pipe = tw.onnx.load(str(path))
    assert isinstance(pipe, Later)
    plan = tw.TilingExecutor(1).compile(pipe)
    assert isinstance(plan, KeptPlan)
    assert plan.run({"x": X})["y"].tobytes() == want.tobytes()
    assert tw.TilingExecutor(1).run(pipe, {"x": X})["y"].tobytes() == want.tobytes()
    assert not is_read(pipe)


def test_a_look_reads_it_and_everything_is_as_if_it_had_been(path):
    pipe, plain = tw.onnx.load(path), tw.onnx.load(path.read_bytes())
    assert repr(pipe) == repr(plain)
    assert is_read(pipe)
    assert all(value.pipeline is pipe for value in pipe.values.values())
    compiled = tw.TilingExecutor(1).compile(tw.onnx.load(path), {"x": (3, 8)})
    assert compiled.explain() == tw.TilingExecutor(1).compile(plain, {"x": (3, 8)}).explain()
    pipe.output("twice", tw.ops.add(pipe.outputs["y"], pipe.outputs["y"]))
    found = tw.TilingExecutor(1).run(pipe, {"x": X})
    assert np.array_equal(found["twice"], 2 * found["y"])


def test_it_is_copied_and_pickled_as_a_pipeline(path):
    want = run(path)
    for made in (copy.copy(tw.onnx.load(path)), pickle.loads(pickle.dumps(tw.onnx.load(path)))):
        assert np.array_equal(tw.SingleThreadExecutor().run(made, {"x": X})["y"], want)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = tw.onnx.load(path).nothing


def test_another_content_of_the_file_is_another_model(path):
    before = run(path)
    path.write_bytes(model(factor=-3.0).SerializeToString())
    assert not isinstance(tw.onnx.load(path), Later)
    assert not np.array_equal(run(path), before)


def test_sizes_that_are_asked_for_make_another_model(tmp_path):
    file = tmp_path / "open.onnx"
    file.write_bytes(model(rows="N").SerializeToString())
    want = run(file)
    assert isinstance(tw.onnx.load(file), Later)
    assert tw.onnx.load(file).fixed_shapes() is None
    assert not isinstance(tw.onnx.load(file, shapes={"x": (3, 8)}), Later)
    assert np.array_equal(run(file), want)
    assert tw.TilingExecutor(1).run(tw.onnx.load(file), {"x": X[:2]})["y"].shape == (2, 5)


def test_files_beside_the_model_count(tmp_path):
    file = tmp_path / "m.onnx"
    onnx.save(model(), file, save_as_external_data=True, location="w.bin", size_threshold=0)
    want = run(file)
    pipe = tw.onnx.load(file)
    assert isinstance(pipe, Later)
    raw = bytearray((tmp_path / "w.bin").read_bytes())
    raw[3] ^= 0x80  # the first weight's sign
    (tmp_path / "w.bin").write_bytes(raw)
    assert not isinstance(tw.onnx.load(file), Later)
    assert not np.array_equal(run(file), want)
    with pytest.raises(FileFormatError, match=r"'w\.bin' has changed since the model was loaded"):
        len(pipe.steps)


@pytest.mark.parametrize("again", [False, True], ids=["first load", "second load"])
def test_files_that_change_while_they_are_read_are_kept_for_nobody(tmp_path, monkeypatch, again):
    """What is computed of the old weights would be found under the name of the new ones, for ever."""
    file, beside = tmp_path / "m.onnx", tmp_path / "w.bin"
    onnx.save(model(), file, save_as_external_data=True, location="w.bin", size_threshold=0)
    old, stat = beside.read_bytes(), beside.stat()
    new = bytes(b ^ 0x80 if n % 4 == 3 else b for n, b in enumerate(old))
    want = X @ np.frombuffer(new, np.float32).reshape(8, 5) <= 0
    pipe = None
    if again:
        run(file)
        pipe = tw.onnx.load(file)
        assert isinstance(pipe, Later)
    translated = load._translated

    def slow(*given, **named):
        made = translated(*given, **named)
        beside.write_bytes(new)
        os.utime(beside, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # neither size nor time tells
        return made

    monkeypatch.setattr(load, "_translated", slow)
    if pipe is None:
        assert tw.onnx.load(file).identity is None
    else:
        with pytest.raises(FileFormatError, match="has changed since the model was loaded"):
            len(pipe.steps)
    monkeypatch.undo()
    for _ in range(2):
        assert np.array_equal(run(file) == 0, want)


def test_a_file_that_changes_is_not_read_as_part_of_a_model_that_was_loaded_before(tmp_path):
    """A model whose inputs' values decide its structure is translated again for other values."""
    file = tmp_path / "m.onnx"
    made = model()
    made.graph.node.append(helper.make_node("Reshape", ["y", "shape"], ["z"]))
    made.graph.input.append(helper.make_tensor_value_info("shape", TensorProto.INT64, [2]))
    made.graph.output[0].CopyFrom(helper.make_tensor_value_info("z", TensorProto.FLOAT, None))
    onnx.save(made, file, save_as_external_data=True, location="w.bin", size_threshold=0)
    pipe = tw.onnx.load(file)
    first = tw.SingleThreadExecutor().run(pipe, {"x": X, "shape": np.array([5, 3])})["z"]
    assert first.shape == (5, 3)
    raw = (tmp_path / "w.bin").read_bytes()
    (tmp_path / "w.bin").write_bytes(raw + b"more")
    with pytest.raises(FileFormatError, match=r"'w\.bin' has changed since the model was loaded"):
        tw.SingleThreadExecutor().run(pipe, {"x": X, "shape": np.array([1, 15])})


def test_weights_that_are_replaced_count(path):
    pipe = tw.onnx.load(path)
    w = next(value for value in pipe.values.values() if value.kind == "constant")
    assert pipe.identity is not None
    w.data = -w.data
    assert pipe.identity is None
    found = tw.TilingExecutor(1).run(pipe, {"x": X})["y"]
    assert np.array_equal(found, tw.SingleThreadExecutor("reference").run(pipe, {"x": X})["y"])
    assert not np.array_equal(found, run(path))


def test_a_damaged_note_is_read_anew(path, place):
    for note in place.glob("*.model"):
        files.write(note.name, b'{"name": 3}')
    assert not isinstance(tw.onnx.load(path), Later)
    assert isinstance(tw.onnx.load(path), Later)


def test_nothing_is_kept_where_it_is_turned_off(path, monkeypatch):
    monkeypatch.setenv("TILEWORK_PLANS", "0")
    assert not isinstance(tw.onnx.load(path), Later)
