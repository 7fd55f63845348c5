"""What the executor is held to, measured: `tilework bench peers executor`.

Everything is checked before it is timed. Ratios are of blocks in the same round (see timing.py).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ... import ops
from ...executors.single_thread import SingleThreadExecutor
from ...executors.tiling import TilingExecutor
from ...kernels.cpu import isa
from ...primitives.errors import ArgumentError
from ...primitives.pipeline import Pipeline
from .. import demo as digits
from .. import timing
from ..machine import peak
from .networks import NETWORKS, block, network, onednn_block, peer_block, peer_network, transformer, weights

Array = np.ndarray[Any, Any]
TOKENS = (1024, 16384)
WIDTH, HIDDEN = 768, 3072


def small(rounds: int) -> None:
    """Small networks, one thread, whole Python call, against ONNX Runtime."""
    print("small networks, one thread, whole Python call: plan.run(inputs), call() of plan.bind, session.run")
    for name, sizes in NETWORKS.items():
        layers = weights(sizes)
        plan, peer = TilingExecutor(threads=1).compile(network(layers)), peer_network(layers, 1)
        for rows in (1, 32):
            x = {"x": np.random.default_rng(rows).integers(0, 256, (rows, sizes[0]), dtype=np.uint8)}
            want = SingleThreadExecutor("reference").run(network(layers), x)["y"]
            np.testing.assert_array_equal(plan.run(x)["y"], want, strict=True)
            differs = int((peer.run(None, x)[0] != want).sum())
            call = plan.bind(x)
            times = timing.paired(
                {"run": partial(plan.run, x), "bind": call, "peer": partial(peer.run, None, x)}, rounds
            )
            run, bound, other = (times.median(n) * 1e6 for n in ("run", "bind", "peer"))
            print(
                f"  {name:16} batch {rows:2}: run {run:6.2f} us, bound {bound:6.2f} us, ONNX Runtime {other:6.2f} us "
                f"({differs} of its {want.size} codes differ): {times.ratio('run', 'peer')} x as fast"
            )


def elementwise(kernels: int) -> Pipeline:
    pipe = Pipeline("elementwise")
    h = pipe.input("x", "u8", ("M", 16))
    for n in range(kernels):
        h = ops.relu(h, zero_point=np.uint8(n % 7))
    pipe.output("y", h)
    return pipe


def growth(rounds: int) -> None:
    """Plan time and run overhead by the number of kernels; time per row by the batch."""
    print("growth with the pipeline: relu after relu on 16 bytes, one thread")
    x = {"x": np.arange(16, dtype=np.uint8).reshape(1, 16)}
    TilingExecutor(threads=1).run(elementwise(2), x)
    for kernels in (10, 100, 1000):
        pipe = elementwise(kernels)
        plans = []
        for _ in range(3):
            start = time.perf_counter()
            plan = TilingExecutor(threads=1, chain=False).compile(pipe, {"x": (1, 16)})
            plans.append(time.perf_counter() - start)
        want = SingleThreadExecutor("reference").run(pipe, x)["y"]
        call = plan.bind(x)
        np.testing.assert_array_equal(call()["y"], want, strict=True)
        each = timing.paired({"call": call}, rounds).median("call") / kernels
        plan_s = min(plans)
        print(
            f"  {kernels:5} kernels: plan {plan_s * 1e3:7.1f} ms ({plan_s / kernels * 1e6:5.0f} us a kernel), "
            f"run {each * 1e9:5.1f} ns a kernel, its work included"
        )
    print("growth with the batch: 64-128-64-10, one thread, call() of plan.bind")
    layers = weights(NETWORKS["64-128-64-10"])
    plan = TilingExecutor(threads=1).compile(network(layers))
    for rows in (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536):
        data = np.random.default_rng(rows).integers(0, 256, (rows, 64), dtype=np.uint8)
        seconds = timing.paired({"call": plan.bind({"x": data})}, rounds).median("call")
        print(f"  {rows:6} rows: {seconds / rows * 1e9:8.1f} ns a row")


def mlp(rounds: int, tokens: tuple[int, ...] = TOKENS, threads: tuple[int, ...] = (1, 2)) -> None:
    """An MLP block: fusion and stage tiling apart, and the memory of intermediates."""
    for user in (True, False):
        for n in tokens:
            for t in threads:
                _mlp(user, n, t, max(3, rounds * 1024 // n // 2))


WAYS = {
    "fused, chained": {"fuse": True, "chain": True},
    "fused": {"fuse": True, "chain": False},
    "chained": {"fuse": False, "chain": True},
    "neither": {"fuse": False, "chain": False},
}


def _mlp(user: bool, tokens: int, threads: int, rounds: int) -> None:
    data = np.random.default_rng(0).integers(0, 256, (tokens, WIDTH), dtype=np.uint8)
    pipe, layers = block(WIDTH, HIDDEN, user)
    calls: dict[str, Callable[[], Any]] = {}
    memory, results = {}, {}
    for name, options in WAYS.items():
        plan = TilingExecutor(threads, **options).compile(pipe)  # type: ignore[arg-type]
        before = _resident()
        results[name] = plan.run({"x": data})["y"]
        calls[name] = plan.bind({"x": data}, {"y": np.empty_like(data)})
        calls[name]()
        binding = plan.prepare({"x": data.shape})
        own = binding.local_bytes * (threads if binding.parallel else 1)
        memory[name] = binding.arena_bytes, own, _resident() - before
    for y in results.values():
        np.testing.assert_array_equal(y, results["neither"], strict=True)
    rows = slice(0, 32)
    want = SingleThreadExecutor("reference").run(pipe, {"x": data[rows]})["y"]
    np.testing.assert_array_equal(results["fused, chained"][rows], want, strict=True)
    peers = {
        "ONNX Runtime": partial(peer_block(layers, user, threads).run, None, {"x": data}),
        "oneDNN": partial(onednn_block(layers, user, threads), data),
    }
    worst = {}
    for name, call in peers.items():
        y = call()[0] if name == "ONNX Runtime" else call()
        worst[name] = int(np.abs(y.astype(int) - results["neither"]).max())
        if worst[name] > 1:
            raise ArgumentError(f"{name} is off by {worst[name]}: it does not compute the same block")
    calls |= peers
    probe = peak.dot(isa.select().name, threads)
    if probe is not None:
        calls["peak"] = probe.call
    times = timing.paired(calls, rounds, pause=threads > 1)
    work = 4.0 * tokens * WIDTH * HIDDEN
    what = "a user's activation" if user else "relu"
    print(f"MLP block with {what}, {tokens} tokens, {threads} thread{'s' * (threads > 1)}")
    best = times.fastest(peers)
    for name in calls:
        t = times.median(name)
        if name == "peak":
            rate = probe.work / t / 1e9 if probe is not None else 0.0
            ours = work / times.median("fused, chained") / 1e9
            print(f"  probed peak {rate:.0f} GOPS; fused and chained reach {ours / rate:.1%} of it")
            continue
        line = f"  {name:16} {t * 1e3:8.2f} ms {work / t / 1e9:7.0f} GOPS"
        if name in memory:
            arena, own, resident = memory[name]
            line += f"  arena {arena / 2**20:6.2f} MiB, threads' own {own / 2**20:5.2f} MiB, process {resident / 2**20:+6.1f} MiB"
            line += f"  {times.ratio(name, best)} x {best}"
        else:
            line += f"  largest difference {worst[name]}"
        print(line)


def _resident() -> int:
    """Bytes of this process in memory; 0 where the system does not say."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def dispatch(rounds: int) -> None:
    """What a run costs outside kernels: a transformer block, and the demo's network at batch 32."""
    rng = np.random.default_rng(0)
    data = digits.Digits.load()
    cases = {
        "transformer block, 128 x 384": (transformer(), {"x": rng.normal(0, 1, (128, 384)).astype(np.float32)}),
        "demo network, batch 32": (digits.int8_network(data, True)[0], {"x": data.images[:32]}),
    }
    for name, (pipe, inputs) in cases.items():
        plan = TilingExecutor(threads=1).compile(pipe)
        out = plan.run(inputs)
        want = SingleThreadExecutor("reference").run(pipe, inputs)
        for key, y in want.items():
            np.testing.assert_array_equal(out[key], y, strict=True)
        call = plan.bind(inputs, out)
        times = timing.paired({"call": call, "run": partial(plan.run, inputs, out=out)}, rounds)
        found = plan.profile(inputs)
        print(
            f"{name}: {len(pipe.steps)} steps run as {len(found.steps)} in {times.median('call') * 1e6:.2f} us; dispatch "
            f"{found.dispatch_s * 1e9:.0f} ns, {found.dispatch_s / times.median('call'):.2%} of it; plan.run takes "
            f"{times.median('run') * 1e6:.2f} us"
        )
    x, out = {"x": np.zeros((1, 16), np.uint8)}, {"y": np.zeros((1, 16), np.uint8)}
    plan = TilingExecutor(threads=1).compile(elementwise(1))
    plan.run(x, out)
    times = timing.paired({"run": partial(plan.run, x, out), "call": plan.bind(x, out)}, rounds)
    print(
        f"Python entry: plan.run(inputs, out) of one step on 16 bytes {times.median('run') * 1e6:.2f} us, bound "
        f"{times.median('call') * 1e6:.2f} us"
    )


PARTS: dict[str, Callable[[int], None]] = {"small": small, "dispatch": dispatch, "growth": growth}


def measure(parts: list[str], rounds: int, tokens: tuple[int, ...] = TOKENS, threads: tuple[int, ...] = (1, 2)) -> None:
    """Measure the parts that are named, or all, and print each bar with its figure."""
    known = {**PARTS, "mlp": partial(mlp, tokens=tokens, threads=threads)}
    for part in parts:
        if part not in known:
            raise ArgumentError(f"there is no part {part!r}; there is {', '.join(known)}")
    for part in parts or known:
        known[part](rounds)
