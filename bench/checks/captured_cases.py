"""Functions and inputs for check_captured.py: everything that ships and can be mapped, and the tests' own functions."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from ...kernels.capture import Captured, capture
from ...kernels.sequence import SEQUENCES

Array = np.ndarray[Any, Any]
TESTS = Path(__file__).resolve().parents[2] / "tests"
DTYPES = {"f": "f32", "i": "s32", "b": "bool"}
SPECIAL = np.array(
    [
        0.0,
        -0.0,
        np.inf,
        -np.inf,
        np.nan,
        1e-45,
        -1e-42,
        1.1754944e-38,
        3.4028235e38,
        -3.4028235e38,
        0.5,
        -0.5,
        1.5,
        2.5,
    ],
    np.float32,
)
WHOLE = np.array([0, 1, -1, 2**31 - 1, -(2**31), 31, 32, -32, 127, -128, 255, 256], np.int32)


@dataclass(frozen=True)
class Case:
    """A function, and the kinds of its arguments: "f" float32, "i" int32, "b" bool."""

    name: str
    fn: Callable[..., Any]
    kinds: str

    @cached_property
    def captured(self) -> Captured:
        return capture(self.fn, self.kinds)

    @property
    def sources(self) -> list[str]:
        """Data types of the arguments."""
        return [DTYPES[kind] for kind in self.captured.arg_kinds]

    @property
    def result(self) -> str:
        """Data type of the result."""
        return DTYPES[self.captured.returns]

    def inputs(self, rng: np.random.Generator, size: int) -> list[Array]:
        """One array for each argument."""
        return [_MAKERS[kind](rng, size) for kind in self.captured.arg_kinds]


def cases() -> list[Case]:
    """All of them, in the same order in every process."""
    found = [Case(s.name, s, kinds) for s in SEQUENCES.values() for kinds, _ in s.signatures]
    capturing = _module(TESTS / "kernels" / "test_capture.py")
    found += [Case(fn.__name__, fn, "".join(_kind(k) for k in kinds)) for fn, kinds in capturing.CASES]
    fused = _module(TESTS / "executors" / "test_user_epilogue.py")
    found += [Case(name, fn, "f") for name, fn in fused.FUNCTIONS.items()]
    found += [
        Case("halved", fused.halved, "i"),
        Case("looked_up", fused.looked_up, "i"),
        Case("gated", fused.gated, "ff"),
    ]
    random = _module(TESTS / "executors" / "random_pipelines.py")
    found += [Case(fn.__name__, fn, "f") for fn in random.ONE]
    found += [Case(fn.__name__, fn, "ff") for fn in (*random.TWO, *(fn for fn, _ in random.ONE_SCALED))]
    return [*found, Case("gated by a slope", random.gated, "fff")]


def _kind(dtype: str) -> str:
    return "f" if dtype.startswith("f") else "b" if dtype == "bool" else "i"


def _module(path: Path) -> ModuleType:
    """A test module; they are not installed with the package."""
    if not path.exists():
        raise SystemExit(f"{path} is missing: run this from a checkout of the sources")
    name = f"functions_of_{path.stem}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module  # a captured function is looked up by its module's name
        spec.loader.exec_module(module)
    return sys.modules[name]


def _floats(rng: np.random.Generator, size: int) -> Array:
    """A third each: any bit pattern, small normal numbers, magnitudes of every order near one; ties and specials."""
    bits = rng.integers(0, 1 << 32, size, dtype=np.uint32).view(np.float32)
    near = (rng.standard_normal(size) * 4).astype(np.float32)
    orders = (np.sign(near) * np.exp2(rng.uniform(-30, 10, size))).astype(np.float32)
    ties = np.rint(near * np.float32(8)) / np.float32(4)
    kind = rng.integers(0, 12, size)
    x: Array = np.select([kind < 4, kind < 8, kind < 10], [bits, near, orders], ties)
    planted = rng.random(size) < 0.01
    x[planted] = rng.choice(SPECIAL, int(planted.sum()))
    return x


def _integers(rng: np.random.Generator, size: int) -> Array:
    """A half of 32 bits, a half small ones, and the ends of ranges."""
    wide = rng.integers(-(1 << 31), 1 << 31, size)
    x = np.where(rng.random(size) < 0.5, wide, rng.integers(-300, 300, size)).astype(np.int32)
    planted = rng.random(size) < 0.02
    x[planted] = rng.choice(WHOLE, int(planted.sum()))
    return x


def _truths(rng: np.random.Generator, size: int) -> Array:
    return rng.random(size) < 0.5


_MAKERS: dict[str, Callable[[np.random.Generator, int], Array]] = {"f": _floats, "i": _integers, "b": _truths}
