"""The proof that a scheme is one thing: plain Python, this machine's code and that of lesser machines, to the bit."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ...kernels.reference import schemes as reference
from ...kernels.schemes.definition import WHOLE
from ...kernels.schemes.packing import pack, unpack
from ...primitives.errors import ShapeMismatch
from . import replay, running
from .running import Array

if TYPE_CHECKING:
    from .scheme import Scheme

ELEMENTS = 20_000  # that plain Python computes unless more rows are asked for
PATIENCE_S = 5.0  # that it may take about; fewer rows are compared where a function is slow


@dataclass(frozen=True)
class Difference:
    """The first place where something differs from plain Python."""

    where: str
    what: str
    index: tuple[int, ...]
    block: tuple[int, ...]
    params: dict[str, str]
    x: str
    python: str
    found: str

    def __str__(self) -> str:
        params = ", ".join(f"{k} = {v}" for k, v in self.params.items()) or "none"
        return (
            f"{self.where}: {self.what} {list(self.index)} in block {list(self.block)} (x = {self.x}; parameters "
            f"{params}) is {self.found}; plain Python has {self.python}"
        )


@dataclass(frozen=True)
class Check(Mapping[str, Any]):
    """What was compared. True where nothing differs.

    elements    weights
    different   parameters, codes and weights that differ from plain Python, over everything that was compared
    compared    {what ran: how many differ}
    first       the first difference, where there is one
    as_written  how the functions do as CPython runs them, untouched: the same, or what differs and why it may
    """

    scheme: str
    elements: int
    different: int
    compared: dict[str, int]
    first: Difference | None = None
    as_written: str = ""
    notes: tuple[str, ...] = field(default=())

    def __bool__(self) -> bool:
        return self.different == 0

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)

    def __iter__(self) -> Iterator[str]:
        return iter(("scheme", "elements", "different", "compared", "first", "as_written", "notes"))

    def __len__(self) -> int:
        return 7

    def as_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        return {**self, "first": None if self.first is None else str(self.first), "notes": list(self.notes)}

    def __str__(self) -> str:
        ran = ", ".join(self.compared)
        head = (
            f"{self.scheme}: {self.different} of {self.elements} weights, codes and parameters differ from plain Python"
        )
        lines = [f"{head} on {ran}"]
        if self.first is not None:
            lines.append(f"  first: {self.first}")
        lines.append(f"  as written: {self.as_written}")
        lines += [f"  note: {note}" for note in self.notes]
        return "\n".join(lines)


def planted(scheme: Scheme, seed: int = 0) -> Array:
    """Weights that ask for trouble: ties, zeros of both signs, subnormals, infinities, NaN, and a ragged last block."""
    down, across = scheme.edges
    rows = 24 if down == WHOLE else 2 * down + 1 if down > 1 else 24
    columns = 200 if across == WHOLE else max(3 * across - across // 2, 40)
    rng = np.random.default_rng(seed)
    w = rng.standard_normal((rows, columns)).astype(np.float32)
    special = np.array([0.0, -0.0, 1e-42, -1e-45, np.inf, -np.inf, np.nan, 3.4e38, -3.4e38, 1.1754944e-38], np.float32)
    for row in range(1, rows):
        kind = row % 8
        if kind == 1:
            w[row] = rng.integers(-40, 41, columns).astype(np.float32) / 8  # ties of most scales
        elif kind == 2:
            w[row] = rng.choice(special[:2], columns)
        elif kind == 3:
            w[row] = rng.choice(special[2:4], columns)
        elif kind == 4:
            w[row, rng.integers(0, columns, 3)] = rng.choice(special, 3)
        elif kind == 5:
            w[row] = rng.choice(special, columns)
        elif kind == 6:
            w[row] = -np.abs(w[row])
    return w


def planted_bytes(scheme: Scheme, x: Array) -> Array:
    """Bytes of blocks for a scheme that only decodes: every byte may be anything, so the weights may be anything."""
    rng = np.random.default_rng(x.shape)
    return rng.integers(0, 256, (x.shape[0], scheme.row_bytes(x.shape[1])), dtype=np.uint8)


def check(scheme: Scheme, w: Any = None, *, levels: Sequence[str] | None = None, rows: int | None = None) -> Check:
    """Compare plain Python with compiled code, on parameters, codes and weights, to the bit; NaN is NaN.

    w        weights (N, K); without them, `planted` ones
    levels   instruction sets to run beside this machine's best, each in a process of its own: generic, avx2, avx512;
             None: all that this machine has; (): none
    rows     how many rows of w, from the first; None: as many as hold about 20,000 weights
    """
    x = planted(scheme) if w is None else running.as_floats(w, "check: w")
    if x.ndim != 2 or x.size == 0:
        raise ShapeMismatch(f"check: w has shape {x.shape}; weights (N, K) that are not empty work")
    if rows is None and w is not None:
        rows = max(1, ELEMENTS // x.shape[1])
    x = np.ascontiguousarray(x[:rows])
    x = np.ascontiguousarray(x[: _affordable(scheme, x)])
    python = literal(scheme, x)
    notes = [f"{name}: {note}" for name in ("fit", "encode", "decode") for note in _lint(scheme, name)]
    compared: dict[str, int] = {}
    first = None
    runs: dict[str, Callable[[], dict[str, Array]]] = {"cpu": lambda: native(scheme, x)}
    for level in replay.levels() if levels is None else levels:
        runs[level] = lambda level=level: replay.run(scheme, x, python, level)  # type: ignore[misc]
    for name, run in runs.items():
        found = run()
        compared[name] = 0
        for part, wanted in python.items():
            at = np.argwhere(apart(wanted, found[part]))
            compared[name] += len(at)
            if len(at) and first is None:
                first = _difference(scheme, x, python, name, part, tuple(map(int, at[0])), wanted, found[part])
    return Check(
        scheme.name, x.size, sum(compared.values()), compared, first, _as_written(scheme, x, python), tuple(notes)
    )


def _affordable(scheme: Scheme, x: Array) -> int:
    """How many rows plain Python computes within PATIENCE_S, found on the first block of a row; a block at least."""
    down, across = scheme.edges
    part = x[:1, : across if across != WHOLE else x.shape[1]]
    start = time.thread_time()  # that others keep the processor busy is no reason to compare less
    params = reference.fit(scheme, np.ascontiguousarray(part))
    if scheme.encodes:
        reference.encode(scheme, part, params)
    else:
        reference.decode(scheme, planted_bytes(scheme, part), params, part.shape[1])
    taken = max(time.thread_time() - start, 1e-6)
    rows = int(PATIENCE_S / taken * part.shape[1] / x.shape[1])
    return max(1, down, rows)


def literal(scheme: Scheme, x: Array) -> dict[str, Array]:
    """Parameters, codes and weights as plain Python has them, and parameters of other schemes as they are decoded."""
    params = reference.fit(scheme, x)
    found: dict[str, Array] = {}
    used = []
    for p, array in zip(scheme.stored, params, strict=True):
        inner = scheme.nested.get(p.name)
        found[f"parameter {p.name}"] = array
        if inner is not None:
            flat = running._flat(inner, array)
            own = reference.fit(inner, flat)
            codes = reference.encode(inner, flat, own)
            array = reference.decode(inner, codes, own, flat.shape[1]).reshape(array.shape)
            found[f"decoded {p.name}"] = array
        used.append(array)
    packed = reference.encode(scheme, x, used) if scheme.encodes else planted_bytes(scheme, x)
    found["code"] = unpack(packed, scheme.bits, scheme.codes_in_row(x.shape[1]), scheme.signed)
    found["weight"] = reference.decode(scheme, packed, used, x.shape[1])
    return found


def native(scheme: Scheme, x: Array) -> dict[str, Array]:
    """The same by this machine's code."""
    executor = running.default_executor()
    if not scheme.encodes:
        packed = planted_bytes(scheme, x)
        weights = running.dequantize(scheme, running.Encoded(packed, {}, x.shape[1]), executor)
        return {"code": packed.astype(np.int32), "weight": weights}
    encoded = running.quantize(scheme, x, executor)
    # What another scheme stores is no longer in what was quantized, so these parameters are fitted once more.
    raw = running.fit_raw(scheme, x, executor) if scheme.nested else {}
    found = {f"parameter {name}": array for name, array in raw.items()}
    loaded = running.loaded(scheme, encoded.params, x.shape[0], x.shape[1], executor)
    for p, array in zip(scheme.stored, loaded, strict=True):
        found[f"decoded {p.name}" if p.name in scheme.nested else f"parameter {p.name}"] = array
    found["code"] = unpack(encoded.codes, scheme.bits, scheme.codes_in_row(x.shape[1]), scheme.signed)
    found["weight"] = running.dequantize(scheme, encoded, executor)
    return found


