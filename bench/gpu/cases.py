"""What is timed on a GPU, each checked first; with the bar that it is held to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import numpy as np

import tilework as tw

from . import peers
from .ceilings import OneGraph, copy_rate, empty_launch, product_rate
from .clock import Budget, Clock

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Sizes:
    """gemms M x K x N; the elements of a step bound by memory; K x N and rows of packed weights; kernels of a replay."""

    gemms: tuple[tuple[int, int, int], ...] = ((8192, 8192, 8192), (4096, 4096, 11008))
    elements: tuple[int, int] = (1 << 15, 1 << 13)
    weights: tuple[int, int] = (8192, 8192)
    rows: tuple[int, ...] = (1, 16)
    kernels: int = 100
    copied: int = 1 << 28
    blocks: int = 1024
    rounds: int = 4096


QUICK = Sizes(((1024, 1024, 1024),), (1 << 13, 1 << 12), (2048, 2048), (1, 16), 100, 1 << 26, 1024, 512)
BUDGETS = {"gemm": 120.0, "weights": 50.0, "memory": 50.0, "replay": 30.0}  # seconds


@dataclass
class Row:
    """One case. Times in seconds; `peers` by name; bar: what is asked of `share`, a share of `of`."""

    part: str
    case: str
    hot_s: float
    cold_s: float
    operations: float
    bytes_moved: float
    of: str
    share: float | None
    bar: float
    peers: dict[str, float] = field(default_factory=dict)
    roofline: float = 0.0
    wrong: str = ""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class Bench:
    """Everything that is timed, in order; `missing` names peers that are not there, `left_out` what had no time left."""

    def __init__(self, driver: Any, sizes: Sizes, say: Callable[[str], None], budgets: dict[str, float]) -> None:
        self.driver, self.sizes, self.say, self.budgets = driver, sizes, say, budgets
        self.clock = Clock(driver, sizes.copied)
        self.missing: dict[str, str] = {}
        self.left_out: list[str] = []
        self.rows: list[Row] = []

    def run(self) -> dict[str, Any]:
        """All parts, each within its seconds: ceilings, rows, and what is missing."""
        self.copied = copy_rate(self.clock, self.sizes.copied)
        self.multiplied = product_rate(self.clock, self.sizes.blocks, self.sizes.rounds)
        self.say(f"copies {self.copied / 1e9:.0f} GB/s, multiplies int8 at {self.multiplied / 1e12:.1f} TOPS")
        with tw.CudaExecutor(self.driver.name) as executor:
            for part, cases in (
                ("gemm", self._gemms()),
                ("weights", self._linears()),
                ("memory", self._moves()),
                ("replay", [("replay", self.replay)]),
            ):
                budget = Budget(self.budgets[part])
                for name, case in cases:
                    if budget.has_time_for(f"{part}: {name}"):
                        self._add(case(executor))
                self.left_out += budget.left_out
        return {
            "copy_bytes_per_s": self.copied,
            "int8_operations_per_s": self.multiplied,
            "rows": [row.as_json() for row in self.rows],
            "missing": self.missing,
            "left_out": self.left_out,
        }

    def _add(self, row: Row) -> None:
        bound = max(row.operations / self.multiplied, row.bytes_moved / self.copied)
        row.roofline = bound / row.hot_s
        self.rows.append(row)
        self.say(f"{row.part}: {row.case}: {1e6 * row.hot_s:.1f} us")

    # int8 products ---------------------------------------------------------------------------------------------------

    def _gemms(self) -> list[tuple[str, Callable[[Any], Row]]]:
        return [(" x ".join(map(str, size)), partial(self.gemm, size=size)) for size in self.sizes.gemms]

    def gemm(self, executor: Any, size: tuple[int, int, int]) -> Row:
        """int8 by int8 constants to int32."""
        m, k, n = size
        rng = np.random.default_rng(0)
        a, b = (rng.integers(-128, 128, shape).astype(np.int8) for shape in ((m, k), (k, n)))
        pipe = tw.Pipeline("gemm")
        pipe.output("y", tw.ops.gemm(pipe.input("a", "s8", (m, k)), pipe.constant("b", b)))
        found, hot, cold = self._timed(executor, pipe, {"a": a})
        some = sorted({0, m // 2, m - 1})
        right = (a[some].astype(np.float64) @ b.astype(np.float64)).astype(np.int32)  # exact: sums are below 2**53
        wrong = "" if np.array_equal(found["y"][some], right) else "differs from NumPy"
        times = self._peers(peers.of_gemm(a, b, self.driver.number, self.missing), found["y"])
        share = times["cuBLAS"] / hot if "cuBLAS" in times else None
        moved = float(a.nbytes + b.nbytes + 4 * m * n)
        return Row(
            "gemm", f"{m} x {k} x {n}", hot, cold, 2.0 * m * k * n, moved, "cuBLAS", share, 0.6, times, wrong=wrong
        )

    # Packed weights --------------------------------------------------------------------------------------------------

    def _linears(self) -> list[tuple[str, Callable[[Any], Row]]]:
        return [(f"int4, M = {m}", partial(self.linear, m=m)) for m in self.sizes.rows]

    def linear(self, executor: Any, m: int) -> Row:
        """Weights of 4 bits in groups of 32, read from memory once."""
        k, n = self.sizes.weights
        rng = np.random.default_rng(0)
        w, x = (rng.standard_normal(shape).astype(np.float32) for shape in ((n, k), (m, k)))
        q = tw.schemes.get("int4_g32").quantize(w)
        pipe = tw.Pipeline("linear")
        pipe.output("y", tw.ops.linear(pipe.input("x", "f32", (m, k)), q, compute="int8"))
        _, hot, cold = self._timed(executor, pipe, {"x": x})
        times = self._peers(peers.of_linear(x, w, self.driver.number, self.missing), None)
        moved = float(q.nbytes + x.nbytes + 4 * m * n)
        share = moved / cold / self.copied
        return Row("weights", f"int4 {k} x {n}, M = {m}", hot, cold, 2.0 * m * k * n, moved, "copy", share, 0.75, times)

    # Bound by memory -------------------------------------------------------------------------------------------------

    def _moves(self) -> list[tuple[str, Callable[[Any], Row]]]:
        return [("quantize", self.quantize), ("dequantize", self.dequantize)]

    def quantize(self, executor: Any) -> Row:
        """f32 to u8."""
        x = np.random.default_rng(0).standard_normal(self.sizes.elements).astype(np.float32)
        pipe = tw.Pipeline("quantize")
        pipe.output("y", tw.ops.quantize(pipe.input("x", "f32", x.shape), np.float32(0.0078125), 128, "u8"))
        others = peers.of_quantize(x, 0.0078125, 128, self.driver.number, self.missing)
        return self._moved(executor, "quantize", pipe, {"x": x}, others)

    def dequantize(self, executor: Any) -> Row:
        """u8 to f32."""
        x = np.random.default_rng(0).integers(0, 256, self.sizes.elements).astype(np.uint8)
        pipe = tw.Pipeline("dequantize")
        pipe.output("y", tw.ops.dequantize(pipe.input("x", "u8", x.shape), np.float32(0.0078125), 128))
        others = peers.of_dequantize(x, 0.0078125, 128, self.driver.number, self.missing)
        return self._moved(executor, "dequantize", pipe, {"x": x}, others)

    def _moved(self, executor: Any, name: str, pipe: Any, given: dict[str, Array], others: Sequence[peers.Peer]) -> Row:
        found, hot, cold = self._timed(executor, pipe, given)
        times = self._peers(others, found["y"])
        moved = float(given["x"].nbytes + found["y"].nbytes)
        share = moved / cold / self.copied
        return Row("memory", name, hot, cold, 0.0, moved, "copy", share, 0.85, times)

    # Launching -------------------------------------------------------------------------------------------------------

    def replay(self, executor: Any) -> Row:
        """A pipeline of small kernels against a graph of as many empty ones, and the time of the kernels."""
        count = self.sizes.kernels
        x = np.linspace(-1, 1, 256, dtype=np.float32)

        def chain(length: int) -> tuple[Any, Any]:
            pipe = tw.Pipeline("chain")
            value = pipe.input("x", "f32", (256,))
            for _ in range(length):
                value = tw.ops.neg(value)
            pipe.output("y", value)
            return pipe, {"x": x}

        with tw.CudaExecutor(self.driver.name, fuse=False) as unfused:
            _, hot, cold = self._timed(unfused, *chain(count))
            _, one, _ = self._timed(unfused, *chain(1))
        with OneGraph(self.driver, [empty_launch()] * count, 32) as call:
            empties = self.clock.hot_s(call)
        with OneGraph(self.driver, [empty_launch()], 32) as call:
            nothing = self.clock.hot_s(call)
        allowed = empties + count * max(one - nothing, 0.0)
        times = {f"{count} empty kernels": empties}
        return Row("replay", f"{count} kernels", hot, cold, 0.0, 0.0, "empty graph", allowed / hot, 1 / 1.1, times)

    # Timing ----------------------------------------------------------------------------------------------------------

    def _timed(self, executor: Any, pipe: Any, given: dict[str, Array]) -> tuple[dict[str, Array], float, float]:
        """Results, and the seconds of a launch with the cache warm and empty."""
        with executor.compile(pipe) as plan:
            found = plan.run(given)
            launch = plan.launches({name: array.shape for name, array in given.items()})
            with plan.device.entered():
                clock = self.clock
                return found, clock.hot_s(launch, plan.device.stream), clock.cold_s(launch, plan.device.stream)

    def _peers(self, found: Sequence[peers.Peer], right: Array | None) -> dict[str, float]:
        """Seconds of peers; one whose integers differ is left out by name."""
        times: dict[str, float] = {}
        for peer in found:
            result = peer.call()
            if right is not None and right.dtype.kind in "iu":
                if not np.array_equal(result.cpu().numpy(), right):
                    self.missing[peer.name] = "its result differs"
                    continue
            times[peer.name] = self.clock.hot_s(peer.call, peer.stream or 1)
        return times
