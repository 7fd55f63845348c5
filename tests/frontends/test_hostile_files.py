"""Files that ask for more than they hold, or for what is not theirs: refused by name, before memory is taken."""

import contextlib
import io
import json
import os
import pickle
import tracemalloc
import zipfile

import numpy as np
import pytest

import tilework as tw
from tilework.executors.schemes import files
from tilework.kernels import bundle
from tilework.primitives import archives
from tilework.primitives.errors import FileFormatError

MOST = 64 << 20  # bytes that a file of a few kilobytes may cost, those of caches and imports among them


@pytest.fixture
def frugal():
    """What is read within takes little memory."""
    tracemalloc.start()
    yield
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < MOST, f"{peak >> 20} MiB"


# Archives of arrays ----------------------------------------------------------------------------------------------------


def header(shape, dtype="<f4", fortran=False):
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": dtype, "fortran_order": fortran, "shape": shape})
    return file.getvalue()


def archive(path, members, compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", compression) as target:
        for name, content in members.items():
            target.writestr(name, content)
    return path


def described(q):
    return json.dumps(
        {"format": 1, "tensors": {"w": {"scheme": q.scheme.name, "digest": q.scheme.digest, "shape": list(q.shape)}}}
    ).encode()


@pytest.mark.parametrize("shape", [(1 << 40,), (1 << 20, 1 << 20), (3, 1 << 62), (-1,), (-2, -2), (5,)])
def test_an_array_has_the_bytes_that_its_header_says(tmp_path, frugal, shape):
    path = archive(tmp_path / "t.npz", {"tilework.schemes.npy": header(shape) + bytes(16)})
    with pytest.raises(FileFormatError):
        files.load(path)
    with pytest.raises(FileFormatError):
        archives.array(header(shape) + bytes(16))


def test_compressed_members_are_not_unpacked(tmp_path, frugal):
    bomb = {"tilework.schemes.npy": header((1 << 28,), "|u1") + bytes(1 << 20), "w.codes.npy": bytes(1 << 24)}
    for name, load in (("t.npz", files.load), ("p.tw", tw.Pipeline.load)):
        with pytest.raises(FileFormatError):
            load(archive(tmp_path / name, {**bomb, "pipeline.json": b"{}"}, zipfile.ZIP_DEFLATED))


def test_members_that_lie_over_each_other_are_refused(tmp_path, frugal):
    """A directory may name the same bytes a thousand times, and would have them read a thousand times."""
    path = archive(tmp_path / "t.npz", {"a.npy": header((1 << 20,), "|u1") + bytes(1 << 20)})
    with zipfile.ZipFile(path, "a") as target:
        for n in range(50):
            again = target.infolist()[0]
            copy = zipfile.ZipInfo(f"a{n}.npy")
            copy.header_offset, copy.CRC, copy.file_size = again.header_offset, again.CRC, again.file_size
            copy.compress_size = again.compress_size
            target.filelist.append(copy)
            target.NameToInfo[copy.filename] = copy
        target._didModify = True
    with pytest.raises(FileFormatError, match="members of"):
        files.load(path)


class Evil:
    def __reduce__(self):
        return os.system, ("exit 1",)


@pytest.mark.parametrize("load", [files.load, tw.Pipeline.load], ids=["tensors", "pipeline"])
def test_pickles_are_not_loaded(tmp_path, load):
    array = np.empty(1, object)
    array[0] = Evil()
    file = io.BytesIO()
    np.lib.format.write_array(file, array, allow_pickle=True)
    for content in (file.getvalue(), pickle.dumps(Evil())):
        members = {"tilework.schemes.npy": content, "pipeline.json": b"{}", "array_0.npy": content}
        with pytest.raises(FileFormatError):
            load(archive(tmp_path / "x.npz", members))


def test_arrays_of_every_plain_type_and_shape_come_back():
    for dtype in ("|u1", "<i2", "<f4", "<f8", "|b1"):
        for shape in ((), (0,), (3,), (2, 0, 3), (2, 3)):
            array = np.ones(shape, dtype)
            file = io.BytesIO()
            np.lib.format.write_array(file, array)
            found = archives.array(file.getvalue())
            assert (found.dtype, found.shape, found.tolist()) == (array.dtype, array.shape, array.tolist())
            assert not found.flags.writeable or not found.size


# ONNX ------------------------------------------------------------------------------------------------------------------


def model(nodes, constants, external=None):
    onnx = pytest.importorskip("onnx", reason="reading ONNX needs the package onnx (extra onnx)")
    tensors = [onnx.numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()]
    if external is not None:
        tensor = onnx.TensorProto(name="e", data_type=1, dims=[4], data_location=onnx.TensorProto.EXTERNAL)
        for key, value in external.items():
            tensor.external_data.add(key=key, value=value)
        tensors.append(tensor)
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node(op, taken, made, **attributes) for op, taken, made, attributes in nodes],
        "hostile",
        [onnx.helper.make_tensor_value_info("x", 1, ["N"])],
        [onnx.helper.make_tensor_value_info("y", 1, None)],
        tensors,
    )
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)


