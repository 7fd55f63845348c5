"""`tilework generate` and `tilework bench perplexity` on a model that has learnt nothing."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import tilework as tw
from tilework.bench import cli
from tilework.bench.llm import perplexity, small, text
from tilework.primitives.errors import ArgumentError, Unsupported

RECIPE = small.Recipe(width=64, hidden=96, layers=1, heads=4, kv_heads=2, vocabulary=270, context=64)
PROMPT = "The end of the END"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "drawn.gguf"
    metadata = {**RECIPE.metadata, **text.vocabulary(PROMPT * 9, 270)}
    tensors = {n: w if w.ndim == 1 else tw.gguf.encoded(n, w, "Q8_0") for n, w in small.drawn(RECIPE).items()}
    tw.gguf.save(path, tensors, metadata)
    return str(path)


def invoke(*args):
    return CliRunner().invoke(cli.app, args)


def test_text_is_generated_and_timed(model):
    found = json.loads(invoke("generate", model, "-p", PROMPT, "-n", "5", "--json").stdout)
    loaded = tw.llm.load(model)
    ids = loaded.tokenizer.encode(PROMPT)
    assert found["tokens"] == list(loaded.generate(ids, 5))
    assert found["prompt_tokens"] == len(ids) < len(PROMPT)
    assert found["prefill_tokens_per_s"] > 0 < found["decode_tokens_per_s"]
    shown = invoke("generate", model, "-p", PROMPT, "-n", "5")
    assert shown.exit_code == 0
    assert f"{PROMPT}{found['text']}" in shown.stdout
    assert "decode 4 tokens" in shown.stderr


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ([], ArgumentError, "the prompt is empty"),
        (["-p", "a", "-n", "64"], ArgumentError, "the model was made for 64 in all"),
        (["-p", "a", "--top-p", "0"], ArgumentError, "top_p"),
        (["-p", "a", "--compute", "f64"], ArgumentError, "int8 and f32"),
        (["-p", "a", "--scheme", "int5"], ArgumentError, "no shipped scheme 'int5'"),
    ],
)
def test_what_cannot_be_generated_is_said(model, options, error, message):
    result = invoke("generate", model, *options)
    assert isinstance(result.exception, error)
    assert message in str(result.exception)


def test_perplexity_is_that_of_float64_where_nothing_is_lost(model, tmp_path):
    picture = tmp_path / "a.svg"
    options = ["--format", "F32", "--format", "Q4_0", "--kv-scheme", "int8_channel", "--tokens", "150"]
    result = invoke("bench", "perplexity", model, *options, "--json")
    found = json.loads(result.stdout)
    exact, plain, coarse, cache = (row["perplexity"] for row in found["rows"])
    assert plain == pytest.approx(exact, rel=1e-5)
    assert 1e-4 < abs(coarse / exact - 1) < 0.5
    assert cache == pytest.approx(exact, rel=0.05)
    assert [row["bits"] for row in found["rows"]] == [None, 32.0, 4.5, 8.5]
    pytest.importorskip("matplotlib")
    perplexity.draw(found, str(picture))
    assert "int8_channel" in picture.read_text()


def test_every_token_but_the_first_is_judged_once():
    for count in (2, 63, 64, 65, 200):
        judged = []
        for first, end, at in perplexity.windows(count, 64):
            assert 0 <= first < at < end <= first + 64
            judged += range(at, end)
        assert judged == list(range(1, count))


def test_the_small_model_learns_and_is_what_its_decoder_says(tmp_path, peer):
    peer("torch")
    recipe = small.Recipe(
        width=32, hidden=32, layers=1, heads=2, kv_heads=1, vocabulary=260, window=16, batch=2, steps=3
    )
    losses = []
    tensors, metadata = small.train(recipe, lambda step, loss: losses.append(loss))
    assert len(losses) == 3
    assert np.isfinite(losses).all()
    tw.gguf.save(tmp_path / "small.gguf", tensors, metadata)
    model = tw.llm.load(tmp_path / "small.gguf")
    ids = model.tokenizer.encode("The import statement")
    import torch

    weights = {name: torch.tensor(w) for name, w in tensors.items()}
    right = small._forward(torch, recipe, weights, torch.tensor([ids]))[0].numpy()
    np.testing.assert_allclose(model.logits(ids), right, atol=1e-5 * np.abs(right).max() + 1e-6)


def test_a_type_without_an_encoder_is_named(model):
    result = invoke("bench", "perplexity", model, "--format", "IQ4_NL", "--tokens", "8")
    assert isinstance(result.exception, Unsupported)
    assert "IQ4_NL" in str(result.exception)
