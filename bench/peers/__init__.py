"""How each peer is called: on the same bytes, weights packed ahead where it can, results in memory made ahead where it can.

onednn        torch.ops.onednn.qlinear_pointwise, weights prepacked, bias and relu inside; torch allocates the result.
              A call through torch.ops costs 16 to 20 us of dispatch: below 100 us of work that is most of what shows.
int_mm        torch._int_mm into a given result; it reads A's bytes as s8 and has no zero point and no packed form
onnxruntime   MatMulInteger and QLinearMatMul with the model's weights as initializers (which it packs), inputs and
              outputs bound ahead; neither has a bias or a relu
"""

from __future__ import annotations

import importlib
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ...primitives.errors import Unsupported
from ..cases import Case

Array = np.ndarray[Any, Any]

NEEDS = {"onednn": ("torch",), "int_mm": ("torch",), "onnxruntime": ("onnxruntime", "onnx")}
REQUIRE = "TILEWORK_REQUIRE_PEERS"
DISPATCHED = ("onednn",)  # reached through torch.ops
DISPATCH_SHOWS = 100e-6  # seconds below which a figure of those says little
A_SCALE, Y_SCALE = 0.02, 0.3  # any: only their quotient with the weights' scale reaches the codes


@dataclass(frozen=True)
class Peer:
    """A peer ready to be timed: `call` computes, `result` is what the last call left, `expected` what it should be."""

    name: str
    call: Callable[[], Any]
    result: Callable[[], Array]
    expected: Array
    exact: bool

    def check(self) -> str:
        """What is wrong with its result; empty if nothing is. A peer that rounds elsewhere may be off by one code."""
        self.call()
        off = np.abs(self.result().astype(np.int64) - self.expected)
        most = int(off.max(initial=0))
        return "" if most <= (0 if self.exact else 1) else f"{self.name} is off by up to {most}"


def missing() -> dict[str, str]:
    """{peer: the distributions it lacks}. Raises Unsupported if TILEWORK_REQUIRE_PEERS asks for all."""
    lacking = {}
    for peer, modules in NEEDS.items():
        absent = [m for m in modules if not _present(m)]
        if absent:
            lacking[peer] = ", ".join(absent)
    if lacking and os.environ.get(REQUIRE, "") not in ("", "0"):
        absent = sorted({m for text in lacking.values() for m in text.split(", ")})
        raise Unsupported(f"{REQUIRE} is set but {', '.join(absent)} cannot be imported: pip install 'tilework[peers]'")
    return lacking


def versions() -> dict[str, str]:
    """Versions of the peers that are there."""
    names = sorted({m for modules in NEEDS.values() for m in modules})
    return {m: importlib.import_module(m).__version__ for m in names if _present(m)}


def make(case: Case, output: str, threads: int, only: tuple[str, ...] = ()) -> list[Peer]:
    """The peers that are there and can do this case, each on `threads` threads."""
    lacking = missing()
    wanted = [p for p in NEEDS if p not in lacking and (not only or p in only)]
    made = []
    with _quietly():
        for name in wanted:
            peer = _MAKERS[name](case, output, threads)
            if peer is not None:
                made.append(peer)
    return made


def set_threads(threads: int) -> None:
    """How many threads the peers may use that have one setting for the process."""
    if _present("torch"):
        import torch

        torch.set_num_threads(threads)


def _present(module: str) -> bool:
    with _quietly():
        try:
            importlib.import_module(module)
        except ImportError:
            return False
    return True


