"""Sizes of the caches of this machine, as the system tells them."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

USUAL = {"l1": 32 << 10, "l2": 1 << 20, "l3": 32 << 20}  # where the system does not say
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@lru_cache(maxsize=1)
def sizes() -> dict[str, int]:
    """{"l1", "l2", "l3": bytes}: of data, as one core sees them."""
    found = dict(USUAL)
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            level, kind, text = ((index / name).read_text().strip() for name in ("level", "type", "size"))
        except OSError:
            continue
        if kind != "Instruction" and f"l{level}" in found and text[:-1].isdigit() and text[-1] in _UNITS:
            found[f"l{level}"] = int(text[:-1]) * _UNITS[text[-1]]
    return found
