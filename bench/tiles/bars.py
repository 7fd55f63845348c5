"""What sweeps are held to, measured: python -m tilework.bench.tiles.bars [speed model steady gain compare] [--seconds N]

Each part goes on where it stopped: what it has found so far is kept in a file (--state), so that a long part can be
measured in pieces, on a machine that is left alone meanwhile. --warm compiles everything beforehand and measures nothing.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ...kernels import tuning
from . import final, problem, search
from .compare import BETTER, WORSE, compare
from .plans import Device, Ready
from .result import Result, Sweep
from .space import Space, Tile, show
from .sweep import Options, Sweeper, find

KERNEL = "gemm_u8s8s32"
SPEED_SHAPE, SPEED_TILES = "256x768x3072", "mr=4,6,8 nr=16,32 mc=24,48,96,192 kc=256,512,768"  # 72 tiles
TILES = {"mr": (2, 4, 6, 8, 12, 16), "nr": (16, 32, 64), "mc": (24, 96, 384)}
FIXED = {"mr": 6, "nr": 64}  # the GEMM's default register tile, whatever the shape
SHAPES_MODEL, PAIRS, TRIES = 50, 40, 20
STEADY_SHAPES = ("64x256x256", "197x384x384", "16x768x768", "128x512x1024")
STEADY_TILES = {"mr": (4, 6, 8), "nr": (16, 32, 64), "mc": (24, 96)}
GAIN_SHAPES = (
    "1024x1024x1024", "512x512x512", "256x768x3072", "128x3072x768", "32x4096x4096", "197x384x384", "197x384x1536",
    "50x768x768", "127x511x513", "3136x64x64", "784x1152x128", "49x4608x512", "64x64x64", "100x27x32", "10000x16x16",
    "8x8x8", "4x1024x1024", "16x64x256", "1x768x3072", "8x4096x4096",
)  # fmt: skip
LONG_ROUNDS = 40


class State:
    """What was found so far, in a file."""

    def __init__(self, path: str, part: str, seconds: float) -> None:
        self.path, self.part = Path(path), part
        self.end = time.perf_counter() + seconds
        self.found: dict[str, Any] = json.loads(self.path.read_text()) if self.path.exists() else {}
        self.mine = self.found.setdefault(part, {})

    def todo(self, names: Sequence[str]) -> Iterator[str]:
        """Those that are still to be measured, while there is time."""
        for name in names:
            if name in self.mine:
                continue
            if time.perf_counter() > self.end:
                return
            yield name

    def keep(self, name: str, facts: Any) -> None:
        self.mine[name] = facts
        self.path.write_text(json.dumps(self.found, indent=1))


def sweep(
    shape: str, device: Device, tiles: Mapping[str, Sequence[int]], how: str, seed: int = 0, budget: float = 60.0
) -> Sweep:
    """One sweep whose times are its own. Nothing cold is timed."""
    made = problem.make(KERNEL, shape, seed)
    options = Options(tiles=tiles, search=how, resume=False, cold="hot", budget=budget, seed=seed)
    return Sweeper(made, made.step, device, options).run()


def long_run(shape: str, tiles: Sequence[Tile], rounds: int = LONG_ROUNDS) -> dict[str, float]:
    """{tile: its time / the fastest's}, medians over many interleaved rounds with the data of a new problem."""
    made, device = problem.make(KERNEL, shape), Device(1)
    calls = {show(t): device.make(made, made.step, t).call for t in tiles}
    times = final.rounds(calls, device.timer, rounds)
    medians = {name: float(np.median(found)) for name, found in times.items()}
    best = min(medians.values())
    return {name: t / best for name, t in medians.items()}


def bar(name: str, value: float, wanted: str, met: bool) -> None:
    print(f"{'met   ' if met else 'MISSED'}  {name}: {value:.4g} (wanted {wanted})")


# 1 -------------------------------------------------------------------------------------------------------------------


def speed(state: State) -> None:
    """A sweep of 72 tiles with nothing compiled, and the same with half of it done."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "TILEWORK_CACHE_DIR": folder}
        out = str(Path(folder) / "r.json")
        command = [sys.executable, "-m", "tilework", "bench", "sweep", SPEED_SHAPE, "--search", "full", "--json", out]
        command += ["--tiles", SPEED_TILES]

        def run() -> tuple[float, Sweep]:
            start = time.perf_counter()
            subprocess.run(command, env=environment, check=True, capture_output=True)
            return time.perf_counter() - start, Result.load(out).sweeps[0]

        subprocess.run(
            [sys.executable, "-m", "tilework", "bench", "peak"], env=environment, check=True, capture_output=True
        )
        cold, first = run()
        store = next((Path(folder) / "tune").glob("*.jsonl"))
        lines = store.read_text().splitlines(keepends=True)
        store.write_text("".join(lines[: len(lines) // 2]))
        resumed, second = run()
        third = run()[1]
    facts = {
        "tiles": len(first.points), "timed": len(first.timed), "seconds": cold, "sweep_s": first.wall_s, "groups": first.groups,
        "compiled": first.compiled, "compile_s": first.compile_s, "resumed_s": resumed, "resumed": second.resumed,
        "compiled_again": second.compiled + third.compiled,
    }  # fmt: skip
    state.keep("run", facts)


def speed_bars(found: Mapping[str, Any]) -> None:
    """Say how long the sweep took whole, and resumed with half of it done."""
    for f in found.values():
        print(f"  {f}")
        bar("72 tiles, nothing compiled before, whole command, s", f["seconds"], "< 12", f["seconds"] < 12)
        bar("the same with half done, s", f["resumed_s"], "< 4", f["resumed_s"] < 4)
        bar("compiled a second time", f["compiled_again"], "0", f["compiled_again"] == 0)


# 2 -------------------------------------------------------------------------------------------------------------------


def model_shapes() -> list[str]:
    """Random sizes, each between its limits on a logarithmic scale; not more than 2 * 10**9 operations."""
    rng = np.random.default_rng(14)
    found: list[str] = []
    while len(found) < SHAPES_MODEL:
        M, K, N = (round(np.exp(rng.uniform(np.log(lo), np.log(hi)))) for lo, hi in ((1, 1024), (32, 4096), (16, 4096)))
        if 2 * M * K * N <= 2e9:
            found.append(f"{M}x{K}x{N}")
    return found


def model(state: State) -> None:
    """Full sweeps of random shapes: how far the best of the model's first choices is from the best of all."""
    for shape in state.todo(model_shapes()):
        K = int(shape.split("x")[1])
        found = sweep(shape, Device(1), {**TILES, "mc": (24, 192), "kc": tuple(sorted({min(512, K), K}))}, "full")
        own = next(p.p5_us for p in found.points if not p.tile)
        best = found.timed[0].p5_us or 1.0
        state.keep(shape, {**found.model, "own_regret": (own or best) / best - 1, "best": show(found.timed[0].tile)})


def model_bars(found: Mapping[str, Any]) -> None:
    """Say how far the model-guided choice is from the best of the full sweep."""
    kept = [f["kept_regret"] for f in found.values() if f.get("points")]
    first = [f["first_regret"] for f in found.values() if f.get("points")]
    own = [f["own_regret"] for f in found.values()]
    print(f"  {len(kept)} shapes; the model's first choice alone: median {np.median(first):.2%}, worst {max(first):.1%}; "
          f"the own choice: median {np.median(own):.2%}, worst {max(own):.1%}")  # fmt: skip
    bar(f"median regret of model-guided search (it measures {search.KEPT} tiles), %", 100 * float(np.median(kept)), "<= 3",
        float(np.median(kept)) <= 0.03)  # fmt: skip
    bar("worst, %", 100 * max(kept), "<= 12", max(kept) <= 0.12)


# 3 -------------------------------------------------------------------------------------------------------------------


def _burn(core: int, ready: Any) -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})
    data = np.ones(1 << 22)
    ready.set()
    while True:
        np.sin(data[: 1 << 14])
        np.add(data, 1, out=data)