@contextmanager
def _quietly() -> Iterator[None]:
    """Other libraries' warnings are none of ours."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _onednn(case: Case, output: str, threads: int) -> Peer | None:
    if output != "u8":
        return None
    import torch

    N = case.shape.N
    set_threads(threads)
    weights = torch.ops.onednn.qlinear_prepack(torch.from_numpy(np.ascontiguousarray(case.b.T)), list(case.a.shape))
    scales = case.multiplier.astype(np.float64) * Y_SCALE / A_SCALE
    bias = torch.from_numpy((case.bias * scales * A_SCALE).astype(np.float32))
    call = partial(
        torch.ops.onednn.qlinear_pointwise.default,
        torch.from_numpy(case.a),
        A_SCALE,
        case.a_zero_point,
        weights,
        torch.from_numpy(scales.astype(np.float32)),
        torch.zeros(N, dtype=torch.int32),
        bias,
        Y_SCALE,
        case.y_zero_point,
        torch.uint8,
        "relu",
        [],
        "",
    )
    return Peer("onednn", call, lambda: call().numpy(), case.codes(case.sums), exact=False)


def _int_mm(case: Case, output: str, threads: int) -> Peer | None:
    if output != "s32":
        return None
    import torch

    set_threads(threads)
    signed = case.a.view(np.int8)
    out = torch.zeros((case.shape.M, case.shape.N), dtype=torch.int32)
    call = partial(torch._int_mm, torch.from_numpy(signed), torch.from_numpy(case.b), out=out)
    try:
        call()
    except RuntimeError:  # it does not take every shape
        return None
    return Peer("int_mm", call, out.numpy, case.sums_of(signed, 0), exact=True)


def _onnxruntime(case: Case, output: str, threads: int) -> Peer | None:
    from onnx import TensorProto, helper

    M, K, N = case.shape.M, case.shape.K, case.shape.N

    def scalar(name: str, kind: int, value: float) -> Any:
        return helper.make_tensor(name, kind, [], [value])

    weights = helper.make_tensor("b", TensorProto.INT8, [K, N], case.b.tobytes(), raw=True)
    inputs = [helper.make_tensor_value_info("a", TensorProto.UINT8, [M, K])]
    constants = [weights, scalar("az", TensorProto.UINT8, case.a_zero_point)]
    if output == "s32":
        node = helper.make_node("MatMulInteger", ["a", "b", "az"], ["y"])
        kind, expected = TensorProto.INT32, case.sums
    else:
        node = helper.make_node("QLinearMatMul", ["a", "as", "az", "b", "bs", "bz", "ys", "yz"], ["y"])
        kind, expected = TensorProto.UINT8, case.codes(case.sums, bias=False, relu=False)
        scales = (case.multiplier.astype(np.float64) * Y_SCALE / A_SCALE).astype(np.float32)
        constants += [
            scalar("as", TensorProto.FLOAT, A_SCALE),
            helper.make_tensor("bs", TensorProto.FLOAT, [N], scales),
            helper.make_tensor("bz", TensorProto.INT8, [N], [0] * N),
            scalar("ys", TensorProto.FLOAT, Y_SCALE),
            scalar("yz", TensorProto.UINT8, case.y_zero_point),
        ]
    outputs = [helper.make_tensor_value_info("y", kind, [M, N])]
    made = session(helper.make_graph([node], "gemm", inputs, outputs, constants), threads)
    result = case.empty(output)
    return Peer(
        "onnxruntime", bind(made, {"a": case.a}, {"y": result}), lambda: result, expected, exact=output == "s32"
    )


def session(graph: Any, threads: int) -> Any:
    """An ONNX Runtime session over a graph, on so many threads."""
    import onnxruntime
    from onnx import helper

    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def bind(session: Any, inputs: dict[str, Array], outputs: dict[str, Array]) -> Callable[[], Any]:
    """A call of an ONNX Runtime session with everything bound ahead: the cheapest that its Python interface offers."""
    import onnxruntime

    binding = session.io_binding()
    values = {n: onnxruntime.OrtValue.ortvalue_from_numpy(x) for n, x in inputs.items()}
    results = {n: onnxruntime.OrtValue.ortvalue_from_numpy(y) for n, y in outputs.items()}
    for name, value in values.items():
        binding.bind_ortvalue_input(name, value)
    for name, value in results.items():
        binding.bind_ortvalue_output(name, value)
    call = partial(session.run_with_iobinding, binding)
    call.keep = values, results, inputs, outputs  # type: ignore[attr-defined]
    return call


_MAKERS = {"onednn": _onednn, "int_mm": _int_mm, "onnxruntime": _onnxruntime}
