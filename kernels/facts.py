"""Facts by name: a builder, a requirement or a model is given those that its parameters name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from ..primitives.errors import PipelineError


def wanted(function: Callable[..., Any], facts: Mapping[str, Any]) -> dict[str, Any]:
    """Those facts that a function's parameters name."""
    chosen = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            return dict(facts)
        if name in facts:
            chosen[name] = facts[name]
        elif parameter.default is parameter.empty:
            raise PipelineError(
                f"{getattr(function, '__name__', function)} asks for {name!r}; a builder may ask for {', '.join(facts)}"
            )
    return chosen
