"""float32 convolutions with bias and relu against torch (oneDNN) and ONNX Runtime: `tilework bench peers conv --type f32`.

The result is compared with the reference to the bit on some rows, and the peers' with it within what another order of
addition may change.

torch      conv2d and relu in place, channels last where the table is, weights reordered ahead by oneDNN
onednn     torch.ops.mkldnn._convolution_pointwise with the relu inside and prepacked weights
ort_nchw   ONNX Runtime's Conv and Relu, which it fuses, in the layout that it has them in: channels first
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np

from ...executors.single_thread import SingleThreadExecutor
from ...executors.tiling import TilingExecutor
from ...kernels import ops
from ...kernels.cpu import isa as levels
from ...kernels.cpu.gemm import packing
from ...primitives.pipeline import Pipeline
from .. import timing
from ..machine import doctor, load, peak
from . import bind, missing, session, set_threads, versions
from .conv import TRIALS, Options, Row, Shape
from .gemm import OURS, machine, progress

Array = np.ndarray[Any, Any]
# depthwise ones of MobileNet, ones with few channels in a group, and plain ones
SHAPES = tuple(
    map(
        Shape.parse,
        (
            "1,32,112,32,3,1,1,32",
            "1,96,112,96,3,2,1,96",
            "1,144,56,144,3,1,1,144",
            "1,240,28,240,5,1,2,240",
            "1,384,14,384,3,1,1,384",
            "1,960,7,960,3,1,1,960",
            "1,128,56,128,3,1,1,32",
            "1,64,28,128,3,1,1,64",
            "1,64,56,64,3,1,1,1",
            "1,256,56,64,1,1,0,1",
            "1,128,28,128,3,1,1,1",
            "1,512,7,512,3,1,1,1",
            "1,3,224,64,7,2,3,1",
            "1,3,224,32,3,2,1,1",
        ),
    )
)
WANTED = 1.0


def measure(options: Options) -> dict[str, Any]:
    """All rows, and the bar that they are held against."""
    before, absent = doctor.load(), missing()
    rows = []
    with progress(len(options.shapes) * len(options.layouts) * len(options.threads)) as step:
        for threads in options.threads:
            for layout in options.layouts:
                for shape in options.shapes:
                    step(f"{shape} {layout} on {threads}")
                    rows.append(_time(shape, layout, threads, options, absent))
    return {
        "what": "float32 convolution with bias and relu",
        "machine": machine(options, before),  # type: ignore[arg-type]
        "peers": versions(),
        "missing": absent,
        "rows": [asdict(row) for row in rows],
        "bars": _bars(rows),
    }


def _time(shape: Shape, layout: str, threads: int, options: Options, absent: Any) -> Row:
    row = Row(str(shape), layout, threads)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((shape.N, shape.C, shape.H, shape.H)).astype(np.float32)
    w = rng.standard_normal((shape.O, shape.C // shape.g, shape.k, shape.k)).astype(np.float32)
    bias = rng.standard_normal(shape.O).astype(np.float32)
    image = x if layout == "NCHW" else x.transpose(0, 2, 3, 1)
    given = packing.aligned(image.nbytes).view(np.float32).reshape(image.shape)  # as torch has its own
    given[:] = image
    plan = TilingExecutor(threads, isa=options.isa).compile(_pipeline(shape, layout, given.shape, w, bias))
    n, o, h = shape.N, shape.O, shape.out
    y = np.full((n, o, h, h) if layout == "NCHW" else (n, h, h, o), np.nan, np.float32)
    call = plan.bind({"x": given}, out={"y": y})
    timing.settle(1.0)
    for _ in range(TRIALS):
        call()
    found = y if layout == "NCHW" else y.transpose(0, 3, 1, 2)
    row.wrong = _check(shape, x, w, bias, found)
    if row.wrong:
        return row
    peers = _peers(shape, layout, threads, x, w, bias, absent)
    most = 1e-5 * float(np.abs(found).max()) * (shape.C // shape.g * shape.k**2) ** 0.5
    for name, (peer, result) in list(peers.items()):
        peer()
        if np.abs(result() - found).max() > most:
            row.left_out.append(f"{name} differs by more than rounding")
            del peers[name]
    probe = peak.fma(levels.select(options.isa).name, threads)
    entrants = {OURS: call, **{name: peer for name, (peer, _) in peers.items()}}
    entrants |= {"peak": probe.call} if probe else {}
    load.wait_for_quiet(options.patience)
    times = timing.paired(entrants, options.rounds, pause=threads > 1)
    seconds = times.median(OURS)
    row.us, row.gops = seconds * 1e6, shape.operations / seconds / 1e9
    if probe:
        row.peak_share = float(np.median(times.rounds["peak"] / probe.work * shape.operations / times.rounds[OURS]))
    for name in peers:
        ratio = times.ratio(OURS, name)
        row.peers[name] = {
            "us": times.median(name) * 1e6, "ratio": ratio.median, "low": ratio.low, "high": ratio.high,
        }  # fmt: skip
    if peers:
        row.best = times.fastest(list(peers))
        best = row.peers[row.best]
        row.ratio, row.low, row.high = best["ratio"], best["low"], best["high"]
    return row


def _pipeline(shape: Shape, layout: str, given: tuple[int, ...], w: Array, bias: Array) -> Pipeline:
    pipe = Pipeline("conv")
    x = pipe.input("x", "f32", given)
    y = ops.conv(x, w, bias, strides=shape.s, pads=shape.p, groups=shape.g, layout=layout)
    pipe.output("y", ops.relu(y))
    return pipe


def _check(shape: Shape, x: Array, w: Array, bias: Array, found: Array) -> str:
    """What is wrong with the first rows of the result of the first image; the reference computes no more."""
    rows = min(2, shape.out)
    have = min(shape.H, (rows - 1) * shape.s + shape.k - shape.p)
    part = np.ascontiguousarray(x[:1, :, :have])
    pipe = Pipeline("rows")
    behind = max(0, (rows - 1) * shape.s + shape.k - shape.p - have)
    pads = (shape.p, shape.p, behind, shape.p)
    y = ops.conv(pipe.input("x", "f32", part.shape), w, bias, strides=shape.s, pads=pads, groups=shape.g)
    pipe.output("y", ops.relu(y))
    expected = SingleThreadExecutor("reference").run(pipe, {"x": part})["y"][:, :, :rows]
    different = int((found[:1, :, :rows] != expected).sum())
    return f"{OURS}: {different} of {expected.size} numbers differ from the reference" if different else ""


def _peers(
    shape: Shape, layout: str, threads: int, x: Array, w: Array, bias: Array, absent: Any
) -> dict[str, tuple[Callable[[], Any], Callable[[], Array]]]:
    """{peer: (call, its result)}."""
    found: dict[str, tuple[Callable[[], Any], Callable[[], Array]]] = {}
    if "onednn" not in absent:
        import torch

        set_threads(threads)
        last = torch.channels_last if layout == "NHWC" else torch.contiguous_format
        image, weights = (torch.from_numpy(m).contiguous(memory_format=last) for m in (x, w))
        b = torch.from_numpy(bias)
        pads, strides = [shape.p] * 2, [shape.s] * 2

        def call() -> Any:
            with torch.no_grad():
                return torch.relu_(torch.conv2d(image, weights, b, strides, pads, [1, 1], shape.g))

        found["torch"] = (call, lambda: call().contiguous().numpy())
        packed = torch._C._nn.mkldnn_reorder_conv2d_weight(
            torch.from_numpy(w).to_mkldnn(), pads, strides, [1, 1], shape.g, list(x.shape)
        )
        fused = partial(
            torch.ops.mkldnn._convolution_pointwise.default, image, packed, b, pads, strides, [1, 1], shape.g, "relu",
            [], "",
        )  # fmt: skip
        found["onednn"] = (fused, lambda: fused().contiguous().numpy())
    if "onnxruntime" not in absent:
        from onnx import TensorProto, helper

        y = np.zeros((shape.N, shape.O, shape.out, shape.out), np.float32)
        kind = TensorProto.FLOAT
        nodes = [
            helper.make_node(
                "Conv", ["x", "w", "b"], ["c"], kernel_shape=[shape.k] * 2, strides=[shape.s] * 2,
                pads=[shape.p] * 4, group=shape.g,
            ),
            helper.make_node("Relu", ["c"], ["y"]),
        ]  # fmt: skip
        constants = [
            helper.make_tensor("w", kind, w.shape, w.tobytes(), raw=True),
            helper.make_tensor("b", kind, bias.shape, bias.tobytes(), raw=True),
        ]
        inputs = [helper.make_tensor_value_info("x", kind, x.shape)]
        outputs = [helper.make_tensor_value_info("y", kind, y.shape)]
        run = session(helper.make_graph(nodes, "conv", inputs, outputs, constants), threads)
        found["ort_nchw"] = (bind(run, {"x": x}, {"y": y}), lambda: y)
    return found


def _bars(rows: list[Row]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for layout, threads in dict.fromkeys((row.layout, row.threads) for row in rows):
        mine = [row for row in rows if (row.layout, row.threads) == (layout, threads) and row.ratio is not None]
        if mine:
            worst = min(mine, key=lambda row: row.ratio or 0.0)
            value = float(worst.ratio or 0.0)
            found.append(
                {
                    "bar": f"least ratio, {layout}, {threads} thread{'s' * (threads > 1)}",
                    "value": value, "wanted": WANTED, "unit": "x", "least": True, "met": value >= WANTED,
                    "note": worst.shape,
                }
            )  # fmt: skip
    return found
