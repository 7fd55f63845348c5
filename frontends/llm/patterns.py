"""How text is cut into words before byte-level BPE merges within them, by the names that GGUF files use.

Source: llama.cpp, src/llama-vocab.cpp, where the patterns are those of the models' own tokenizers.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

_ENDINGS = "'s|'t|'re|'ve|'m|'ll|'d"
_GPT2 = rf"{_ENDINGS}| ?\p{{L}}+| ?\p{{N}}+| ?[^\s\p{{L}}\p{{N}}]+|\s+(?!\S)|\s+"
_WORDS = (
    rf"(?i:{_ENDINGS})|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}%s| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


_UPPER, _LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]*[{_LOWER}]+|[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]+[{_LOWER}]*|\p{{N}}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# Unicode's White_Space. Python's \s has four control characters more, which are no spaces to other libraries.
_SPACES = r"\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"


@dataclass(frozen=True)
class Cut:
    """
    text         a regular expression in which \\p{..} is a general category, and \\s a character of White_Space
    whole_first  a word that is a token is taken without merging
    digits       numbers are cut into single ones before
    """

    text: str
    whole_first: bool = False
    digits: bool = False


_GPT2_CUT, _DIGITS_CUT, _QWEN2_CUT = Cut(_GPT2), Cut(_GPT2, digits=True), Cut(_WORDS % "")
_LLAMA3_CUT = Cut(_WORDS % "{1,3}", whole_first=True)
PATTERNS: Mapping[str, Cut] = MappingProxyType(
    {
        **dict.fromkeys(("gpt-2", "mpt", "olmo", "phi-2"), _GPT2_CUT),
        **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral"), _LLAMA3_CUT),
        **dict.fromkeys(("dbrx", "smaug-bpe"), Cut(_WORDS % "{1,3}")),
        **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "stablelm2"), _QWEN2_CUT),
        **dict.fromkeys(("codeshell", "command-r", "refact", "smollm", "starcoder"), _DIGITS_CUT),
        "tekken": Cut(_TEKKEN, whole_first=True),
    }
)


def cutter(name: str) -> Callable[[str], list[str]]:
    """What cuts a text into words, in the way of that name."""
    words = pattern(PATTERNS[name].text)
    if not PATTERNS[name].digits:
        return words.findall
    digits = pattern(r"\p{N}|[^\p{N}]+")
    return lambda text: [word for run in digits.findall(text) for word in words.findall(run)]


@lru_cache(maxsize=8)
def pattern(text: str) -> re.Pattern[str]:
    """A compiled expression: what Python's `re` lacks written out."""
    found, inside, at = [], False, 0
    for match in re.finditer(r"\\p\{(\w+)\}|\\(.)|([\[\]])", text):
        found.append(text[at : match.start()])
        at = match.end()
        category, escaped, bracket = match.groups()
        if bracket:
            inside = bracket == "["
            found.append(bracket)
        elif escaped == "S":
            found.append(f"[^{_SPACES}]")
        elif category or escaped == "s":
            ranges = _SPACES if escaped else _ranges(category)
            found.append(ranges if inside else f"[{ranges}]")
        else:
            found.append(match.group())
    return re.compile("".join([*found, text[at:]]))


@lru_cache(maxsize=16)
def _ranges(category: str) -> str:
    """All characters of a general category as the inside of a character class."""
    found: list[str] = []
    start = None
    for n in range(sys.maxunicode + 2):
        inside = n <= sys.maxunicode and unicodedata.category(chr(n)).startswith(category)
        if inside and start is None:
            start = n
        elif not inside and start is not None:
            found.append(f"\\U{start:08x}" + (f"-\\U{n - 1:08x}" if n - 1 > start else ""))
            start = None
    return "".join(found)