LARGE = 1 << 30
GROWING = {
    "ConstantOfShape": ([("ConstantOfShape", ["n"], ["c"], {})], {"n": np.array([LARGE])}),
    "Expand": (
        [("Expand", ["one", "n"], ["c"], {})],
        {"one": np.ones(1, np.float32), "n": np.array([1 << 15, 1 << 15])},
    ),
    "Tile": ([("Tile", ["one", "n"], ["c"], {})], {"one": np.ones(1, np.float32), "n": np.array([LARGE])}),
    "Pad": ([("Pad", ["one", "n"], ["c"], {})], {"one": np.ones(1, np.float32), "n": np.array([0, LARGE])}),
    "Range": (
        [("Range", ["a", "b", "d"], ["c"], {})],
        {"a": np.float32(0), "b": np.float32(LARGE), "d": np.float32(1)},
    ),
    "Range of steps": (
        [("Range", ["a", "b", "d"], ["c"], {})],
        {"a": np.float32(0), "b": np.float32(1), "d": np.float32(1e-30)},
    ),
    "EyeLike": (
        [("ConstantOfShape", ["n"], ["s"], {}), ("EyeLike", ["s"], ["c"], {"dtype": 1})],
        {"n": np.array([1 << 15, 1 << 15])},
    ),
    "MelWeightMatrix": (
        [("MelWeightMatrix", ["m", "m", "m", "low", "high"], ["c"], {})],
        {"m": np.array(1 << 20), "low": np.float32(0), "high": np.float32(8000)},
    ),
}


@pytest.mark.parametrize("name", GROWING)
def test_a_few_bytes_make_no_gigabytes(frugal, name):
    """Refused, or left to a run that may never come."""
    nodes, constants = GROWING[name]
    with contextlib.suppress(tw.errors.TileworkError):
        tw.onnx.load(model([*nodes, ("ReduceSum", ["c"], ["r"], {}), ("Add", ["x", "r"], ["y"], {})], constants))


def test_ranges_that_have_no_end_are_malformed():
    for first, last, step in ((0, 5, 0), (0, np.nan, 1), (np.inf, np.inf, 1)):
        constants = {"a": np.float32(first), "b": np.float32(last), "d": np.float32(step)}
        with pytest.raises(tw.errors.TileworkError):
            tw.onnx.load(model([("Range", ["a", "b", "d"], ["c"], {}), ("Add", ["x", "c"], ["y"], {})], constants))


PLACES = ["../secret", "/etc/hostname", "C:secret", "C:\\secret", "\\\\host\\secret", "a/../../secret", "link", "folder", "",
          "sec\0ret", "folder/../../secret", "\N{FULLWIDTH FULL STOP}\N{FULLWIDTH FULL STOP}/secret"]  # fmt: skip


@pytest.mark.parametrize("location", PLACES)
def test_external_data_stays_in_the_folder_of_its_model(tmp_path, location):
    here = tmp_path / "models"
    (here / "folder").mkdir(parents=True)
    (tmp_path / "secret").write_bytes(np.ones(4, np.float32).tobytes())
    if hasattr(os, "symlink") and os.name == "posix":
        (here / "link").symlink_to(tmp_path / "secret")
    made = model([("Add", ["x", "e"], ["y"], {})], {}, {"location": location})
    (here / "m.onnx").write_bytes(made.SerializeToString())
    with pytest.raises(FileFormatError, match="external data"):
        tw.onnx.load(here / "m.onnx")


@pytest.mark.parametrize(
    "more", [{"offset": "-4"}, {"offset": "4"}, {"length": "1000"}, {"offset": "x"}, {"offset": str(1 << 70)}]
)
def test_places_in_external_data_are_checked(tmp_path, more):
    (tmp_path / "data").write_bytes(bytes(16))
    made = model([("Add", ["x", "e"], ["y"], {})], {}, {"location": "data", **more})
    (tmp_path / "m.onnx").write_bytes(made.SerializeToString())
    with pytest.raises(FileFormatError):
        tw.onnx.load(tmp_path / "m.onnx")


# Indices of checkpoints ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["../c.safetensors", "/c.safetensors", "a/c.safetensors", "..", "", "C:c.safetensors", "c\0"]
)
def test_an_index_names_files_of_its_own_folder(tmp_path, name):
    tw.safetensors.save(tmp_path / "c.safetensors", {"w": np.ones(3, np.float32)})
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"w": name}}))
    with pytest.raises(FileFormatError):
        tw.safetensors.load(tmp_path / "m")


