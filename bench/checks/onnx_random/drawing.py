"""What draws are made of: shapes, types that an operator takes at an opset, and numbers with the awkward ones among them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, Any]
Rng = np.random.Generator
F32 = np.float32
KINDS = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(float16)": np.float16,
    "tensor(bfloat16)": ml_dtypes.bfloat16,
    "tensor(int8)": np.int8,
    "tensor(uint8)": np.uint8,
    "tensor(int16)": np.int16,
    "tensor(uint16)": np.uint16,
    "tensor(int32)": np.int32,
    "tensor(uint32)": np.uint32,
    "tensor(int64)": np.int64,
    "tensor(uint64)": np.uint64,
    "tensor(bool)": np.bool_,
}


@dataclass
class Draw:
    """A node: operands by position (None: left out), attributes, how many outputs, and operands that are mostly constants."""

    operands: list[Any]
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    constants: tuple[int, ...] = ()


Maker = Callable[[Rng, int], Draw]
OPERATORS: dict[str, Maker] = {}


def draws(*names: str) -> Callable[[Callable[..., Draw]], Callable[..., Draw]]:
    """Enter a maker for operators; one for several is also given the operator's name."""

    def enter(make: Callable[..., Draw]) -> Callable[..., Draw]:
        for name in names:
            OPERATORS[name] = make if len(names) == 1 else _named(make, name)
        return make

    return enter


def _named(make: Callable[..., Draw], name: str) -> Maker:
    return lambda rng, opset: make(rng, opset, name)


@lru_cache(maxsize=4096)
def allowed(op: str, opset: int, operand: int = 0, among: str = "biufV") -> tuple[Any, ...]:
    """The types that an operand may have at an opset, of these kinds of NumPy's ("V": bfloat16)."""
    from onnx import defs

    schema = defs.get_schema(op, opset)
    said = schema.inputs[min(operand, len(schema.inputs) - 1)].type_str
    found = next((c.allowed_type_strs for c in schema.type_constraints if c.type_param_str == said), [said])
    return tuple(KINDS[name] for name in found if name in KINDS and np.dtype(KINDS[name]).kind in among)


def kind(rng: Rng, op: str, opset: int, operand: int = 0, among: str = "biufV") -> Any:
    """One of these types, float32 half of the time."""
    known = allowed(op, opset, operand, among)
    return F32 if F32 in known and rng.random() < 0.5 else known[int(rng.integers(len(known)))]


def whole(rng: Rng, low: int, high: int, count: int) -> list[int]:
    """Whole numbers from low to below high."""
    return [int(n) for n in rng.integers(low, high, count)]


def shape(rng: Rng, least: int = 0, most: int = 4, size: int = 5, empty: float = 0.05) -> list[int]:
    """Sizes of least to most axes; one of them is 0 now and then."""
    found = whole(rng, 1, size + 1, int(rng.integers(least, most + 1)))
    if found and rng.random() < empty:
        found[int(rng.integers(len(found)))] = 0
    return found


def broadcast(rng: Rng, sizes: list[int]) -> list[int]:
    """A shape that broadcasts to this one."""
    found = [n if rng.random() < 0.7 else 1 for n in sizes]
    return found[int(rng.integers(0, len(found) + 1)) :] if rng.random() < 0.4 else found


def data(rng: Rng, sizes: Any, of: Any, scale: float = 3.0, special: bool = True) -> Array:
    """Numbers of a type; of real ones some arrays hold NaN, infinities and zeros of both signs."""
    dtype = np.dtype(of)
    if dtype.kind == "b":
        return np.asarray(rng.random(sizes) < 0.5)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        low, high = (max(limits.min, -20), min(limits.max, 20)) if rng.random() < 0.7 else (limits.min, limits.max)
        return np.asarray(rng.integers(low, high, sizes, dtype=dtype, endpoint=True))
    x = np.asarray(rng.standard_normal(sizes) * scale)
    if special and x.size and rng.random() < 0.15:
        x = np.where(rng.random(sizes) < 0.1, rng.choice([np.nan, np.inf, -np.inf, 0.0, -0.0], sizes), x)
    return x.astype(dtype)


def plain(rng: Rng, sizes: Any, of: Any = F32, scale: float = 1.0) -> Array:
    """The same without the awkward ones."""
    return data(rng, sizes, of, scale, special=False)


def small(rng: Rng, sizes: Any, of: Any) -> Array:
    """Whole numbers near 0."""
    return np.asarray(rng.integers(0 if np.dtype(of).kind == "u" else -20, 20, sizes, dtype=of, endpoint=True))


def codes(rng: Rng, sizes: Any, of: Any) -> Array:
    """Whole numbers over all of a type."""
    limits = np.iinfo(of)
    return np.asarray(rng.integers(limits.min, limits.max, sizes, dtype=of, endpoint=True))


def maybe(rng: Rng, x: Any, often: float = 0.6) -> Any:
    """x, or None."""
    return x if rng.random() < often else None


def pick(rng: Rng, *of: Any) -> Any:
    """One of these."""
    return of[int(rng.integers(len(of)))]


def axis_of(rng: Rng, rank: int, opset: int = 11, beyond: int = 0) -> int:
    """An axis of rank + beyond; counted from the end only where the opset has that (11)."""
    return int(rng.integers(-rank if opset >= 11 else 0, rank + beyond))


def words(*x: Any) -> Array:
    """int64 numbers."""
    return np.array(list(x), np.int64)
