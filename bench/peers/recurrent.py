"""LSTM and GRU layers over a sequence of 100 steps against ONNX Runtime, in float32 and on codes; checked first.

ONNX Runtime has a quantized LSTM (DynamicQuantizeLSTM) and no quantized GRU, so a GRU on codes stands beside its float
GRU and beside the quantized LSTM of the same width. Weights of the peers are packed when their session is made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...executors import TilingExecutor
from ...frontends.onnx import load
from ...primitives.pipeline import Pipeline
from ..timing import paired
from . import _present, bind, session

Array = np.ndarray[Any, Any]
WIDTHS, STEPS = (128, 256, 512), 100
GATES = {"LSTM": 4, "GRU": 3}
F32 = np.float32


def measure(threads: tuple[int, ...], widths: tuple[int, ...], batch: int, rounds: int) -> list[dict[str, Any]]:
    """One record for each layer, type, width and number of threads."""
    if not (_present("onnx") and _present("onnxruntime")):
        return []
    return [
        _measure(cell, codes, width, batch, n, rounds)
        for n in threads
        for cell in GATES
        for codes in (False, True)
        for width in widths
    ]


def graph(cell: str, codes: bool, width: int, batch: int) -> Any:
    """A layer as an ONNX graph: float, or DynamicQuantizeLSTM with symmetric codes of one scale a column."""
    from onnx import TensorProto, helper, numpy_helper

    rng, gates = np.random.default_rng(0), GATES[cell]
    w, r = ((rng.standard_normal((1, gates * width, width)) / np.sqrt(width)).astype(F32) for _ in range(2))
    constants = {"bias": (rng.standard_normal((1, 2 * gates * width)) * 0.1).astype(F32)}
    names = ["x", "w", "r", "bias"]
    if codes:
        names += [""] * 4
        for name, array in (("w", w), ("r", r)):
            scale = np.abs(array).max(2) / F32(127)
            quantized = np.rint(array / scale[..., None]).astype(np.int8).transpose(0, 2, 1)
            constants |= {name: quantized, f"{name}_scale": scale, f"{name}_zero": np.zeros(scale.shape, np.int8)}
            names += [f"{name}_scale", f"{name}_zero"]
    else:
        constants |= {"w": w, "r": r}
    node = helper.make_node(
        "DynamicQuantizeLSTM" if codes else cell,
        names,
        ["y"],
        domain="com.microsoft" if codes else "",
        hidden_size=width,
        **({"linear_before_reset": 1} if cell == "GRU" else {}),
    )
    held = [numpy_helper.from_array(np.ascontiguousarray(a), n) for n, a in constants.items()]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [STEPS, batch, width])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [STEPS, 1, batch, width])
    return helper.make_graph([node], "layer", [x], [y], held)


def _loaded(drawn: Any) -> Pipeline:
    from onnx import helper

    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return load(helper.make_model(drawn, opset_imports=opsets, ir_version=10))


def _coded_gru(width: int, batch: int) -> Pipeline:
    """The GRU of `graph` on codes."""
    from onnx import numpy_helper

    from ...kernels import ops

    held = {t.name: numpy_helper.to_array(t)[0] for t in graph("GRU", False, width, batch).initializer}
    scales = {n: np.abs(held[n]).max(1) / F32(127) for n in ("w", "r")}
    codes = {n: np.rint(held[n] / s[:, None]).astype(np.int8) for n, s in scales.items()}
    pipe = Pipeline("gru")
    x = pipe.input("x", "f32", (STEPS, batch, width))
    y, _ = ops.gru(x, codes["w"], codes["r"], held["bias"], scales=(scales["w"], scales["r"]), linear_before_reset=True)
    pipe.output("y", ops.unsqueeze(y, [1]))
    return pipe


def _measure(cell: str, codes: bool, width: int, batch: int, threads: int, rounds: int) -> dict[str, Any]:
    x = np.random.default_rng(1).standard_normal((STEPS, batch, width)).astype(F32)
    y = np.zeros((STEPS, 1, batch, width), F32)
    pipe = _coded_gru(width, batch) if codes and cell == "GRU" else _loaded(graph(cell, codes, width, batch))
    plan = TilingExecutor(threads=threads).compile(pipe)
    calls: dict[str, Callable[[], Any]] = {"ours": plan.bind({"x": x}, {"y": y})}
    peers = {"float": (cell, False), "codes": ("LSTM", True)}
    results = {name: np.zeros_like(y) for name in peers}
    for name, (other, coded) in peers.items():
        made = session(graph(other, coded, width, batch), threads)
        calls[name] = bind(made, {"x": x}, {"y": results[name]})
    for call in calls.values():
        call()
    same = "codes" if codes and cell == "LSTM" else "float"
    off = float(np.abs(results[same] - y).max())
    times = paired(calls, rounds, block=0.02, pause=threads > 1)
    return {
        "layer": cell,
        "type": "int8" if codes else "f32",
        "width": width,
        "threads": threads,
        "ours us": times.median("ours") * 1e6,
        "of float": times.ratio("ours", "float").median,
        "of codes": times.ratio("ours", "codes").median,
        "off": off,
        "wrong": "" if off < (1e-4 if not codes else 0.1 if cell == "GRU" else 0.02) else f"off by {off:.3g}",
    }


def show(records: list[dict[str, Any]]) -> None:
    """A table of them."""
    if not records:
        print("onnx and onnxruntime are not installed: pip install 'tilework[peers]'")
        return
    print(f"{STEPS} steps         threads       ours   of ONNX Runtime's float   of its DynamicQuantizeLSTM   off by")
    for r in records:
        print(
            f"{r['layer']:4} {r['type']:4} {r['width']:5} {r['threads']:8} {r['ours us']:8.0f}us {r['of float']:20.2f} x "
            f"{r['of codes']:24.2f} x   {r['off']:.1e} {r['wrong']}"
        )
