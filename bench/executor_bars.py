"""What the executor is held to, measured: python -m tilework.bench.executor_bars [small growth mlp dispatch] [--quick]

Everything is checked before it is timed. Ratios are of blocks in the same round (see timing.py).
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from .. import ops
from ..executors.single_thread import SingleThreadExecutor
from ..executors.tiling import TilingExecutor
from ..primitives.pipeline import Pipeline
from . import timing

Array = np.ndarray[Any, Any]
NETWORKS = {"64-128-64-10": (64, 128, 64, 10), "20 layers of 64": (64,) * 21}
SCALE, POINT = 0.02, 128
TOKENS = (1024, 16384)
WIDTH, HIDDEN = 768, 3072


def leaky(v, scale):
    r = np.float32(v) * scale
    return r if r > 0 else r * 0.125


def weights(sizes: tuple[int, ...], seed: int = 0) -> list[Array]:
    rng = np.random.default_rng(seed)
    return [rng.integers(-128, 128, (k, n), dtype=np.int8) for k, n in itertools.pairwise(sizes)]


def network(layers: list[Array]) -> Pipeline:
    """u8 layers whose every tensor has one scale: what a chain of QLinearMatMul computes."""
    pipe = Pipeline("network")
    h = pipe.input("x", "u8", ("M", layers[0].shape[0]))
    for w in layers:
        acc = ops.gemm(h, w, a_zero_point=np.uint8(POINT))
        h = ops.requantize(acc, multiplier=np.float32(SCALE), zero_point=POINT, dtype="u8")
    pipe.output("y", h)
    return pipe


def session(nodes: list[Any], constants: list[Any], width: int, out: int, threads: int) -> Any:
    """An ONNX Runtime session over nodes that read x and write y, both u8."""
    import onnxruntime
    from onnx import TensorProto, helper

    kind = TensorProto.UINT8
    x, y = (helper.make_tensor_value_info(n, kind, ["M", c]) for n, c in (("x", width), ("y", out)))
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(
        helper.make_graph(nodes, "g", [x], [y], constants), opset_imports=opsets, ir_version=10
    ).SerializeToString()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


class _Graph:
    """Nodes and constants of an ONNX graph."""

    def __init__(self) -> None:
        from onnx import TensorProto, helper

        self.helper, self.kinds = helper, TensorProto
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def scalar(self, name: str, kind: str, value: float) -> str:
        self.constants.append(self.helper.make_tensor(name, getattr(self.kinds, kind), [], [value]))
        return name

    def matrix(self, name: str, w: Array) -> str:
        self.constants.append(self.helper.make_tensor(name, self.kinds.INT8, w.shape, w.tobytes(), raw=True))
        return name

    def node(self, kind: str, reads: list[str], writes: str, **more: Any) -> str:
        self.nodes.append(self.helper.make_node(kind, reads, [writes], **more))
        return writes


def peer_network(layers: list[Array], threads: int) -> Any:
    g = _Graph()
    s, z, wz = g.scalar("s", "FLOAT", SCALE), g.scalar("z", "UINT8", POINT), g.scalar("wz", "INT8", 0)
    h = "x"
    for n, w in enumerate(layers):
        last = n == len(layers) - 1
        h = g.node("QLinearMatMul", [h, s, z, g.matrix(f"w{n}", w), s, wz, s, z], "y" if last else f"h{n}")
    return session(g.nodes, g.constants, layers[0].shape[0], layers[-1].shape[1], threads)


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


def block(tokens_width: int, hidden: int, user: bool) -> tuple[Pipeline, list[Array]]:
    """tokens x width -> hidden -> width, an activation between, the input added at the end."""
    up, down = weights((tokens_width, hidden, tokens_width))
    m = np.float32(1e-4)
    pipe = Pipeline("mlp")
    x = pipe.input("x", "u8", ("M", tokens_width))
    acc = ops.gemm(x, up, a_zero_point=np.uint8(POINT))
    if user:
        h = ops.quantize(ops.map(leaky, acc, scale=m, dtype="f32"), np.float32(SCALE), zero_point=100, dtype="u8")
        point = 100
    else:
        h, point = ops.requantize(acc, multiplier=np.float32(m / SCALE), zero_point=0, dtype="u8"), 0  # relu: from 0 on
    acc = ops.gemm(h, down, a_zero_point=np.uint8(point)) if point else ops.gemm(h, down)
    y = ops.requantize(acc, multiplier=m, zero_point=POINT, dtype="u8")
    scales = {"a_scale": np.float32(SCALE), "b_scale": np.float32(SCALE), "scale": np.float32(SCALE)}
    points = {"a_zero_point": POINT, "b_zero_point": POINT, "zero_point": POINT}
    pipe.output("y", ops.add(y, x, **scales, **points, dtype="u8"))
    return pipe, [up, down]


def peer_block(layers: list[Array], user: bool, threads: int) -> Any:
    """The same for ONNX Runtime: what it can fuse, it fuses."""
    g = _Graph()
    s, z, wz = g.scalar("s", "FLOAT", SCALE), g.scalar("z", "UINT8", POINT), g.scalar("wz", "INT8", 0)
    if user:
        g.node("MatMulInteger", ["x", g.matrix("w0", layers[0]), z], "acc")
        g.node("Cast", ["acc"], "real", to=g.kinds.FLOAT)
        g.node("Mul", ["real", g.scalar("m", "FLOAT", 1e-4)], "scaled")
        g.node("LeakyRelu", ["scaled"], "active", alpha=0.125)
        point = g.scalar("hz", "UINT8", 100)
        g.node("QuantizeLinear", ["active", s, point], "h")
    else:
        point = g.scalar("hz", "UINT8", 0)
        ws = g.scalar("ws", "FLOAT", 1e-4 / SCALE)  # s * ws / s is the multiplier of the sums
        g.node("QLinearMatMul", ["x", s, z, g.matrix("w0", layers[0]), ws, wz, s, point], "h")
    one = g.scalar("one", "FLOAT", 1e-4)
    g.node("QLinearMatMul", ["h", s, point, g.matrix("w1", layers[1]), one, wz, s, z], "down")
    g.node("QLinearAdd", ["down", s, z, "x", s, z, s, z], "y", domain="com.microsoft")
    width = layers[0].shape[0]
    return session(g.nodes, g.constants, width, width, threads)


def mlp(rounds: int) -> None:
    """An MLP block: fusion and stage tiling apart, and the memory of intermediates."""
    for user in (True, False):
        what = "a user's activation" if user else "relu"
        for tokens in TOKENS:
            data = np.random.default_rng(0).integers(0, 256, (tokens, WIDTH), dtype=np.uint8)
            for threads in (1, 2):
                pipe, layers = block(WIDTH, HIDDEN, user)
                calls: dict[str, Callable[[], Any]] = {}
                memory, results = {}, {}
                for name, fuse, chain in (
                    ("fused, chained", True, True),
                    ("fused", True, False),
                    ("chained", False, True),
                    ("neither", False, False),
                ):
                    plan = TilingExecutor(threads, fuse=fuse, chain=chain).compile(pipe)
                    results[name] = plan.run({"x": data})["y"]
                    calls[name] = plan.bind({"x": data}, {"y": np.empty_like(data)})
                    binding = plan.prepare({"x": data.shape})
                    memory[name] = binding.arena_bytes, binding.local_bytes * (threads if binding.parallel else 1)
                for y in results.values():
                    np.testing.assert_array_equal(y, results["neither"], strict=True)
                rows = slice(0, 32)
                want = SingleThreadExecutor("reference").run(pipe, {"x": data[rows]})["y"]
                np.testing.assert_array_equal(results["fused, chained"][rows], want, strict=True)
                peer = peer_block(layers, user, threads)
                worst = int(np.abs(peer.run(None, {"x": data})[0].astype(int) - results["neither"]).max())
                calls["peer"] = partial(peer.run, None, {"x": data})
                times = timing.paired(calls, max(3, rounds * 1024 // tokens // 2), pause=threads > 1)
                work = 4.0 * tokens * WIDTH * HIDDEN
                print(f"MLP block with {what}, {tokens} tokens, {threads} thread{'s' * (threads > 1)}")
                for name in calls:
                    t = times.median(name)
                    line = f"  {name:16} {t * 1e3:8.2f} ms {work / t / 1e9:7.0f} GOPS"
                    if name in memory:
                        arena, own = memory[name]
                        line += f"  arena {arena / 2**20:6.2f} MiB, threads' own {own / 2**20:5.2f} MiB"
                        line += f"  {times.ratio(name, 'peer')} x ONNX Runtime"
                    else:
                        line += f"  largest difference {worst}"
                    print(line)


def dispatch(rounds: int) -> None:
    """What a run costs outside kernels: a 12-step block of 128 tokens at width 384, and a call with nothing to do."""
    pipe = Pipeline("block")
    h = pipe.input("x", "u8", (128, 384))
    for w in weights((384,) * 7):
        acc = ops.gemm(h, w, a_zero_point=np.uint8(POINT))
        h = ops.requantize(acc, multiplier=np.float32(1e-4), zero_point=POINT, dtype="u8")
    pipe.output("y", h)
    for fuse in (True, False):
        plan = TilingExecutor(threads=1, fuse=fuse).compile(pipe)
        data = {"x": np.zeros((128, 384), np.uint8)}
        call, y = plan.bind(data), {"y": np.empty((128, 384), np.uint8)}
        empty = TilingExecutor(threads=1).compile(elementwise(12)).bind({"x": np.zeros((1, 16), np.uint8)})
        plan.run(data, out=y)
        times = timing.paired({"call": call, "run": partial(plan.run, data, out=y), "empty": empty}, rounds)
        whole, entry = times.median("call"), times.median("run") - times.median("call")
        print(
            f"12 steps of 128 x 384, {'fused' if fuse else 'unfused'}: {whole * 1e6:.1f} us; 12 kernels of 16 bytes take "
            f"{times.median('empty') * 1e9:.0f} ns, {times.median('empty') / whole:.2%} of it; plan.run adds "
            f"{entry * 1e6:.2f} us; profile: {plan.profile(data).share_outside:.2%} outside kernels"
        )


PARTS = {"small": small, "dispatch": dispatch, "growth": growth, "mlp": mlp}


def main(given: list[str] | None = None) -> int:
    """Measure the groups that the command line names, and print each bar with its figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="part", help=f"of {', '.join(PARTS)}; all by default")
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    options = parser.parse_args(given)
    for part in options.parts or PARTS:
        if part not in PARTS:
            parser.error(f"there is no part {part!r}; there is {', '.join(PARTS)}")
        PARTS[part](7 if options.quick else timing.ROUNDS)
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
