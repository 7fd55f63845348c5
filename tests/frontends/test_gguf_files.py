"""GGUF files: what is written is read, the package gguf agrees, and damaged files are named errors."""

import ml_dtypes
import numpy as np
import pytest

from tilework.frontends import gguf
from tilework.primitives.errors import ArgumentError, FileFormatError, ShapeMismatch, TileworkError, Unsupported

METADATA = {
    "general.architecture": "llama",
    "a.count": np.uint32(7),
    "a.long": 2**40,
    "a.scale": 1.5,
    "a.yes": True,
    "a.words": ["one", "zwei", "três"],
    "a.numbers": np.array([1.5, -2.5], np.float64),
    "a.ints": [1, -2, 3],
}


def tensors():
    rng = np.random.default_rng(0)
    plain = (np.float32, np.float16, np.float64, ml_dtypes.bfloat16, np.int8, np.int16, np.int32, np.int64)
    found = {f"t_{np.dtype(t).name}": rng.integers(-100, 100, (3, 2, 5)).astype(t) for t in plain}
    return {**found, "scalar": np.float32(3.0), "empty": np.zeros((0, 4), np.float32)}


def test_what_is_written_is_read(tmp_path):
    gguf.save(tmp_path / "a.gguf", tensors(), METADATA)
    found = gguf.load(tmp_path / "a.gguf")
    assert list(found) == list(tensors())
    for name, array in tensors().items():
        assert found[name].numpy().dtype == np.asarray(array).dtype
        np.testing.assert_array_equal(found[name].numpy(), array)
        assert not found[name].data.flags.writeable
    for key, value in METADATA.items():
        np.testing.assert_array_equal(found.metadata[key], value)
    gguf.save(tmp_path / "b.gguf", dict(found), found.metadata)
    assert (tmp_path / "b.gguf").read_bytes() == (tmp_path / "a.gguf").read_bytes()


def test_the_package_reads_what_is_written_and_the_other_way_round(tmp_path, peer):
    other = peer("gguf")
    x = np.random.default_rng(1).standard_normal((4, 64)).astype(np.float32)
    codes = other.quants.quantize(x, other.GGMLQuantizationType.Q5_1)
    writer = other.GGUFWriter(tmp_path / "theirs.gguf", "llama")
    writer.add_array("a.words", METADATA["a.words"])
    writer.add_tensor("x", x)
    writer.add_tensor("q", codes, raw_dtype=other.GGMLQuantizationType.Q5_1)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    found = gguf.load(tmp_path / "theirs.gguf")
    assert (found["q"].type.name, found["q"].shape) == ("Q5_1", (4, 64))
    np.testing.assert_array_equal(found["q"].data, codes)
    np.testing.assert_array_equal(found["x"].numpy(), x)
    assert found.metadata["a.words"] == METADATA["a.words"]

    gguf.save(tmp_path / "ours.gguf", dict(found), found.metadata)
    theirs = {t.name: t for t in other.GGUFReader(tmp_path / "ours.gguf").tensors}
    np.testing.assert_array_equal(theirs["q"].data, codes)
    np.testing.assert_array_equal(theirs["x"].data, x)


def test_the_table_of_types_is_that_of_the_package(peer):
    other = peer("gguf")
    from tilework.frontends.gguf.layout import TYPES

    for kind, (block, nbytes) in other.GGML_QUANT_SIZES.items():
        assert (TYPES[kind.name].code, TYPES[kind.name].block, TYPES[kind.name].nbytes) == (int(kind), block, nbytes)


def test_damaged_files_are_named_errors(tmp_path):
    gguf.save(tmp_path / "a.gguf", tensors(), METADATA)
    whole = (tmp_path / "a.gguf").read_bytes()
    rng = np.random.default_rng(2)
    refused = 0
    for n in range(600):
        data = bytearray(whole)
        if n % 3 == 0:
            data = data[: rng.integers(0, len(data))]
        else:
            for _ in range(rng.integers(1, 6)):
                data[rng.integers(0, 700)] = rng.integers(0, 256)
        (tmp_path / "m.gguf").write_bytes(data)
        try:
            gguf.load(tmp_path / "m.gguf")
        except TileworkError:
            refused += 1
    assert refused > 400


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda b: b"GGML" + b[4:], FileFormatError, "no GGUF file"),
        (lambda b: b[:4] + (9).to_bytes(4, "little") + b[8:], Unsupported, "version 9"),
        (lambda b: b[:4] + (3).to_bytes(4, "big") + b[8:], Unsupported, "big-endian"),
        (lambda b: b[:8] + (2**63).to_bytes(8, "little") + b[16:], FileFormatError, "truncated|at most"),
        (lambda b: b[:16] + (2**63).to_bytes(8, "little") + b[24:], FileFormatError, "truncated|at most"),
        (lambda b: b[:100], FileFormatError, "truncated or damaged"),
        (lambda b: b[:-8], FileFormatError, "the file ends"),
        (lambda b: b"", FileFormatError, "too short"),
    ],
)
def test_each_damage_says_what_it_is(tmp_path, change, error, message):
    gguf.save(tmp_path / "a.gguf", {"x": np.ones((4, 8), np.float32)}, METADATA)
    (tmp_path / "m.gguf").write_bytes(change((tmp_path / "a.gguf").read_bytes()))
    with pytest.raises(error, match=message):
        gguf.load(tmp_path / "m.gguf")


def test_a_missing_file_and_a_missing_tensor_are_named(tmp_path):
    with pytest.raises(ArgumentError, match="there is no file"):
        gguf.load(tmp_path / "none.gguf")
    gguf.save(tmp_path / "a.gguf", {"x": np.ones(3, np.float32)}, {})
    with pytest.raises(KeyError, match="no tensor 'y'"):
        gguf.load(tmp_path / "a.gguf")["y"]


def test_blocks_become_numbers_and_back(peer):
    peer("gguf")
    x = np.random.default_rng(4).standard_normal((3, 2, 512)).astype(np.float32)
    for name, worst in (("Q8_0", 0.02), ("Q4_0", 0.5), ("Q5_1", 0.2), ("BF16", 0.02), ("F16", 0.002), ("F32", 0.0)):
        raw = gguf.quantize(x, name)
        assert raw.dtype == np.uint8
        found = gguf.dequantize(raw, name)
        assert (found.dtype, found.shape) == (np.float32, x.shape)
        assert np.abs(found - x).max() <= worst
    assert gguf.dequantize(np.zeros((2, 210), np.uint8), "q6_k").shape == (2, 256)
    with pytest.raises(ShapeMismatch, match="18 bytes"):
        gguf.dequantize(np.zeros((2, 17), np.uint8), "Q4_0")
    with pytest.raises(ShapeMismatch, match="blocks of 32"):
        gguf.quantize(x[..., :33], "Q4_0")
    with pytest.raises(Unsupported, match="only decoded"):
        gguf.quantize(x, "IQ2_XXS")
    with pytest.raises(ArgumentError, match="no tensor type"):
        gguf.quantize(x, "Q9_9")
