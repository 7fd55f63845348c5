"""How text is cut into words before byte-level BPE merges within them, by the names that GGUF files use.

Source: llama.cpp, src/llama-vocab.cpp, where the patterns are those of the models' own tokenizers.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

_ENDINGS = "'s|'t|'re|'ve|'m|'ll|'d"
_GPT2 = rf"{_ENDINGS}| ?\p{{L}}+| ?\p{{N}}+| ?[^\s\p{{L}}\p{{N}}]+|\s+(?!\S)|\s+"
_WORDS = (
    rf"(?i:{_ENDINGS})|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}%s| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True)
class Cut:
    """
    text         a regular expression in which \\p{L} is a letter and \\p{N} a number
    whole_first  a word that is a token is taken without merging
    """

    text: str
    whole_first: bool = False


PATTERNS: Mapping[str, Cut] = MappingProxyType(
    {
        "gpt-2": Cut(_GPT2),
        "llama-bpe": Cut(_WORDS % "{1,3}", whole_first=True),
        "qwen2": Cut(_WORDS % ""),
    }
)


@lru_cache(maxsize=8)
def pattern(name: str) -> re.Pattern[str]:
    """The compiled pattern of a name."""
    letters, numbers = _ranges("L"), _ranges("N")
    text = PATTERNS[name].text
    inside = re.sub(r"\[\^([^\]]*)\]", lambda m: f"[^{_filled(m.group(1), letters, numbers)}]", text)
    return re.compile(inside.replace(r"\p{L}", f"[{letters}]").replace(r"\p{N}", f"[{numbers}]"))


def _filled(text: str, letters: str, numbers: str) -> str:
    return text.replace(r"\p{L}", letters).replace(r"\p{N}", numbers)


@lru_cache(maxsize=2)
def _ranges(category: str) -> str:
    """All characters of a general category as the inside of a character class; Python's `re` has no \\p."""
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
