"""Schemes as users see them: worked examples, tensors, files, products, figures and proofs."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

import tilework as tw
from tilework.executors.schemes import replay
from tilework.kernels.reference import linear as linear_reference
from tilework.primitives.errors import ArgumentError, CaptureError, FileFormatError, ShapeMismatch, Unsupported

sys.path.insert(0, str(Path(__file__).parent))
import scheme_examples as examples

EXPECTED = {"int8_sym": (8.03, 42.1), "int4_minmax_g128": (4.50, 20.0), "nf4_dq": (4.13, 20.7), "mxfp4": (4.25, 18.9)}


def normal(*shape, seed=0, size=0.02):
    return (np.random.default_rng(seed).standard_normal(shape) * size).astype(np.float32)


@pytest.mark.parametrize("scheme", examples.WORKED, ids=lambda s: s.name)
def test_worked_examples_agree_with_plain_python_and_have_their_figures(scheme):
    checked = scheme.check(levels=())
    assert checked, str(checked)
    assert "same codes and weights" in checked.as_written
    found = scheme.report(normal(16, 1024), normal(5, 1024, seed=1, size=1.0), timings=False)
    bits, sqnr = EXPECTED[scheme.name]
    assert found.bits_per_weight == pytest.approx(bits, abs=0.02)
    assert found.sqnr_db == pytest.approx(sqnr, abs=0.6)
    assert found["sqnr_db"] == found.sqnr_db
    json.dumps(found.as_dict(), allow_nan=False)


@pytest.mark.parametrize("scheme", examples.WORKED, ids=lambda s: s.name)
@pytest.mark.parametrize("compute", ["f32", "int8"])
def test_products_are_fused_and_have_the_reference_bits(scheme, compute):
    w, x = normal(37, 300), normal(9, 300, seed=1, size=1.0)
    q = scheme.quantize(w)
    fmt, slots = q.linear_weights(compute)
    order = ["scale", *[s for s in slots if s not in ("codes", "scale")]]
    if compute == "f32":
        wanted = tw.eager.gemm(x, np.ascontiguousarray(q.dequantize().T))
        np.testing.assert_array_equal(q.matmul(x), wanted)
    else:
        kernel = tw.ops.linear.__globals__["Linear"](fmt, 300, "int8")
        reference = tw.SingleThreadExecutor(backend="reference")
        pipe = tw.Pipeline("linear")
        value = pipe.input("x", "f32", ("M", 300))
        pipe.output("y", pipe.add(kernel, x=value, codes=slots["codes"], **{s: slots[s] for s in order}))
        np.testing.assert_array_equal(q.matmul(x, "int8"), reference.run(pipe, {"x": x})["y"])
    assert linear_reference.__doc__


def test_eager_linear_and_pipelines_take_quantized_tensors():
    q = examples.int8.quantize(normal(24, 64))
    x = normal(2, 3, 64, seed=2, size=1.0)
    y = tw.eager.linear(x, q, compute="f32")
    assert y.shape == (2, 3, 24)
    np.testing.assert_array_equal(y, q.matmul(x))
    np.testing.assert_array_equal(q.matmul(x[0, 0]), y[0, 0])
    with pytest.raises(ShapeMismatch, match=r"both end in K"):
        q.matmul(np.zeros((2, 63), np.float32))
    with pytest.raises(ArgumentError, match=r"compute='int4'; auto, f32, bf16, int8"):
        q.matmul(x, "int4")


def test_activations_and_caches_are_quantized_like_weights():
    x = normal(2, 5, 64, size=1.0)
    q = tw.schemes.get("int8_channel").quantize(x)
    assert q.shape == (2, 5, 64)
    assert q.params["scale"].shape == (10, 1), "a scale for each token"
    cache = tw.schemes.concatenate([q, tw.schemes.get("int8_channel").quantize(x[:, :2])], axis=1)
    assert cache.shape == (2, 7, 64)
    np.testing.assert_array_equal(cache.dequantize()[:, 5:], q.dequantize()[:, :2])
    np.testing.assert_array_equal(cache[:, 2:6].dequantize(), cache.dequantize()[:, 2:6])


def test_static_parameters_are_brought_by_the_caller():
    scheme = tw.schemes.get("int8_tensor")
    calibrated = scheme.fit_params(normal(8, 64, size=1.0))
    x = normal(4, 64, seed=3, size=1.0)
    q = scheme.quantize(x, calibrated)
    assert q.params["scale"] == calibrated["scale"]
    with pytest.raises(ArgumentError, match=r"parameters zero were given; scale are needed"):
        scheme.quantize(x, {"zero": 1})
    with pytest.raises(ShapeMismatch, match=r"'scale' has shape \(3,\)"):
        scheme.quantize(x, {"scale": [1, 2, 3]})


@pytest.mark.parametrize("name", ["int3_g32_asym", "nf4_double", "int8_tensor"])
def test_a_tensor_survives_a_file(name, tmp_path):
    q = tw.schemes.get(name).quantize(normal(12, 100))
    for ending in (".npz", ".safetensors"):
        if ending == ".safetensors":
            pytest.importorskip("safetensors")
        q.save(tmp_path / f"w{ending}")
        back = tw.QuantizedTensor.load(tmp_path / f"w{ending}")
        assert back.scheme is q.scheme
        assert back.nbytes == q.nbytes
        np.testing.assert_array_equal(back.dequantize(), q.dequantize())


def test_a_file_of_another_scheme_is_refused(tmp_path):
    q = examples.int4.quantize(normal(4, 100))
    q.save(tmp_path / "w.npz")
    with pytest.raises(FileFormatError, match=r"'int4_minmax_g128', which is not shipped; give scheme="):
        tw.QuantizedTensor.load(tmp_path / "w.npz")
    with pytest.raises(FileFormatError, match=r"with other functions, block or storage"):
        tw.QuantizedTensor.load(tmp_path / "w.npz", examples.int4.replace(block=64))
    found = tw.QuantizedTensor.load(tmp_path / "w.npz", examples.int4)
    np.testing.assert_array_equal(found.codes, q.codes)
    (tmp_path / "w.npz").write_bytes((tmp_path / "w.npz").read_bytes()[:-40])
    with pytest.raises(FileFormatError, match=r"no readable .npz archive"):
        tw.QuantizedTensor.load(tmp_path / "w.npz", examples.int4)
    with pytest.raises(FileFormatError, match=r"\.npz and \.safetensors"):
        q.save(tmp_path / "w.bin")


def test_parts_are_cut_along_whole_blocks():
    w = normal(16, 160)
    for scheme in (tw.schemes.get("int4_g32"), examples.int4.replace(block=(4, 32)), tw.schemes.get("int3_g32_asym")):
        q, full = scheme.quantize(w), scheme.fake_quantize(w)
        np.testing.assert_array_equal(q[4:12].dequantize(), full[4:12])
        np.testing.assert_array_equal(q[:, 32:96].dequantize(), full[:, 32:96])
        np.testing.assert_array_equal(q[8:, 64:].dequantize(), full[8:, 64:])
        with pytest.raises(ShapeMismatch, match=r"columns 10 to 160 cut through blocks of 32"):
            q[:, 10:]
        both = tw.schemes.concatenate([q[:, :96], q[:, 96:]], axis=1)
        np.testing.assert_array_equal(both.codes, q.codes)
        np.testing.assert_array_equal(tw.schemes.concatenate([q[:4], q[4:]]).dequantize(), full)
    with pytest.raises(ShapeMismatch, match=r"rows 1 to 16 cut through blocks of 4 rows"):
        examples.int4.replace(block=(4, 32)).quantize(w)[1:]
    double = tw.schemes.get("nf4_double").quantize(normal(16, 64 * 64))
    np.testing.assert_array_equal(double[4:8].dequantize(), double.dequantize()[4:8])
    with pytest.raises(ShapeMismatch, match=r"scales_u8: columns 64 to 1024 cut through blocks of 256"):
        double[1:]


def test_a_tensor_says_what_it_is():
    q = tw.schemes.get("int4_g32").quantize(normal(16, 64))
    assert repr(q) == (
        "<QuantizedTensor 16 x 64, int4_g32: 4-bit codes, block 32, scale f32; 5.000 bits a weight, 640 bytes>"
    )
    assert (q.nbytes, q.bits_per_weight, len(q), q.size) == (640, 5.0, 16, 1024)
    assert q.integer_codes().min() >= -7
    np.testing.assert_array_equal(np.asarray(q), q.dequantize())
    out = np.full((16, 64), np.nan, np.float32)
    assert q.dequantize(out) is out
    assert np.isfinite(out).all()


@pytest.mark.parametrize("shape", [(0, 64), (3, 0), (1, 1), (64,)])
def test_small_and_empty_tensors(shape):
    scheme = tw.schemes.get("int4_g32")
    q = scheme.quantize(np.ones(shape, np.float32))
    np.testing.assert_array_equal(q.dequantize(), np.ones(shape, np.float32))


def test_what_has_no_numbers_is_refused():
    scheme = tw.schemes.get("int4_g32")
    with pytest.raises(ShapeMismatch, match="a single number"):
        scheme.quantize(np.float32(1))
    with pytest.raises(Exception, match="real numbers are quantized"):
        scheme.quantize(np.array(["a"]))


def test_other_number_types_are_quantized_as_float32():
    scheme, w = tw.schemes.get("int4_g32"), normal(4, 64).astype(np.float16)
    np.testing.assert_array_equal(scheme.quantize(w).codes, scheme.quantize(w.astype(np.float32)).codes)
    np.testing.assert_array_equal(scheme.quantize(w.astype(np.float64).T).shape, (64, 4))


def test_every_executor_and_number_of_threads_gives_the_same_bits():
    scheme, w = tw.schemes.get("int4_g32"), normal(130, 2050)
    first = scheme.quantize(w, executor=tw.TilingExecutor(threads=1))
    for executor in (tw.TilingExecutor(threads=3), tw.SingleThreadExecutor()):
        other = scheme.quantize(w, executor=executor)
        np.testing.assert_array_equal(other.codes, first.codes)
        np.testing.assert_array_equal(other.dequantize(), first.dequantize())


def wrong(x, scale, lo):
    return np.floor((x - lo) / scale)


def test_check_names_the_first_difference(monkeypatch):
    from tilework.executors.schemes import checking

    scheme = examples.int4.replace(name="planted fault")
    real = checking.native

    def faulty(scheme, x):
        found = real(scheme, x)
        found["code"] = found["code"].copy()
        found["code"][3, 130] ^= 1
        return found

    monkeypatch.setattr(checking, "native", faulty)
    found = scheme.check(levels=())
    assert not found
    assert found.different == 1
    text = str(found.first)
    assert "cpu: code [3, 130] in block [3, 1]" in text
    assert "scale = " in text
    assert "0x" in text


@pytest.mark.skipif(not replay.levels(), reason="this machine has one instruction set level only")
def test_check_runs_lesser_instruction_sets():
    found = examples.int4.check(levels=replay.levels()[:1])
    assert found, str(found)
    assert list(found.compared) == ["cpu", replay.levels()[0]]
    with pytest.raises(ArgumentError, match="'mmx' has no process of its own"):
        examples.int4.check(levels=["mmx"])


def test_report_counts_what_a_block_cannot_hold():
    scheme = tw.schemes.get("int8_tensor")
    x = normal(8, 64, size=1.0)
    narrow = tw.Scheme("narrow", 8, "tensor", {"scale": "f4"}, small_scale, examples.s8, examples.affine, signed=True)
    assert scheme.report(x, timings=False).clipped == 0
    found = narrow.report(x, timings=False)
    assert found.clipped == pytest.approx(float(((x > 1.27) | (x < -1.28)).mean()), abs=1e-3)
    x[0, 0], x[1, 1] = np.nan, np.inf
    assert scheme.report(x, timings=False).not_finite >= 2


def small_scale(x):
    return (np.float32(0.01),)


def test_report_times_every_path_and_says_which_it_is():
    found = tw.schemes.get("int4_g32").report(normal(48, 128), normal(3, 128, seed=1, size=1.0))
    assert found.path.startswith("affine")
    assert {"quantize", "dequantize", "matmul f32", "matmul int8"} <= set(found.times_ms)
    assert found.output_sqnr_of["matmul f32"] == pytest.approx(found.output_sqnr_db, abs=0.01)
    assert "bits a weight" in str(found)


def test_explain_says_how_products_decode_and_what_was_rewritten():
    text = examples.nf4.explain()
    assert "table: a value for each code, times the scale" in text
    assert "nf4_encode(x, absmax)" in text
    assert "def encode(" in examples.nf4.kernels()["scheme_encode"]


def test_a_shipped_name_is_taken():
    with pytest.raises(
        ArgumentError, match=r"'int4_g128' is a shipped scheme, and this one gives codes another meaning"
    ):
        examples.int4.replace(name="int4_g128")
    variant = tw.schemes.get("int4_g128").replace(block=100)
    assert variant.name == "int4_g128_variant"
    with pytest.raises(ArgumentError, match=r"no shipped scheme 'int4_g129'; did you mean 'int4_g12"):
        tw.schemes.get("int4_g129")


def sums(x):
    s = np.float32(0)
    for v in x:
        s += v
    return (s,)


def pairs(x, codes, s):
    for i in range(len(codes)):
        codes[i] = 1 if x[2 * i] > s else 0


def unpaired(codes, x, s):
    for i in range(len(x)):
        x[i] = codes[i // 2] * s


def test_codes_of_several_weights_multiply_in_float32_only():
    scheme = tw.Scheme("pairs", 1, 32, {"s": "f4"}, sums, vector=2, encode_block=pairs, decode_block=unpaired)
    q = scheme.quantize(normal(8, 64))
    x = normal(3, 64, seed=1, size=1.0)
    np.testing.assert_array_equal(q.matmul(x), tw.eager.gemm(x, np.ascontiguousarray(q.dequantize().T)))
    with pytest.raises(Unsupported, match=r"compute='int8' with pairs.*compute='f32' works"):
        q.matmul(x, "int8")
    assert scheme.report(normal(8, 64), timings=False).clipped is None


def threshold_fit(x):
    m = examples.amax(x)[0]
    return m, 0.4 * m


def threshold_code(x, s, t):
    return 1 if x > t else -1 if x < -t else 0


def threshold_weight(q, s, t):
    return q * s


def test_parameters_that_only_encode_uses_do_not_keep_products_from_integers():
    scheme = tw.Scheme(
        "threshold", 2, 64, {"s": "f4", "t": "f4"}, threshold_fit, threshold_code, threshold_weight, signed=True
    )
    assert scheme.quantize(normal(8, 64)).linear_weights("int8")[0].kind == "affine"


def test_a_function_that_cannot_be_compiled_is_named():
    scheme = examples.int8.replace(name="broken", encode=uses_a_dict)
    with pytest.raises(CaptureError, match=r"scheme 'broken', encode: uses_a_dict .* uses .*, a dict"):
        scheme.quantize(normal(2, 8))


NUMBERS = {"a": 1.0}


def uses_a_dict(x, scale):
    return x * NUMBERS["a"]


def test_codes_of_infinity_are_no_integers():
    q = tw.schemes.get("fp8_e4m3_channel").quantize(np.ones((4, 8), np.float32))
    with pytest.raises(Unsupported, match="may stand for infinity or NaN"):
        q.matmul(np.ones((1, 8), np.float32), compute="int8")


def test_explain_tells_whether_products_read_codes_or_decoded_weights():
    by_place = tw.Scheme(
        "by_place", 4, 32, {}, encode=lambda x, index: x + index % 2, decode=lambda q, index: q - index % 2
    )
    assert "decoded while the weights are packed" in by_place.explain()
    several = tw.Scheme("pairs", 1, 32, {"s": "f4"}, sums, vector=2, encode_block=pairs, decode_block=unpaired)
    assert "decoded when a plan is made" in several.explain()
    bent = tw.Scheme("bent", 4, 32, {"s": "f32"}, lambda x: 1.0, lambda x, s: x * s, lambda q, s: q * s + s * s)
    assert "decoded while the weights are packed" in bent.explain()


def shift_of(x):
    m = examples.amax(x)[0]
    return (100.0 if m > 60.0 else np.floor(np.log2(m)),)


STEPS = np.array([0, 1, 2, 3, 4, 6, 8, 12, -1, -2, -3, -4, -6, -8, -12, -16], np.float32)


def step_of(x, shift):
    best = 0
    for i in range(16):
        if abs(x - STEPS[i]) < abs(x - STEPS[best]):
            best = i
    return best


def shifted(q, shift):
    return STEPS[q] * np.exp2(np.float32(shift)) if shift < 64 else STEPS[q] + shift


def test_integer_parameters_become_scales_where_that_is_exact():
    scheme = tw.Scheme("shifted", 4, 32, {"shift": "s8"}, shift_of, step_of, shifted)
    w, x = normal(9, 80, size=8.0), normal(3, 80, seed=1, size=1.0)
    for largest, kind in ((1.0, "table"), (100.0, "decode")):  # in the second one, a block is no multiple of the table
        w[0, 0] = largest
        q = scheme.quantize(w)
        assert q.linear_weights("f32")[0].kind == kind
        right = tw.eager.gemm(x, np.ascontiguousarray(q.dequantize().T))
        np.testing.assert_allclose(q.matmul(x), right, rtol=1e-4, atol=1e-4 * np.abs(right).max())
    assert "else decoded on the way" in scheme.explain()


def test_powers_may_have_exponents_that_are_parameters():
    def decode(q, top):
        return 2.0 ** (top - q)

    def fit(x):
        return (3.0,)

    powers = tw.Scheme("powers", 4, 32, {"top": "s8"}, fit, lambda x, top: top - x, decode)
    kept = powers.fake_quantize(np.arange(4, dtype=np.float32)[None])
    np.testing.assert_array_equal(kept, np.float32([[1, 2, 4, 8]]))
    assert powers.check(np.arange(32, dtype=np.float32)[None], levels=())
