"""Tokens of random texts, against sentencepiece and tokenizers on vocabularies that these train here."""

import pytest

from tilework.bench.llm import tokenizers as peers


@pytest.mark.parametrize("prefix", [True, False])
def test_sentencepiece_gives_the_same_tokens(peer, prefix):
    peer("sentencepiece")
    assert peers.differing(peers.sentencepiece(prefix), 150) == []


@pytest.mark.parametrize("pre", ["gpt-2", "llama-bpe", "qwen2", "starcoder", "tekken"])
def test_byte_level_vocabularies_give_the_same_tokens(peer, pre):
    peer("tokenizers")
    assert peers.differing(peers.byte_level(pre), 150) == []
