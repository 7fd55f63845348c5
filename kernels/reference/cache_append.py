"""Writing new rows into a cache."""

from __future__ import annotations

from typing import Any

from ...primitives.errors import ArgumentError
from ..cache_append import CacheAppend
from ..factory import Whole, register


def cache_append(cache: Any, new: Any, position: int) -> None:
    """cache[:, :, position + t] = new[:, :, t], in place.

    cache  (B, G, C, D);  new: (B, G, T, D) of its type

    Raises ArgumentError where the new rows do not lie within the C of the cache.
    """
    if not 0 <= position <= cache.shape[2] - new.shape[2]:
        raise ArgumentError(
            f"{new.shape[2]} rows at position {position} do not fit a cache of {cache.shape[2]}; "
            f"0 to {cache.shape[2] - new.shape[2]} works"
        )
    cache[:, :, position : position + new.shape[2]] = new


@register("cache_append", backend="reference")
def cache_append_step(kernel: CacheAppend) -> Whole:
    return Whole(lambda new, position, cache: cache_append(cache, new, int(position[()])))
