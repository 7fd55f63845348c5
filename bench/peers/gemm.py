"""`tilework bench peers gemm`: GEMMs against other libraries, on the same bytes, in the same rounds.

Every result is compared with the reference before anything is timed. A wrong one is reported and has no figures: a peer
that is wrong is left out, and where tilework is, the command fails.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from ...executors.plan import TilingPlan
from ...executors.tiling import TilingExecutor
from ...kernels.cpu import isa
from ...primitives.errors import ArgumentError
from .. import cases, peers, timing
from ..cases import Case, Shape
from ..machine import doctor, load, peak

Array = np.ndarray[Any, Any]
Step = Callable[[str], None]

OURS = "tilework"
TABLES = ("compute", "overhead", "memory", "levels", "start")
COPIES_LIMIT = 64
L3_BYTES = 32 << 20  # where the system does not say


@dataclass(frozen=True)
class Options:
    """What to time. `only` names peers; empty stands for all. `isa` holds tilework to a lower level.

    patience      seconds to wait before each GEMM for other programs to leave the processors alone
    weight_bits   7 leaves room for instructions that add two products in 16 bits
    """

    threads: tuple[int, ...] = (1,)
    tables: tuple[str, ...] = TABLES
    shapes: tuple[Shape, ...] = ()
    rounds: int = timing.ROUNDS
    isa: str | None = None
    only: tuple[str, ...] = ()
    outputs: tuple[str, ...] = cases.OUTPUTS
    patience: float = 0.0
    weight_bits: int = 8

    def __post_init__(self) -> None:
        for what, given, known in (
            ("table", self.tables, TABLES),
            ("peer", self.only, tuple(peers.NEEDS)),
            ("output", self.outputs, cases.OUTPUTS),
        ):
            for name in given:
                if name not in known:
                    raise ArgumentError(f"there is no {what} {name!r}; there is {', '.join(known)}")
        if self.rounds < 1 or min(self.threads, default=0) < 1:
            raise ArgumentError(f"blocks={self.rounds}, threads={self.threads}: positive integers are needed")


@dataclass
class Row:
    """One line of a table: one way of calling one GEMM.

    us           microseconds a call, the median over rounds; p5_us: their 5th percentile
    gops         2 * M * K * N a second, in thousands of millions
    peers        {peer: {us, ratio, low, high}}; ratio: how many times as fast as the peer this is
    best         the peer with the least time; ratio, low and high are those to it
    peak_share   of what was probed in the same rounds: arithmetic on registers, or reading as many bytes as the weights
                 have (rotated: from beyond the last cache)
    gb_per_s     bytes of weights a second
    others       share of all processors that other programs used meanwhile
    wanted, met  the least ratio that the table asks for, None if it asks for none
    left_out     peers whose results are wrong, and by how much
    wrong        what the check of our own result found; nothing is timed then
    """

    table: str
    shape: str
    output: str
    call: str
    weights: str
    threads: int
    us: float | None = None
    p5_us: float | None = None
    gops: float | None = None
    peers: dict[str, dict[str, float]] = field(default_factory=dict)
    best: str | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    peak_share: float | None = None
    gb_per_s: float | None = None
    kernel_us: float | None = None
    others: float | None = None
    wanted: float | None = None
    met: bool | None = None
    left_out: list[str] = field(default_factory=list)
    wrong: str = ""


def measure(options: Options) -> dict[str, Any]:
    """Everything that the options ask for, as one JSON-ready dictionary."""
    from . import gemm_bars

    absent = peers.missing()
    before = doctor.load()
    chosen = cases.select([t for t in options.tables if t in cases.GROUPS], options.shapes)
    extra = [] if options.shapes else [t for t in options.tables if t in ("levels", "start")]
    work = [
        (group, shape, output, weights, threads)
        for threads in options.threads
        for group, shapes in chosen.items()
        for shape in shapes
        for output in options.outputs
        for weights in (("hot", "rotated") if cases.GROUPS[group].rotated else ("hot",))
    ]
    rows: list[Row] = []
    with progress(len(work) + len(extra)) as step:
        for group, shape, output, weights, threads in work:
            step(f"{shape} {output} {weights if weights != 'hot' else ''} {threads} thread{'s' * (threads > 1)}")
            rows += time_gemm(cases.GROUPS[group], shape, output, weights, threads, options)
        bars = gemm_bars.from_rows(rows) if not options.shapes else []
        for name in extra:
            step(name)
            bars += gemm_bars.levels(options) if name == "levels" else gemm_bars.first_use()
    return {
        "machine": machine(options, before),
        "peers": peers.versions(),
        "missing": absent,
        "rows": [asdict(row) for row in rows],
        "bars": bars,
    }


def machine(options: Options, before: dict[str, Any]) -> dict[str, Any]:
    """What was measured on, and what else it was doing."""
    cpu = doctor.cpu()
    facts = {k: cpu[k] for k in ("model", "llvm_name", "usable_cores")}
    return {
        **facts,
        "isa": options.isa or cpu["isa"],
        "l3_bytes": l3_bytes(),
        "rounds": options.rounds,
        "load_before": before,
        "load_after": doctor.load(),
    }


def l3_bytes() -> int:
    """Size of the last cache."""
    text = (doctor.read("/sys/devices/system/cpu/cpu0/cache/index3/size") or "").strip()
    units = {"K": 1 << 10, "M": 1 << 20}
    return int(text[:-1]) * units[text[-1]] if text[-1:] in units and text[:-1].isdigit() else L3_BYTES


# One GEMM ------------------------------------------------------------------------------------------------------------


def time_gemm(group: cases.Group, shape: Shape, output: str, weights: str, threads: int, options: Options) -> list[Row]:
    """Check, then time: a row for each way of calling."""
    rows = [Row(group.name, str(shape), output, call, weights, threads) for call in group.calls]
    copies = 1
    if weights == "rotated":
        copies = min(COPIES_LIMIT, 2 * l3_bytes() // (shape.K * shape.N) + 2)
    first = Case.make(shape, weight_bits=options.weight_bits)
    made = [first] + [first.with_weights(seed) for seed in range(1, copies)]
    executor = TilingExecutor(threads=threads, isa=options.isa)
    ours = [Ours.make(case, output, executor) for case in made]
    others = [peers.make(case, output, threads, options.only) for case in made]
    wrong = ours[0].check()
    left_out = {peer.name: found for peer in others[0] if (found := peer.check())}
    for row in rows:
        row.wrong, row.left_out = wrong, list(left_out.values())
    if wrong:
        return rows
    others = [[peer for peer in copy if peer.name not in left_out] for copy in others]
    contenders: dict[str, timing.Call] = {}
    for call in group.calls:
        contenders[f"{OURS} {call}"] = (
            timing.rotate([getattr(o, call) for o in ours]) if copies > 1 else getattr(ours[0], call)
        )
    for n, peer in enumerate(others[0]):
        contenders[peer.name] = timing.rotate([copy[n].call for copy in others]) if copies > 1 else peer.call
    names = [peer.name for peer in others[0]]
    probe, work = _limit(group, shape, weights, threads, options)
    if probe:
        contenders["peak"] = probe.call
    kernel = ours[0].kernel() if shape == cases.TINY and threads == 1 else None
    if kernel:
        contenders["kernel"] = kernel.call
    load.wait_for_quiet(options.patience)
    begun = load.Moment.now()
    times = timing.paired(contenders, options.rounds, pause=threads > 1)
    busy = begun.others_since() if begun else None
    for row in rows:
        row.others = busy
        _fill(row, times, names, group, shape)
        if probe:
            share = times.rounds["peak"] / probe.work * work / times.rounds[f"{OURS} {row.call}"]
            row.peak_share = float(np.median(share))
        if kernel:
            row.kernel_us = times.median("kernel") / kernel.work * 1e6
    return rows


def _limit(
    group: cases.Group, shape: Shape, weights: str, threads: int, options: Options
) -> tuple[peak.Probe | None, float]:
    """A probe of what limits a group, and how much of that a GEMM does: operations, or bytes of weights to read."""
    if group.name == "compute":
        return peak.dot(options.isa or isa.select().name, threads), shape.operations
    if group.name == "memory":
        size = shape.K * shape.N
        return peak.read(size if weights == "hot" else 4 * l3_bytes(), threads), size
    return None, 0


def _fill(row: Row, times: timing.Times, names: list[str], group: cases.Group, shape: Shape) -> None:
    me = f"{OURS} {row.call}"
    seconds = times.median(me)
    row.us, row.p5_us = seconds * 1e6, times.p5(me) * 1e6
    row.gops = shape.operations / seconds / 1e9
    if group.name == "memory":
        row.gb_per_s = shape.K * shape.N / seconds / 1e9
    for name in names:
        ratio = times.ratio(me, name)
        row.peers[name] = {"us": times.median(name) * 1e6, "ratio": ratio.median, "low": ratio.low, "high": ratio.high}
    if not names:
        return
    row.best = times.fastest(names)
    best = row.peers[row.best]
    row.ratio, row.low, row.high = best["ratio"], best["low"], best["high"]
    if row.call != "run" or best["us"] > cases.CHECKED_OVER * 1e6:
        row.wanted = group.wanted(shape, row.call)
        row.met = row.ratio >= row.wanted


@dataclass
class Ours:
    """A plan of tilework, ready to be called in each way."""

    case: Case
    output: str
    plan: TilingPlan
    y: Array
    bind: Callable[[], Any]
    run: Callable[[], Any]

    @classmethod
    def make(cls, case: Case, output: str, executor: TilingExecutor) -> Ours:
        plan = executor.compile(case.pipeline(output))
        y, a = case.empty(output), case.a
        bound = plan.bind({"a": a}, out={"y": y})
        return cls(case, output, plan, y, bound, lambda: plan.run({"a": a}, out={"y": y}))

    def check(self) -> str:
        """What is wrong with the result of any way of calling; empty if nothing is."""
        expected = self.case.reference(self.output)
        for how, call in (("bind", self.bind), ("run", self.run)):
            self.y[...] = 0
            call()
            different = int((self.y != expected).sum())
            if different:
                return f"{OURS} {how}: {different} of {expected.size} elements differ from the reference"
        return ""

    def kernel(self, calls: int = 1000) -> peak.Probe | None:
        """The native kernel by itself, called so often by native code: what is left when no Python is involved."""
        from numba import njit

        from ...executors.program import ARENA, FIRST_EXTERNAL, LOCAL, Program
        from ...kernels.entry import call_entry_at

        arrays = {"a": self.case.a, self.plan.lowered.pipe.outputs["y"].name: self.y}
        binding = self.plan.bound({"a": self.case.a}, {"y": self.y}).binding
        program = binding.parts[0]
        if len(binding.parts) > 1 or not isinstance(program, Program) or len(program.rows) > 1:
            return None
        row = program.rows[0]
        memory = np.zeros(binding.local_bytes + binding.arena_bytes + 256, np.uint8)
        bases = np.zeros(binding.bases, np.int64)
        bases[LOCAL] = -(-memory.ctypes.data // 64) * 64
        bases[ARENA] = bases[LOCAL] + -(-binding.local_bytes // 64) * 64
        for n, name in enumerate(binding.externals):
            bases[FIRST_EXTERNAL + n] = arrays[name].ctypes.data

        @njit
        def repeat(n: int, entry: int, bases: int, block: int, ranges: int) -> None:
            for _ in range(n):
                call_entry_at(entry, bases, block, ranges)

        words = row.address, bases.ctypes.data, row.block.ctypes.data, row.ranges.ctypes.data
        keep = memory, bases, row

        def call(keep: Any = keep) -> None:
            repeat(calls, *words)

        return peak.Probe("kernel", call, calls)


# Apart from this process ---------------------------------------------------------------------------------------------


def measure_apart(options: Options, environment: Mapping[str, str]) -> dict[str, Any]:
    """`measure` in a process of its own: some libraries read their settings once, when they are loaded."""
    words = {**asdict(options), "shapes": [str(s) for s in options.shapes]}
    done = subprocess.run(
        [sys.executable, "-m", __name__, json.dumps(words)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise ArgumentError(f"a measurement in another process failed: {done.stderr.strip().splitlines()[-1:]}")
    return dict(json.loads(done.stdout))


def _options(words: Mapping[str, Any]) -> Options:
    given: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in words.items()}
    given["shapes"] = tuple(map(Shape.parse, words["shapes"]))
    return Options(**given)


@contextmanager
def progress(total: int) -> Iterator[Step]:
    """A bar on stderr where that is a terminal; the step says what begins."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    begun = 0
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=total)

        def step(what: str) -> None:
            nonlocal begun
            bar.update(task, description=what, completed=begun)
            begun += 1

        yield step


def failed(result: Mapping[str, Any]) -> Iterable[str]:
    """What in a result is wrong, rather than slow."""
    return [f"{row['shape']} {row['output']}: {row['wrong']}" for row in result["rows"] if row["wrong"]]


if __name__ == "__main__":
    print(json.dumps(measure(_options(json.loads(sys.argv[1])))))