def _bits(array: Array) -> Array:
    return array if array.dtype.kind in "iu" else array.view(f"u{array.dtype.itemsize}")


def apart(a: Array, b: Array) -> Array:
    """Where two arrays of one type differ in their bits; every NaN is one."""
    different = _bits(a) != _bits(b)
    if a.dtype.kind != "i" and a.dtype.kind != "u":
        different &= ~(np.isnan(a.astype(np.float32)) & np.isnan(b.astype(np.float32)))
    return different


def _difference(
    scheme: Scheme,
    x: Array,
    python: Mapping[str, Array],
    where: str,
    part: str,
    at: tuple[int, ...],
    wanted: Array,
    found: Array,
) -> Difference:
    down, across = (n if n != WHOLE else size for n, size in zip(scheme.edges, x.shape, strict=True))
    element = part in ("code", "weight")
    column = at[1] * scheme.vector if part == "code" else at[-1]
    block = (at[0] // down, column // across) if element else (at[0], at[1])
    params = {}
    for p in scheme.stored:
        kept = python.get(f"decoded {p.name}", python[f"parameter {p.name}"])
        params[p.name] = _hex(kept[block]) if not p.table else f"a table of {p.table}"
    place = x[at[0], min(column, x.shape[1] - 1)] if element else None
    return Difference(
        where, part, at, block, params, "the block" if place is None else _hex(place), _hex(wanted[at]), _hex(found[at])
    )


def _hex(value: Any) -> str:
    array = np.asarray(value)
    if array.dtype.kind in "iu":
        return str(int(array))
    return f"{float(array):.9g} (0x{int(_bits(array.reshape(1))[0]):0{2 * array.dtype.itemsize}x})"


def _lint(scheme: Scheme, role: str) -> list[str]:
    if role == "encode" and not scheme.encodes:
        return []
    captured = getattr(scheme, f"captured_{role}")
    return [] if captured is None else [str(note) for note in captured.lint]


def _as_written(scheme: Scheme, x: Array, python: Mapping[str, Array]) -> str:
    """The user's own functions, called by CPython with np.float32 and int, given the same parameters."""
    used = [python.get(f"decoded {p.name}", python[f"parameter {p.name}"]) for p in scheme.stored]
    counts = {}
    try:
        if scheme.encodes:
            encode = scheme.encode if scheme.encode is not None else scheme.encode_block
            codes = reference.encode_codes(scheme, x, used, encode)
            counts["codes"] = int(apart(python["code"], codes).sum())
        decode = scheme.decode if scheme.decode is not None else scheme.decode_block
        decode = scheme.grouped.split if scheme.grouped is not None else decode
        packed = pack(python["code"], scheme.bits)
        weights = reference.decode(scheme, packed, used, x.shape[1], decode)
        counts["weights"] = int(apart(python["weight"], weights).sum())
    except Exception as error:  # whatever a user's function may raise on such data, which compiled code does not
        return f"CPython raises {type(error).__name__}: {error}; compiled code follows float32 rules instead"
    if not any(counts.values()):
        return "the same codes and weights as the functions give when CPython calls them"
    shown = " and ".join(f"{n} {what}" for what, n in counts.items() if n)
    return (
        f"{shown} differ when CPython calls the functions: there some steps are float64 or a library's (see the notes)"
    )
