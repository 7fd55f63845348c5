"""Modules of the checkout that are not installed with the package."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from ...primitives.errors import ArgumentError

ROOT = Path(__file__).resolve().parents[2]


def module_at(*parts: str) -> ModuleType:
    """Import a file, named from the root of the checkout. Raises ArgumentError where there is none."""
    path = ROOT.joinpath(*parts)
    if not path.is_file():
        raise ArgumentError(f"{path} is missing: run this from a checkout of the sources")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # user functions are looked up by their module's name
    spec.loader.exec_module(module)
    return module
