"""Other libraries on the same bytes as a problem's, and how each takes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...primitives.errors import ArgumentError
from .. import peers
from .problem import Problem

LIBRARIES = {"torch": ("int_mm", "onednn", "torch_mm"), "ort": ("onnxruntime", "ort_matmul")}
CONVENTIONS = {
    "onednn": "u8 x s8, weights packed ahead, bias and relu inside, result allocated",
    "int_mm": "s8 x s8, no zero point, weights not packed ahead",
    "onnxruntime": "u8 x s8, weights packed ahead, no bias and no relu",
    "torch_mm": "f32, weights not packed ahead",
    "ort_matmul": "f32, weights packed ahead",
}


@dataclass(frozen=True)
class Peer:
    """Ready to be timed."""

    name: str
    call: Callable[[], Any]
    convention: str


def named(words: Sequence[str]) -> tuple[str, ...]:
    """Peers by their own names, or by their library's."""
    found: list[str] = []
    for word in words:
        if word not in LIBRARIES and word not in CONVENTIONS:
            raise ArgumentError(f"there is no peer {word!r}; there is {', '.join([*LIBRARIES, *CONVENTIONS])}")
        found += LIBRARIES.get(word, (word,))
    return tuple(dict.fromkeys(found))


def make(problem: Problem, words: Sequence[str], threads: int) -> tuple[list[Peer], list[str]]:
    """The peers that were asked for, are there, can do this and are right; and why others are not."""
    wanted = named(words)
    if not wanted:
        return [], []
    made, left_out = [], []
    if problem.case is not None:
        case, output = problem.case
        only = tuple(p for p in wanted if p in peers.NEEDS)
        left_out += [f"{p}: {absent} is not installed" for p, absent in peers.missing().items() if p in only]
        for peer in peers.make(case, output, threads, only) if only else []:
            found = peer.check()
            if found:
                left_out.append(f"{found}; left out because it is wrong")
            else:
                made.append(Peer(_shown(peer.name), peer.call, CONVENTIONS[peer.name]))
    elif problem.kernel == "gemm_f32":
        made = _real(problem, wanted, threads)
    else:
        left_out.append(f"no peer here does {problem.kernel}")
    return made, left_out


def _shown(name: str) -> str:
    library = next((lib for lib, names in LIBRARIES.items() if name in names), "")
    return f"{library} {name}"


def _real(problem: Problem, wanted: Sequence[str], threads: int) -> list[Peer]:
    """float32 products: their sums have other orders, so they are compared with a bound."""
    a = problem.inputs["a"]
    b = next(v.data for v in problem.pipe.of_kind("constant").values() if getattr(v.data, "ndim", 0) == 2)
    y = np.empty((a.shape[0], b.shape[1]), np.float32)
    made = []
    if "torch_mm" in wanted and "torch" in peers.versions():
        import torch

        peers.set_threads(threads)
        given = torch.from_numpy(a), torch.from_numpy(np.array(b, order="C"))
        out = torch.from_numpy(y)
        made.append(Peer("torch mm", lambda: torch.mm(*given, out=out), CONVENTIONS["torch_mm"]))
    if "ort_matmul" in wanted and {"onnxruntime", "onnx"} <= peers.versions().keys():
        made.append(Peer("ort MatMul", _matmul(a, b, y, threads), CONVENTIONS["ort_matmul"]))
    bound = 2.0 * a.shape[1] * np.finfo(np.float32).eps * (np.abs(a) @ np.abs(b)) + 1e-6
    right = problem.reference[0]["y"]
    good = []
    for peer in made:
        peer.call()
        if (np.abs(y - right) <= bound).all():
            good.append(peer)
    return good


def _matmul(a: Any, b: Any, y: Any, threads: int) -> Callable[[], Any]:
    from onnx import TensorProto, helper

    kind = TensorProto.FLOAT
    weights = helper.make_tensor("b", kind, list(b.shape), np.ascontiguousarray(b).tobytes(), raw=True)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["a", "b"], ["y"])],
        "matmul",
        [helper.make_tensor_value_info("a", kind, list(a.shape))],
        [helper.make_tensor_value_info("y", kind, list(y.shape))],
        [weights],
    )
    return peers.bind(peers.session(graph, threads), {"a": a}, {"y": y})
