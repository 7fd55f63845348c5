"""safetensors files and the quantized checkpoints in them; damaged ones are named errors."""

import json

import ml_dtypes
import numpy as np
import pytest
from numpy.testing import assert_array_equal

import tilework as tw
from tilework.executors.schemes import layouts
from tilework.frontends import safetensors
from tilework.primitives.errors import ArgumentError, DTypeMismatch, FileFormatError, TileworkError, Unsupported


def arrays():
    rng = np.random.default_rng(0)
    plain = ("f4", "f2", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?", ml_dtypes.bfloat16)
    found = {f"t.{np.dtype(t).name}": rng.integers(0, 100, (3, 5)).astype(t) for t in plain}
    small = rng.integers(0, 100, 7).astype(np.uint8)
    return found | {"e4m3": small.view(ml_dtypes.float8_e4m3fn), "none": np.zeros((0, 4), "f4"), "one": np.array(3.0)}


def test_what_is_written_is_read_without_a_copy(tmp_path):
    safetensors.save(tmp_path / "a.safetensors", arrays(), {"format": "pt"})
    found = safetensors.load(tmp_path / "a.safetensors")
    assert set(found) == set(arrays())
    assert found.metadata == {"format": "pt"}
    for name, array in arrays().items():
        assert found[name].dtype == array.dtype
        assert_array_equal(
            found[name].view(np.uint8) if array.ndim else found[name], array.view(np.uint8) if array.ndim else array
        )
        assert not found[name].flags.writeable
        assert not found[name].flags.owndata
    with pytest.raises(KeyError, match="no tensor 'x'"):
        found["x"]


def test_the_package_reads_what_is_written_and_the_other_way_round(tmp_path, peer):
    other = peer("safetensors.numpy")
    some = {k: v for k, v in arrays().items() if v.dtype.kind != "V" and v.dtype.name[:5] not in ("float8", "bfloa")}
    safetensors.save(tmp_path / "ours.safetensors", some)
    theirs = other.load_file(tmp_path / "ours.safetensors")
    other.save_file(some, tmp_path / "theirs.safetensors", {"a": "b"})
    ours = safetensors.load(tmp_path / "theirs.safetensors")
    assert ours.metadata == {"a": "b"}
    for name, array in some.items():
        assert_array_equal(theirs[name], array, strict=True)
        assert_array_equal(ours[name], array, strict=True)


def test_a_folder_is_what_its_index_names(tmp_path):
    for n in range(3):
        safetensors.save(tmp_path / f"part-{n}.safetensors", {f"t{n}": np.full(2, n)})
    assert set(safetensors.load(tmp_path)) == {"t0", "t1", "t2"}
    (tmp_path / safetensors.reader.INDEX).write_text(json.dumps({"weight_map": {"t0": "part-0.safetensors"}}))
    assert set(safetensors.load(tmp_path)) == {"t0"}
    for name in ("../a.safetensors", "part-7.safetensors", "/etc/passwd"):
        (tmp_path / safetensors.reader.INDEX).write_text(json.dumps({"weight_map": {"t0": name}}))
        with pytest.raises(FileFormatError, match="not in its folder"):
            safetensors.load(tmp_path)
    safetensors.save(tmp_path / "sub.safetensors", {"t0": np.zeros(1)})
    (tmp_path / safetensors.reader.INDEX).unlink()
    with pytest.raises(FileFormatError, match="in another file too"):
        safetensors.load(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ArgumentError, match="no safetensors files"):
        safetensors.load(tmp_path / "empty")
    with pytest.raises(ArgumentError, match="there is no file"):
        safetensors.load(tmp_path / "none.safetensors")


def raw(header, data=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


FACTS = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        (b"", FileFormatError, "too short"),
        (raw({}, length=2**63), FileFormatError, "its header has"),
        (raw({}, b"abcdefgh", length=9), FileFormatError, "no JSON"),
        (raw(b"[1, 2, 3]"), FileFormatError, "no JSON object"),
        (raw(b"[" * 5000), FileFormatError, "no JSON"),
        (raw(b'{"a": 1, "a": 2}'), FileFormatError, "a name twice"),
        (raw({"__metadata__": {"a": 1}}), FileFormatError, "not text by name"),
        (raw({"a": 1}), FileFormatError, "not by an object"),
        (raw({"a": {**FACTS, "dtype": "F4"}}, b"12345678"), Unsupported, "of type 'F4'"),
        (raw({"a": {**FACTS, "dtype": []}}, b"12345678"), Unsupported, "of type"),
        (raw({"a": {**FACTS, "shape": [2.0]}}, b"12345678"), FileFormatError, "whole numbers"),
        (raw({"a": {**FACTS, "shape": [-2]}}, b"12345678"), FileFormatError, "whole numbers"),
        (raw({"a": {**FACTS, "shape": [2**40, 2**40]}}, b"12345678"), FileFormatError, "at most 32 whole numbers"),
        (raw({"a": {**FACTS, "data_offsets": [8, 0]}}, b"12345678"), FileFormatError, "a first and a last"),
        (raw({"a": FACTS}, b"1234"), FileFormatError, "truncated"),
        (raw({"a": FACTS}, b"12345678+"), FileFormatError, "9 bytes of tensors, of which 8"),
        (raw({"a": FACTS, "b": FACTS}, b"12345678"), FileFormatError, "starts at 0, where 8"),
        (raw({"a": {**FACTS, "data_offsets": [4, 12]}}, b"12345678abcd"), FileFormatError, "starts at 4, where 0"),
    ],
)
def test_each_damage_says_what_it_is(tmp_path, content, error, message):
    (tmp_path / "a.safetensors").write_bytes(content)
    with pytest.raises(error, match=message):
        safetensors.load(tmp_path / "a.safetensors")


