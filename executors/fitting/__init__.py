"""Fitting: ranges of activations, parameters of schemes, error feedback, migration of scales, rotation, bit budgets."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_HOME = {
    "Histogram": "statistics",
    "MinMax": "statistics",
    "RunningMinMax": "statistics",
    "allocate": "budget",
    "calibrate": "statistics",
    "error_feedback": "feedback",
    "fit": "search",
    "hadamard": "rotation",
    "hessian": "feedback",
    "migrate": "migration",
    "qparams": "ranges",
    "rotate": "rotation",
    "search_migration": "migration",
    "sensitivities": "budget",
}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
    raise AttributeError(f"tilework.fitting has no {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return list(__all__)


if TYPE_CHECKING:
    from .budget import allocate as allocate
    from .budget import sensitivities as sensitivities
    from .feedback import error_feedback as error_feedback
    from .feedback import hessian as hessian
    from .migration import migrate as migrate
    from .migration import search_migration as search_migration
    from .ranges import qparams as qparams
    from .rotation import hadamard as hadamard
    from .rotation import rotate as rotate
    from .search import fit as fit
    from .statistics import Histogram as Histogram
    from .statistics import MinMax as MinMax
    from .statistics import RunningMinMax as RunningMinMax
    from .statistics import calibrate as calibrate
