"""Quantized convolutions against oneDNN (through torch) and ONNX Runtime: checked first, then timed in the same rounds.

Each convolution ends in u8 codes, one multiplier for each output, with bias and relu. The zero point of the result is 0,
so that saturation is the relu, and everybody computes the same codes.

onednn        torch.ops.onednn.qconv2d_pointwise, weights prepacked, bias and relu inside; torch allocates the result.
              A call through torch.ops costs 16 to 20 us of dispatch
ort_nchw      ONNX Runtime's QLinearConv with a bias, weights as initializers, inputs and outputs bound ahead
ort_nhwc      the same in its channels-last form (com.microsoft), its fastest
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import numpy as np

from ...executors.tiling import TilingExecutor
from ...kernels import ops
from ...primitives.errors import ArgumentError
from ...primitives.pipeline import Pipeline
from .. import timing
from ..machine import doctor, load, peak
from . import A_SCALE, Y_SCALE, Peer, bind, missing, session, set_threads, versions
from .gemm import OURS, machine, progress

Array = np.ndarray[Any, Any]
X_ZERO_POINT = 121
TRIALS = (
    16  # runs before the peers are made, in which a plan finds out whether threads pay: later, pools of theirs spin
)


@dataclass(frozen=True)
class Shape:
    """N images of C channels, H by H; O outputs, a window of k by k, stride s, padding p, g groups."""

    N: int
    C: int
    H: int
    O: int  # noqa: E741
    k: int
    s: int
    p: int
    g: int

    def __str__(self) -> str:
        return ",".join(str(n) for n in asdict(self).values())

    @classmethod
    def parse(cls, text: str) -> Shape:
        """From "N,C,H,O,k,s,p,g"."""
        parts = text.split(",")
        if len(parts) != 8 or not all(p.isdigit() for p in parts):
            raise ArgumentError(f"shape {text!r}: N,C,H,O,k,s,p,g is needed, eight integers, like 1,64,56,64,3,1,1,1")
        return cls(*map(int, parts))

    @property
    def out(self) -> int:
        """Rows, and columns, of the result."""
        return (self.H + 2 * self.p - self.k) // self.s + 1

    @property
    def operations(self) -> int:
        """Multiplications and additions."""
        return 2 * self.N * self.O * self.out**2 * (self.C // self.g) * self.k**2


SHAPES = tuple(
    map(
        Shape.parse,
        (
            "1,64,56,64,3,1,1,1",
            "1,256,56,64,1,1,0,1",
            "1,128,28,128,3,1,1,1",
            "1,512,7,512,3,1,1,1",
            "1,3,224,64,7,2,3,1",
            "1,3,224,32,3,2,1,1",
            "1,144,56,144,3,1,1,144",
            "1,960,7,960,3,1,1,960",
            "1,96,112,96,3,2,1,96",
            "8,64,56,64,3,1,1,1",
            "1,32,20,255,1,1,0,1",
            "1,40,100,40,5,1,2,8",
        ),
    )
)
# layout: (least ratio of each shape, geometric mean of all)
BARS = {"NHWC": (1.0, 1.4), "NCHW": (0.95, 1.2)}


@dataclass(frozen=True)
class Case:
    """Operands of one convolution: x u8 (N, C, H, H), w s8 (O, C / g, k, k), bias s32 (O,), multiplier f32 (O,)."""

    shape: Shape
    x: Array
    w: Array
    bias: Array
    multiplier: Array

    @classmethod
    def make(cls, shape: Shape, seed: int = 0) -> Case:
        rng = np.random.default_rng(seed)
        depth = shape.C // shape.g * shape.k**2
        x = rng.integers(0, 256, (shape.N, shape.C, shape.H, shape.H), np.uint8)
        w = rng.integers(-127, 128, (shape.O, shape.C // shape.g, shape.k, shape.k), np.int8)
        spread = 74 * 74 * depth**0.5  # standard deviation of a sum
        bias = rng.integers(-int(spread), int(spread) + 1, shape.O).astype(np.int32)
        multiplier = (rng.uniform(0.5, 1.5, shape.O) * 90 / spread).astype(np.float32)
        return cls(shape, x, w, bias, multiplier)

    @property
    def weight_scales(self) -> Array:
        """What the peers take as scales of the weights."""
        return (self.multiplier.astype(np.float64) * Y_SCALE / A_SCALE).astype(np.float32)

    def image(self, layout: str) -> Array:
        return self.x if layout == "NCHW" else np.ascontiguousarray(self.x.transpose(0, 2, 3, 1))

    def result(self, layout: str) -> Array:
        """Memory for the result."""
        n, o, h = self.shape.N, self.shape.O, self.shape.out
        return np.zeros((n, o, h, h) if layout == "NCHW" else (n, h, h, o), np.uint8)

    def reference(self) -> Array:
        """The codes, (N, O, h, h): sums from float64, each tap a matrix product; then float32, halves to even."""
        s, h = self.shape, self.shape.out
        padded = np.full((s.N, s.C, s.H + 2 * s.p, s.H + 2 * s.p), float(X_ZERO_POINT))
        padded[:, :, s.p : s.p + s.H, s.p : s.p + s.H] = self.x
        padded -= X_ZERO_POINT
        each, inside = s.O // s.g, s.C // s.g
        sums = np.zeros((s.N, s.g, each, h * h))
        for a in range(s.k):
            for b in range(s.k):
                part = padded[:, :, a : a + (h - 1) * s.s + 1 : s.s, b : b + (h - 1) * s.s + 1 : s.s]
                part = part.reshape(s.N, s.g, inside, h * h)
                sums += self.w[:, :, a, b].reshape(s.g, each, inside).astype(np.float64) @ part
        sums = sums.reshape(s.N, s.O, h, h) + self.bias[:, None, None]
        scaled = sums.astype(np.int32).astype(np.float32) * self.multiplier[:, None, None]
        return np.clip(np.rint(scaled), 0, 255).astype(np.uint8)

    def pipeline(self, layout: str) -> Pipeline:
        s = self.shape
        pipe = Pipeline("conv")
        x = pipe.input("x", "u8", self.image(layout).shape)
        acc = ops.conv(
            x, self.w, self.bias, strides=s.s, pads=s.p, groups=s.g, a_zero_point=X_ZERO_POINT, layout=layout
        )
        y = ops.requantize(acc, self.multiplier, 0, "u8", axis=layout.index("C"))
        pipe.output("y", ops.relu(y, 0))
        return pipe


def contenders(case: Case, layout: str, threads: int, only: tuple[str, ...] = ()) -> list[Peer]:
    """The peers that are there, each on `threads` threads. Channels first are given only to those that take them so."""
    lacking = missing()
    wanted = {"onednn": "onednn", "ort_nchw": "onnxruntime"} | ({"ort_nhwc": "onnxruntime"} if layout == "NHWC" else {})
    makers = {"onednn": _onednn, "ort_nchw": _ort_nchw, "ort_nhwc": _ort_nhwc}
    names = [n for n, needs in wanted.items() if needs not in lacking and (not only or n in only)]
    return [makers[name](case, layout, threads) for name in names]


def _onednn(case: Case, layout: str, threads: int) -> Peer:
    import torch

    set_threads(threads)
    s, scales = case.shape, torch.from_numpy(case.weight_scales)
    window = [s.s, s.s], [s.p, s.p], [1, 1], s.g
    packed = torch.ops.onednn.qconv_prepack(
        torch.from_numpy(case.w), scales, A_SCALE, X_ZERO_POINT, *window, list(case.x.shape)
    )
    x = torch.from_numpy(case.x)
    x = x.contiguous(memory_format=torch.channels_last) if layout == "NHWC" else x
    bias = torch.from_numpy((case.bias * (A_SCALE * case.weight_scales.astype(np.float64))).astype(np.float32))
    zeros = torch.zeros(s.O, dtype=torch.int32)
    call = partial(
        torch.ops.onednn.qconv2d_pointwise.default, x, A_SCALE, X_ZERO_POINT, packed, scales, zeros, bias, *window,
        Y_SCALE, 0, torch.uint8, "relu", [], "",
    )  # fmt: skip
    return Peer("onednn", call, lambda: call().contiguous().numpy(), case.reference(), exact=False)


def _ort_nchw(case: Case, layout: str, threads: int) -> Peer:
    return _ort(case, "NCHW", threads)


def _ort_nhwc(case: Case, layout: str, threads: int) -> Peer:
    return _ort(case, "NHWC", threads)


def _ort(case: Case, layout: str, threads: int) -> Peer:
    from onnx import TensorProto, helper

    s, x, y = case.shape, case.image(layout), case.result(layout)
    last = layout == "NHWC"

    def scalar(name: str, kind: int, value: float) -> Any:
        return helper.make_tensor(name, kind, [], [value])

    node = helper.make_node(
        "QLinearConv", ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"], ["y"],
        kernel_shape=[s.k, s.k], strides=[s.s, s.s], pads=[s.p] * 4, group=s.g,
        **({"domain": "com.microsoft", "channels_last": 1} if last else {}),
    )  # fmt: skip
    constants = [
        helper.make_tensor("w", TensorProto.INT8, case.w.shape, case.w.tobytes(), raw=True),
        scalar("xs", TensorProto.FLOAT, A_SCALE),
        scalar("xz", TensorProto.UINT8, X_ZERO_POINT),
        helper.make_tensor("ws", TensorProto.FLOAT, [s.O], case.weight_scales),
        helper.make_tensor("wz", TensorProto.INT8, [s.O], [0] * s.O),
        scalar("ys", TensorProto.FLOAT, Y_SCALE),
        scalar("yz", TensorProto.UINT8, 0),
        helper.make_tensor("b", TensorProto.INT32, [s.O], case.bias),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.UINT8, x.shape)]
    outputs = [helper.make_tensor_value_info("y", TensorProto.UINT8, y.shape)]
    run = session(helper.make_graph([node], "conv", inputs, outputs, constants), threads)
    result = (lambda: y.transpose(0, 3, 1, 2)) if last else (lambda: y)
    return Peer(f"ort_{layout.lower()}", bind(run, {"x": x}, {"y": y}), result, case.reference(), exact=False)


# Measuring -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Options:
    """What to measure."""

    threads: tuple[int, ...] = (1,)
    layouts: tuple[str, ...] = ("NHWC", "NCHW")
    shapes: tuple[Shape, ...] = SHAPES
    rounds: int = timing.ROUNDS
    isa: str | None = None
    only: tuple[str, ...] = ()
    patience: float = 0.0


@dataclass
class Row:
    """One convolution in one layout, and what it was held against."""

    shape: str
    layout: str
    threads: int
    us: float = 0.0
    gops: float = 0.0
    peak_share: float | None = None
    peers: dict[str, dict[str, float]] = field(default_factory=dict)
    best: str = ""
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    others: float | None = None
    wrong: str = ""
    left_out: list[str] = field(default_factory=list)


def measure(options: Options) -> dict[str, Any]:
    """All rows, and the bars that they are held against."""
    for name in options.layouts:
        if name not in BARS:
            raise ArgumentError(f"layout {name!r}; {', '.join(BARS)} work")
    before = doctor.load()
    absent = missing()
    rows = []
    with progress(len(options.shapes) * len(options.layouts) * len(options.threads)) as step:
        for threads in options.threads:
            for layout in options.layouts:
                for shape in options.shapes:
                    step(f"{shape} {layout} on {threads}")
                    rows.append(time_conv(shape, layout, threads, options))
    return {
        "what": "convolution to u8",
        "machine": machine(options, before),  # type: ignore[arg-type]
        "peers": versions(),
        "missing": absent,
        "rows": [asdict(row) for row in rows],
        "bars": bars(rows),
    }


def time_conv(shape: Shape, layout: str, threads: int, options: Options) -> Row:
    """Check, then time."""
    row = Row(str(shape), layout, threads)
    case = Case.make(shape)
    plan = TilingExecutor(threads, isa=options.isa).compile(case.pipeline(layout))
    x, y = case.image(layout), case.result(layout)
    call = plan.bind({"x": x}, out={"y": y})
    timing.settle(1.0)
    for _ in range(TRIALS):
        call()
    expected = case.reference()
    found = y if layout == "NCHW" else y.transpose(0, 3, 1, 2)
    different = int((found != expected).sum())
    if different:
        row.wrong = f"{OURS}: {different} of {expected.size} codes differ from the reference"
        return row
    others = contenders(case, layout, threads, options.only)
    row.left_out = [text for peer in others if (text := peer.check())]
    others = [peer for peer in others if not any(text.startswith(peer.name) for text in row.left_out)]
    probe = peak.dot(options.isa or _best(), threads)
    entrants: dict[str, timing.Call] = {
        OURS: call,
        **{peer.name: peer.call for peer in others},
        **({"peak": probe.call} if probe else {}),
    }
    load.wait_for_quiet(options.patience)
    begun = load.Moment.now()
    times = timing.paired(entrants, options.rounds, pause=threads > 1)
    row.others = begun.others_since() if begun else None
    seconds = times.median(OURS)
    row.us, row.gops = seconds * 1e6, shape.operations / seconds / 1e9
    if probe:
        share = times.rounds["peak"] / probe.work * shape.operations / times.rounds[OURS]
        row.peak_share = float(np.median(share))
    for peer in others:
        ratio = times.ratio(OURS, peer.name)
        row.peers[peer.name] = {
            "us": times.median(peer.name) * 1e6, "ratio": ratio.median, "low": ratio.low, "high": ratio.high,
        }  # fmt: skip
    if others:
        row.best = times.fastest([peer.name for peer in others])
        best = row.peers[row.best]
        row.ratio, row.low, row.high = best["ratio"], best["low"], best["high"]
    return row


def _best() -> str:
    from ...kernels.cpu import isa

    return isa.select().name


def bars(rows: list[Row]) -> list[dict[str, Any]]:
    """The least ratio and the geometric mean, for each layout and number of threads."""
    found: list[dict[str, Any]] = []
    for layout, threads in dict.fromkeys((row.layout, row.threads) for row in rows):
        mine = [row for row in rows if (row.layout, row.threads) == (layout, threads) and row.ratio is not None]
        if not mine:
            continue
        worst = min(mine, key=lambda row: row.ratio or 0.0)
        least, mean = BARS[layout]
        average = float(np.exp(np.mean(np.log([row.ratio or 1.0 for row in mine]))))
        name = f"{layout}, {threads} thread{'s' * (threads > 1)}"
        for what, value, wanted, note in (
            (f"least ratio, {name}", float(worst.ratio or 0.0), least, worst.shape),
            (f"geometric mean, {name}", average, mean, f"{len(mine)} shapes"),
        ):
            found.append(
                {"bar": what, "value": value, "wanted": wanted, "unit": "x", "least": True, "met": value >= wanted,
                 "note": note}
            )  # fmt: skip
    return found


def failed(result: Mapping[str, Any]) -> list[str]:
    """What in a result is wrong, rather than slow."""
    return [f"{row['shape']} {row['layout']}: {row['wrong']}" for row in result["rows"] if row["wrong"]]