def test_damaged_files_are_named_errors(tmp_path):
    safetensors.save(tmp_path / "a.safetensors", arrays(), {"format": "pt"})
    whole = (tmp_path / "a.safetensors").read_bytes()
    head, rng, refused = int.from_bytes(whole[:8], "little"), np.random.default_rng(2), 0
    for n in range(300):
        data = bytearray(whole)
        if n % 3 == 0:
            data = data[: rng.integers(0, len(data))]
        else:
            for _ in range(rng.integers(1, 6)):
                data[rng.integers(0, head + 8)] = rng.integers(0, 256)
        (tmp_path / "m.safetensors").write_bytes(data)
        try:
            safetensors.load(tmp_path / "m.safetensors")
        except TileworkError:
            refused += 1
    assert refused > 200


def test_what_cannot_be_written_is_named(tmp_path):
    with pytest.raises(DTypeMismatch, match="complex128"):
        safetensors.save(tmp_path / "a.safetensors", {"a": np.zeros(2, complex)})
    with pytest.raises(ArgumentError, match="text by name"):
        safetensors.save(tmp_path / "a.safetensors", {}, {"a": 1})
    with pytest.raises(ArgumentError, match="cannot be called"):
        safetensors.save(tmp_path / "a.safetensors", {"__metadata__": np.zeros(1)})


# Checkpoints -----------------------------------------------------------------------------------------------------------


def weights():
    return np.random.default_rng(3).standard_normal((32, 128)).astype(np.float32)


def asymmetric():
    return layouts.words.scheme_of(4, 32, "f16").quantize(weights())


def bitsandbytes(double):
    q = tw.schemes.get("bnb_nf4_g64").quantize(weights())
    kept = layouts.to_bitsandbytes(q)
    state = {"quant_type": "nf4", "blocksize": 64, "dtype": "float16", "shape": [32, 128]}
    more = {"absmax": kept["absmax"]}
    if double:
        table = np.linspace(-1, 1, 256, dtype=np.float32)
        codes = np.arange(64, dtype=np.uint8) * 2
        more = {"absmax": codes, "nested_absmax": np.full(1, 0.5, np.float32), "nested_quant_map": table}
        state |= {"nested_blocksize": 256, "nested_offset": 0.75}
        scale = table[codes] * np.float32(0.5) + np.float32(0.75)
        q = layouts.from_bitsandbytes(kept["packed"], scale, (32, 128))
    found = {"a.weight": kept["packed"], "a.weight.quant_map": np.zeros(16, np.float32)}
    found |= {f"a.weight.{part}": array for part, array in more.items()}
    text = np.frombuffer(json.dumps(state).encode(), np.uint8)
    return q, found | {"a.weight.quant_state.bitsandbytes__nf4": text}


