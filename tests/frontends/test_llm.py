"""Decoders from GGUF files: logits against float64, the same bits however they are run, and files that are refused."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import tilework as tw
from tilework.bench.llm import small
from tilework.frontends.llm import Config, Sampler, Weights, float64, positions
from tilework.primitives.errors import ArgumentError, FileFormatError, Unsupported

RECIPE = small.Recipe(width=64, hidden=96, layers=2, heads=4, kv_heads=2, vocabulary=300, context=200)
IDS = np.random.default_rng(1).integers(0, 300, 90).tolist()


def written(path, qtype=None, arch="llama", change=lambda tensors, metadata: None):
    """A file with a random model, whose matrices are of a type and whose architecture is another where asked."""
    tensors, metadata = small.drawn(RECIPE), RECIPE.metadata
    metadata = {key.replace("llama.", f"{arch}."): value for key, value in metadata.items()}
    metadata["general.architecture"] = arch
    if qtype is not None:
        tensors = {n: w if w.ndim == 1 else tw.gguf.encoded(n, w, qtype) for n, w in tensors.items()}
    change(tensors, metadata)
    tw.gguf.save(path, tensors, metadata)
    return path


def exact(path, ids):
    """Logits in float64 of the weights that a file has."""
    contents = tw.gguf.load(path)
    return float64.logits(Config.of(contents.metadata), Weights(contents), ids)


def in_parts(model, ids, *ends):
    session, found = model.session(), []
    for lo, hi in zip((0, *ends), (*ends, len(ids)), strict=True):
        found.append(session.feed(ids[lo:hi], every=True))
    return np.concatenate(found)


def other_head_and_biases(tensors, metadata):
    rng = np.random.default_rng(2)
    tensors["output.weight"] = rng.standard_normal((300, 64), np.float32) / 8
    tensors["rope_freqs.weight"] = np.linspace(1, 4, 8, dtype=np.float32)
    for n in range(RECIPE.layers):
        for part, width in (("q", 64), ("k", 32), ("v", 32)):
            tensors[f"blk.{n}.attn_{part}.bias"] = rng.standard_normal(width, np.float32)
        for part in ("q", "k"):
            tensors[f"blk.{n}.attn_{part}_norm.weight"] = 1 + rng.standard_normal(16, np.float32) / 9


@pytest.fixture(scope="module")
def q8(tmp_path_factory):
    return written(tmp_path_factory.mktemp("models") / "q8.gguf", "Q8_0")


@pytest.mark.parametrize(("arch", "qtype"), [("llama", "Q8_0"), ("qwen3", None), ("qwen2", "BF16")])
def test_logits_are_those_of_float64(tmp_path, arch, qtype):
    change = other_head_and_biases if arch != "llama" else lambda *_: None
    path = written(tmp_path / "a.gguf", qtype, arch, change)
    found = tw.llm.load(path, compute="f32").logits(IDS)
    right = exact(path, IDS)
    assert_allclose(
        found, right, atol=2e-5 * np.abs(right).max()
    )  # float32 against float64: 24 bits, some hundred sums


def long_texts(tensors, metadata):
    """A part of each head turns, by yarn; a window; one number for each layer; no bias, one matrix for both ends."""
    metadata |= {
        "llama.rope.dimension_count": 12,
        "llama.rope.scaling.type": "yarn",
        "llama.rope.scaling.factor": 4.0,
        "llama.rope.scaling.original_context_length": 50,
        "llama.attention.sliding_window": 40,
        "llama.attention.head_count_kv": np.array([2, 2], np.int32),
    }


@pytest.mark.parametrize("cache", [None, "int8_channel"])
def test_a_window_and_yarn_whole_and_in_parts(tmp_path, cache):
    path = written(tmp_path / "a.gguf", change=long_texts)
    model = tw.llm.load(path, compute="f32", kv_scheme=cache)
    assert (model.config.window, model.config.rotated, model.config.yarn.original) == (40, 12, 50)
    found = model.logits(IDS)
    assert_array_equal(in_parts(model, IDS, 1, 45, 46), found)
    if cache is None:
        right = exact(path, IDS)
        assert_allclose(found, right, atol=2e-5 * np.abs(right).max())  # as above
        assert np.abs(exact(path, IDS[40:])[-1] - right[-1]).max() > 1e-3  # layers see further than one window


def test_yarn_keeps_what_turns_fast_and_stretches_what_turns_slowly():
    scale, rotated, base = 0.25, 32, 10000.0
    plain, yarn = (positions.turns(3, rotated, base, s, yarn=y) for s, y in ((1.0, None), (scale, positions.Yarn(512))))
    linear = positions.turns(3, rotated, base, scale)
    magnitude = np.float32(1 + 0.1 * np.log(4))
    # 512 / 2 pi = 81.5 turns at frequency 1: 32 of them at pair 1.6, one at 7.6
    for n in range(2):
        assert_allclose(yarn[n][:, :2], plain[n][:, :2] * magnitude, rtol=1e-6)
        assert_allclose(yarn[n][:, 8:], linear[n][:, 8:] * magnitude, rtol=1e-6)
    half = base ** (-2 * 4 / rotated) * (scale + (1 - scale) * (1 - (4 - 1) / (8 - 1)))
    assert_allclose(yarn[1][2, 4], np.sin(2 * half) * magnitude, rtol=1e-6)
    assert positions.turns(3, rotated, base, scale, yarn=positions.Yarn(512, strength=0.0))[0].max() == 1


def test_integer_products_stay_near(q8):
    right = exact(q8, IDS)
    error = tw.llm.load(q8).logits(IDS) - right
    assert np.sqrt(np.square(error).mean()) < 0.04 * right.std()  # each of 14 products adds 2.5 / 127 / sqrt(12)


@pytest.mark.parametrize("cache", [None, "int4_g32", "q8_0", "mxfp4"])
def test_a_text_in_parts_has_the_bits_of_the_whole(q8, cache):
    model = tw.llm.load(q8, kv_scheme=cache)
    whole = model.logits(IDS)
    assert_array_equal(in_parts(model, IDS, 63, 64, 65, 66), whole)  # the cache grows at 65
    right = exact(q8, IDS)
    assert np.abs(whole - right).max() < (0.1 if cache in (None, "q8_0") else 1.0) * np.abs(right).max()


def test_every_executor_gives_the_same_bits(q8):
    ids = IDS[:7]
    right = tw.llm.load(q8).logits(ids)
    for executor in (
        tw.SingleThreadExecutor("reference"),
        tw.TilingExecutor(threads=1, fuse=False, chain=False),
        tw.TilingExecutor(threads=2, isa="generic"),
    ):
        assert_array_equal(in_parts(tw.llm.load(q8, executor=executor), ids, 5, 6), right)


@pytest.mark.parametrize("name", ["nf4", "int8_tensor"])
def test_weights_in_any_scheme(q8, name):
    contents = tw.gguf.load(q8)
    weights = Weights(contents, tw.schemes.get(name))
    right = float64.logits(Config.of(contents.metadata), weights, IDS)
    found = tw.llm.load(q8, scheme=name, compute="f32").logits(IDS)
    assert_allclose(found, right, atol=2e-5 * np.abs(right).max())


def test_a_text_is_longer_than_a_run_and_not_longer_than_the_context(q8, monkeypatch):
    from tilework.frontends.llm import model as module

    model = tw.llm.load(q8)
    whole = model.logits(IDS)
    monkeypatch.setattr(module, "CHUNK", 40)
    assert_array_equal(model.logits(IDS), whole)
    session = model.session()
    assert_array_equal(session.feed(IDS), whole[-1:])
    session.feed([1] * 110)
    with pytest.raises(ArgumentError, match="200 tokens and 1 more; the model was made for 200"):
        session.feed([1])
    with pytest.raises(ArgumentError, match="the vocabulary has 0 to 299"):
        model.logits([300])
    with pytest.raises(ArgumentError, match="at least one"):
        model.logits([])


def test_what_is_generated_follows_from_logits(q8):
    model = tw.llm.load(q8)
    made = list(model.generate(IDS[:5], 4))
    text = IDS[:5]
    for token in made:
        assert token == model.logits(text)[-1].argmax()
        text = [*text, token]
    drawn = [list(model.generate(IDS[:5], 6, Sampler(1.5, seed=seed))) for seed in (3, 3, 4)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_sampling_draws_from_what_is_left():
    logits = np.log(np.array([0.1, 0.4, 0.2, 0.3]))
    assert Sampler()(logits) == 1

    def shares(**options):
        sampler = Sampler(1.0, **options)
        return np.bincount([sampler(logits) for _ in range(4000)], minlength=4) / 4000

    assert_allclose(shares(), [0.1, 0.4, 0.2, 0.3], atol=0.03)
    assert_allclose(shares(top_k=2), [0, 4 / 7, 0, 3 / 7], atol=0.03)
    assert_allclose(shares(top_p=0.65), [0, 4 / 7, 0, 3 / 7], atol=0.03)
    assert_allclose(shares(top_p=0.75), [0, 4 / 9, 2 / 9, 3 / 9], atol=0.03)
    assert_allclose(shares(top_p=0.3), [0, 1, 0, 0])
    for wrong in ({"temperature": -1}, {"top_p": 0}, {"top_k": -1}, {"seed": -1}):
        with pytest.raises(ArgumentError, match=next(iter(wrong))):
            Sampler(**wrong)
    with pytest.raises(ArgumentError, match="NaN"):
        Sampler()(np.array([1.0, np.nan]))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda t, m: m.update({"general.architecture": "mamba"}), Unsupported, "llama, qwen2, qwen3"),
        (lambda t, m: m.update({"llama.expert_count": 8}), Unsupported, "mixture of experts"),
        (lambda t, m: m.update({"llama.rope.scaling.type": "longrope"}), Unsupported, "none, linear, yarn"),
        (lambda t, m: m.update({"llama.attention.value_length": 8}), Unsupported, "equal ones"),
        (lambda t, m: m.pop("llama.block_count"), FileFormatError, "llama.block_count"),
        (lambda t, m: m.update({"llama.block_count": 2**31}), FileFormatError, "a whole number from 1"),
        (lambda t, m: m.update({"llama.block_count": 3}), FileFormatError, "no tensor 'blk.2.attn_norm.weight'"),
        (lambda t, m: m.update({"llama.attention.head_count": [4, 2]}), FileFormatError, "the same for every layer"),
        (lambda t, m: m.update({"llama.attention.head_count_kv": 3}), FileFormatError, "a divisor"),
        (lambda t, m: m.update({"llama.rope.dimension_count": 15}), FileFormatError, "an even part"),
        (lambda t, m: m.update({"llama.rope.freq_base": -1.0}), FileFormatError, "a number above 0"),
        (lambda t, m: t.update({"blk.0.ffn_up.weight": np.ones((96, 65), np.float32)}), FileFormatError, r"\(96, 64\)"),
        (lambda t, m: t.update({"output_norm.weight": np.ones((64, 1), np.float32)}), FileFormatError, r"\(64\)"),
        (lambda t, m: t.update({"blk.0.ffn_up.weight": np.ones((96, 64), np.int8)}), Unsupported, "I8"),
        (lambda t, m: m.update({"tokenizer.ggml.model": "t5"}), Unsupported, "llama and gpt2"),
    ],
)
def test_a_file_that_is_no_such_model_is_refused_by_name(tmp_path, change, error, message):
    with pytest.raises(error, match=message):
        tw.llm.load(written(tmp_path / "a.gguf", change=change))


def test_damaged_models_are_named_errors(tmp_path):
    whole = written(tmp_path / "a.gguf").read_bytes()
    head = whole.index(b"output_norm.weight") + 60
    rng = np.random.default_rng(3)
    for n in range(40):
        data = bytearray(whole)
        if n % 4 == 0:
            data = data[: rng.integers(0, len(data))]
        for _ in range(0 if n % 4 == 0 else 4):
            data[rng.integers(8, head)] = rng.integers(0, 256)
        (tmp_path / "m.gguf").write_bytes(data)
        try:
            contents = tw.gguf.load(tmp_path / "m.gguf")
            config = Config.of(contents.metadata)
            float64.logits(config, Weights(contents), [0])
        except tw.errors.TileworkError:
            pass
