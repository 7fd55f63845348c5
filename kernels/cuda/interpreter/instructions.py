"""What each instruction of kernels/cuda/ptx.py does, for all lanes at once.

Fragment layouts are those of the PTX ISA, section "Matrix Fragments for mma": with g = lane // 4 and t = lane % 4, rows
g and g + 8 of A, column g of B, and columns 2t and 2t + 1 of C belong to a lane.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import floatops
from ..ptx import INSTRUCTIONS
from .memory import Pointer

if TYPE_CHECKING:
    from .strand import Strand

Array = np.ndarray[Any, Any]
MEANING: dict[str, Callable[..., Any]] = {}


def execute(s: Strand, name: str, args: list[Any]) -> Any:
    """Run one instruction; a fault where arguments are not of its kinds."""
    instruction = INSTRUCTIONS[name]
    given, n = [], 0
    for kind in instruction.arguments:
        if kind in ("shared", "global"):
            if not isinstance(args[n], Pointer):
                s.fault("typing", f"ptx.{name} takes an array and an index; argument {n + 1} is neither")
            given += args[n : n + 2]
            n += 2
            continue
        found = s.kind(args[n])
        if (found == "f") != (kind == "f32") or found in "d?":
            s.fault("typing", f"ptx.{name}: argument {n + 1} is {found!r}; {kind} is needed")
        given.append(args[n])
        n += 1
    if n != len(args):
        s.fault("typing", f"ptx.{name} takes {n} arguments; {len(args)} were given")
    if instruction.collective:
        s.whole_warps(f"ptx.{name}")
    return MEANING[name](s, *given)


def _means(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def add(fn: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            MEANING[name] = fn
        return fn

    return add


def _float(fn: Callable[..., Any]) -> Callable[..., Any]:
    def run(s: Strand, *args: Any) -> Any:
        return fn(*(s.vector(a, np.float32) for a in args))

    return run


MEANING["add"] = _float(np.add)
MEANING["sub"] = _float(np.subtract)
MEANING["mul"] = _float(np.multiply)
MEANING["div"] = _float(np.divide)
for _name in ("fma", "sqrt", "rint", "floor", "trunc"):
    MEANING[_name] = _float(getattr(floatops, _name))


@_means("to_int")
def to_int(s: Strand, x: Any) -> Array:
    return floatops.to_int(s.vector(x, np.float32)).astype(np.int64)


@_means("to_int64")
def to_int64(s: Strand, x: Any) -> Array:
    wide = np.trunc(s.vector(x, np.float32).astype(np.float64))
    low, high = -(2.0**63), 2.0**63
    inside = np.where((wide >= low) & (wide < high), wide, 0.0).astype(np.int64)
    inside = np.where(wide >= high, np.int64(2**63 - 1), inside)
    return np.where((wide < low) | (wide != wide), np.int64(-(2**63)), inside)


@_means("to_float")
def to_float(s: Strand, x: Any) -> Array:
    return _s32(s, x).astype(np.float32)


@_means("bits")
def bits(s: Strand, x: Any) -> Array:
    return s.vector(x, np.float32).view(np.int32).astype(np.int64)


@_means("from_bits")
def from_bits(s: Strand, x: Any) -> Array:
    return _s32(s, x).view(np.float32)


@_means("from_half")
def from_half(s: Strand, x: Any) -> Array:
    return _s32(s, x).astype(np.uint16).view(np.float16).astype(np.float32)


def _divided(fn: Any) -> Callable[..., Any]:
    def divide(s: Strand, a: Any, b: Any) -> Array:
        wide, by = (s.vector(x).astype(np.int64) & 0xFFFFFFFF for x in (a, b))
        if (by[s.lanes()] == 0).any():
            s.fault("typing", "divides by zero, which a device leaves undefined")
        return fn(wide, np.maximum(by, 1)).astype(np.uint32).view(np.int32).astype(np.int64)

    return divide


MEANING["div_u32"] = _divided(np.floor_divide)
MEANING["rem_u32"] = _divided(np.mod)


def _s32(s: Strand, x: Any) -> Array:
    return s.vector(x).astype(np.int32)


def _bytes(word: Array, dtype: Any) -> Array:
    """(.., 4) elements of 8 bits of words."""
    return np.ascontiguousarray(word).view(dtype).reshape(*word.shape, 4).astype(np.int64)


_TYPE = {"s8": np.int8, "u8": np.uint8}


def _dot(a_type: str, b_type: str) -> Callable[..., Any]:
    def dp4a(s: Strand, a: Any, b: Any, c: Any) -> Array:
        products = _bytes(_s32(s, a), _TYPE[a_type]) * _bytes(_s32(s, b), _TYPE[b_type])
        return (s.vector(c) + products.sum(1)).astype(np.int32).astype(np.int64)

    return dp4a


@_means("byte_permute")
def byte_permute(s: Strand, a: Any, b: Any, selector: Any) -> Array:
    """Byte i of the result is byte (selector >> 4 * i) & 7 of the eight bytes of a and b; bit 3 copies its sign."""
    both = np.concatenate([_bytes(_s32(s, a), np.uint8), _bytes(_s32(s, b), np.uint8)], 1)
    choice = (s.vector(selector)[:, None] >> (4 * np.arange(4))) & 15
    taken = np.take_along_axis(both, choice & 7, 1)
    taken = np.where(choice & 8, np.where(taken & 128, 255, 0), taken).astype(np.uint8)
    return np.ascontiguousarray(taken).view(np.int32).ravel().astype(np.int64)


# Tensor cores ----------------------------------------------------------------------------------------------------------


def fragments(s: Strand, words: tuple[Any, ...], warps: Array) -> Array:
    """(warps, g, t, register) int32."""
    stacked = np.stack([_s32(s, w) for w in words], 1).reshape(-1, 8, 4, len(words))
    return stacked[warps]


def elements(words: Array, kind: str) -> Array:
    """The elements in each word, low first: (.., per word) as float64."""
    raw = np.ascontiguousarray(words).view(np.uint8).reshape(*words.shape, 4)
    if kind in _TYPE:
        return raw.view(_TYPE[kind]).astype(np.float64)
    if kind == "s4":
        codes = np.stack([raw & 15, raw >> 4], -1).reshape(*words.shape, 8).astype(np.int8)
        return ((codes ^ 8) - 8).astype(np.float64)
    half = np.ascontiguousarray(raw).view(np.uint16).reshape(*words.shape, 2)
    return (half.astype(np.uint32) << 16).view(np.float32).astype(np.float64)  # bf16


def matrices(a: Array, b: Array, a_kind: str, b_kind: str) -> tuple[Array, Array]:
    """A (warps, 16, K) and B (warps, K, 8) from fragments."""
    fa, fb = elements(a, a_kind), elements(b, b_kind)  # (warps, g, t, register, element)
    n, _, _, _, per = fa.shape
    first, second = (
        fa[:, :, :, 0::2],
        fa[:, :, :, 1::2],
    )  # registers 0, 2: row g; 1, 3: row g + 8; then the upper K half
    rows = [x.transpose(0, 1, 3, 2, 4).reshape(n, 8, 2 * 4 * per) for x in (first, second)]
    columns = fb.transpose(0, 1, 3, 2, 4).reshape(n, 8, 2 * 4 * per)
    return np.concatenate(rows, 1), columns.transpose(0, 2, 1)


def _mma(a_kind: str, b_kind: str, real: bool = False) -> Callable[..., Any]:
    def mma(s: Strand, *args: Any) -> tuple[Array, ...]:
        warps = s.whole_warps("mma")
        a, b = matrices(fragments(s, args[:4], warps), fragments(s, args[4:6], warps), a_kind, b_kind)
        product = np.matmul(a, b)  # float64, exact: |sum| < 2**53
        results = []
        for n, c in enumerate(args[6:]):
            part = product[:, 8 * (n // 2) : 8 * (n // 2) + 8, n % 2 :: 2].reshape(-1, 32)  # row g, column 2t + n % 2
            whole = np.zeros((s.size // 32, 32))
            whole[warps] = part
            if real:  # the order of a tensor core's sum is not defined: one rounding of the exact sum stands for it
                results.append((s.vector(c, np.float32).astype(np.float64) + whole.ravel()).astype(np.float32))
            else:
                total = s.vector(c) + whole.ravel().astype(np.int64)
                results.append(total.astype(np.int32).astype(np.int64))
        return tuple(results)

    return mma


for _a in ("s8", "u8"):
    for _b in ("s8", "u8"):
        MEANING[f"dp4a_{_a}{_b}"] = _dot(_a, _b)
        MEANING[f"mma_m16n8k32_{_a}{_b}"] = _mma(_a, _b)
MEANING["mma_m16n8k64_s4s4"] = _mma("s4", "s4")
MEANING["mma_m16n8k16_bf16"] = _mma("bf16", "bf16", real=True)


@_means("ldmatrix_x4")
def ldmatrix_x4(s: Strand, array: Any, index: Any) -> tuple[Array, ...]:
    lanes, raw = array.load_bytes(s, index, 16)
    rows = raw.reshape(-1, 4, 8, 4, 4)  # warp, matrix, row, word of the row, byte
    words = np.ascontiguousarray(rows).view(np.int32).reshape(-1, 4, 32).astype(np.int64)  # lane = 4 * row + word
    return tuple(s.spread(words[:, n].ravel(), lanes) for n in range(4))


# Memory ----------------------------------------------------------------------------------------------------------------


def _load(words: int) -> Callable[..., Any]:
    def load(s: Strand, array: Any, index: Any) -> Any:
        lanes, raw = array.load_bytes(s, index, 4 * words)
        found = np.ascontiguousarray(raw).view(np.int32).astype(np.int64)
        parts = tuple(s.spread(found[:, n], lanes) for n in range(words))
        return parts if words > 1 else parts[0]

    return load


def _store(s: Strand, array: Any, index: Any, *words: Any) -> None:
    array.store_bytes(s, index, np.stack([_s32(s, w) for w in words], 1).view(np.uint8))


for _n in (1, 2, 4):
    MEANING[f"load_x{_n}"] = _load(_n)
    MEANING[f"store_x{_n}"] = _store
MEANING["shared_x1"] = _load(1)


@_means("atomic_or")
def atomic_or(s: Strand, array: Any, index: Any, value: Any) -> None:
    lanes, at = array.positions(s, index, 4)
    words = array.region.data.view(np.int32)
    np.bitwise_or.at(words, at // 4, _s32(s, value)[lanes])


@_means("cp_async16")
def cp_async16(s: Strand, into: Any, into_index: Any, source: Any, source_index: Any, nbytes: Any) -> None:
    """Starts a copy. It may land at once, so it must not disturb anybody; it may land late, so nobody may look yet."""
    lanes, to = into.positions(s, into_index, 16)
    counts = s.vector(nbytes)[lanes]
    if ((counts < 0) | (counts > 16)).any():
        s.fault("bounds", f"cp_async16 of {int(counts.max())} bytes; 0 to 16 work")
    held = np.zeros((lanes.size, 16), np.uint8)
    base, item = source.base, source.dtype.itemsize
    start = s.vector(source_index)[lanes] * item + base
    some = counts > 0
    if ((start[some] + source.region.start) % 16).any():
        s.fault("alignment", f"cp_async16 from byte {int(start[some][0])} of {source.name}")
    if some.any() and (start[some].min() < base or (start + counts)[some].max() > base + source.length * item):
        bad = int(np.flatnonzero(some & ((start < base) | (start + counts > base + source.length * item)))[0])
        s.fault("bounds", f"copies past the end of {source.name}, from byte {int(start[bad])}", int(lanes[bad]))
    for n in range(16):
        part = counts > n
        held[part, n] = source.region.data[start[part] + n]
    into.region.write(s, to, 16, lanes)
    where = to[:, None] + np.arange(16)
    into.region.pending[where] = True
    s.copies[-1].append((into.region, to, lanes, held))


@_means("cp_async_commit")
def cp_async_commit(s: Strand) -> None:
    if s.mask is not None:
        s.fault("unsupported", "cp_async_commit by some of the threads")
    s.copies.append([])


def _wait(keep: int) -> Callable[..., None]:
    def wait(s: Strand) -> None:
        if s.mask is not None:
            s.fault("unsupported", "cp_async_wait by some of the threads")
        while len(s.copies) - 1 > keep:
            for region, to, lanes, held in s.copies.pop(0):
                region.write(s, to, 16, lanes, delivered=True)
                where = to[:, None] + np.arange(16)
                region.pending[where] = False
                region.data[where] = held

    return wait


MEANING["cp_async_wait0"] = _wait(0)
MEANING["cp_async_wait1"] = _wait(1)


# Exchanges -------------------------------------------------------------------------------------------------------------


@_means("shfl_xor")
def shfl_xor(s: Strand, value: Any, mask: Any) -> Array:
    lane = np.arange(32) ^ s.vector(mask).reshape(-1, 32)
    return np.take_along_axis(s.vector(value).reshape(-1, 32), lane & 31, 1).ravel()


@_means("shfl_down")
def shfl_down(s: Strand, value: Any, delta: Any) -> Array:
    lane = np.arange(32) + s.vector(delta).reshape(-1, 32)
    own = s.vector(value).reshape(-1, 32)
    return np.where(lane < 32, np.take_along_axis(own, np.minimum(lane, 31), 1), own).ravel()


@_means("shfl_idx")
def shfl_idx(s: Strand, value: Any, lane: Any) -> Array:
    return np.take_along_axis(s.vector(value).reshape(-1, 32), s.vector(lane).reshape(-1, 32) & 31, 1).ravel()
