"""Pipelines that the executor is measured with, and the same for ONNX Runtime and oneDNN (through torch)."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from ... import ops
from ...primitives.pipeline import Pipeline

Array = np.ndarray[Any, Any]
f32 = np.float32
NETWORKS = {"64-128-64-10": (64, 128, 64, 10), "20 layers of 64": (64,) * 21}
SCALE, POINT = 0.02, 128


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


def onednn_block(layers: list[Array], user: bool, threads: int) -> Callable[[Array], Array]:
    """The same for oneDNN, weights prepacked: relu and quantization inside; a user's activation in torch's own steps."""
    import torch

    from . import set_threads

    set_threads(threads)
    linear = torch.ops.onednn.qlinear_pointwise.default
    packed = [
        torch.ops.onednn.qlinear_prepack(torch.from_numpy(np.ascontiguousarray(w.T)), [1024, w.shape[0]])
        for w in layers
    ]
    zeros = [torch.zeros(w.shape[1], dtype=torch.int32) for w in layers]
    up = torch.full((layers[0].shape[1],), 1e-4 if user else 1e-4 / SCALE)
    down = torch.full((layers[1].shape[1],), 1e-4)

    def run(x: Array) -> Array:
        t = torch.from_numpy(x)
        if user:
            real = linear(t, 1.0, POINT, packed[0], up, zeros[0], None, 1.0, 0, torch.float32, "none", [], "")
            active = torch.nn.functional.leaky_relu(real, 0.125)
            h, point = torch.quantize_per_tensor(active, SCALE, 100, torch.quint8).int_repr(), 100
        else:
            h, point = linear(t, 1.0, POINT, packed[0], up, zeros[0], None, 1.0, 0, torch.uint8, "relu", [], ""), 0
        y = linear(h, 1.0, point, packed[1], down, zeros[1], None, 1.0, POINT, torch.uint8, "none", [], "")
        # SCALE for both and for the sum: codes add up
        total = y.to(torch.int16) + t.to(torch.int16) - POINT
        return np.asarray(total.clamp(0, 255).to(torch.uint8).numpy())

    return run


def transformer(tokens: int = 128, width: int = 384, heads: int = 6, hidden: int = 1536) -> Pipeline:
    """A transformer block with quantized products: norm, attention, residual, norm, MLP with relu, residual."""
    rng = np.random.default_rng(0)
    each = width // heads

    def dense(h: Any, k: int, n: int, dtype: str) -> Any:
        w = rng.integers(-127, 128, (k, n), dtype=np.int8)
        return ops.requantize(ops.gemm(h, w, a_zero_point=POINT), multiplier=f32(2e-4), dtype=dtype)

    def real(h: Any, k: int, n: int, zero_point: int) -> Any:
        w = rng.integers(-127, 128, (k, n), dtype=np.int8)
        return ops.dequantize(ops.gemm(h, w, a_zero_point=zero_point) if zero_point else ops.gemm(h, w), f32(1e-4))

    pipe = Pipeline("transformer block")
    x = pipe.input("x", "f32", (tokens, width))
    ones, zeros = np.ones(width, f32), np.zeros(width, f32)
    h = ops.quantize(ops.layer_norm(x, ones, zeros), f32(0.03), zero_point=POINT, dtype="u8")
    q, k, v = (
        ops.transpose(ops.reshape(dense(h, width, width, "s8"), (tokens, heads, each)), order)
        for order in ((1, 0, 2), (1, 2, 0), (1, 0, 2))
    )
    scores = ops.softmax(ops.dequantize(ops.gemm(q, k), f32(1e-3)))
    weighted = ops.gemm(ops.quantize(scores, f32(1 / 255), dtype="u8"), v)
    joined = ops.transpose(ops.requantize(weighted, multiplier=f32(1e-2), zero_point=POINT, dtype="u8"), (1, 0, 2))
    x = ops.add(real(ops.reshape(joined, (tokens, width)), width, width, POINT), x)
    h = ops.quantize(ops.layer_norm(x, ones, zeros), f32(0.03), zero_point=POINT, dtype="u8")
    pipe.output("y", ops.add(real(dense(h, width, hidden, "u8"), hidden, width, 0), x))
    return pipe