@contextmanager
def load_on_the_other_core(on: bool) -> Iterator[None]:
    """A process that computes and reads memory on another core than ours."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
    if not on or len(cores) < 2:
        yield
        return
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    process = context.Process(target=_burn, args=(cores[-1], ready), daemon=True)
    process.start()
    os.sched_setaffinity(0, set(cores[:-1]))
    try:
        ready.wait(30)
        yield
    finally:
        os.sched_setaffinity(0, set(cores))
        process.kill()
        process.join()


def steady(state: State) -> None:
    """Pairs of the same sweep, the second half of them under load; then how the chosen tiles do in the long run."""
    names = [
        f"{STEADY_SHAPES[n % len(STEADY_SHAPES)]} pair {n} {'loaded' if n >= PAIRS // 2 else 'quiet'}"
        for n in range(PAIRS)
    ]
    for loaded in (False, True):
        mine = list(n for n in names if n.endswith("loaded") == loaded and n not in state.mine)
        if not mine or time.perf_counter() > state.end:
            continue
        with load_on_the_other_core(loaded):
            for name in state.todo(mine):
                chosen = [sweep(name.split()[0], Device(1), STEADY_TILES, "race").best for _ in range(2)]
                state.keep(name, {"chosen": chosen})
    truths = [f"truth {shape}" for shape in STEADY_SHAPES]
    if all(n in state.mine for n in names):
        for name in state.todo(truths):
            shape = name.split()[1]
            made, device = problem.make(KERNEL, shape), Device(1)
            step = find(device.plan(made), made.step)
            state.keep(name, long_run(shape, [c.tile for c in Space.make(step, None, STEADY_TILES).candidates]))


def steady_bars(found: Mapping[str, Any]) -> None:
    """Say how often two sweeps, one of them beside a load, choose tiles that are as good."""
    pairs = {n: f for n, f in found.items() if not n.startswith("truth")}
    regrets, same = [], 0
    for name, f in pairs.items():
        truth = found.get(f"truth {name.split()[0]}")
        if truth is not None:
            regrets += [truth[show(tile)] - 1 for tile in f["chosen"]]
            same += f["chosen"][0] == f["chosen"][1]
    if regrets:
        good = float(np.mean(np.array(regrets) <= 0.03))
        print(
            f"  {len(regrets)} choices of {len(pairs)} pairs; {same} pairs chose the same tile; worst {max(regrets):.1%}"
        )
        bar("choices with a long-run regret of at most 3 %, %", 100 * good, ">= 95", good >= 0.95)


# 4 -------------------------------------------------------------------------------------------------------------------


def gain(state: State) -> None:
    """The tuned tile against one fixed register tile, in the long run."""
    for shape in state.todo(GAIN_SHAPES):
        K = int(shape.split("x")[1])
        tuned = sweep(shape, Device(1), {**TILES, "kc": tuple(sorted({min(512, K), K}))}, "race", budget=20.0).best
        found = long_run(shape, [FIXED, tuned, {}] if tuned not in ({}, FIXED) else [FIXED, {}])
        state.keep(shape, {"tuned": show(tuned), "gain": found[show(FIXED)] / found[show(tuned)],
                           "own": found[show(FIXED)] / found[show({})]})  # fmt: skip


def gain_bars(found: Mapping[str, Any]) -> None:
    """Say how much faster the tuned tile is than the fixed one, shape by shape."""
    for shape, f in found.items():
        print(f"  {shape:16} {f['gain']:.3f}x  {f['tuned']}  (own choice {f['own']:.3f}x)")
    gains = np.array([f["gain"] for f in found.values()])
    mean = float(np.exp(np.log(gains).mean()))
    bar(f"tuned against the fixed tile, geometric mean of {len(gains)} shapes", mean, ">= 1.03", mean >= 1.03)
    bar("worst", float(gains.min()), ">= 0.98", float(gains.min()) >= 0.98)


# 5 -------------------------------------------------------------------------------------------------------------------


class Slowed(Device):
    """A device on which every call takes so much longer."""

    def __init__(self, factor: float) -> None:
        super().__init__(1)
        self.factor = factor

    def make(self, problem: Any, step: str = "", tile: Mapping[str, int] | None = None) -> Ready:
        ready = super().make(problem, step, tile)
        inner, factor, clock = ready.call, self.factor, time.perf_counter

        def call() -> None:
            start = clock()
            inner()
            end = start + factor * (clock() - start)
            while clock() < end:
                pass

        return Ready(call, ready.outputs, ready.plan)


def comparing(state: State) -> None:
    """Results of the same code, and of code that is 5 % slower."""

    def measure(device: Device, seed: int) -> Result:
        return Result({}, [sweep("64x256x256", device, STEADY_TILES, "full", seed)])

    for name in state.todo([f"try {n}" for n in range(TRIES)]):
        old, same, slow = measure(Slowed(1.0), 0), measure(Slowed(1.0), 0), measure(Slowed(1.05), 0)
        verdicts = [compare(old, new).changes[0] for new in (same, slow)]
        state.keep(
            name, {"same": verdicts[0].verdict, "slow": verdicts[1].verdict, "ratios": [v.ratio for v in verdicts]}
        )


def comparing_bars(found: Mapping[str, Any]) -> None:
    caught = sum(f["slow"] == WORSE for f in found.values())
    alarms = sum(f["same"] in (WORSE, BETTER) for f in found.values())
    ratios = [f["ratios"][1] for f in found.values()]
    print(f"  {len(found)} tries; the planted 5 % were measured as {min(ratios) - 1:.1%} to {max(ratios) - 1:.1%}")
    bar("planted slow-downs of 5 % found, %", 100 * caught / len(found), ">= 95", caught >= 0.95 * len(found))
    bar("false alarms in as many comparisons of the same code", alarms, "<= 1", alarms <= 1)


PARTS: dict[str, tuple[Callable[[State], None], Callable[[Mapping[str, Any]], None]]] = {
    "speed": (speed, speed_bars),
    "model": (model, model_bars),
    "steady": (steady, steady_bars),
    "gain": (gain, gain_bars),
    "compare": (comparing, comparing_bars),
}


def warm() -> None:
    """Compile what the parts need: one plan for each group of each shape."""
    work = [(shape, {**TILES, "mc": (24, 192)}, True) for shape in model_shapes()]
    work += [(shape, TILES, True) for shape in GAIN_SHAPES] + [(shape, STEADY_TILES, False) for shape in STEADY_SHAPES]
    for shape, tiles, deep in work:
        K = int(shape.split("x")[1])
        given = {**tiles, "kc": tuple(sorted({min(512, K), K}))} if deep else tiles
        made, device = problem.make(KERNEL, shape), Device(1)
        step = find(device.plan(made), made.step)
        seen = set()
        for c in Space.make(step, None, given).candidates:
            group = tuple(sorted(c.group.items()))
            if group not in seen:
                seen.add(group)
                device.make(made, made.step, c.tile).call()
        print(shape, len(seen), flush=True)


def main(given: list[str] | None = None) -> int:
    """Measure the parts that the command line names, as far as the time goes, and print each bar with its figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="part", help=f"of {', '.join(PARTS)}; all by default")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin nothing new after so many")
    parser.add_argument("--state", default=str(tuning.path("bars").with_suffix(".json")), help="where it is kept")
    parser.add_argument("--warm", action="store_true", help="compile everything, and measure nothing")
    options = parser.parse_args(given)
    if options.warm:
        warm()
        return 0
    Path(options.state).parent.mkdir(parents=True, exist_ok=True)
    for part in options.parts or PARTS:
        if part not in PARTS:
            parser.error(f"there is no part {part!r}; there is {', '.join(PARTS)}")
        state = State(options.state, part, options.seconds)
        measure, judge = PARTS[part]
        measure(state)
        print(f"{part}: {measure.__doc__}")
        if state.mine:
            judge(state.mine)
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
