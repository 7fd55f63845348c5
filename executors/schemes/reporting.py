"""Error figures of a scheme on real weights and activations: what a table of schemes is made of."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ...kernels.schemes.probe import codes_of, decoded, probe
from ...primitives.errors import ShapeMismatch, Unsupported
from . import running
from .running import Array, Encoded

if TYPE_CHECKING:
    from .scheme import Scheme
    from .tensor import QuantizedTensor

ROWS = 64  # of random activations
SEED = 0x5EED


@dataclass(frozen=True)
class Report(Mapping[str, Any]):
    """Figures of one scheme; also a mapping of the same names.

    sqnr_db          10 log10 of the power of the weights over the power of the error
    max_abs          largest error of a weight
    cosine           between weights and decoded weights
    output_sqnr_db   the same as sqnr_db for x @ w.T, computed in float64
    output_kl        mean over the rows of x of KL(softmax(x @ w.T) || softmax(x @ decoded.T)), in nats
    bits_per_weight  codes and parameters
    clipped          share of the weights outside of what their block can hold; None where codes stand for several
    not_finite       weights that are NaN or infinite; they are left out of every figure
    path             how products decode: affine, offset, table, decode, or dequantized
    times_ms         of quantize, dequantize, and of x @ w.T for each way of computing that the scheme has
    nbytes           of the codes and parameters; the weights in float32 have shape[0] * shape[1] * 4
    """

    scheme: str
    shape: tuple[int, int]
    sqnr_db: float
    max_abs: float
    cosine: float
    output_sqnr_db: float
    output_kl: float
    bits_per_weight: float
    clipped: float | None
    not_finite: int
    path: str
    nbytes: int
    rows: int
    times_ms: dict[str, float] = field(default_factory=dict)
    output_sqnr_of: dict[str, float] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.as_dict()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.as_dict())

    def __len__(self) -> int:
        return len(self.as_dict())

    def as_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        found = asdict(self)
        found["shape"] = list(self.shape)
        return found

    def __str__(self) -> str:
        clipped = "-" if self.clipped is None else f"{self.clipped:.3%}"
        lines = [
            f"{self.scheme} on {self.shape[0]} x {self.shape[1]} weights, {self.rows} rows of activations",
            f"  weights   SQNR {self.sqnr_db:.2f} dB, largest error {self.max_abs:.4g}, cosine {self.cosine:.6f}, "
            f"clipped {clipped}",
            f"  outputs   SQNR {self.output_sqnr_db:.2f} dB, KL {self.output_kl:.4g} nats",
            f"  memory    {self.bits_per_weight:.3f} bits a weight, {self.nbytes} bytes, "
            f"{32 / self.bits_per_weight:.1f} times less than float32",
            f"  products  {self.path}",
        ]
        for name, time_ms in self.times_ms.items():
            more = f", SQNR {self.output_sqnr_of[name]:.2f} dB" if name in self.output_sqnr_of else ""
            lines.append(f"  {name:13} {time_ms:9.3f} ms{more}")
        if self.not_finite:
            lines.append(f"  {self.not_finite} weights are NaN or infinite and left out of the figures")
        return "\n".join(lines)


def sqnr_db(x: Array, y: Array) -> float:
    """Power of x over power of y - x, in dB; infinite where they are equal."""
    signal = float(np.vdot(x, x))
    error = y - x
    noise = float(np.vdot(error, error))
    if noise == 0.0:
        return float("inf")
    return 10 * float(np.log10(signal / noise)) if signal else float("-inf")


def report(scheme: Scheme, w: Any, x: Any = None, *, timings: bool = True) -> Report:
    """Quantize weights w (N, K) and compare; x (M, K) are activations, standard normal ones where left out."""
    weights = running.as_floats(w, "report: w")
    if weights.ndim != 2 or weights.size == 0:
        raise ShapeMismatch(f"report: w has shape {weights.shape}; weights (N, K) that are not empty work")
    if x is None:
        x = np.random.default_rng(SEED).standard_normal((ROWS, weights.shape[1]))
    acts = running.as_floats(x, "report: x").reshape(-1, np.shape(x)[-1] if np.ndim(x) else 1)
    if acts.shape[1] != weights.shape[1]:
        raise ShapeMismatch(f"report: x is {acts.shape} but w is {weights.shape}: both end in K")
    q = scheme.quantize(weights)
    y = q.dequantize()
    good = np.isfinite(weights) & np.isfinite(y)
    a, b = np.where(good, weights, 0), np.where(good, y, 0)
    wide, kept = a.astype(np.float64), b.astype(np.float64)
    norm = float(np.sqrt(np.vdot(wide, wide) * np.vdot(kept, kept)))
    outputs, expected = acts.astype(np.float64) @ kept.T, acts.astype(np.float64) @ wide.T
    path, ways = _paths(q)
    times = _times(scheme, weights, q, acts, ways) if timings else {}
    of = {}
    if timings and good.all():
        of = {f"matmul {way}": sqnr_db(expected, q.matmul(acts, way).astype(np.float64)) for way in ways}
    return Report(
        scheme=scheme.name,
        shape=(weights.shape[0], weights.shape[1]),
        sqnr_db=sqnr_db(wide, kept),
        max_abs=float(np.abs(wide - kept).max()),
        cosine=float(np.vdot(wide, kept)) / norm if norm else float(not wide.any() and not kept.any()),
        output_sqnr_db=sqnr_db(expected, outputs),
        output_kl=_kl(expected, outputs),
        bits_per_weight=q.bits_per_weight,
        clipped=_clipped(scheme, q, weights, good),
        not_finite=int((~good).sum()),
        path=path,
        nbytes=q.nbytes,
        rows=acts.shape[0],
        times_ms=times,
        output_sqnr_of=of,
    )


def _kl(p: Array, q: Array) -> float:
    """Mean of KL(softmax(p) || softmax(q)) over rows."""

    def log_softmax(z: Array) -> Array:
        z = z - z.max(axis=1, keepdims=True)
        return z - np.log(np.exp(z).sum(axis=1, keepdims=True))  # type: ignore[no-any-return]

    lp, lq = log_softmax(p), log_softmax(q)
    return float(max(0.0, (np.exp(lp) * (lp - lq)).sum(axis=1).mean()))


def _clipped(scheme: Scheme, q: QuantizedTensor, w: Array, good: Array) -> float | None:
    """The share of the weights below the least or above the largest value that their block can hold."""
    if scheme.decode is None or scheme.decode_takes_index or scheme.bits > 8:
        return None
    first = [p[0, 0] if p.ndim == 3 or p.dtype.kind == "f" else int(p[0, 0]) for p in q.loaded_params().values()]
    values = decoded(scheme, first)
    if not np.isfinite(values).any():
        return None
    codes = codes_of(scheme)
    ends = []
    for at in (int(np.nanargmin(values)), int(np.nanargmax(values))):
        from ...kernels.schemes.packing import pack

        row = pack(np.full((1, w.shape[1]), codes[at]), scheme.bits)
        same = Encoded(np.ascontiguousarray(np.broadcast_to(row, q.codes.shape)), q._encoded.params, w.shape[1])
        ends.append(running.dequantize(scheme, same, q.executor))
    low, high = np.minimum(*ends), np.maximum(*ends)
    outside = good & ((w < low) | (w > high))
    return float(outside.sum() / max(1, good.sum()))


def _paths(q: QuantizedTensor) -> tuple[str, tuple[str, ...]]:
    """How products decode, and the ways of computing that work."""
    found = q.linear_weights("int8")
    if found is None:
        return f"dequantized before the product ({probe(q.scheme).why})", ("f32",)
    kind = found[0].kind
    why = probe(q.scheme).why if q.scheme.grouped is None else "groups of integers"
    return f"{kind}: {why}", ("f32", "bf16") if kind == "decode" else ("f32", "bf16", "int8")


def _times(scheme: Scheme, w: Array, q: QuantizedTensor, x: Array, ways: tuple[str, ...]) -> dict[str, float]:
    """The best of a few runs each, in milliseconds: everything is compiled before."""
    out = np.empty(w.shape, np.float32)
    calls: dict[str, Callable[[], object]] = {
        "quantize": lambda: scheme.quantize(w),
        "dequantize": lambda: q.dequantize(out),
    }
    for way in ways:
        try:
            q.matmul(x, way)
        except Unsupported:
            continue
        calls[f"matmul {way}"] = lambda way=way: q.matmul(x, way)  # type: ignore[misc]
    return {name: _best_ms(call) for name, call in calls.items()}


def _best_ms(call: Callable[[], object], budget_s: float = 0.03) -> float:
    times: list[float] = []
    while len(times) < 3 or (sum(times) < budget_s and len(times) < 50):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return 1e3 * min(times)