def checkpoints():
    """{name: (config, tensors, what is in them)}"""
    q = asymmetric()
    bytes_ = tw.schemes.get("int8_channel").quantize(weights())
    f8 = tw.schemes.get("fp8_e4m3_channel").quantize(weights())
    whole = tw.schemes.get("int8_vectorwise").quantize(weights())

    def named(parts):
        return {f"a.{part}": array for part, array in parts.items()}

    def scaled(q, kind, stored):
        return named({"weight": q.codes.view(kind), "weight_scale": q.params["scale"].astype(stored)})

    int8 = {"quantization_config": {"quant_method": "compressed-tensors", "format": "int-quantized"}}
    config = {"quantization_config": {"quant_method": "gptq", "bits": 4, "checkpoint_format": "gptq_v2"}}
    groups = {"group_0": {"weights": {"num_bits": 4}}}
    return {
        "gptq": ({"bits": 4, "group_size": 32}, named(layouts.to_gptq(q)), q),
        "gptq_v2": (config, named(layouts.to_gptq(q, "gptq_v2")), q),
        "awq": ({"w_bit": 4, "version": "GEMM"}, named(layouts.to_awq(q)), q),
        "packed": ({"quantization_config": {"config_groups": groups}}, named(layouts.to_compressed_tensors(q)), q),
        "int8": (int8, scaled(bytes_, np.int8, np.float32), bytes_),
        "fp8": ({}, scaled(f8, ml_dtypes.float8_e4m3fn, np.float32), f8),
        "bnb": ({}, bitsandbytes(False)[1], bitsandbytes(False)[0]),
        "bnb_double": ({}, bitsandbytes(True)[1], bitsandbytes(True)[0]),
        "bnb_int8": ({}, named({"weight": whole.codes.view(np.int8), "SCB": whole.params["absmax"][:, 0]}), whole),
    }


@pytest.mark.parametrize("name", list(checkpoints()))
def test_checkpoints_are_recognised_and_keep_their_codes(tmp_path, name):
    config, tensors, right = checkpoints()[name]
    safetensors.save(tmp_path / "model.safetensors", {**tensors, "norm.weight": np.ones(4, np.float32)})
    quant = name == "gptq"
    (tmp_path / ("quantize_config.json" if quant else "config.json")).write_text(json.dumps(config))
    if quant:
        (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    found = safetensors.load(tmp_path).quantized()
    assert list(found) == ["a"]
    assert_array_equal(found["a"].codes, right.codes)
    assert_array_equal(found["a"].dequantize(), right.dequantize())


@pytest.mark.parametrize(
    ("name", "change", "error", "message"),
    [
        ("gptq", {"a.scales": None}, FileFormatError, "no tensor 'a.scales'"),
        ("gptq", {"a.scales": np.ones((4, 33), np.float16)}, FileFormatError, "neither GPTQ's nor AWQ's"),
        ("gptq", {"a.qweight": np.ones((16, 32), np.float32)}, FileFormatError, "int32 with 2 dimensions"),
        ("gptq", {"a.g_idx": np.zeros(128, np.int32)}, Unsupported, "desc_act"),
        ("gptq", {"a.qzeros": np.ones((4, 1), np.int32)}, FileFormatError, "do not fit"),
        ("packed", {"a.weight_shape": np.array([32, 10**9])}, FileFormatError, "weight_shape"),
        ("packed", {"a.weight_packed": np.ones((32, 64), np.uint8)}, Unsupported, "packed floats"),
        ("int8", {"a.weight_scale": np.ones((5, 1), np.float32)}, Unsupported, "5 scales"),
        ("int8", {"a.weight_zero_point": np.ones((32, 1), np.int8)}, Unsupported, "zero points"),
        ("bnb", {"a.weight.absmax": np.ones(3, np.float32)}, FileFormatError, "do not fit"),
        (
            "bnb",
            {"a.weight.quant_state.bitsandbytes__nf4": np.frombuffer(b"{}", np.uint8)},
            FileFormatError,
            "says all",
        ),
        ("bnb_double", {"a.weight.nested_quant_map": np.ones(9, np.float32)}, FileFormatError, "do not fit"),
    ],
)
def test_layers_whose_tensors_disagree_are_named(name, change, error, message):
    config, tensors, _ = checkpoints()[name]
    changed = {k: v for k, v in {**tensors, **change}.items() if v is not None}
    with pytest.raises(error, match=message) as caught:
        safetensors.quantized(changed, config)
    assert "a" in str(caught.value)


def test_nested_blocks_beyond_reason_take_no_memory():
    _, tensors = bitsandbytes(True)
    state = {"quant_type": "nf4", "blocksize": 64, "shape": [32, 128], "nested_blocksize": 10**15}
    tensors["a.weight.quant_state.bitsandbytes__nf4"] = np.frombuffer(json.dumps(state).encode(), np.uint8)
    with pytest.raises(FileFormatError, match="a matrix is needed"):
        safetensors.quantized(tensors)
