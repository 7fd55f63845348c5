"""Stacks of quantized convolutions, end to end, against ONNX Runtime's graph of the same: like MobileNet, and like ResNet.

The networks are made here, from random weights. ONNX Runtime gets one graph of QLinearConv and QLinearAdd, which it
optimizes as a whole, once with channels first and once in its channels-last form. Fusion and stage tiling are shown
apart: the same pipeline without one, or without the other; and what memory its intermediates take.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...executors.plan import TilingPlan
from ...executors.tiling import TilingExecutor
from ...kernels import ops
from ...primitives.pipeline import Pipeline
from .. import timing
from ..machine import doctor
from . import A_SCALE, bind, missing, session, versions
from .conv import TRIALS
from .gemm import OURS, machine

Array = np.ndarray[Any, Any]
WANTED = 1.15  # times as fast as the better peer
SCALE = A_SCALE  # of every image; relu by saturation: zero points are 0
CLOSE = 2.0  # codes by which a peer's result may be off on average: it rounds a residual's sum elsewhere


@dataclass(frozen=True)
class Layer:
    """A convolution of O outputs, a window of k, stride s and g groups; `add` names the earlier layer that is added."""

    O: int  # noqa: E741
    k: int
    s: int = 1
    g: int = 1
    add: int | None = None


def mobilenet(channels: int = 32) -> tuple[Layer, ...]:
    """Ten layers: a first one, then three blocks that widen, go over each channel by itself, and narrow again."""
    layers = [Layer(channels, 3, 2)]
    for out, stride in ((24, 2), (24, 1), (32, 2)):
        before = len(layers) - 1
        inside, wide = layers[-1].O, 6 * layers[-1].O
        same = stride == 1 and inside == out
        layers += [Layer(wide, 1), Layer(wide, 3, stride, wide), Layer(out, 1, add=before if same else None)]
    return tuple(layers)


def resnet() -> tuple[Layer, ...]:
    """Twenty layers: a first one, and blocks of two in four sizes, whose input is added to what they give."""
    layers = [Layer(64, 7, 2), Layer(64, 3, 2)]
    for n, out in enumerate((64, 128, 256)):
        for m in range(3):
            stride = 2 if n and not m else 1
            before = len(layers) - 1
            layers += [Layer(out, 3, stride), Layer(out, 3, add=before if stride == 1 else None)]
    return tuple(layers[:20])


STACKS = {"mobilenet-like": mobilenet(), "resnet-like": resnet()}
SIZE = 224


@dataclass(frozen=True)
class Stack:
    """A network with its weights, and an image."""

    layers: tuple[Layer, ...]
    weights: tuple[Array, ...]
    biases: tuple[Array, ...]
    scales: tuple[Array, ...]
    x: Array

    @classmethod
    def make(cls, layers: tuple[Layer, ...], size: int = SIZE, seed: int = 0) -> Stack:
        rng = np.random.default_rng(seed)
        weights, biases, scales, inside = [], [], [], 3
        for layer in layers:
            depth = inside // layer.g * layer.k**2
            w = rng.integers(-127, 128, (layer.O, inside // layer.g, layer.k, layer.k), np.int8)
            weights.append(w)
            biases.append(rng.integers(-2000, 2000, layer.O).astype(np.int32))
            spread = 74.0 * 60.0 * depth**0.5
            scales.append((rng.uniform(0.8, 1.2, layer.O) * 70 / spread).astype(np.float32))
            inside = layer.O
        x = rng.integers(0, 256, (1, 3, size, size), np.uint8)
        return cls(layers, tuple(weights), tuple(biases), tuple(scales), x)

    def image(self, layout: str) -> Array:
        return self.x if layout == "NCHW" else np.ascontiguousarray(self.x.transpose(0, 2, 3, 1))

    def pipeline(self, layout: str) -> Pipeline:
        pipe = Pipeline("stack")
        values = [pipe.input("x", "u8", self.image(layout).shape)]
        channel = layout.index("C")
        for layer, w, bias, scale in zip(self.layers, self.weights, self.biases, self.scales, strict=True):
            acc = ops.conv(values[-1], w, bias, strides=layer.s, pads=layer.k // 2, groups=layer.g, layout=layout)
            y = ops.requantize(acc, scale, 0, "u8", axis=channel)
            if layer.add is not None:
                other, s = values[layer.add + 1], SCALE
                y = ops.add(
                    y, other, a_scale=s, a_zero_point=0, b_scale=s, b_zero_point=0, scale=s, zero_point=0, dtype="u8"
                )
            values.append(y)
        pipe.output("y", values[-1])
        return pipe

    @property
    def operations(self) -> int:
        """Multiplications and additions."""
        total, size = 0, self.x.shape[2]
        for layer, w in zip(self.layers, self.weights, strict=True):
            size = (size + 2 * (layer.k // 2) - layer.k) // layer.s + 1
            total += 2 * size * size * w.size
        return total


def onnxruntime(stack: Stack, layout: str, threads: int, y: Array) -> Any:
    """A call of ONNX Runtime's graph of the same network, bound ahead."""
    from onnx import TensorProto, helper

    last = layout == "NHWC"
    constants = [
        helper.make_tensor("s", TensorProto.FLOAT, [], [SCALE]),
        helper.make_tensor("z", TensorProto.UINT8, [], [0]),
    ]
    nodes, names = [], ["x"]
    for n, (layer, w, bias, scale) in enumerate(
        zip(stack.layers, stack.weights, stack.biases, stack.scales, strict=True)
    ):
        constants += [
            helper.make_tensor(f"w{n}", TensorProto.INT8, w.shape, w.tobytes(), raw=True),
            helper.make_tensor(f"ws{n}", TensorProto.FLOAT, [layer.O], scale),
            helper.make_tensor(f"wz{n}", TensorProto.INT8, [layer.O], [0] * layer.O),
            helper.make_tensor(f"b{n}", TensorProto.INT32, [layer.O], bias),
        ]
        nodes.append(
            helper.make_node(
                "QLinearConv", [names[-1], "s", "z", f"w{n}", f"ws{n}", f"wz{n}", "s", "z", f"b{n}"], [f"c{n}"],
                kernel_shape=[layer.k] * 2, strides=[layer.s] * 2, pads=[layer.k // 2] * 4, group=layer.g,
                **({"domain": "com.microsoft", "channels_last": 1} if last else {}),
            )
        )  # fmt: skip
        names.append(f"c{n}")
        if layer.add is not None:
            operands = [f"c{n}", "s", "z", names[layer.add + 1], "s", "z", "s", "z"]
            nodes.append(helper.make_node("QLinearAdd", operands, [f"a{n}"], domain="com.microsoft"))
            names[-1] = f"a{n}"
    nodes[-1].output[0] = "y"
    x = stack.image(layout)
    inputs = [helper.make_tensor_value_info("x", TensorProto.UINT8, x.shape)]
    outputs = [helper.make_tensor_value_info("y", TensorProto.UINT8, y.shape)]
    run = session(helper.make_graph(nodes, "stack", inputs, outputs, constants), threads)
    return bind(run, {"x": x}, {"y": y})


WAYS: dict[str, dict[str, Any]] = {
    "whole": {},
    "no stages": {"chain": False},
    "no fusion": {"fuse": False, "chain": False},
}


def measure(threads: tuple[int, ...], layouts: tuple[str, ...], rounds: int) -> dict[str, Any]:
    """A row for each network, layout and number of threads."""
    before = doctor.load()
    rows = [_row(name, layout, n, rounds) for n in threads for layout in layouts for name in STACKS]
    bars = [
        {
            "bar": f"{row['stack']}, {row['layout']}, {row['threads']} thread{'s' * (row['threads'] > 1)}",
            "value": row["ratio"], "wanted": WANTED, "unit": "x", "least": True, "met": row["ratio"] >= WANTED,
            "note": f"against {row['best']}",
        }
        for row in rows
        if row["ratio"] is not None
    ]  # fmt: skip
    return {
        "machine": machine(_Options(rounds), before),  # type: ignore[arg-type]
        "peers": versions(),
        "missing": missing(),
        "rows": rows,
        "bars": bars,
    }


@dataclass(frozen=True)
class _Options:
    rounds: int
    isa: str | None = None


def _row(name: str, layout: str, threads: int, rounds: int) -> dict[str, Any]:
    stack = Stack.make(STACKS[name])
    pipe, x = stack.pipeline(layout), stack.image(layout)
    plans = {way: TilingExecutor(threads, **options).compile(pipe, {"x": x.shape}) for way, options in WAYS.items()}
    results = {way: plan.run({"x": x})["y"] for way, plan in plans.items()}
    wrong = [way for way, y in results.items() if not np.array_equal(y, results["no fusion"])]
    calls: dict[str, timing.Call] = {}
    timing.settle(1.0)
    for way, plan in plans.items():
        calls[OURS if way == "whole" else way] = plan.bind({"x": x}, out={"y": results[way]})
    for call in calls.values():
        for _ in range(TRIALS):
            call()
    off = {}
    if "onnxruntime" not in missing():
        for other in dict.fromkeys((layout, "NCHW")):
            final = results["whole"] if other == layout else results["whole"].transpose(0, 3, 1, 2)
            y = np.zeros(final.shape, np.uint8)
            key = f"ort_{other.lower()}"
            calls[key] = onnxruntime(stack, other, threads, y)
            calls[key]()
            off[key] = float(np.abs(y.astype(int) - final).mean())
    times = timing.paired(calls, rounds, pause=threads > 1)
    mine = times.median(OURS)
    peers = [key for key, mean in off.items() if mean <= CLOSE]
    best = times.fastest(peers) if peers else ""
    return {
        "stack": name,
        "layout": layout,
        "threads": threads,
        "layers": len(stack.layers),
        "us": mine * 1e6,
        "gops": stack.operations / mine / 1e9,
        "ways": {way: {"us": times.median(OURS if way == "whole" else way) * 1e6, **_memory(plan, threads)}
                 for way, plan in plans.items()},
        "peers": {key: {"us": times.median(key) * 1e6, "off": mean} for key, mean in off.items()},
        "best": best,
        "ratio": times.ratio(OURS, best).median if best else None,
        "wrong": wrong,
    }  # fmt: skip


def _memory(plan: TilingPlan, threads: int) -> dict[str, int]:
    """Bytes of memory that hold intermediates, and of those the largest that exists in full; and the stages."""
    binding = next(iter(plan._bindings.values())).binding
    return {
        "arena": binding.arena_bytes,
        "scratch": threads * binding.local_bytes,
        "stages": len(binding.chains),
        "chained": sum(len(chain.steps) for chain in binding.chains),
    }


def show(result: Mapping[str, Any]) -> None:
    """Print a result of `measure` for people."""
    from rich import box
    from rich.table import Table

    from ..terminal import wide_console
    from .report import _bars, machine_line

    out = wide_console()
    out.print(machine_line(result["machine"]))
    table = Table(title="stacks of convolutions, end to end", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for column in ("stack", "layout", "threads", "", "us", "arena, KB", "scratch, KB", "in stages", "ratio"):
        table.add_column(column, justify="right" if column not in ("stack", "layout", "") else "left", no_wrap=True)
    for row in result["rows"]:
        head = [f"{row['stack']} ({row['layers']})", row["layout"], str(row["threads"])]
        for way, found in row["ways"].items():
            numbers = [f"{found['us']:.0f}", f"{found['arena'] / 1024:.0f}", f"{found['scratch'] / 1024:.0f}"]
            stages = f"{found['chained']} steps in {found['stages']}" if found["stages"] else ""
            name = "wrong: " + way if way in row["wrong"] else way
            table.add_row(*head, name, *numbers, stages, f"{row['us'] / found['us']:.2f}")
            head = ["", "", ""]
        for peer, found in row["peers"].items():
            ratio = f"{found['us'] / row['us']:.2f}" + (" best" if peer == row["best"] else "")
            table.add_row(*head, f"{peer}, off by {found['off']:.2f}", f"{found['us']:.0f}", "", "", "", ratio)
    out.print(table)
    out.print("ratio: of tilework's speed as a whole; of a peer, how many times as long it takes.")
    out.print(_bars(result["bars"]))