def test_deep_nesting_in_json_is_refused(tmp_path):
    deep = b"[" * 100_000
    content = np.frombuffer(deep, np.uint8)
    np.savez(tmp_path / "t.npz", **{"tilework.schemes": content})
    with pytest.raises(FileFormatError):
        files.load(tmp_path / "t.npz")
    with pytest.raises(FileFormatError):
        tw.Pipeline.load(archive(tmp_path / "p.tw", {"pipeline.json": deep}))
    (tmp_path / "s.safetensors").write_bytes(len(deep).to_bytes(8, "little") + deep)
    with pytest.raises(FileFormatError):
        tw.safetensors.load(tmp_path / "s.safetensors")


# Arrays without elements -----------------------------------------------------------------------------------------------

ABSURD = [(0, 1 << 62), (1 << 40, 0, 1 << 40), (0, (1 << 31) - 1, (1 << 31) - 1, 7)]


@pytest.mark.parametrize("shape", ABSURD)
def test_arrays_without_elements_have_sizes_too(tmp_path, shape):
    with pytest.raises(FileFormatError):
        archives.array(header(shape))
    tw.gguf.save(tmp_path / "m.gguf", {"a": np.ones((0, *range(3, 2 + len(shape))), np.float32)}, {})
    raw = (tmp_path / "m.gguf").read_bytes()
    kept = np.array([*range(1 + len(shape), 2, -1), 0], "<u8").tobytes()
    assert kept in raw
    (tmp_path / "m.gguf").write_bytes(raw.replace(kept, np.array(shape[::-1], "<u8").tobytes()))
    with pytest.raises(FileFormatError):
        tw.gguf.load(tmp_path / "m.gguf")
    text = json.dumps({"a": {"dtype": "F32", "shape": shape, "data_offsets": [0, 0]}}).encode()
    (tmp_path / "s.safetensors").write_bytes(len(text).to_bytes(8, "little") + text)
    with pytest.raises(FileFormatError):
        tw.safetensors.load(tmp_path / "s.safetensors")
    onnx = pytest.importorskip("onnx", reason="reading ONNX needs the package onnx (extra onnx)")
    made = model([("Add", ["x", "e"], ["y"], {})], {})
    made.graph.initializer.append(onnx.TensorProto(name="e", data_type=1, dims=shape))
    with pytest.raises(FileFormatError):
        tw.onnx.load(made)


def test_blocks_of_no_rows_are_decoded_to_none(tmp_path):
    from tilework.frontends.gguf.layout import TYPES
    from tilework.frontends.gguf.reader import RawTensor

    for shape in ((0, 32), (2, 0, 32), (2, 0), (0, 0)):
        nbytes = shape[-1] // 32 * 18
        tensor = RawTensor("a", TYPES["Q4_0"], shape, np.zeros((*shape[:-1], nbytes), np.uint8))
        tw.gguf.save(tmp_path / "m.gguf", {"a": tensor}, {})
        assert tw.gguf.load(tmp_path / "m.gguf")["a"].quantized().dequantize().shape == shape


def test_encrypted_members_are_refused(tmp_path):
    pipe = tw.Pipeline("p")
    pipe.output("y", tw.ops.relu(pipe.constant("c", np.ones(3, np.float32))))
    pipe.save(tmp_path / "p.tw")
    raw = bytearray((tmp_path / "p.tw").read_bytes())
    raw[raw.rfind(b"PK\x01\x02") + 8] |= 1
    (tmp_path / "p.tw").write_bytes(raw)
    with pytest.raises(FileFormatError, match="encrypted"):
        tw.Pipeline.load(tmp_path / "p.tw")


@pytest.mark.parametrize("name", ["p.tw", "t.npz", "b.zip"])
def test_a_directory_that_says_it_is_gigabytes_is_not_read_into_them(tmp_path, frugal, name):
    """Its size stands in the last record of a zip file, and Python reserves as much before it reads."""
    path = archive(tmp_path / name, {"pipeline.json": b"{}"})
    raw = bytearray(path.read_bytes())
    at = raw.rfind(b"PK\x05\x06")
    raw[at + 12 : at + 16] = (0x7FFFFFF0).to_bytes(4, "little")
    path.write_bytes(raw)
    load = {"p.tw": tw.Pipeline.load, "t.npz": files.load, "b.zip": bundle.load}[name]
    with pytest.raises(tw.errors.TileworkError):
        load(path)


def test_many_scales_for_one_number_are_refused():
    onnx = pytest.importorskip("onnx", reason="reading ONNX needs the package onnx (extra onnx)")
    for dtype, node in ((17, "DequantizeLinear"), (3, "DequantizeLinear")):
        made = model([(node, ["q", "s"], ["y"], {})], {"s": np.ones(3, np.float32)})
        made.graph.initializer.append(onnx.TensorProto(name="q", data_type=dtype, dims=[], raw_data=b"\x01"))
        with pytest.raises(tw.errors.TileworkError):
            tw.onnx.load(made)
