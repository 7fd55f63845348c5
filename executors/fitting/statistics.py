"""What is known of activations after a number of batches: ranges, and histograms that merge exactly.

Statistics that may be merged hold integers, minima and maxima only, so the result is the same for any order and any
split of the data. NaN and infinities are counted and left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...primitives.errors import ArgumentError, QuantizationError

METHODS = ("minmax", "running", "percentile", "mse", "kl")


class MinMax:
    """The smallest and the largest value.

    axis  the axis whose entries have ranges of their own, a channel for example; None: one range
    """

    def __init__(self, axis: int | None = None) -> None:
        self.axis = axis
        self.count = self.nan = self.infinite = 0
        self.low: NDArray[np.float32] | None = None
        self.high: NDArray[np.float32] | None = None

    def update(self, x: ArrayLike) -> MinMax:
        """Take a batch in; an empty one changes nothing."""
        finite, x = self._counted(x)
        if x.size and (finite.any() or self.axis is not None):
            axes = None if self.axis is None else tuple(a for a in range(x.ndim) if a != self.axis % x.ndim)
            self._take(
                np.min(x, axis=axes, where=finite, initial=np.inf), np.max(x, axis=axes, where=finite, initial=-np.inf)
            )
        return self

    def _counted(self, x: ArrayLike) -> tuple[NDArray[np.bool_], NDArray[np.float32]]:
        array = np.asarray(x, np.float32)
        nan, infinite = np.isnan(array), np.isinf(array)
        self.count += int(array.size)
        self.nan += int(nan.sum())
        self.infinite += int(infinite.sum())
        return ~(nan | infinite), array

    def _take(self, low: Any, high: Any) -> None:
        low, high = np.asarray(low, np.float32), np.asarray(high, np.float32)
        if self.low is not None and self.low.shape != low.shape:
            raise ArgumentError(f"batches have {low.shape} and {self.low.shape} entries along axis {self.axis}")
        self.low = low if self.low is None else np.minimum(self.low, low)
        self.high = high if self.high is None else np.maximum(self.high, high)

    def merge(self, other: MinMax) -> MinMax:
        """Take in what another has seen."""
        _same(self, other, self.axis == getattr(other, "axis", None))
        self.count, self.nan = self.count + other.count, self.nan + other.nan
        self.infinite += other.infinite
        if other.low is not None:
            self._take(other.low, other.high)
        return self

    def range(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """(low, high). An entry that has seen nothing has the range 0 to 0. Raises QuantizationError before any data."""
        if self.low is None or self.high is None:
            raise QuantizationError(f"no finite value among {self.count} seen; calibrate on data that has some")
        empty = self.low > self.high
        return np.where(empty, np.float32(0), self.low), np.where(empty, np.float32(0), self.high)


class RunningMinMax(MinMax):
    """Ranges that follow the batches: low += momentum * (low of the batch - low). Depends on their order."""

    def __init__(self, axis: int | None = None, momentum: float = 0.1) -> None:
        super().__init__(axis)
        if not 0.0 < momentum <= 1.0:
            raise ArgumentError(f"momentum {momentum}; more than 0, at most 1 works")
        self.momentum = np.float32(momentum)

    def _take(self, low: Any, high: Any) -> None:
        if self.low is None or self.high is None:
            super()._take(low, high)
            return
        seen = low <= high
        self.low = np.where(seen, self.low + self.momentum * (low - self.low), self.low).astype(np.float32)
        self.high = np.where(seen, self.high + self.momentum * (high - self.high), self.high).astype(np.float32)

    def merge(self, other: MinMax) -> MinMax:
        """Not to be had: raises ArgumentError."""
        raise ArgumentError("running ranges depend on the order of the batches and cannot be merged; MinMax can")


class Histogram:
    """Counts in bins of equal width, a power of two, on both sides of 0.

    bins  on each side; the width doubles, neighbours joined, as soon as a value lies beyond them. Widths and counts
          depend on the data alone, not on order or grouping
    """

    def __init__(self, bins: int = 2048) -> None:
        if bins < 16 or bins & 1:
            raise ArgumentError(f"a histogram of {bins} bins on each side; an even number of 16 or more works")
        self.bins = bins
        self.exponent: int | None = None  # the width is 2**exponent
        self.counts = np.zeros(2 * bins, np.int64)  # bin n holds (n - bins) * width up to the next
        self.zeros = 0
        self.extremes = MinMax()

    @property
    def count(self) -> int:
        """Values seen, NaN and infinities among them."""
        return self.extremes.count

    @property
    def nan(self) -> int:
        """NaN seen."""
        return self.extremes.nan

    def update(self, x: ArrayLike) -> Histogram:
        """Take a batch in; an empty one changes nothing."""
        array = np.asarray(x, np.float32).reshape(-1)
        self.extremes.update(array)
        array = array[np.isfinite(array)]
        self.zeros += int((array == 0).sum())
        array = array[array != 0]
        if array.size:
            self._widen(_exponent(float(np.abs(array).max()), self.bins))
            assert self.exponent is not None
            at = np.floor(np.ldexp(array.astype(np.float64), -self.exponent)).astype(np.int64) + self.bins
            self.counts += np.bincount(at, minlength=2 * self.bins)
        return self

    def _widen(self, exponent: int) -> None:
        if self.exponent is None:
            self.exponent = exponent
        while self.exponent < exponent:
            half = self.bins // 2
            joined = self.counts.reshape(-1, 2).sum(axis=1)
            self.counts = np.concatenate([np.zeros(half, np.int64), joined, np.zeros(half, np.int64)])
            self.exponent += 1

    def merge(self, other: Histogram) -> Histogram:
        """Take in what another has seen: the same as if this one had seen it."""
        _same(self, other, self.bins == getattr(other, "bins", 0))
        self.extremes.merge(other.extremes)
        self.zeros += other.zeros
        if other.exponent is not None:
            self._widen(other.exponent)
            copy = Histogram(other.bins)
            copy.exponent, copy.counts = other.exponent, other.counts.copy()
            assert self.exponent is not None
            copy._widen(self.exponent)
            self.counts += copy.counts
        return self

    def points(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """(middle of each bin that is not empty, how many values it has); zeros are a bin of their own."""
        full = np.flatnonzero(self.counts)
        middles: NDArray[Any] = (full - self.bins + 0.5) * 2.0 ** (self.exponent or 0)
        if not self.zeros:
            return middles, self.counts[full]
        at = int(np.searchsorted(middles, 0.0))
        return np.insert(middles, at, 0.0), np.insert(self.counts[full], at, self.zeros)

    def range(
        self, method: str = "minmax", *, bits: int = 8, symmetric: bool = False, percentile: float = 99.99
    ) -> tuple[float, float]:
        """(low, high) by a rule.

        method  "minmax": everything; "percentile": as many per cent of the values, half of the rest on each side;
                "mse": the range with the least squared error of `bits`-bit integers; "kl": the range whose quantized
                histogram is nearest to the histogram in KL divergence
        """
        low, high = (float(v) for v in self.extremes.range())
        if method == "minmax" or low == high:
            return (-max(-low, high), max(-low, high)) if symmetric else (low, high)
        x, n = self.points()
        if method == "percentile":
            return _percentile(x, n, percentile, low, high, symmetric)
        if method not in ("mse", "kl"):
            raise ArgumentError(
                f"a histogram has no range by {method!r}; it has {', '.join(m for m in METHODS if m != 'running')}"
            )
        error = _squared_error if method == "mse" else _divergence
        best, found = np.inf, (low, high)
        for share in np.linspace(1.0, 0.02, 99):
            end = share * max(-low, high)
            a, b = (-end, end) if symmetric else (max(min(low, 0.0), -end), min(max(high, 0.0), end))
            e = error(x, n, a, b, bits)
            if e < best:
                best, found = e, (a, b)
        return found


def _exponent(largest: float, bins: int) -> int:
    """Of the least power of two such that `largest` is inside so many bins of it."""
    _, e = np.frexp(largest / bins)
    e = int(e)
    return e if largest < bins * 2.0**e else e + 1


def _percentile(
    x: NDArray[Any], n: NDArray[Any], share: float, low: float, high: float, symmetric: bool
) -> tuple[float, float]:
    if not 0.0 < share <= 100.0:
        raise ArgumentError(f"percentile {share}; more than 0, at most 100 works")
    if symmetric:
        order = np.argsort(np.abs(x), kind="stable")
        reached = np.cumsum(n[order]) / n.sum()
        end = float(np.abs(x)[order][np.searchsorted(reached, share / 100 - 1e-12)])
        end = min(end, max(-low, high))
        return -end, end
    reached, rest = np.cumsum(n) / n.sum(), (1 - share / 100) / 2
    a = float(x[min(int(np.searchsorted(reached, rest, side="right")), len(x) - 1)])
    b = float(x[min(int(np.searchsorted(reached, 1 - rest - 1e-12)), len(x) - 1)])
    return max(a, low), min(b, high)


def _quantized(x: NDArray[Any], a: float, b: float, bits: int) -> NDArray[Any]:
    step = (b - a) / (2**bits - 1)
    zero = np.rint(-a / step)
    return (np.clip(np.rint(x / step) + zero, 0, 2**bits - 1) - zero) * step


def _squared_error(x: NDArray[Any], n: NDArray[Any], a: float, b: float, bits: int) -> float:
    return float((n * (x - _quantized(x, a, b, bits)) ** 2).sum()) if b > a else np.inf


def _divergence(x: NDArray[Any], n: NDArray[Any], a: float, b: float, bits: int) -> float:
    """KL(histogram || what integers leave of it), the values beyond the range at its ends."""
    if not b > a:
        return np.inf
    held = np.clip(x, a, b)
    places, at = np.unique(held, return_inverse=True)
    p = np.bincount(at, weights=n)
    levels, of = np.unique(_quantized(places, a, b, bits), return_inverse=True)
    inside = np.bincount(at, weights=np.where((x >= a) & (x <= b), n, 0))
    mass = np.bincount(of, weights=inside, minlength=len(levels))
    sharing = np.bincount(of, weights=(p > 0).astype(float), minlength=len(levels))
    q = (mass / np.maximum(sharing, 1))[of]
    p, q = p / p.sum(), q / max(q.sum(), 1e-30)
    return float((p * np.log(np.maximum(p, 1e-30) / np.maximum(q, 1e-12))).sum())


def _same(a: Any, b: Any, alike: bool) -> None:
    if type(a) is not type(b) or not alike:
        raise ArgumentError("only statistics of one kind, with one axis or number of bins, can be merged")


def calibrate(
    batches: Iterable[Any],
    method: str = "minmax",
    *,
    bits: int = 8,
    symmetric: bool = False,
    percentile: float = 99.99,
    momentum: float = 0.1,
) -> dict[str, tuple[float, float]]:
    """Ranges (low, high) of what batches hold, by name.

    batches  arrays, or mappings of names to arrays; an array alone is called "x"

    Raises QuantizationError where a name has no finite value.
    """
    if method not in METHODS:
        raise ArgumentError(f"calibrate has no method {method!r}; it has {', '.join(METHODS)}")
    seen: dict[str, Any] = {}
    for batch in batches:
        for name, x in (batch if isinstance(batch, Mapping) else {"x": batch}).items():
            if name not in seen:
                exact = MinMax() if method == "minmax" else RunningMinMax(momentum=momentum)
                seen[name] = exact if method in ("minmax", "running") else Histogram()
            seen[name].update(x)
    found = {}
    for name, statistic in seen.items():
        try:
            if isinstance(statistic, Histogram):
                found[name] = statistic.range(method, bits=bits, symmetric=symmetric, percentile=percentile)
            else:
                low, high = (float(v) for v in statistic.range())
                found[name] = (-max(-low, high), max(-low, high)) if symmetric else (low, high)
        except QuantizationError as error:
            raise QuantizationError(f"{name}: {error}") from None
    if not found:
        raise QuantizationError("there was no batch to calibrate on")
    return found
