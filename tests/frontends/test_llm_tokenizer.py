"""Text to tokens and back, by vocabularies as GGUF files carry them."""

import numpy as np
import pytest

from tilework.bench.llm import text
from tilework.frontends.llm import Tokenizer
from tilework.frontends.llm.patterns import cutter
from tilework.primitives.errors import FileFormatError, Unsupported

PROSE = "The quick brown fox's den, isn't it?  It cost 1234 francs.\n\n\tThe end; the END. " * 3


@pytest.fixture(scope="module")
def learnt():
    return Tokenizer(text.vocabulary(PROSE, 300))


@pytest.mark.parametrize("given", [PROSE, "", " ", "naïve 東京 🦊\r\n", "\x00\ud800", "<|endoftext|>"])
def test_bytes_come_back(learnt, given):
    ids = learnt.encode(given)
    assert b"".join(map(learnt.bytes_of, ids)) == given.encode("utf-8", "surrogatepass")


def test_merges_go_by_rank(learnt):
    assert learnt.tokens[learnt.encode("The the")[0]] == "The"
    assert len(learnt.encode(PROSE)) < len(PROSE) // 2
    fields = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": ["a", "b", "c", "bc", "ab", "abc"],
        "tokenizer.ggml.merges": ["b c", "a b", "a bc"],
    }
    assert Tokenizer(fields).encode("abcab") == [5, 4]
    del fields["tokenizer.ggml.merges"][2]
    assert Tokenizer(fields).encode("abc") == [0, 3]


def test_control_tokens_stand_for_themselves_where_asked(learnt):
    end = learnt.eos
    assert learnt.encode("a<|endoftext|>", special=True)[-1] == end
    assert end not in learnt.encode("a<|endoftext|>")
    assert learnt.bytes_of(end) == b""
    assert learnt.ends == {end}


def sentencepiece(**more):
    tokens = [
        "<unk>",
        "<s>",
        "</s>",
        *(f"<0x{n:02X}>" for n in range(256)),
        *"▁helo",
        "he",
        "ll",
        "hell",
        "▁hell",
        "lo",
    ]
    types = [2, 3, 3, *[6] * 256, *[1] * 10]
    scores = [0.0] * 259 + [-9.0] * 5 + [-2.0, -1.0, -3.0, -4.0, -0.5]
    fields = {
        "model": "llama",
        "tokens": tokens,
        "token_type": types,
        "scores": scores,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    return Tokenizer({f"tokenizer.ggml.{key}": value for key, value in (fields | more).items()})


def test_sentencepiece_merges_the_best_score_first():
    found = sentencepiece()
    assert [found.tokens[n] for n in found.encode("hello")] == ["<s>", "▁", "he", "l", "lo"]
    assert [found.tokens[n] for n in found.encode("hell", bos=False)] == ["▁hell"]
    assert [found.tokens[n] for n in sentencepiece(add_space_prefix=False).encode("é", bos=False)] == [
        "<0xC3>",
        "<0xA9>",
    ]
    assert found.decode(found.encode("hello é hell")) == "hello é hell"


def test_text_comes_as_soon_as_its_characters_are_whole():
    found = sentencepiece()
    stream = found.stream()
    assert [stream(n) for n in found.encode("éo", bos=False)] == [" ", "", "é", "o"]


def test_patterns_cut_like_those_they_are_named_for():
    assert cutter("gpt-2")("I'll see 1234\n\n ok__x") == [
        "I",
        "'ll",
        " see",
        " 1234",
        "\n\n",
        " ok",
        "__",
        "x",
    ]
    assert cutter("llama-bpe")("I'LL see 1234\n ok_x") == [
        "I",
        "'LL",
        " see",
        " ",
        "123",
        "4",
        "\n",
        " ok",
        "_x",
    ]
    assert cutter("qwen2")("12 ½e\u0301") == ["1", "2", " ", "½", "e", "\u0301"]


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"tokens": ["a", 1]}, FileFormatError, "no list of texts"),
        ({"tokens": []}, FileFormatError, "no list of texts"),
        ({"model": "bert"}, Unsupported, "llama and gpt2"),
        ({"model": "gpt2"}, FileFormatError, "merges is no list"),
        ({"model": "gpt2", "merges": ["a b"], "pre": "odd"}, Unsupported, "gpt-2, mpt, olmo, phi-2, llama-bpe"),
        ({"scores": [1.0]}, FileFormatError, r"shape \(1,\)"),
        ({"eos_token_id": 10**9}, FileFormatError, "eos_token_id"),
        ({"token_type": np.zeros((2, 2), np.int32)}, FileFormatError, "token_type"),
    ],
)
def test_fields_that_disagree_are_named(change, error, message):
    with pytest.raises(error, match=message):
        sentencepiece(**change)
